// Decisions on their way to the server's disk. Until a decision is there, it is kept in this browser and shown as not saved.

import { ask, post, RequestError } from "./api.js";
import { FIELD } from "./fields.js";
import { at, counted, element } from "./page.js";
import { Unsaved } from "./unsaved.js";

const MOST_BYTES = 40_000; // the server takes requests of 64 KB
const MOST_CHANGES = 500;
const MOST_UNDONE = 200;
const INVALID = 422; // the status of a decision that can never be saved
const size = new TextEncoder();

export const readReviews = async () => (await ask("api/reviews")).reviews;

/** Resolves with the new standings of the clips when the changes are on the server's disk. */
const save = async (changes) => (await post("api/decisions", { changes })).reviews;

/** Queue of changes that are sent in order, a request at a time, and the actions that can be undone. */
export class Saving {
  #queue = [];
  #sending = false;
  #together = MOST_CHANGES; // 1 after the server refused several: to find the one it refuses
  #undo = [];
  #taken = 0; // number of replies to saved decisions
  #key;
  #unsaved;

  /** `report` is called with {waiting, error} at every step, `changed` with the rows that look different. */
  constructor(clips, report, changed) {
    this.clips = clips;
    this.report = report;
    this.changed = changed;
    this.error = null;
    this.#key = `unsaved ${clips.info.key} ${clips.info.reviewer}`;
    this.#unsaved = new Unsaved(this.#key);
    this.#queue = this.#kept();
    this.#undo = this.#keptUndo();
    if (this.#queue.length) this.#expectAll();
  }

  get waiting() {
    return this.#queue.length;
  }

  /** Shows the changes, and sends them; `undoable` actions can be taken back later. */
  make(changes, name, undoable = true) {
    if (!changes.length) return;
    if (undoable) {
      this.#undo.push({ name, back: changes.map((change) => this.#inverse(change)).reverse(), at: changes[0].clip });
      this.#undo = this.#undo.slice(-MOST_UNDONE);
      this.#keepUndo();
    }
    this.#queue.push(...changes);
    for (const change of changes) this.#unsaved.keep(keyOf(change), { at: Date.now(), change });
    const rows = new Set();
    for (const change of changes) {
      const row = this.clips.get(change.clip);
      this.clips.expect(row, change);
      rows.add(row);
    }
    this.changed([...rows]);
    this.send();
  }

  /** Takes the last action back; returns it, or undefined if there is none. */
  undo() {
    const action = this.#undo.pop();
    this.#keepUndo();
    if (action) this.make(action.back, action.name, false);
    return action;
  }

  /** Sends what waits; called again to retry. */
  async send() {
    if (this.#sending) return;
    this.#sending = true;
    this.error = null;
    try {
      while (this.#queue.length && !this.error) await this.#sendSome();
    } finally {
      this.#sending = false;
      this.report();
    }
  }

  async #sendSome() {
    this.#leaveToOthers();
    const some = this.#next();
    if (!some.length) return;
    this.report();
    try {
      const reviews = await save(some);
      this.#forget(some.length);
      if (!this.#queue.length) this.#together = MOST_CHANGES;
      this.#take(reviews);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (error.status === INVALID && some.length > 1) this.#together = 1;
      else this.error = error;
    }
  }

  /** Gives up the decision that the server refuses, sends the others, and shows what it has. */
  async discard() {
    this.#forget(1);
    await this.send();
    await this.refresh();
  }

  /** Shows what the server has: other reviewers may have written too. */
  async refresh() {
    const before = this.#taken;
    const reviews = await readReviews();
    if (this.#taken !== before) return; // read before a decision that was saved since
    this.clips.replace(reviews);
    this.#expectAll();
    this.changed(null);
  }

  #take(reviews) {
    this.#taken += 1;
    for (const [id, standings] of Object.entries(reviews)) this.clips.set(this.clips.get(id), standings);
    const touched = new Set(Object.keys(reviews));
    for (const change of this.#queue) if (touched.has(change.clip)) this.clips.expect(this.clips.get(change.clip), change);
    this.changed([...touched].map((id) => this.clips.get(id)));
  }

  #expectAll() {
    for (const change of this.#queue) this.clips.expect(this.clips.get(change.clip), change);
  }

  #next() {
    let bytes = 0;
    const fits = this.#queue.findIndex((change, index) => {
      bytes += size.encode(JSON.stringify(change)).length + 1;
      return bytes > MOST_BYTES || index >= this.#together;
    });
    return this.#queue.slice(0, fits === -1 ? undefined : Math.max(1, fits));
  }

  #inverse({ clip, field, settle }) {
    const row = this.clips.get(clip);
    const standing = row.reviews[field];
    const change = settle ? { clip, field, settle } : { clip, field };
    const before = settle
      ? (standing?.by === `settled: ${this.clips.info.reviewer}` ? standing.value : undefined)
      : this.clips.own(row, field);
    return before === undefined ? change : { ...change, value: before };
  }

