// The criteria of a game and the order of its films by each: the first letter chosen is the best.

import { at, element, ordinal } from "./page.js";

export class Ranking {
  #game = null;
  #current = "";

  /** `changed` is called with the criterion and its new order, `shown` with the place of each letter by the current one. */
  constructor(criteria, changed, shown) {
    this.criteria = new Map(criteria.map((criterion) => [criterion.name, criterion]));
    this.changed = changed;
    this.shown = shown;
  }

  show(game) {
    this.#game = game;
    this.#current = this.open ?? game.criteria[0];
    this.#draw();
  }

  /** The first criterion that is not ranked yet; undefined: all are. */
  get open() {
    return this.#game.criteria.find((name) => !isComplete(this.#game, name));
  }

  /** Puts a film next; one that is ranked loses its place. The last film follows by itself. */
  choose(letter) {
    const letters = this.#game.films.map((film) => film.letter);
    if (!letters.includes(letter)) return;
    const before = this.#order();
    const order = before.includes(letter) ? before.filter((one) => one !== letter) : [...before, letter];
    if (order.length === letters.length - 1 && order.length > before.length) order.push(letters.find((one) => !order.includes(one)));
    this.#take(order);
  }

  /** Takes the last choice back; with it the film that followed by itself. */
  back() {
    const order = this.#order();
    if (order.length) this.#take(order.slice(0, order.length === this.#game.films.length ? -2 : -1));
  }

  move(by) {
    const names = this.#game.criteria;
    this.go(names[Math.min(Math.max(names.indexOf(this.#current) + by, 0), names.length - 1)]);
  }

  go(name) {
    this.#current = name;
    this.#draw();
    at("criteria").querySelector("[aria-current]").scrollIntoView({ block: "nearest" });
  }

  #order() {
    return this.#game.orders[this.#current] ?? [];
  }

  #take(order) {
    this.#game.orders[this.#current] = order;
    this.#draw();
    this.changed(this.#current, order);
  }

  #draw() {
    const held = document.activeElement?.closest?.("#criteria button")?.dataset.key;
    at("criteria").replaceChildren(...this.#game.criteria.map((name) => this.#item(name)));
    if (held) at("criteria").querySelector(`[data-key="${held}"]`)?.focus({ preventScroll: true });
    const order = this.#order();
    document.body.dataset.criterion = this.#current;
    this.shown(new Map(order.map((letter, index) => [letter, ordinal(index + 1)])));
  }

  #item(name) {
    const { title, question } = this.criteria.get(name);
    const order = this.#game.orders[name] ?? [];
    const isCurrent = name === this.#current;
    const slots = this.#game.films.map((_, rank) => element("span", { className: order[rank] ? "slot" : "slot free", textContent: order[rank] ?? rank + 1 }));
    const said = order.length ? `ranked ${order.join(", ")}` : "not ranked";
    const head = element("button", { type: "button", className: "criterion", "aria-label": `${title}, ${said}` },
      element("span", { className: "title", textContent: title }), element("span", { className: "slots" }, ...slots));
    head.dataset.key = name;
    head.addEventListener("click", () => this.go(name));
    const item = element("li", { className: isComplete(this.#game, name) ? "complete" : "" }, head);
    if (isCurrent) {
      item.setAttribute("aria-current", "true");
      item.append(element("p", { className: "question", textContent: question }), this.#choices(order));
    }
    return item;
  }

  #choices(order) {
    const next = order.length < this.#game.films.length ? ordinal(order.length + 1) : "";
    const letters = this.#game.films.map(({ letter }) => {
      const place = order.indexOf(letter);
      const button = element("button", { type: "button", className: place < 0 ? "quiet" : "", textContent: letter,
        "aria-label": place < 0 ? `Film ${letter}: ${next}` : `Film ${letter} is ${ordinal(place + 1)}: take back` });
      button.dataset.key = `letter ${letter}`;
      button.addEventListener("click", () => this.choose(letter));
      return button;
    });
    const hint = next ? `Choose the ${next === "1st" ? "best" : next}` : "Ranked";
    const choices = element("div", { className: "choices", role: "group", "aria-label": hint }, ...letters);
    choices.append(order.length ? this.#backButton() : element("span", { className: "hint", textContent: hint }));
    return choices;
  }

  #backButton() {
    const back = element("button", { type: "button", className: "link", textContent: "Take back" });
    back.dataset.key = "back";
    back.addEventListener("click", () => this.back());
    return back;
  }
}

export const isComplete = (game, name) => (game.orders[name]?.length ?? 0) === game.films.length;
export const isRanked = (game) => game.criteria.every((name) => isComplete(game, name));
