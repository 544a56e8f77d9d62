// Under rules: how the characters are, what they wish for, what may come next, and the end of the story.

import { RequestError } from "./api.js";
import { readStanding } from "./game.js";
import { at, element } from "./page.js";
import { signed, told } from "./words.js";

const VALUES = { stamina: "stamina", social: "social", entertainment: "fun" };
const NOTHING = { people: [], who: [], wishes: [], fulfilled: [], given_up: [], suggestions: [], surprise: null, hindered: {}, ending: null };

export class Rules {
  #composer;
  #asked = 0; // standings asked for: only the last answer is shown
  #next = NOTHING; // the standing that the next turn goes on from
  #goneOn = new Set(); // endings that the player has left behind

  constructor(composer) {
    this.#composer = composer;
    at("surprise").onclick = () => this.#choose(this.#next.surprise);
    document.addEventListener("keydown", (event) => this.#press(event));
  }

  /** Shows the standing after the turn that is viewed, and what may come after the last one. */
  async show(game, viewed, head) {
    const mine = ++this.#asked;
    this.forget();
    let standings;
    try {
      const next = readStanding(game, head);
      standings = await Promise.all([next, viewed === head ? next : readStanding(game, viewed)]);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      standings = [NOTHING, NOTHING]; // the next request of the player tells what is wrong
    }
    if (mine !== this.#asked) return;
    const [next, now] = standings;
    this.#next = next;
    showPeople(now.people);
    showWishes(now);
    this.#suggest(next.suggestions);
    at("surprise").hidden = !next.surprise;
    this.#composer.hinder(next.hindered, next.who);
    this.#showEnding(viewed === head ? next : NOTHING, `${game}/${head}`);
  }

  /** Suggests nothing until the next standing is shown. */
  forget() {
    this.#next = NOTHING;
    for (const button of at("suggestions").children) button.disabled = true;
  }

  #suggest(suggestions) {
    at("suggestions").replaceChildren(...suggestions.map(({ instruction, why }, index) => {
      const button = element("button", { type: "button" },
        element("kbd", { textContent: index + 1 }),
        element("span", { className: "told", textContent: told(instruction) }),
        element("small", { textContent: why && `\u2606 ${why}` }));
      button.setAttribute("aria-keyshortcuts", index + 1);
      button.onclick = () => this.#choose(instruction);
      return button;
    }));
    at("next").hidden = suggestions.length === 0 && at("wishes").children.length === 0;
  }

  #choose(instruction) {
    if (!instruction || this.#composer.busy) return;
    this.#composer.takeOver(instruction);
    this.#composer.send(instruction);
  }

  /** 1 to 3 play a suggestion and 0 a surprise, unless the player is writing. */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || at("composer").classList.contains("ended")) return;
    if (event.target.closest("input:not([type=checkbox], [type=radio]), textarea, video")) return;
    if (event.key === "0") this.#choose(this.#next.surprise);
    this.#choose(this.#next.suggestions[Number(event.key) - 1]?.instruction);
  }

  #showEnding({ ending, people }, turn) {
    const ended = Boolean(ending) && !this.#goneOn.has(turn);
    at("composer").classList.toggle("ended", ended);
    at("ending").hidden = !ended;
    if (!ended) return;
    const { turns, motions, places, fulfilled, given_up } = ending;
    at("sum").textContent = `${turns} turns, ${motions} motions in ${places} places. Wishes that came true: ${fulfilled.length} of ${fulfilled.length + given_up.length}.`;
    const item = (className) => (textContent) => element("li", { className, textContent });
    at("granted").replaceChildren(...fulfilled.map(item("granted")), ...given_up.map(item("lost")));
    at("moods").textContent = people.filter(({ mood }) => mood).map(({ name, mood }) => `${name} is ${mood}`).join(", ") + ".";
    at("on").onclick = () => {
      this.#goneOn.add(turn);
      this.#showEnding({ ending, people }, turn);
      this.#composer.focus();
    };
  }
}

/** A card for each character, those in the picture marked. */
function showPeople(people) {
  const shown = at("people").querySelectorAll(".person");
  const known = new Map([...shown].map((card) => [card.dataset.name, card]));
  at("people").replaceChildren(...people.map((person) => filled(known.get(person.name) ?? card(person), person)));
  at("people").hidden = people.length === 0;
  at("people").querySelector(".shown")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function card({ name }) {
  const row = ([value, short]) => {
    const meter = element("div", { role: "meter" }, element("i"));
    for (const [key, text] of [["label", `${value} of ${name}`], ["valuemin", 0], ["valuemax", 100]]) meter.setAttribute(`aria-${key}`, text);
    const line = element("div", { className: "line" }, element("span", { textContent: short }), meter, element("b"), element("span", { className: "change" }));
    line.dataset.value = value;
    return line;
  };
  const head = element("p", {}, element("b", { textContent: name }), element("span", { className: "mood" }));
  const made = element("div", { className: "person" }, head, ...Object.entries(VALUES).map(row));
  made.dataset.name = name;
  return made;
}

function filled(card, { values, changes, mood, shown }) {
  card.classList.toggle("shown", shown);
  card.querySelector(".mood").textContent = mood;
  for (const line of card.querySelectorAll(".line")) {
    const [value, by] = [values[line.dataset.value], changes[line.dataset.value] ?? 0];
    const [, meter, number, change] = line.children;
    meter.setAttribute("aria-valuenow", value);
    meter.firstElementChild.style.width = `${value}%`;
    line.classList.toggle("low", value < 20);
    number.textContent = value;
    change.textContent = by ? signed(by) : "";
    change.dataset.way = by > 0 ? "up" : "down";
  }
  return card;
}

/** What has just come true or was given up, and the open wishes with what is left to do. */
function showWishes({ wishes, fulfilled, given_up }) {
  const line = (className, text, note) =>
    element("li", { className }, element("span", { textContent: text }), element("small", { textContent: note }));
  const open = wishes.map(({ said, done, of, left }) => {
    const progress = of > 1 ? `${done} of ${of}` : "";
    return line("open", said, [progress, left === null ? "" : left === 1 ? "last turn" : `${left} turns`].filter(Boolean).join(" · "));
  });
  at("wishes").replaceChildren(
    ...fulfilled.map((said) => line("granted", said, "came true")),
    ...given_up.map((said) => line("lost", said, "given up")),
    ...open);
  at("granted-now").textContent = fulfilled.map((said) => `A wish came true: ${said}.`).join(" ");
}
