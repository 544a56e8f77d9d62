// Clips under review: the machine's values, the standings of reviewers, and what is known from both.

import { FIELDS, textOf } from "./fields.js";

/** All clips of the dataset by id, in time order. */
export class Clips {
  #used = new Map(); // values in use, until the next change
  #ordered = new Map();

  constructor(info, rows, reviews) {
    this.info = info;
    this.rows = rows;
    this.alike = null; // likeness by the id of a clip, while clips like another one are searched
    this.byId = new Map(rows.map((row, index) => [row.id, Object.assign(row, { index, machine: row.machine ?? {} })]));
    this.asked = rows.filter((row) => row.place !== null);
    this.replace(reviews);
  }

  get(id) {
    return this.byId.get(id);
  }

  /** Takes over the standings of all clips. */
  replace(reviews) {
    this.reviewed = 0;
    for (const row of this.rows) this.set(row, reviews[row.id] ?? {});
  }

  /** Takes over the standings of one clip. */
  set(row, standings) {
    const before = row.reviews ? isReviewed(row) : false;
    row.reviews = standings;
    row.text = null;
    this.#used.clear();
    if (row.place !== null) this.reviewed += isReviewed(row) - before;
  }

  /** Shows a change before the server has it. */
  expect(row, change) {
    const me = this.info.reviewer;
    const { [change.field]: old, ...others } = row.reviews;
    const { [me]: mine, ...voices } = old?.voices ?? {};
    if (change.settle) {
      if (!old) return; // nothing is left to settle
      const by = "value" in change ? `settled: ${me}` : Object.keys(old.voices).at(-1);
      const value = "value" in change ? change.value : Object.values(old.voices).at(-1);
      this.set(row, { ...others, [change.field]: { ...old, value, by, conflict: !("value" in change) } });
      return;
    }
    if ("value" in change) voices[me] = change.value;
    const [by, value] = Object.entries(voices).at(-1) ?? [];
    const conflict = new Set(Object.values(voices).map((voice) => JSON.stringify(voice))).size > 1;
    this.set(row, by === undefined ? others : { ...others, [change.field]: { value, by, conflict, voices } });
  }

  /** The value of a field as it would be published; undefined if nobody knows it. */
  value(row, name) {
    const standing = row.reviews[name];
    return standing ? standing.value : row.machine[name];
  }

  /** The reviewer's own decision, or undefined. */
  own(row, name) {
    return row.reviews[name]?.voices[this.info.reviewer];
  }

  /** The clip in one line, as the instruction of its sample. */
  line(row) {
    const value = (name) => this.value(row, name) ?? "";
    const actor = value("actor");
    const names = [...new Set([actor, ...(value("characters") || [])])].filter(Boolean).join(", ") || value("S");
    return [names, [value("MA"), value("MD")].filter(Boolean).join(" "), value("EV")].filter(Boolean).join(" · ");
  }

  /** Everything that free text is searched in, in lower case. */
  text(row) {
    row.text ??= [
      row.id, this.info.films[row.film], ...(row.reasons ?? []), ...(row.flags ?? []), ...(row.dialogue ?? []),
      ...FIELDS.map((field) => textOf(field, this.value(row, field.name))),
    ].join("\n").toLowerCase();
    return row.text;
  }

  /** The clips of the same film around a clip; null beyond its ends. */
  around(row, reach) {
    const found = [];
    for (let step = -reach; step <= reach; step++) {
      const other = this.rows[row.index + step];
      if (step) found.push(other?.film === row.film ? other : null);
    }
    return found;
  }

  /** Values in use of a field, the most frequent first. */
  used(name) {
    if (!this.#used.has(name)) this.#used.set(name, this.#counted(name));
    return this.#used.get(name);
  }

  #counted(name) {
    const counts = new Map();
    for (const row of this.rows) {
      const value = this.value(row, name) ?? [];
      for (const one of Array.isArray(value) ? value : [value]) counts.set(one, (counts.get(one) ?? 0) + 1);
    }
    return [...counts].sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1));
  }

  /** The clips to decide about in an order, which is a comparison; sorted once. */
  ordered(compare) {
    if (!this.#ordered.has(compare)) this.#ordered.set(compare, [...this.asked].sort(compare));
    return this.#ordered.get(compare);
  }

  /** The clips that have a likeness, the most alike first. */
  byLikeness() {
    return this.asked.filter(({ id }) => id in this.alike).sort((one, other) => this.alike[other.id] - this.alike[one.id]);
  }

  /** Names that number keys stand for: the cast, or else the names in use. */
  names() {
    return this.info.cast.length ? this.info.cast : this.used("characters").map(([name]) => name).sort();
  }
}

export const isReviewed = (row) => Object.keys(row.reviews).length > 0;
export const hasConflict = (row) => Object.values(row.reviews).some((standing) => standing.conflict);
export const videoOf = (clip) => `api/clips/${clip.id}.mp4`;
export const heardOf = (clip) => (clip.sound ? `api/heard/${clip.id}.mp4` : videoOf(clip));
