// Filters, search and order of the clips, the row of controls for them, and what this browser keeps of the last visit.

import { hasConflict, isReviewed } from "./clips.js";
import { completed } from "./completion.js";
import { FIELD, FIELDS, textOf } from "./fields.js";
import { at, counted, element } from "./page.js";

const NO_FILTER = { film: "", level: "", character: "", tag: "", verdict: "", flag: "", state: "", text: "", order: "" };

const TAGS = ["S", "MD", "MA", "EV", "SC", "ET", "ST", "actor"];
const MOST_CHOICES = 300;

/** Return the clips that pass all filters, in order. */
export function filtered(clips, criteria) {
  const tests = Object.entries(TESTS).filter(([name]) => criteria[name]).map(([name, make]) => make(criteria[name], clips));
  const ordered = clips.alike ? clips.byLikeness() : clips.ordered(ORDERS[criteria.order] ?? ORDERS[defaultOrder(clips)]);
  return ordered.filter((row) => tests.every((test) => test(row)));
}

const defaultOrder = (clips) => (clips.info.sample ? "sample" : "doubt");

const ORDERS = {
  doubt: (one, other) => (other.doubt ?? 0) - (one.doubt ?? 0) || one.index - other.index,
  time: (one, other) => one.index - other.index,
  sample: (one, other) => one.place - other.place,
};

const TESTS = {
  film: (film) => (row) => row.film === film,
  level: (level) => (row) => String(row.level ?? "none") === level,
  character: (name, clips) => (row) => {
    const names = clips.value(row, "characters");
    return name === NOBODY ? names?.length === 0 : Boolean(names?.includes(name.slice(1)));
  },
  tag: (tag, clips) => {
    const [name, ...rest] = tag.toLowerCase().split(" ");
    const [field, wanted] = [FIELDS.find((one) => one.name.toLowerCase() === name), rest.join(" ")];
    return (row) => (field ? textOf(field, clips.value(row, field.name)).toLowerCase() === wanted : false);
  },
  verdict: (verdict, clips) => (row) => {
    if (verdict === "keep" || verdict === "drop") return clips.value(row, "keep") === (verdict === "keep");
    return Boolean(row.reasons?.some((reason) => kind(reason) === verdict.slice(1)));
  },
  flag: (flag) => (row) => (flag === ANY ? row.flags?.length > 0 : Boolean(row.flags?.some((text) => kind(text) === flag.slice(1)))),
  state: (state, clips) => (row) => STATES[state]?.test(row, clips) ?? true,
  text: (text, clips) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return (row) => words.every((word) => clips.text(row).includes(word));
  },
};

const NOBODY = "nobody";
const ANY = "any";
const kind = (text) => text.split(":", 1)[0];

const STATES = {
  unreviewed: { text: "unreviewed", test: (row) => !isReviewed(row) },
  reviewed: { text: "reviewed", test: isReviewed },
  conflict: { text: "conflicts", test: hasConflict },
  mine: { text: "reviewed by me", test: (row, clips) => FIELDS.some(({ name }) => clips.own(row, name) !== undefined) },
};

/** The choices of every filter as [value, text] pairs; values of data carry a mark, so that none is mistaken. */
function choices(clips) {
  const count = (valuesOf) => {
    const counts = new Map();
    for (const row of clips.asked) for (const value of valuesOf(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]).slice(0, MOST_CHOICES);
  };
  const marked = (pairs) => pairs.map(([value, n]) => [`=${value}`, `${value} (${n})`]);
  const films = count((row) => [row.film]).map(([film]) => [film, clips.info.films[film]]);
  const levels = count((row) => (row.level === undefined ? [] : [String(row.level ?? "none")])).sort();
  return {
    film: films.length > 1 ? films.sort((one, other) => (one[1] < other[1] ? -1 : 1)) : [],
    level: levels.map(([level, n]) => [level, level === "none" ? `no level (${n})` : `level ${level} (${n})`]),
    character: [
      ...marked(count((row) => clips.value(row, "characters") ?? [])),
      ...count((row) => (clips.value(row, "characters")?.length === 0 ? [NOBODY] : [])).map(([, n]) => [NOBODY, `nobody (${n})`]),
    ],
    verdict: [["keep", "keep"], ["drop", "drop"], ...marked(count((row) => (row.reasons ?? []).map(kind)))],
    flag: withAny(marked(count((row) => (row.flags ?? []).map(kind)))),
    state: Object.entries(STATES).map(([value, { text }]) => [value, text]),
    order: clips.info.sample
      ? [["sample", "order of the sample"], ["time", "in time order"]]
      : [["doubt", "most doubtful first"], ["time", "in time order"]],
  };
}

