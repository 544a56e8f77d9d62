// The current clip: its video, its neighbours, doubts about it; and the playing of all small videos.

import { heardOf, videoOf } from "./clips.js";
import { at, clock, counted, element } from "./page.js";

const REACH = 2;

export class Panel {
  #row = null;
  #around = [];

  /** `open` is called with a neighbour that was clicked. */
  constructor(clips, selection, open) {
    this.clips = clips;
    this.selection = selection;
    this.video = at("clip");
    this.video.onclick = () => (this.video.paused ? this.video.play() : this.video.pause());
    this.video.onerror = () => at("gone").hidden = !this.video.hasAttribute("src");
    this.video.onloadeddata = () => this.#loadAround();
    at("around").replaceChildren(...this.#boxes(open));
  }

  /** Shows a clip; null: none is left. */
  show(row) {
    const other = row !== this.#row;
    this.#row = row;
    at("panel").classList.toggle("empty", !row);
    if (!row) return quiet(this.video);
    if (other) {
      at("gone").hidden = true;
      this.video.src = heardOf(row);
      playing(this.video, true);
    }
    const film = this.clips.info.films[row.film];
    at("where").textContent = [`${clock(row.start)} – ${clock(row.end)}`, `scene ${row.scene}`, row.level ? `level ${row.level}` : "", row.camera ? `camera: ${row.camera}` : "", row.quality, row.overlays].filter(Boolean).join(" · ");
    at("film-name").textContent = film;
    at("film-name").title = row.id;
    const reasons = (row.reasons ?? []).map((reason) => `dropped: ${reason}`);
    at("doubts").replaceChildren(...[...reasons, ...(row.doubts ?? [])].map((text) => element("li", { textContent: text, dir: "auto" })));
    at("dialogue").replaceChildren(...(row.dialogue ?? []).map((text) => element("li", { textContent: text, dir: "auto" })));
    at("about").textContent = this.selection.size ? `${counted(this.selection.size, "clip")} selected` : "";
    at("panel").classList.toggle("many", this.selection.size > 0);
    this.#showAround(row, other);
  }

  /** Switches the sound of the clip on or off. */
  listen() {
    this.video.muted = !this.video.muted;
  }

  playOrPause() {
    playing(this.video, Boolean(this.#row));
  }

  #boxes(open) {
    return Array.from({ length: 2 * REACH }, (_, index) => {
      const video = element("video", { muted: true, loop: true, playsInline: true, preload: "auto" });
      const line = element("span", { className: "line", dir: "auto" });
      const box = element("button", { type: "button", className: "neighbour" }, video, line);
      box.onclick = () => open(this.clips.around(this.#row, REACH)[index]);
      box.onpointerenter = box.onfocus = () => playing(video, video.hasAttribute("src"));
      box.onpointerleave = box.onblur = () => video.pause();
      this.#around.push({ box, video, line });
      return box;
    });
  }

  #showAround(row, other) {
    for (const [index, near] of this.clips.around(row, REACH).entries()) {
      const { box, video, line } = this.#around[index];
      box.disabled = !near;
      const step = index < REACH ? index - REACH : index - REACH + 1;
      const when = near && near.scene !== row.scene ? "another scene" : "";
      line.textContent = near ? this.clips.line(near) || when || "no caption" : "";
      box.classList.toggle("cut", Boolean(when));
      box.setAttribute("aria-label", near ? `${Math.abs(step)} ${step < 0 ? "before" : "after"}: ${line.textContent}` : "no clip");
      video.hidden = !near || (other && video.getAttribute("src") !== videoOf(near));
    }
  }

  /** Loads the neighbours once the clip itself is there. */
  #loadAround() {
    for (const [index, near] of this.clips.around(this.#row, REACH).entries()) {
      const { video } = this.#around[index];
      if (!near) quiet(video);
      else if (video.getAttribute("src") !== videoOf(near)) video.src = videoOf(near);
      video.hidden = !near;
    }
  }
}

// Videos play all at once, or none does, as the reviewer wishes or their system asks for less motion.
const still = matchMedia("(prefers-reduced-motion: reduce)");
let running = !still.matches && localStorage.getItem("playing") !== "no";

/** Plays or stops everything from now on; returns the new state. */
export function switchPlaying() {
  running = !running;
  localStorage.setItem("playing", running ? "yes" : "no");
  return running;
}

/** Plays a video if it is in view and videos are to play. */
export function playing(video, inView) {
  if (!inView || !running) return video.pause();
  if (video.paused) {
    video.play().catch((error) => {
      if (!["AbortError", "NotAllowedError", "NotSupportedError"].includes(error.name)) throw error; // another clip came, or its file is gone
    });
  }
}

/** Takes the clip off a video, and ends its request. */
export function quiet(video) {
  if (!video.hasAttribute("src")) return;
  video.removeAttribute("src");
  video.load();
}
