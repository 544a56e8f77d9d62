// The story so far as a strip of film, its branches, and on the start page the shelf of earlier games.

import { posterOf } from "./game.js";
import { at, counted, element } from "./page.js";
import { signed, told } from "./words.js";

/** The turns of a branch; the one on the screen is marked. */
export function showStrip(game, tree, path, viewed, look) {
  const strip = at("strip");
  const frames = path.map((turn, index) => frame(game, tree, turn, index + 1, turn.id === viewed, look));
  const focused = document.activeElement?.closest?.("#strip li")?.value;
  strip.replaceChildren(...frames);
  if (focused) frames[Math.min(focused, frames.length) - 1]?.firstElementChild.focus({ preventScroll: true });
  const shown = frames.find((item) => item.ariaCurrent);
  if (shown) strip.scrollLeft = shown.offsetLeft - strip.clientWidth / 2 + shown.clientWidth / 2;
}

function frame(game, tree, turn, number, isViewed, look) {
  const changes = Object.entries(tree.changes(turn)).filter(([, by]) => by).map(([name, by]) => `${name} ${signed(by)}`);
  const granted = (tree.fulfilled[turn.id] ?? []).map((said) => element("span", { className: "granted", title: said, textContent: "a wish came true" }));
  const button = element("button", { type: "button" },
    element("img", { src: posterOf(game, turn.id), alt: "", loading: "lazy", width: 96, height: 64 }),
    element("span", { className: "number", textContent: number }),
    element("span", {},
      element("span", { className: "told", textContent: told(turn.instruction) }),
      element("span", { className: "did" }, ...granted, ...changes.map((textContent) => element("span", { textContent })))));
  button.onclick = () => look(turn.id);
  const item = element("li", { value: number }, button);
  if (isViewed) item.ariaCurrent = "true";
  if (tree.ways(turn.id) > 1) item.append(element("span", { className: "ways", textContent: `${tree.ways(turn.id)} ways on from here` }));
  return item;
}

/** The branches to choose from, once there is more than one. */
export function showBranches(tree, head, choose) {
  const leaves = tree.leaves();
  const current = leaves.includes(head) ? head : null;
  at("branches").hidden = leaves.length < 2;
  at("branches").replaceChildren(...leaves.map((leaf, index) => {
    const path = tree.path(leaf);
    const own = tree.ownTurn(leaf);
    const button = element("button", { type: "button" },
      element("b", { textContent: branchName(index) }),
      element("span", { className: "told", textContent: told(own.instruction) }),
      element("small", { textContent: counted(path.length, "turn") }));
    if (leaf === current) button.ariaCurrent = "true";
    button.onclick = () => choose(leaf);
    return button;
  }));
}

/** A, B, ... Z, AA, AB, ... */
function branchName(index) {
  return (index >= 26 ? branchName(Math.floor(index / 26) - 1) : "") + String.fromCharCode(65 + (index % 26));
}

/** Games that were played in this browser before. */
export function showShelf(games) {
  at("shelf").hidden = games.length === 0;
  at("shelf").replaceChildren(...games.map(({ id, title, turns, turn }) =>
    element("a", { href: `#${id}`, className: "kept" },
      element("img", { src: posterOf(id, turn), alt: "", loading: "lazy", width: 96, height: 64 }),
      element("span", { className: "told", textContent: told(title) }),
      element("small", { textContent: counted(turns, "turn") }))));
}
