// The shot on the screen, the leader that counts while the next one is drawn, and the character's three bars.

import { earlyOf, posterOf, videoOf } from "./game.js";
import { at, counted } from "./page.js";
import { about, signed, told } from "./words.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Screen {
  #shown = "";

  constructor() {
    this.video = at("shot");
    this.video.onplay = this.video.onpause = () => this.#label();
    at("early").onload = () => this.#showEarly(at("leader").hidden === false);
    at("pause").onclick = () => (this.video.paused ? this.video.play() : this.video.pause());
  }

  /** Shows a turn, or the title card if there is none. */
  show(game, turn, number) {
    for (const id of ["shot", "pause", "edge", "subtitle"]) at(id).hidden = !turn;
    at("card").hidden = Boolean(turn);
    if (!turn) {
      this.video.removeAttribute("src");
      this.#shown = "";
      return;
    }
    at("subtitle").textContent = told(turn.instruction);
    at("number").textContent = `turn ${number}`;
    at("waited").textContent = turn.first_frame_seconds === null ? "" : `first frame ${turn.first_frame_seconds.toFixed(1)} s`;
    at("motion").setAttribute("aria-label", `Motion level ${turn.level} of 5`);
    at("motion").dataset.level = turn.level;
    if (this.#shown === `${game}/${turn.id}`) return;
    this.#shown = `${game}/${turn.id}`;
    this.video.loop = true;
    this.video.poster = posterOf(game, turn.id);
    this.video.src = videoOf(game, turn.id);
    this.video.setAttribute("aria-label", told(turn.instruction));
    this.#label();
  }

  /** Plays the film of a game once, in place of a shot. */
  showFilm(source) {
    this.#shown = "";
    this.video.loop = false;
    this.video.removeAttribute("poster");
    this.video.src = source;
    at("edge").hidden = at("takes").hidden = true;
    at("subtitle").textContent = "The film of your game";
    this.video.setAttribute("aria-label", "The film of your game");
    return this.video.play();
  }

  /** Plays the shot from its start, unless the player asked their system for less motion. */
  play() {
    if (this.video.hidden || still.matches) return;
    this.video.play().catch((error) => {
      if (error.name !== "AbortError" && error.name !== "NotAllowedError") throw error; // another shot came, or a tap is needed
    });
  }

  /** Shows how far the next shot is, and its first frames while the others are decoded; null takes both away. */
  draw(game, drawing) {
    at("leader").hidden = !drawing;
    if (!drawing?.early) this.#showEarly(false);
    else if (!at("early").hasAttribute("src") && !still.matches) at("early").src = earlyOf(game);
    document.body.classList.toggle("drawing", Boolean(drawing));
    if (!drawing || drawing.status === "silent") {
      if (drawing) at("left").textContent = "the server does not answer; trying again";
      return;
    }
    const percent = Math.floor(100 * drawing.share);
    at("sweep").style.setProperty("--turned", `${3.6 * percent}deg`);
    at("sweep").setAttribute("aria-valuenow", percent);
    at("percent").textContent = drawing.status === "waiting" ? drawing.before : percent;
    at("percent").dataset.unit = drawing.status === "waiting" ? "" : "%";
    at("part").textContent = drawing.status === "waiting" ? "Waiting for the screen" : PARTS[drawing.part] ?? drawing.part;
    at("left").textContent = left(drawing);
  }

  #showEarly(shown) {
    at("early").hidden = !shown;
    document.body.classList.toggle("early", shown);
    if (!shown) at("early").removeAttribute("src");
  }

  #label() {
    const paused = this.video.paused;
    at("pause").setAttribute("aria-label", paused ? "Play the shot" : "Pause the shot");
    at("pause").classList.toggle("paused", paused);
  }
}

const PARTS = {
  "": "Getting ready",
  "game model": "Imagining what happens",
  denoising: "Drawing the shot",
  frames: "Developing the film",
};

function left(drawing) {
  if (drawing.status === "waiting")
    return drawing.before ? `${counted(drawing.before, "other turn")} before yours` : "yours is next";
  return drawing.left_seconds === null ? "" : `${about(drawing.left_seconds)} left`;
}

/** Moves the bars to the values, and shows by how much the turn changed them. */
export function showValues(values, changes) {
  for (const row of document.querySelectorAll(".value")) {
    const value = values[row.dataset.value];
    const by = changes[row.dataset.value] ?? 0;
    const meter = row.querySelector("[role=meter]");
    meter.setAttribute("aria-valuenow", value);
    meter.setAttribute("aria-valuetext", by ? `${value} of 100, ${by > 0 ? "plus" : "minus"} ${Math.abs(by)}` : `${value} of 100`);
    meter.firstElementChild.style.width = `${value}%`;
    row.querySelector("b").textContent = value;
    const change = row.querySelector(".change");
    change.textContent = by ? signed(by) : "";
    change.dataset.way = by > 0 ? "up" : "down";
  }
}
