// Where the player writes: either the three fields or free text, as an instruction for the next turn.

import { RequestError } from "./api.js";
import { readDraft } from "./game.js";
import { at, element } from "./page.js";
import { compose, parse, splitTimes, told, unmet } from "./words.js";

const PAUSE_MS = 300;

/** A text without the first of these words, if it begins with one. */
const without = (words, text) => text.slice((words.find((word) => text.startsWith(`${word} `))?.length ?? -1) + 1);

const chip = (textContent, onclick) => element("button", { type: "button", className: "chip", textContent, onclick });

export class Composer {
  #play;
  #asking = null; // the player's request, until it is answered
  #waiting = false;
  #checks = 0; // how often a character was chosen: the one chosen first acts
  #hindered = {}; // why a character cannot do a motion now
  #shown = []; // who is in the picture if the player names nobody
  #casting = {}; // of motions: company "needed" or "none" in the picture
  #together = {}; // words that the training data shows together
  #times = [];
  #manners = []; // adverbs of the motion levels
  #pause = null; // timer until the writing is measured
  #continues = false; // whether the model can continue the last shot
  #first = null; // whether the next turn is the first of its game

  constructor(play, cancel) {
    this.#play = play;
    this.form = at("composer");
    this.form.onsubmit = (event) => {
      event.preventDefault();
      this.#submit();
    };
    at("cancel").onclick = cancel;
    at("free-text").onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    };
    at("someone").onkeydown = (event) => {
      if ((event.key !== "Enter" && event.key !== ",") || event.isComposing) return;
      if (!event.target.value.trim() && event.key === "Enter") return; // nothing typed: Enter plays
      event.preventDefault();
      this.#takeName();
    };
    at("someone").onblur = () => this.#takeName();
    this.form.oninput = () => this.#written();
    for (const radio of this.form.elements.mode) radio.onchange = () => this.#switch();
    const mode = localStorage.getItem("mode");
    if (mode === "free") this.#setMode(mode);
  }

  get mode() {
    return this.form.elements.mode.value;
  }

  /** Whether the next turn shall not continue the last shot, though the place stays. */
  get newShot() {
    return at("new-shot").checked;
  }

  get instruction() {
    if (this.mode === "free") return at("free-text").value.trim().replace(/\s+/g, " "); // an instruction is one line
    return this.#line();
  }

  /** Offers the characters, motions and places met in training, and says what can be played. */
  offer({ characters, motions, places, together, times, manners, about, drawn, continues, rules }) {
    for (const name of characters) this.#chip(name, false);
    const words = [...characters, ...motions, ...places];
    at("names").replaceChildren(...words.map((word) => this.#wordButton(word)));
    at("names").hidden = words.length === 0;
    this.#offerFor("motion-text", at("motions"), motions);
    const apart = splitTimes(places, times);
    [this.#together, this.#times, this.#manners, this.#casting] = [together, apart.times, manners, rules?.casting ?? {}];
    this.#offerFor("background-text", at("places"), apart.places);
    this.#offerTimes(apart.times);
    at("about").textContent = about;
    at("about").hidden = !about;
    at("drawn").textContent = drawn;
    this.#continues = continues;
    this.#preview();
  }

  ask(first) {
    at("ask").textContent = first ? "Who begins, and how?" : "What happens next?";
    if (first === this.#first) return;
    this.#first = first;
    at("new-shot").parentElement.hidden = first || !this.#continues;
    this.#chooseTime();
    this.#preview();
  }

  /** Shows that a turn is being drawn, or no longer. */
  wait(waiting) {
    this.#asking = null;
    if (waiting !== this.#waiting) {
      const focused = document.activeElement === at(waiting ? "play" : "cancel");
      this.#waiting = at("play").disabled = waiting;
      at("play").textContent = waiting ? "Drawing" : "Play";
      if (focused) at(waiting ? "cancel" : "play").focus({ preventScroll: true });
    }
  }

  /** Makes room for the next instruction, unless the player has begun to write it. Who and where stay. */
  clear(sent) {
    if (this.instruction !== sent) return;
    at("motion-text").value = at("free-text").value = "";
    at("new-shot").checked = false;
    this.#chooseTime();
    this.#preview();
  }

  /** Says what is wrong; `atField`: with what the player wrote. */
  complain(text, atField = false) {
    at("complaint").textContent = text.charAt(0).toUpperCase() + text.slice(1);
    at("complaint").hidden = !text;
    for (const field of [at("free-text"), at("motion-text")]) {
      field.removeAttribute("aria-invalid");
      field.removeAttribute("aria-describedby");
    }
    if (!text || !atField) return;
    this.#field.setAttribute("aria-invalid", "true");
    this.#field.setAttribute("aria-describedby", "complaint");
  }

  hint(text) {
    at("hint").textContent = text;
  }

  focus() {
    this.#field.focus();
  }

  /** Takes over who, where and when of an instruction that is played, unless the player has begun to write. */
  takeOver(instruction) {
    if (this.mode === "free" || at("motion-text").value.trim()) return;
    this.#fill({ ...parse(instruction), motion: "" });
    this.#preview();
  }

  /** Marks what characters cannot do now; those `shown` stay in the picture if nobody is named, and the first acts. */
  hinder(hindered, shown) {
    [this.#hindered, this.#shown] = [hindered, shown];
    this.#preview();
  }

  get #field() {
    return at(this.mode === "free" ? "free-text" : "motion-text");
  }

  #submit() {
    if (this.busy) return;
    this.#takeName();
    if (this.mode === "fields" && !at("motion-text").value.trim()) {
      this.complain("Say under Motion what happens.", true);
      this.focus();
      return;
    }
    this.send(this.instruction);
  }

  /** Whether an instruction is being played: a double click plays once. */
  get busy() {
    return this.#waiting || this.#asking !== null;
  }

  send(instruction) {
    const asking = this.#play(instruction).finally(() => {
      if (this.#asking === asking) this.#asking = null;
    });
    this.#asking = asking;
  }

  #characters() {
    const typed = at("someone").value.trim();
    const boxes = [...at("cast").querySelectorAll("input:checked")];
    const checked = boxes.sort((one, other) => one.dataset.when - other.dataset.when).map((box) => box.value);
    return typed && !checked.includes(typed) ? [...checked, typed] : checked;
  }

  #takeName() {
    const name = at("someone").value.trim();
    if (!name) return;
    at("someone").value = "";
    this.#choose(name);
    this.#preview();
  }

  #choose(name) {
    const boxes = [...at("cast").querySelectorAll("input[type=checkbox]")];
    const known = boxes.find((box) => box.value.toLowerCase() === name.toLowerCase());
    if (known) this.#check(known);
    else this.#chip(name, true);
  }

  #check(box) {
    [box.checked, box.dataset.when] = [true, ++this.#checks];
  }

  #chip(name, checked) {
    const box = element("input", { type: "checkbox", value: name });
    box.oninput = () => box.checked && this.#check(box); // before the form's, which composes
    if (checked) this.#check(box);
    at("someone").before(element("label", { className: "chip" }, box, element("span", { textContent: name })));
  }

  #wordButton(word) {
    return chip(word, () => {
      const field = at("free-text");
      const gap = field.selectionStart > 0 && !/\s$/.test(field.value.slice(0, field.selectionStart)) ? " " : "";
      field.setRangeText(`${gap}${word} `, field.selectionStart, field.selectionEnd, "end");
      field.focus();
    });
  }

  #offerFor(field, group, words) {
    const fill = (word) => {
      at(field).value = word;
      this.#written();
    };
    group.replaceChildren(...words.map((word) => chip(word, () => fill(word))));
    group.hidden = words.length === 0;
  }

  #offerTimes(times) {
    const radio = (value) => element("input", { type: "radio", name: "time", value });
    const label = (value) => element("label", {}, radio(value), element("span", { textContent: value || "unchanged" }));
    at("times").replaceChildren(...["", ...times].map(label));
    at("time").hidden = times.length === 0;
    this.#chooseTime();
  }

  /** A first turn has a time of day; later ones keep it unless told otherwise. */
  #chooseTime() {
    const [unchanged, ...times] = at("times").querySelectorAll("input");
    if (!times.length) return;
    unchanged.parentElement.hidden = this.#first;
    (this.#first ? times[0] : unchanged).checked = true;
  }

  #line() {
    const [time, place] = [this.form.elements.time?.value ?? "", at("background-text").value.trim()];
    const background = !time || !place || place.startsWith(`${time} `) ? place : `${time} ${place}`;
    return compose(this.#characters(), at("motion-text").value.trim(), background);
  }

  /** The player writes: what was said about the last turn has been read. */
  #written() {
    this.hint("");
    this.#preview();
  }

  #preview() {
    at("preview").textContent = this.mode === "fields" ? this.instruction : "";
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.#read(), PAUSE_MS);
    for (const [field, group] of [["motion-text", "motions"], ["background-text", "places"]])
      for (const button of at(group).children) button.ariaPressed = String(button.textContent === at(field).value.trim());
    at("time").disabled = !at("background-text").value.trim(); // a time is told with its place
    this.#mark();
  }

  /** Marks the choices that training never showed with those made. */
  #mark() {
    const [names, motion, place] = [this.#characters(), at("motion-text").value.trim(), at("background-text").value.trim()];
    for (const box of at("cast").querySelectorAll("input[type=checkbox]"))
      box.parentElement.classList.toggle("unmet", this.#unmet([box.value], motion, place).some(([name]) => name === box.value));
    for (const button of at("motions").children)
      button.classList.toggle("unmet", Boolean(this.#miscast(names, button.textContent)) || this.#unmet(names, button.textContent, place).some((pair) => pair.includes(button.textContent)));
    for (const button of at("motions").children) button.classList.toggle("hindered", Boolean(this.#hindrance(names, button.textContent)));
    for (const button of at("places").children)
      button.classList.toggle("unmet", this.#unmet(names, motion, button.textContent).some((pair) => pair.includes(button.textContent)));
  }

  /** Says what the instruction is understood as, and how much of the limit it takes, once the player pauses. */
  async #read() {
    const written = this.instruction;
    let [length, understood, meant] = ["", "", written];
    try {
      if (written) {
        const { instruction, unknown, left_out, tokens, most } = await readDraft(written, this.#first);
        [length, meant] = [`${tokens} of ${most} tokens`, instruction];
        understood = [
          instruction === written ? "" : `Understood as: ${told(instruction)}.`,
          left_out.length ? `Left out: ${left_out.join(", ")}.` : "",
          unknown.length ? `Not known here: ${unknown.join(", ")}.` : "",
        ].filter(Boolean).join(" ");
      }
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (error.status === 422) length = error.message; // too long; a lost server is told when the player plays
    }
    if (written !== this.instruction) return;
    at("length").textContent = length;
    at("understood").textContent = understood;
    const fields = parse(meant);
    at("hindrance").textContent = fields ? this.#hindrance(fields.characters, without(this.#manners, fields.motion)) : "";
    this.#nameUnmet(fields);
  }

  #hindrance([actor = this.#shown[0]], motion) {
    return this.#hindered[actor]?.[motion] ?? "";
  }

  /** Says that a motion needs more characters, or fewer. */
  #miscast(names, motion) {
    const [deed, many] = [without(this.#manners, motion), (names.length || this.#shown.length) > 1];
    if (this.#casting[deed] === "needed" && !many) return `It takes two to ${deed}: one character alone may be drawn twice.`;
    if (this.#casting[deed] === "none" && many) return `Characters ${deed} alone: a second one may not show.`;
    return "";
  }

  #nameUnmet(fields) {
    const pairs = fields ? this.#unmet(fields.characters, fields.motion, without(this.#times, fields.background)) : [];
    const named = pairs.map(([one, other]) => `${one} with ${other}`);
    const miscast = fields ? this.#miscast(fields.characters, fields.motion) : "";
    at("unmet").textContent = [
      miscast,
      named.length ? `Not in the training data, so it may not show: ${named.join(", ")}.` : "",
    ].filter(Boolean).join(" ");
  }

  #unmet(names, motion, place) {
    return unmet(this.#together, this.#times, names, without(this.#manners, motion), place);
  }

  /** The other way of writing takes over what is written, where it can say it. */
  #switch() {
    const free = this.mode === "free";
    localStorage.setItem("mode", this.mode);
    if (free && at("motion-text").value.trim() && !at("free-text").value.trim()) at("free-text").value = this.#line();
    if (!free) this.#fill(parse(at("free-text").value));
    this.#setMode(this.mode);
    this.focus();
  }

  #fill(fields) {
    if (!fields) return;
    for (const box of at("cast").querySelectorAll("input:checked")) box.checked = false;
    for (const name of fields.characters) this.#choose(name);
    at("motion-text").value = fields.motion;
    const time = [...at("times").querySelectorAll("input")].find(({ value }) => value && fields.background.startsWith(`${value} `));
    if (time) time.checked = true;
    at("background-text").value = fields.background.slice(time ? time.value.length + 1 : 0);
    at("free-text").value = "";
  }

  #setMode(mode) {
    this.form.elements.mode.value = mode;
    at("free").hidden = mode !== "free";
    at("fields").hidden = mode === "free";
    this.#preview();
  }
}
