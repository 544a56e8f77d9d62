// Keys of the cast page: one table, by which they work and from which the help is made.

import { at, element } from "./page.js";

const KEYS = [
  ["↑ ↓ PageUp PageDown Home End", "to another row", { ArrowUp: ["move", -1], ArrowDown: ["move", 1], PageUp: ["move", -8], PageDown: ["move", 8], Home: ["move", -Infinity], End: ["move", Infinity] }],
  ["← →", "to another picture of the row", { ArrowLeft: ["along", -1], ArrowRight: ["along", 1] }],
  ["Enter", "accept the proposed name, or type one", { Enter: ["accept"] }],
  ["n", "type a name; several with commas; Tab takes a name in use", { n: ["edit"] }],
  ["1 – 9", "take a name in use; with Shift, one of several: the key without Shift takes the last", {}],
  ["0", "nobody of the cast is on it", {}],
  ["x", "discard: it shows no figure, or none that can be told", { x: ["discard"] }],
  ["Space", "mark a picture: names, 0, x and s then act on the marked ones alone", { " ": ["mark"] }],
  ["s", "split: the marked pictures, or the less alike half, become a row", { s: ["split"] }],
  ["m", "merge: once on the first row, once on the second", { m: ["merge"] }],
  ["e", "show all pictures of the row, or a few", { e: ["unfold"] }],
  ["a", "accept all near proposals", { a: ["acceptAll"] }],
  ["z", "undo", { z: ["undo"] }],
  ["w", "write characters to the review file, and pictures to the cast folder", { w: ["write"] }],
  ["Esc", "mark nothing, merge nothing", { Escape: ["escape"] }],
  ["?", "this help", { "?": ["help"] }],
];
const REPEATED = new Set(["move", "along"]);

/** Make keys work: `actions` maps the names in this table to functions; while `waits` is true, no key does. */
export function listen(actions, waits) {
  const table = Object.assign({}, ...KEYS.map(([, , keys]) => keys));
  at("keys").replaceChildren(...KEYS.flatMap(([shown, means]) => [
    element("dt", {}, ...shown.split(" ").map((key) => (key === "–" ? " – " : element("kbd", { textContent: key })))),
    element("dd", { textContent: means }),
  ]));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (at("help").open || event.target.closest("input")) return;
    if (event.target.closest("button") && (event.key === "Enter" || event.key === " ")) return;
    const known = table[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code);
    const [name, ...given] = known ?? (digit ? ["number", Number(digit[1]), event.shiftKey] : []); // `?` is Shift+7 on some keyboards
    if (!name) return;
    event.preventDefault();
    if (!waits() && (!event.repeat || REPEATED.has(name))) actions[name](...given);
  });
}
