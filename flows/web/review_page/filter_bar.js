// The row of filters: one choice each, a completed field for tag values, and the search.

import { completed } from "./completion.js";
import { choices, defaultOrder, NO_FILTER, tagValues } from "./filters.js";
import { counted, element } from "./page.js";

const at = (id) => document.getElementById(id);
const SELECTS = ["film", "level", "character", "verdict", "flag", "state", "order"];

export class FilterBar {
  /** `changed` is called when the criteria are others. */
  constructor(clips, criteria, changed) {
    this.clips = clips;
    this.criteria = criteria;
    this.changed = changed;
    this.#offer();
    for (const name of SELECTS) at(name).onchange = () => this.#set(name, at(name).value);
    at("text").oninput = () => this.#set("text", at("text").value);
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
