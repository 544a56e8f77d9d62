// Completion of words already in use, under a text field.

import { element } from "./page.js";

const MOST = 8;

/** Attach suggestions to an input. `offer` gives the words in use, the most frequent first; `last` takes the part to complete. */
export function completed(input, offer, taken, last = (text) => text) {
  const list = element("ul", { className: "suggestions", role: "listbox", id: `${input.id}-words`, hidden: true });
  let chosen = -1;
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-controls", list.id);
  input.setAttribute("aria-expanded", "false");
  input.autocomplete = "off";

  function show() {
    const typed = last(input.value).trim().toLowerCase();
    const found = matching(offer(), typed);
    chosen = -1;
    list.replaceChildren(...found.map(([word, count]) => {
      const item = element("li", { role: "option" }, element("span", { textContent: word, dir: "auto" }), element("small", { textContent: count || "" }));
      item.dataset.word = word;
      item.onpointerdown = (event) => {
        event.preventDefault(); // the field keeps the focus
        take(word);
      };
      return item;
    }));
    open(found.length > 0 && (found.length > 1 || found[0][0].toLowerCase() !== typed));
  }

  function open(shown) {
    list.hidden = !shown;
    input.setAttribute("aria-expanded", String(shown));
  }

  function choose(step) {
    const items = [...list.children];
    chosen = (chosen + step + items.length + 1) % (items.length + 1);
    if (chosen === items.length) chosen = step > 0 ? 0 : items.length - 1;
    for (const [index, item] of items.entries()) item.ariaSelected = String(index === chosen);
    items[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function take(word) {
    open(false);
    taken(word);
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    if (list.hidden || event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") choose(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Tab" && !event.shiftKey && (chosen >= 0 || last(input.value).trim())) take(list.children[Math.max(0, chosen)].dataset.word);
    else if (event.key === "Enter" && chosen >= 0) take(list.children[chosen].dataset.word);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  return list;
}

/** Words that begin with the text, then those of which a later word does, then those that contain it. */
function matching(words, typed) {
  const ranks = [[], [], []];
  for (const pair of words) {
    const word = String(pair[0]).toLowerCase();
    const rank = word.startsWith(typed) ? 0 : word.includes(` ${typed}`) ? 1 : word.includes(typed) ? 2 : null;
    if (rank !== null && ranks[rank].length < MOST) ranks[rank].push([String(pair[0]), pair[1]]);
    if (ranks[0].length === MOST) break;
  }
  return ranks.flat().slice(0, MOST);
}
