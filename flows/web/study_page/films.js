// The films of a game, played together; the instruction of the turn that is on screen.

import { filmOf } from "./api.js";
import { at, element } from "./page.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Films {
  #films = []; // {film, video, figure, values}
  #instructions = [];
  #turn = -1;

  constructor() {
    at("play").addEventListener("click", () => this.switchPlaying());
    at("turn-before").addEventListener("click", () => this.step(-1));
    at("turn-after").addEventListener("click", () => this.step(1));
  }

  /** Shows the films of a game; `choose` is called with the letter of a film that was clicked to be ranked. */
  show(game, choose) {
    this.#films = game.films.map((film) => this.#figure(film, choose, game.criteria.includes("state")));
    at("films").replaceChildren(...this.#films.map(({ figure }) => figure));
    at("films").className = `of-${Math.min(game.films.length, 7)}`;
    this.#instructions = game.instructions.map((text, turn) => {
      const button = element("button", { type: "button", className: "line", dir: "auto", textContent: text });
      button.addEventListener("click", () => this.go(turn));
      return element("li", {}, button);
    });
    at("instructions").replaceChildren(...this.#instructions);
    this.#turn = -1;
    this.#follow();
    if (!still.matches) this.play();
    this.#label();
  }

  /** Writes the place of each film in the order under its letter. */
  mark(places) {
    for (const { film, mark } of this.#films) mark.textContent = places.get(film.letter) ?? "";
  }

  get isPlaying() {
    return this.#films.some(({ video }) => !video.paused);
  }

  switchPlaying() {
    if (this.isPlaying) for (const { video } of this.#films) video.pause();
    else this.play();
    this.#label();
  }

  play() {
    if (this.#films.every(({ video }) => video.ended)) for (const { video } of this.#films) video.currentTime = 0;
    for (const { video } of this.#films) if (!video.ended) video.play().catch(() => this.#label()); // the browser may want a click first
  }

  /** Shows a film alone and large, or all again. */
  alone(letter) {
    const chosen = this.#films.find(({ film }) => film.letter === letter);
    if (!chosen) return;
    const single = at("films").classList.toggle("alone", !chosen.figure.classList.contains("large"));
    for (const one of this.#films) {
      one.figure.classList.toggle("large", single && one === chosen);
      one.enlarge.setAttribute("aria-pressed", String(single && one === chosen));
    }
  }

  step(by) {
    this.go(Math.min(Math.max(this.#turn + by, 0), this.#instructions.length - 1));
  }

  /** Goes to the start of a turn in all films. */
  go(turn) {
    for (const { film, video } of this.#films) video.currentTime = film.starts[turn] + 0.01; // not the frame before
    this.#showTurn(turn);
  }

  #figure(film, choose, withValues) {
    const video = element("video", { muted: true, playsInline: true, preload: "auto", src: filmOf(film), "aria-label": `Film ${film.letter}` });
    const mark = element("span", { className: "place" });
    const letter = element("button", { type: "button", className: "letter", "aria-label": `Rank film ${film.letter} next` }, element("b", { textContent: film.letter }), mark);
    const enlarge = element("button", { type: "button", className: "enlarge quiet", textContent: "⤢", "aria-label": `Film ${film.letter} alone`, "aria-pressed": "false" });
    const values = element("p", { className: "values", hidden: !withValues });
    letter.addEventListener("click", () => choose(film.letter));
    enlarge.addEventListener("click", () => this.alone(film.letter));
    video.addEventListener("click", () => this.switchPlaying());
    video.addEventListener("timeupdate", () => this.#follow());
    video.addEventListener("ended", () => this.#ended());
    for (const event of ["play", "pause"]) video.addEventListener(event, () => this.#label());
    const figure = element("figure", {}, video, element("figcaption", {}, letter, values, enlarge));
    video.addEventListener("error", () => figure.classList.add("gone"));
    return { film, video, figure, values, mark, enlarge };
  }

  #ended() {
    if (this.#films.every(({ video }) => video.ended)) this.play();
  }

  #follow() {
    const [first] = this.#films;
    if (first && !first.video.seeking) this.#showTurn(turnAt(first.film, first.video.currentTime));
  }

  #showTurn(turn) {
    if (turn === this.#turn) return;
    this.#turn = turn;
    this.#instructions.forEach((line, number) => line.toggleAttribute("aria-current", number === turn));
    at("turn").textContent = `Turn ${turn + 1} of ${this.#instructions.length}`;
    at("now").textContent = this.#instructions[turn].textContent;
    for (const { film, values } of this.#films) values.textContent = valuesText(film.states[turn]);
  }

  #label() {
    at("play").textContent = this.isPlaying ? "Pause" : "Play";
  }
}

const turnAt = (film, seconds) => Math.max(0, film.starts.findLastIndex((start) => start <= seconds));

const SIGNED = (change) => (change > 0 ? `+${change}` : change < 0 ? `−${-change}` : "0");
const valuesText = (state) =>
  state ? Object.entries(state).map(([name, change]) => `${name} ${SIGNED(change)}`).join(", ") : "";
