// Keys of the page: one table, by which they work and from which the help is made.

import { FIELDS } from "./fields.js";
import { at, element } from "./page.js";

/** Make keys work: `actions` maps the names in this table to functions. */
export function listen(actions) {
  const table = keys();
  showHelp(table);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.altKey) return;
    if (at("help").open) return;
    const typing = event.target.closest("input, textarea, select");
    if (typing) {
      if (event.key === "Escape" || (event.key === "Enter" && typing.matches("input"))) {
        event.preventDefault();
        typing.blur();
        actions.focus();
      }
      return;
    }
    const [name, ...given] = named(table, event) ?? [];
    if (!name || (event.repeat && !REPEATED.has(name))) return;
    if (event.target.closest("button, a") && (event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    actions[name](...given);
  });
}

const REPEATED = new Set(["move", "near", "page"]);

function named(table, event) {
  const key = [event.ctrlKey || event.metaKey ? "Ctrl+" : "", event.shiftKey && event.key.length > 1 ? "Shift+" : "", event.key.length === 1 ? event.key.toLowerCase() : event.key].join("");
  const known = table.flatMap(({ rows }) => rows).find((row) => row.on.includes(key));
  if (known) return known.does(key); // before digits: `/` is Shift+7 on some keyboards
  const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code);
  return digit && !event.ctrlKey && !event.metaKey ? ["number", Number(digit[1]), event.shiftKey] : undefined;
}

function keys() {
  return [
    { title: "Go", rows: [
      row("← → ↑ ↓", "to the next clip of the grid", ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"], (key) => ["move", key, false]),
      row("PageUp PageDown Home End", "further", ["PageUp", "PageDown", "Home", "End"], (key) => ["page", key]),
      row(", .", "to the clip before and after in the film", [",", "."], (key) => ["near", key === "," ? -1 : 1]),
      row("n b", "to the next and the previous unreviewed clip", ["n", "b"], (key) => ["unreviewed", key === "n" ? 1 : -1]),
      row("Enter", "all values are right: confirm them, and go on", ["Enter"], () => ["confirm"]),
      row("p", "play or stop all clips", ["p"], () => ["play"]),
      row("l", "switch the sound on or off", ["l"], () => ["listen"]),
    ] },
    { title: "Correct", rows: [
      ...FIELDS.filter(({ name }) => name !== "keep").map((field) =>
        row(field.key, `${described(field)}`, [field.key], () => ["edit", field.name])),
      row("1 – 9", "a name of the cast is on screen, or not; with Shift: acts", [], () => []),
      row("0", "nobody of the cast is on screen", [], () => []),
      row("k x", "keep, drop; the same again takes it back", ["k", "x"], (key) => ["judge", key === "k"]),
      row("v, then 1 – 9", "settle a conflict: this reviewer is right", ["v"], () => ["conflict"]),
      row("z", "undo", ["z", "Ctrl+z"], () => ["undo"]),
    ] },
    { title: "In a text field", rows: [
      row("Enter", "save; an empty field is \"cannot be said\"", [], () => []),
      row("Tab ↑ ↓", "take a word that is in use", [], () => []),
      row("Esc", "leave it as it was", [], () => []),
      row("Shift+Del", "take your decision back", [], () => []),
    ] },
    { title: "Choose clips", rows: [
      row("Space", "select the clip; what you correct is for all selected", [" "], () => ["select"]),
      row("Shift+← → ↑ ↓", "select on the way", ["Shift+ArrowLeft", "Shift+ArrowRight", "Shift+ArrowUp", "Shift+ArrowDown"], (key) => ["move", key.slice(6), true]),
      row("Ctrl+A", "select all that the filters let through", ["Ctrl+a"], () => ["selectAll"]),
      row("Esc", "select none", ["Escape"], () => ["escape"]),
      row("/", "search", ["/"], () => ["search"]),
      row("q", "search clips like this one; Esc leaves the search", ["q"], () => ["alike"]),
      row("g", "to the filters", ["g"], () => ["filters"]),
      row("u", "apply the filters again to what has changed", ["u"], () => ["update"]),
      row("y", "doubtful first, or in time order", ["y"], () => ["order"]),
      row("?", "this help", ["?"], () => ["help"]),
    ] },
  ];
}

const described = ({ name, label, kind }) =>
  `${label.toLowerCase()}${kind === "choice" ? ": the next choice" : ""}${name.length === 2 || name === "S" ? ` (${name})` : ""}`;

const row = (shown, means, on, does) => ({ shown, means, on, does });

function showHelp(table) {
  at("keys").replaceChildren(...table.map(({ title, rows }) =>
    element("section", {}, element("h3", { textContent: title }), element("dl", {}, ...rows.flatMap(({ shown, means }) => [
      element("dt", {}, ...shown.split(" ").map((key) => (/^(–|then)$/.test(key) ? ` ${key} ` : element("kbd", { textContent: key.replace(/,$/, key.length > 1 ? "" : ",") })))),
      element("dd", { textContent: means }),
    ])))));
}
