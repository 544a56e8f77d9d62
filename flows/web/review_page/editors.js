// Editors of the fields: each shows the value of the clip, or of all selected ones, and takes a new one.

import { completed } from "./completion.js";
import { FIELDS, UNSAYABLE, parse, same, textOf } from "./fields.js";
import { at, element } from "./page.js";

const COMPLETED = ["S", "MD", "MA", "EV", "actor", "characters"];

/** `decide(field, value)` takes a new value, `decide(field)` takes the reviewer's decision back, `settle` ends a conflict. */
export class Editors {
  #parts = new Map();
  #editing = null; // the field that is being typed
  #edited = []; // the clips that it is typed for

  constructor(clips, targets, { decide, settle, done }) {
    this.clips = clips;
    this.targets = targets;
    this.decide = decide;
    this.settle = settle;
    this.done = done;
    at("fields").replaceChildren(...FIELDS.map((field) => this.#make(field)));
  }

  /** Shows the values of the clips that the next decision is about. */
  show() {
    const rows = this.targets();
    const asEdited = rows.length === this.#edited.length && rows.every((row, index) => row === this.#edited[index]);
    if (!asEdited) this.#editing = null; // unusable text is not carried to other clips
    for (const [field, part] of this.#parts) this.#fill(field, part, rows);
  }

  /** Opens the editor of a field by its key: a text field, or the next of its choices. */
  open(name) {
    const [field] = FIELDS.filter((one) => one.name === name);
    if (!this.targets().length) return;
    if (field.kind === "choice") this.#next(field);
    else this.#edit(field);
  }

  /** Sets keep or drop; the same again takes the decision back. */
  judge(keep) {
    const own = this.targets().every((row) => this.clips.own(row, "keep") === keep);
    if (own) this.decide("keep");
    else this.decide("keep", keep);
  }

  /** Adds a name to the characters, or takes it out, by its number; 0: nobody is on screen. `acts`: makes it the actor. */
  name(number, acts) {
    if (number === 0) return this.decide("characters", []);
    const name = this.clips.names()[number - 1];
    if (name === undefined) return;
    if (acts) return this.decide("actor", name);
    const rows = this.targets();
    const everywhere = rows.every((row) => this.clips.value(row, "characters")?.includes(name));
    this.decide("characters", (row) => {
      const names = (this.clips.value(row, "characters") ?? []).filter((one) => one !== name);
      return everywhere ? names : [...names, name];
    });
  }

  #make(field) {
    const part = {
      box: element("div", { className: `field ${field.kind}`, "data-field": field.name }),
      mark: element("span", { className: "mark" }),
      body: element("div", { className: "body" }),
      under: element("div", { className: "under" }),
    };
    const key = field.name === "keep" ? "k x" : field.key;
    const label = element("span", { className: "label", id: `label-${field.name}` }, field.label, " ", element("kbd", { textContent: key }));
    part.box.append(element("div", { className: "head" }, label, part.mark), part.body, part.under);
    this.#parts.set(field, part);
    return part.box;
  }

  #fill(field, part, rows) {
    const values = rows.map((row) => this.clips.value(row, field.name));
    const common = values.every((value) => same(value, values[0]) && (value === undefined) === (values[0] === undefined));
    const [row] = rows;
    const standing = rows.length === 1 ? row.reviews[field.name] : undefined;
    part.box.classList.toggle("conflict", Boolean(standing?.conflict));
    part.mark.textContent = !standing ? "" : standing.conflict ? "≠ differ" : field.kind === "choice" ? "✓" : `✓ ${standing.by}`;
    part.mark.title = standing?.by ?? "";
    if (field.kind === "choice") part.body.replaceChildren(...this.#choices(field, common ? values[0] : undefined, rows.length > 0));
    else if (this.#editing !== field) {
      const text = common ? textOf(field, values[0]) : "various";
      const names = `value${common && values[0] != null ? "" : " unknown"}`;
      const button = element("button", { type: "button", className: names, textContent: text || "not known", dir: "auto" });
      button.setAttribute("aria-labelledby", `label-${field.name}`);
      button.onclick = () => this.#edit(field);
      button.disabled = rows.length === 0;
      part.body.replaceChildren(button, ...(standing ? this.#before(field, row, standing) : []));
    }
    part.under.replaceChildren(...(standing?.conflict ? [this.#voices(field, standing)] : []),
      ...(field.name === "characters" && rows.length ? this.#numbered(rows) : []));
  }

  #choices(field, value, enabled) {
    return field.choices.map((choice, index) => {
      const text = choice === null ? "?" : field.texts[index];
      const button = element("button", { type: "button", textContent: text, title: choice === null ? UNSAYABLE : "" });
      button.ariaPressed = String(value === choice);
      button.disabled = !enabled;
      button.onclick = () => (field.name === "keep" ? this.judge(choice) : this.decide(field.name, choice));
      return button;
    });
  }

  /** The machine's value, if a reviewer changed it. */
  #before(field, row, standing) {
    const machine = row.machine[field.name];
    if (machine === undefined || same(machine, standing.value)) return [];
    const text = textOf(field, machine);
    return [element("del", { className: "was", textContent: text, title: `machine: ${text}`, dir: "auto" })];
  }

  /** The values of the reviewers who differ, to choose one. */
  #voices(field, standing) {
    const buttons = Object.entries(standing.voices).map(([reviewer, value], index) => {
      const button = element("button", { type: "button", className: "voice" },
        element("kbd", { textContent: index + 1 }), element("b", { textContent: reviewer, dir: "auto" }),
        element("span", { textContent: textOf(field, value), dir: "auto" }));
      button.onclick = () => this.settle(field.name, value);
      return button;
    });
    return element("div", { className: "voices", role: "group", ariaLabel: `Settle ${field.label}` }, ...buttons);
  }

  #numbered(rows) {
    return this.clips.names().slice(0, 30).map((name, index) => {
      const button = element("button", { type: "button", className: "chip" },
        ...(index < 9 ? [element("kbd", { textContent: index + 1 })] : []), element("span", { textContent: name, dir: "auto" }));
      button.ariaPressed = String(rows.every((row) => this.clips.value(row, "characters")?.includes(name)));
      button.onclick = () => this.name(index + 1, false);
      return button;
    });
  }

  #next(field) {
    const rows = this.targets();
    const own = this.clips.own(rows[0], field.name);
    const place = own === undefined ? -1 : field.choices.indexOf(own);
    if (place + 1 < field.choices.length) this.decide(field.name, field.choices[place + 1]);
    else this.decide(field.name);
  }

  #edit(field) {
    if (this.#editing) this.#close(false);
    const part = this.#parts.get(field);
    const rows = this.targets();
    const value = this.clips.value(rows[0], field.name);
    const input = element(field.name === "sentence" ? "textarea" : "input", { id: `edit-${field.name}`, className: "edit", dir: "auto", maxLength: 2000, spellcheck: field.name === "sentence" });
    input.setAttribute("aria-labelledby", `label-${field.name}`);
    if (field.kind === "number") input.inputMode = "numeric";
    const complaint = element("p", { className: "complaint", role: "alert", hidden: true });
    if (rows.every((row) => same(this.clips.value(row, field.name), value)) && value != null) input.value = textOf(field, value);
    this.#editing = field;
    this.#edited = rows;
    part.body.replaceChildren(input, ...(COMPLETED.includes(field.name) ? [this.#completion(field, input)] : []), complaint);
    input.onkeydown = (event) => this.#typed(field, input, complaint, event);
    input.onblur = () => this.#editing === field && this.#leave(field, input, complaint);
    input.focus({ preventScroll: true });
    input.scrollIntoView({ block: "nearest" });
    input.select();
    input.dataset.before = input.value;
  }

  #completion(field, input) {
    const names = field.name === "characters";
    const last = (text) => (names ? text.slice(text.lastIndexOf(",") + 1) : text);
    const used = () => (field.name === "actor" ? [...this.clips.names().map((name) => [name, 0]), ...this.clips.used("actor"), ...this.clips.used("S")]
      : names ? this.clips.names().map((name) => [name, 0]) : this.clips.used(field.name));
    const offer = () => [...new Map(used().filter(([word]) => word !== null)).entries()];
    return completed(input, offer, (word) => {
      input.value = names ? [...input.value.split(",").slice(0, -1).map((name) => name.trim()), word].join(", ") : word;
    }, last);
  }

  #typed(field, input, complaint, event) {
    event.stopPropagation(); // the keys of the page are letters here
    if (event.isComposing) return;
    if (event.key === "Escape") this.#close(true);
    else if (event.key === "Enter" && !event.shiftKey) {
      if (this.#take(field, input, complaint)) this.#close(true);
    } else if (event.key === "Delete" && event.shiftKey) {
      this.#close(true);
      this.decide(field.name);
    } else return;
    event.preventDefault();
  }

  /** Takes what was typed when the field loses the focus, unless nothing was. */
  #leave(field, input, complaint) {
    if (input.value === input.dataset.before || this.#take(field, input, complaint)) this.#close(false);
  }

  #take(field, input, complaint) {
    try {
      this.decide(field.name, parse(field, input.value, this.clips.info));
      return true;
    } catch (error) {
      complaint.textContent = error.message;
      complaint.hidden = false;
      input.setAttribute("aria-invalid", "true");
      return false;
    }
  }

  #close(focus) {
    this.#editing = null;
    this.show();
    if (focus) this.done();
  }
}