const withAny = (pairs) => (pairs.length ? [[ANY, "any flag"], ...pairs] : []);

/** Values of tags as `MD run`, the most frequent first, for completion. */
function tagValues(clips) {
  return TAGS.flatMap((name) =>
    clips.used(name).map(([value, n]) => [`${name} ${textOf(FIELD.get(name), value)}`, n])).sort((one, other) => other[1] - one[1]);
}

const SELECTS = ["film", "level", "character", "verdict", "flag", "state", "order"];

/** The row of filters: one choice each, a completed field for tag values, and the search. */
export class FilterBar {
  /** `changed` is called when the criteria are others. */
  constructor(clips, criteria, changed) {
    this.clips = clips;
    this.criteria = criteria;
    this.changed = changed;
    this.#offer();
    for (const name of SELECTS) at(name).onchange = () => this.#set(name, at(name).value);
    at("text").oninput = () => this.#set("text", at("text").value.startsWith("~") ? "" : at("text").value); // ~ searches pictures
    at("tag").after(completed(at("tag"), () => tagValues(clips), (value) => this.#set("tag", at("tag").value = value)));
    at("tag").onchange = () => this.#set("tag", at("tag").value.trim());
    at("filters").onsubmit = (event) => event.preventDefault();
    at("clear").onclick = (event) => {
      event.preventDefault();
      this.criteria = { ...NO_FILTER, order: this.criteria.order };
      this.#fill();
      this.changed();
    };
    at("filters-button").onclick = () => this.unfold(!at("filters").classList.contains("open"));
    this.#fill();
  }

  /** Shows how many clips pass. */
  count(found) {
    const all = this.clips.asked.length;
    at("found").textContent = found === all ? counted(all, "clip") : `${found.toLocaleString("en")} of ${counted(all, "clip")}`;
    at("clear").hidden = !Object.entries(this.criteria).some(([name, value]) => value && name !== "order");
  }

  /** Takes the other order. */
  nextOrder() {
    const orders = [...at("order").options].map((option) => option.value);
    at("order").value = orders[(orders.indexOf(at("order").value) + 1) % orders.length];
    this.#set("order", at("order").value);
  }

  /** On a phone, shows the filters or hides them. */
  unfold(open) {
    at("filters").classList.toggle("open", open);
    at("filters-button").setAttribute("aria-expanded", String(open));
  }

  #set(name, value) {
    if (this.criteria[name] === value) return;
    this.criteria = { ...this.criteria, [name]: value };
    this.changed();
  }

  #offer() {
    for (const [name, pairs] of Object.entries(choices(this.clips))) {
      at(name).append(...pairs.map(([value, textContent]) => element("option", { value, textContent })));
      at(name).hidden = pairs.length === 0;
    }
  }

  #fill() {
    for (const [name, value] of Object.entries(this.criteria)) {
      const chosen = name === "order" ? value || defaultOrder(this.clips) : value;
      at(name).value = chosen;
      if (at(name).value !== chosen) [at(name).value, this.criteria[name]] = ["", ""]; // a value that is gone
    }
  }
}

/** Where the reviewer left off, for each dataset and reviewer. */
const visitOf = (info) => `place ${info.key} ${info.reviewer}`;

/** Return the filters and the clip of the last visit; the clip is null if this browser knows of none. */
export function keptVisit(info) {
  let place = {};
  try {
    place = JSON.parse(localStorage.getItem(visitOf(info)) ?? "{}");
  } catch {
    // written by something else on this address
  }
  const criteria = { ...NO_FILTER };
  for (const name of Object.keys(NO_FILTER)) if (typeof place.criteria?.[name] === "string") criteria[name] = place.criteria[name];
  return { criteria, clip: typeof place.clip === "string" ? place.clip : null };
}

export function keepVisit(info, criteria, clip) {
  try {
    localStorage.setItem(visitOf(info), JSON.stringify({ criteria, clip }));
  } catch {
    // no room in this browser: the next visit begins with the clip decided about last
  }
}
