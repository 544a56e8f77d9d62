// Fields of a clip: their names, keys and forms, and the text of their values.

export const FIELDS = [
  { name: "keep", label: "Verdict", key: "k", kind: "choice", choices: [true, false], texts: ["keep", "drop"] },
  { name: "SC", label: "Social", key: "i", kind: "choice", choices: [1, 0, null], texts: ["yes", "no"] },
  { name: "ET", label: "Fun", key: "f", kind: "choice", choices: [1, 0, null], texts: ["yes", "no"] },
  { name: "ST", label: "Stamina", key: "r", kind: "choice", choices: [1, -1, null], texts: ["+1", "\u22121"] },
  { name: "S", label: "Subject", key: "s", kind: "words" },
  { name: "EV", label: "Place", key: "e", kind: "words" },
  { name: "MA", label: "Manner", key: "a", kind: "words" },
  { name: "MD", label: "Motion", key: "m", kind: "words" },
  { name: "characters", label: "Characters", key: "c", kind: "names" },
  { name: "actor", label: "Actor", key: "w", kind: "text" },
  { name: "others", label: "Others", key: "o", kind: "number" },
  { name: "sentence", label: "Sentence", key: "t", kind: "text" },
];

export const FIELD = new Map(FIELDS.map((field) => [field.name, field]));
export const UNSAYABLE = "cannot be said";

/** The value as text; `undefined`: nobody knows it, null: a reviewer cannot say it. */
export function textOf(field, value) {
  if (value === undefined) return "";
  if (value === null) return UNSAYABLE;
  if (field.kind === "names") return value.length ? value.join(", ") : "nobody";
  if (field.kind === "choice") return field.texts[field.choices.indexOf(value)] ?? String(value);
  return String(value);
}

/** Equality as of decisions: names as a set, text without case and spacing. */
export function same(one, other) {
  return JSON.stringify(comparable(one)) === JSON.stringify(comparable(other));
}

function comparable(value) {
  if (Array.isArray(value)) return [...value].sort();
  return typeof value === "string" ? value.toLowerCase().split(/\s+/).join(" ") : value ?? null;
}

/** Parse what was typed; throws an Error with a sentence to show. An empty text is null, which is "cannot be said". */
export function parse(field, typed, info) {
  const text = typed.normalize("NFC").trim().replace(/\s+/g, " ");
  if (!text) return null;
  if (field.kind === "words") return words(field, text.toLowerCase(), info);
  if (field.kind === "names") return names(text, info);
  if (field.kind === "number") return number(text, info.most.others);
  const most = field.name === "sentence" ? info.most.sentence : info.most.name;
  if (text.length > most) throw new Error(`At most ${most} characters; these are ${text.length}.`);
  return text;
}

function words(field, text, info) {
  if (text.length <= info.most.name && new RegExp(`^(?:${info.patterns[field.name]})$`).test(text)) return text;
  throw new Error(`${field.label}: up to ${info.most.words[field.name]} plain words, a to z.`);
}

function names(text, info) {
  if (text.toLowerCase() === "nobody") return [];
  const typed = [...new Set(text.split(",").map((name) => name.trim()).filter(Boolean))];
  if (!info.cast.length) return typed;
  return typed.map((name) => {
    const known = info.cast.find((one) => one.toLowerCase() === name.toLowerCase());
    if (!known) throw new Error(`${name} is not in the cast: ${info.cast.join(", ")}.`);
    return known;
  });
}

function number(text, most) {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > most) throw new Error(`A number from 0 to ${most}.`);
  return value;
}