  /** Forgets changes that another tab has saved, or has replaced by a later one: sent again they would undo it. */
  #leaveToOthers() {
    this.#queue = this.#queue.filter((change) => this.#unsaved.isOurs(keyOf(change)));
  }

  /** Forgets the first changes of the queue. */
  #forget(count) {
    const gone = this.#queue.splice(0, count);
    const waiting = new Set(this.#queue.map(keyOf));
    for (const change of gone) if (!waiting.has(keyOf(change))) this.#unsaved.drop(keyOf(change));
  }

  /** Keeps what can be undone for this tab, so that it outlives a reload. */
  #keepUndo() {
    try {
      sessionStorage.setItem(this.#key, JSON.stringify(this.#undo));
    } catch {
      sessionStorage.removeItem(this.#key); // too much for this browser: undone in this page only
    }
  }

  #keptUndo() {
    try {
      const actions = JSON.parse(sessionStorage.getItem(this.#key) ?? "[]");
      return actions.filter(({ back }) => back.every(({ clip, field }) => this.clips.get(clip) && FIELD.has(field)));
    } catch {
      return []; // written by something else on this address
    }
  }

  /** Changes that closed or other tabs have not saved, in the order made; of those of one field the last. */
  #kept() {
    const kept = this.#unsaved.adopt().sort((one, other) => one.at - other.at);
    return kept.map(({ change }) => change).filter(({ clip, field }) => this.clips.get(clip) && FIELD.has(field));
  }
}

const keyOf = ({ clip, field, settle }) => `${clip} ${field}${settle ? " settled" : ""}`;

export function showProgress(clips) {
  const all = clips.asked.length;
  const bar = at("progress");
  bar.setAttribute("aria-valuemax", all);
  bar.setAttribute("aria-valuenow", clips.reviewed);
  bar.firstElementChild.style.width = `${all ? (100 * clips.reviewed) / all : 0}%`;
  bar.lastElementChild.textContent = `${clips.reviewed.toLocaleString("en")} of ${all.toLocaleString("en")} reviewed`;
}

/** Shows "saved" only if every decision is on the server's disk. */
export function showSaving({ waiting, error }) {
  const saved = at("saved");
  saved.classList.toggle("failed", Boolean(error));
  saved.textContent = error ? `${counted(waiting, "decision")} not saved. ${error.message}` : waiting ? `saving ${waiting.toLocaleString("en")}` : "saved";
  at("retry").hidden = !error;
  at("discard").hidden = !error || error.status !== 422;
}

/** Names the dataset, and the lines of the review file that are not applied. */
export function showNotices(info) {
  at("dataset").textContent = info.name;
  at("task").textContent = `${info.sample ? "audit" : "review"}${info.blind ? ", blind" : ""} by ${info.reviewer}`;
  const counts = Object.entries(info.counts).filter(([, count]) => count).map(([kind, count]) => `${counted(count, "line")} ${kind}`);
  const [summary, list] = at("notices").children;
  at("notices").hidden = counts.length === 0;
  summary.textContent = `${info.file}: ${counts.join(", ")}; not applied`;
  list.replaceChildren(...info.faults.map((text) => element("li", { textContent: text, dir: "auto" })));
}
