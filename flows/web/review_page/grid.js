// The grid of playing clips: only the tiles in view exist, so that 20,000 clips cost no more than forty.

import { hasConflict, isReviewed, videoOf } from "./clips.js";
import { at, clock, element } from "./page.js";
import { playing, quiet } from "./panel.js";

const LEAST_WIDTH = { wide: 176, phone: 150 };
const GAP = 10;
const WORDS_HEIGHT = 54;
const MOST_IN_VIEW = 40; // videos of a grid; browsers stop to play beyond some 75
const ROWS_AROUND = 1;
const MOST_LOADING = 4;
const SETTLE_MS = 90; // a tile asks for its video when scrolling has come to rest

export class Grid {
  #rows = [];
  #places = new Map();
  #tiles = [];
  #columns = 1;
  #width = 0; // of a tile, without the gap
  #height = 0; // of a line of tiles, with the gap
  #viewHeight = 0;
  #current = null;
  #settled = 0;

  /** `choose` is called with the row of a tile that was clicked, and with how. */
  constructor(clips, selection, choose) {
    this.clips = clips;
    this.selection = selection;
    this.choose = choose;
    this.view = at("grid");
    this.view.onscroll = () => this.#scrolled();
    this.#measure();
    new ResizeObserver(() => this.#measure()).observe(this.view);
  }

  get rows() {
    return this.#rows;
  }

  get columns() {
    return this.#columns;
  }

  /** Number of clips that a page of the grid shows. */
  get pageSize() {
    return Math.max(1, Math.floor(this.#viewHeight / this.#height)) * this.#columns;
  }

  /** Shows other clips, from the top. */
  show(rows) {
    this.#rows = rows;
    this.#places = new Map(rows.map((row, place) => [row, place]));
    at("nothing").hidden = rows.length > 0;
    this.view.scrollTop = 0;
    this.#lay();
  }

  place(row) {
    return this.#places.get(row) ?? -1;
  }

  /** Marks the current clip, and brings it into view. */
  focus(row) {
    this.#current = row;
    const place = this.place(row);
    if (place >= 0) {
      const top = Math.floor(place / this.#columns) * this.#height;
      const { scrollTop } = this.view;
      if (top < scrollTop) this.view.scrollTop = top;
      else if (top + this.#height > scrollTop + this.#viewHeight) this.view.scrollTop = top + this.#height - this.#viewHeight;
    }
    this.#draw();
  }

  /** Draws the tiles of these clips again; null: of all. */
  refresh(rows = null) {
    for (const tile of this.#tiles) if (tile.row && (!rows || rows.includes(tile.row))) this.#fill(tile, tile.row);
  }

  /** Plays the clips in view, or stops them. */
  playOrPause() {
    for (const tile of this.#tiles) if (tile.row && !tile.video.hidden) this.#run(tile);
  }

  /** Measures the view, which forces a layout: only when its size has changed. */
  #measure() {
    const { clientWidth, clientHeight } = this.view;
    if (!clientWidth) return;
    const least = clientWidth < 560 ? LEAST_WIDTH.phone : LEAST_WIDTH.wide;
    this.#viewHeight = clientHeight;
    this.#columns = Math.max(1, Math.floor((clientWidth - GAP) / (least + GAP)));
    for (;; this.#columns -= 1) {
      this.#width = (clientWidth - GAP) / this.#columns - GAP;
      this.#height = Math.round((this.#width * 2) / 3) + WORDS_HEIGHT + GAP;
      if (this.#columns === 1 || (Math.ceil(clientHeight / this.#height) + 1) * this.#columns <= MOST_IN_VIEW) break;
    }
    this.#lay();
  }

  #lay() {
    if (!this.#height) return;
    at("tiles").style.height = `${Math.ceil(this.#rows.length / this.#columns) * this.#height + GAP}px`;
    this.#grow((Math.ceil(this.#viewHeight / this.#height) + 1 + 2 * ROWS_AROUND) * this.#columns);
    this.#draw();
    this.#loadSoon();
  }

  #grow(count) {
    while (this.#tiles.length > count) this.#tiles.pop().box.remove();
    while (this.#tiles.length < count) this.#tiles.push(this.#tile());
    for (const tile of this.#tiles) this.#empty(tile);
  }

  #tile() {
    const video = element("video", { muted: true, loop: true, playsInline: true, preload: "auto" });
    const tile = {
      video, row: null, loading: false,
      box: element("div", { className: "tile", role: "option" }),
      line: element("p", { className: "line", dir: "auto" }),
      when: element("span", { className: "when" }),
      marks: element("span", { className: "marks" }),
      pick: element("button", { type: "button", className: "pick", tabIndex: -1, ariaLabel: "Select" }),
    };
    tile.box.append(
      element("div", { className: "picture" }, video, tile.pick, tile.marks), tile.line, tile.when);
    tile.box.onclick = (event) => tile.row && this.choose(tile.row, event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "pick" : "open");
    tile.pick.onclick = (event) => {
      event.stopPropagation();
      if (tile.row) this.choose(tile.row, event.shiftKey ? "range" : "pick");
    };
    video.onloadeddata = () => this.#loaded(tile, false);
    video.onerror = () => this.#loaded(tile, video.hasAttribute("src"));
    video.onemptied = () => {
      tile.loading = video.hasAttribute("src");
      if (!tile.loading) this.#loadMore(); // its request has ended, and others may be waiting for its place
    };
    at("tiles").append(tile.box);
    return tile;
  }

  #scrolled() {
    this.#draw();
    this.#loadSoon();
  }

  #loadSoon() {
    clearTimeout(this.#settled);
    this.#settled = setTimeout(() => this.#load(), SETTLE_MS);
  }

  /** Gives every place near the view a tile. */
  #draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / this.#height) - ROWS_AROUND) * this.#columns;
    const count = this.#tiles.length;
    for (let place = first; place < first + count; place++) {
      const tile = this.#tiles[place % count];
      const row = this.#rows[place] ?? null;
      if (!row) this.#empty(tile);
      else {
        const x = GAP + (place % this.#columns) * (this.#width + GAP);
        const y = GAP + Math.floor(place / this.#columns) * this.#height;
        tile.box.style.transform = `translate(${x}px, ${y}px)`;
        tile.box.style.width = `${this.#width}px`;
        if (tile.row !== row) this.#empty(tile);
        this.#fill(tile, row);
      }
    }
  }

  /** Hides a tile, or the picture of the clip it showed before: loading waits until the view has come to rest. */
  #empty(tile) {
    tile.row = null;
    tile.box.hidden = true;
    tile.box.classList.remove("gone", "current");
    tile.box.removeAttribute("id"); // another tile may show the clip from now on
    delete tile.box.dataset.clip;
    tile.video.hidden = true;
    tile.video.pause();
  }

  #fill(tile, row) {
    const { box } = tile;
    tile.row = row;
    box.hidden = false;
    box.id = `tile-${row.id}`;
    box.dataset.clip = row.id;
    box.ariaSelected = String(this.selection.has(row));
    box.classList.toggle("current", row === this.#current);
    box.classList.toggle("dropped", this.clips.value(row, "keep") === false);
    tile.line.textContent = this.clips.line(row) || (this.clips.info.blind ? "" : "no caption");
    tile.when.textContent = [clock(row.start), row.level ? `level ${row.level}` : ""].filter(Boolean).join(" · ");
    tile.marks.replaceChildren(...marks(row, this.clips).map(([className, text, title]) => element("span", { className, textContent: text, title })));
  }

  /** Asks for the videos of the tiles near the view, a few at a time: the clip that is opened must not wait for them. */
  #load() {
    for (const tile of this.#tiles) {
      const shows = tile.row && tile.video.getAttribute("src") === videoOf(tile.row);
      if (!tile.row || (tile.loading && !shows)) quiet(tile.video); // a clip out of view takes no place from those in view
      else if (shows) {
        tile.video.hidden = false;
        this.#run(tile);
      }
    }
    this.#loadMore();
    if (this.#current) this.view.setAttribute("aria-activedescendant", `tile-${this.#current.id}`);
  }

  #loadMore() {
    const lacking = this.#tiles.filter((tile) => tile.row && tile.video.getAttribute("src") !== videoOf(tile.row));
    const free = MOST_LOADING - this.#tiles.filter(({ loading }) => loading).length;
    lacking.sort((one, other) => this.place(one.row) - this.place(other.row));
    for (const tile of lacking.slice(0, Math.max(0, free))) {
      tile.loading = true;
      tile.video.src = videoOf(tile.row);
      tile.video.hidden = false;
      this.#run(tile);
    }
  }

  #loaded(tile, gone) {
    tile.loading = false;
    tile.box.classList.toggle("gone", gone);
    this.#loadMore();
  }

  #run(tile) {
    const { top, bottom } = tile.box.getBoundingClientRect();
    const view = this.view.getBoundingClientRect();
    playing(tile.video, bottom > view.top && top < view.bottom);
  }
}

function marks(row, clips) {
  const found = [];
  if (hasConflict(row)) found.push(["conflict", "≠", "reviewers differ"]);
  if (clips.value(row, "keep") === false) found.push(["drop", "drop", (row.reasons ?? []).join(", ")]);
  if (row.flags?.length) found.push(["flag", "?", row.flags.join("\n")]);
  if (isReviewed(row)) found.push(["done", "✓", "reviewed"]);
  return found;
}

/** Selected clips: decisions are about all of them, or else about the current one. */
export class Selection {
  #rows = new Set();
  #anchor = null;

  get size() {
    return this.#rows.size;
  }

  get rows() {
    return [...this.#rows];
  }

  has(row) {
    return this.#rows.has(row);
  }

  /** Selects a clip, or takes it out. */
  toggle(row) {
    if (!this.#rows.delete(row)) this.#rows.add(row);
    this.#anchor = row;
  }

  /** Selects all from the clip selected last to this one. */
  reach(rows, row, from) {
    const [start, end] = [rows.indexOf(this.#anchor ?? from), rows.indexOf(row)];
    if (start < 0 || end < 0) return this.toggle(row);
    this.#anchor ??= from;
    for (const one of rows.slice(Math.min(start, end), Math.max(start, end) + 1)) this.#rows.add(one);
  }

  all(rows) {
    this.#rows = new Set(rows);
  }

  clear() {
    this.#rows.clear();
    this.#anchor = null;
  }
}
