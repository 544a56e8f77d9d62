// The rows on the screen: a window of them around the current one, its pictures, marks, and the field for a name.

import { completed } from "./completion.js";
import { at, clock, counted, element } from "./page.js";

const ROWS = 40; // rows in the document at once
const HEIGHT = 60; // of a picture, in pixels
const LARGE = 96; // of a picture of the current row
const LABEL = 220; // width of the label and the gaps beside it
const MOST = 600; // pictures of an unfolded row

export class Strip {
  rows = [];
  picked = null; // the row that waits to be merged
  #place = 0;
  #picture = 0;
  #marked = new Set();
  #unfolded = false;

  constructor(info) {
    this.info = info;
  }

  get row() {
    return this.rows[this.#place];
  }

  /** Shows rows. Open ones keep their order; the next one comes under the cursor, and so does one that opens again. */
  show(rows) {
    const before = new Set(this.row?.figures), at = this.#at();
    const wasOpen = this.row?.open ?? true;
    const places = new Map(this.rows.flatMap((row, place) => (row.open ? row.figures.map((figure) => [figure, place]) : [])));
    const order = new Map(rows.map((row) => [row, row.open ? places.get(row.figures[0]) ?? this.#place : Infinity]));
    this.rows = [...rows].sort((one, other) => order.get(one) - order.get(other) || 0); // nothing, if both are done
    const open = rows.filter((row) => row.open).length;
    const next = this.rows.findIndex((row) => row.open && order.get(row) >= this.#place);
    const last = (wasOpen && open ? open : rows.length) - 1;
    this.#place = wasOpen && next >= 0 ? next : Math.max(0, Math.min(this.#place, last));
    this.#leave(this.row?.figures.some((figure) => before.has(figure)), at);
  }

  /** Goes to another row. */
  move(by) {
    const to = Math.max(0, Math.min(this.rows.length - 1, this.#place + by));
    if (to === this.#place) return;
    this.#place = to;
    this.#leave();
  }

  /** Goes to another picture of the row. */
  along(by) {
    if (!this.row) return;
    const shown = this.#shown(this.row, true);
    this.#picture = Math.max(0, Math.min(shown.length - 1, this.#picture + by));
    this.#draw();
  }

  mark() {
    if (!this.row) return;
    const shown = this.#shown(this.row, true);
    const place = shown[this.#picture];
    if (!this.#marked.delete(place)) this.#marked.add(place);
    this.along(1);
  }

  marked() {
    return [...this.#marked];
  }

  /** Picks the row for a merge, and returns the one that was picked before, if it is another. */
  pick() {
    if (!this.row) return null;
    const before = this.picked;
    this.picked = before === null ? this.row : null;
    this.#draw();
    return before && before !== this.row ? before : null;
  }

  unfold() {
    this.#unfolded = !this.#unfolded;
    this.#picture = 0;
    this.#draw();
  }

  release() {
    this.#marked.clear();
    this.picked = null;
    this.#draw();
  }

  /** Opens the field for names of the row; `done` gets them, none if it was left. */
  edit(known, done) {
    const input = element("input", { id: "name", type: "text", placeholder: "name", ariaLabel: "Name", spellcheck: false, maxLength: 400 });
    const last = (text) => text.split(",").at(-1);
    const take = (word) => input.value = [...input.value.split(",").slice(0, -1).map((part) => part.trim()), word].join(", ");
    const list = completed(input, () => known, take, last);
    const close = (names) => {
      input.onblur = null;
      input.remove();
      this.#draw();
      at("rows").focus();
      done(names);
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      close(event.key === "Enter" ? input.value.split(",").map((part) => part.trim()).filter(Boolean) : []);
    });
    input.onblur = () => close([]);
    document.querySelector(".current .label").append(input, list);
    input.focus();
  }

  /** Ends what was begun on a row; if some of it is left, its marks and its pictures stay. */
  #leave(isLeft = false, at = null) {
    this.#unfolded &&= isLeft;
    this.#picture = isLeft ? Math.max(0, this.#shown(this.row, true).findIndex((figure) => figure >= at)) : 0;
    this.#marked = new Set(isLeft ? this.row.figures.filter((place) => this.#marked.has(place)) : []);
    if (this.picked && !this.rows.includes(this.picked)) this.picked = null;
    this.#draw();
  }

  /** Pictures of a row on the screen: all, or as many as fit, evenly in time. */
  #shown({ figures }, isCurrent) {
    const width = figures.reduce((sum, place) => sum + this.#width(place, isCurrent ? LARGE : HEIGHT) + 4, 0) / figures.length;
    const most = isCurrent && this.#unfolded ? MOST : Math.max(3, Math.floor((at("rows").clientWidth - LABEL) / width));
    return figures.length <= most ? figures : Array.from({ length: most }, (_, index) => figures[Math.floor((index * figures.length) / most)]);
  }

  #draw() {
    if (document.getElementById("name")) return; // it would take the field away under the fingers
    const first = Math.max(0, Math.min(this.#place - ROWS / 2, this.rows.length - ROWS));
    const shown = this.rows.slice(first, first + ROWS);
    at("rows").replaceChildren(...shown.map((row) => this.#drawn(row, row === this.row)));
    document.querySelector(".at, .current")?.scrollIntoView({ block: "nearest" });
    document.querySelector(".current")?.scrollIntoView({ block: "nearest" });
    this.#where();
  }

  #drawn(row, isCurrent) {
    const pictures = this.#shown(row, isCurrent).map((place, index) => this.#drawnPicture(place, isCurrent && index === this.#picture));
    const label = element("div", { className: "label" }, ...this.#label(row, pictures.length));
    const strip = element("div", { className: "pictures" }, ...pictures);
    const classes = ["row", row.open ? "open" : "done", isCurrent ? "current" : "", isCurrent && this.#unfolded ? "unfolded" : "", row === this.picked ? "picked" : ""];
    return element("section", { className: classes.join(" ").trim() }, label, strip);
  }

  #label(row, shown) {
    const what = { name: row.names.join(", ") || "nobody of the cast", discard: "discarded" }[row.does];
    const proposed = row.proposal ? `${row.proposal.join(", ") || "nobody"}?` : "who?";
    const lines = [element("b", { textContent: what ?? proposed, dir: "auto" })];
    if (row.proposal) lines.push(element("small", { className: row.near ? "near" : "doubtful", textContent: `${row.near ? "near" : "doubtful"}, ${row.likeness.toFixed(2)}` }));
    const hidden = row.figures.length - shown;
    lines.push(element("small", { textContent: counted(row.figures.length, this.info.what) + (hidden ? `, ${shown} shown` : "") }));
    return lines;
  }

  #width(place, height) {
    return Math.round(Math.min(2, Math.max(0.4, this.info.figures[place][2])) * height);
  }

  #drawnPicture(place, isAt) {
    const picture = element("img", { src: `api/figures/${place}.jpg?${this.info.mark}`, alt: "", loading: "lazy", width: this.#width(place, LARGE), height: LARGE });
    return element("span", { className: `${isAt ? "at" : ""} ${this.#marked.has(place) ? "marked" : ""}`.trim() }, picture);
  }

  /** The picture under the cursor. */
  #at() {
    return this.row && this.#shown(this.row, true)[this.#picture];
  }

  #where() {
    const place = this.#at();
    const [film, seconds] = place === undefined ? ["", 0] : this.info.figures[place];
    const open = this.rows.filter((row) => row.open).length;
    at("where").textContent = place === undefined ? "no figures" : `row ${this.#place + 1} of ${this.rows.length}, ${open} open · ${this.info.films[film]} ${clock(seconds)}${this.#marked.size ? ` · ${this.#marked.size} marked` : ""}`;
  }
}
