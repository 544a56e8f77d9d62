// Keys of the page: one table, by which they work and from which the help is made.

import { at, element } from "./page.js";

const KEYS = [
  { shown: "A B C …", means: "this film is the next best; again: take it back", on: /^[a-j]$/, does: (key) => ["choose", key.toUpperCase()] },
  { shown: "Backspace", means: "take the last choice back", on: /^Backspace$/, does: () => ["back"] },
  { shown: "↑ ↓", means: "previous question, next question", on: /^Arrow(Up|Down)$/, does: (key) => ["move", key === "ArrowUp" ? -1 : 1] },
  { shown: "Enter", means: "next open question, then the next game", on: /^Enter$/, does: () => ["next"] },
  { shown: "Space", means: "play or pause the films", on: /^ $/, does: () => ["play"] },
  { shown: "← →", means: "previous turn, next turn", on: /^Arrow(Left|Right)$/, does: (key) => ["step", key === "ArrowLeft" ? -1 : 1] },
  { shown: "Shift+A …", means: "this film alone and large, or all", on: /^[A-J]$/, does: (key) => ["alone", key] },
  { shown: "PageUp PageDown", means: "previous game, next game", on: /^Page(Up|Down)$/, does: (key) => ["game", key === "PageUp" ? -1 : 1] },
  { shown: "?", means: "this help", on: /^\?$/, does: () => ["help"] },
];

/** Makes keys work: `actions` maps the names in this table to functions. */
export function listen(actions) {
  at("keys").replaceChildren(...KEYS.flatMap(({ shown, means }) => [
    element("dt", {}, ...shown.split(" ").map((key) => (key === "…" ? " … " : element("kbd", { textContent: key })))),
    element("dd", { textContent: means }),
  ]));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.altKey || event.ctrlKey || event.metaKey || at("help").open) return;
    const key = event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key; // Caps Lock ranks too
    const found = KEYS.find(({ on }) => on.test(key));
    if (!found) return;
    if (event.target.closest("button, a") && (key === "Enter" || key === " ")) return;
    event.preventDefault();
    if (event.repeat && !key.startsWith("Arrow")) return;
    const [name, ...given] = found.does(key);
    actions[name](...given);
  });
}
