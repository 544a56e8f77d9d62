// The review page: the current clip, the selected ones and the filters, and how the parts of the page follow them.

import { ask, RequestError } from "./api.js";
import { Clips, hasConflict, isReviewed } from "./clips.js";
import { Editors } from "./editors.js";
import { FIELD, FIELDS, same } from "./fields.js";
import { FilterBar, filtered, keepVisit, keptVisit } from "./filters.js";
import { Grid, Selection } from "./grid.js";
import { listen } from "./keys.js";
import { at, clock } from "./page.js";
import { Panel, switchPlaying } from "./panel.js";
import { readReviews, Saving, showNotices, showProgress, showSaving } from "./saving.js";

const selection = new Selection();

let clips, grid, panel, editors, saving, bar;
let current = null; // the clip in the panel; it need not be in the grid
let asked = ""; // the field whose conflict the next number key settles

const targets = () => (selection.size ? selection.rows : current && current.place !== null ? [current] : []);

/** Makes a clip the current one. */
function open(row, sheet = false) {
  if (!row) return;
  current = row;
  asked = "";
  show();
  keepVisit(clips.info, bar.criteria, row.id);
  if (sheet) document.body.classList.add("sheet");
}

function show() {
  grid.focus(current);
  panel.show(current);
  editors.show();
  at("confirm").disabled = !targets().length;
}

/** Shows the clips that the filters let through; the current one stays if it is among them. */
function update() {
  const rows = filtered(clips, bar.criteria);
  grid.show(rows);
  bar.count(rows.length);
  selection.clear();
  keepVisit(clips.info, bar.criteria, current?.id ?? null);
  if (grid.place(current) >= 0) show();
  else if (rows.length) open(rows[0]);
  else show();
}

/** Takes a new value for all targets; a function gives each its own, and none takes decisions back. */
function decide(name, ...given) {
  const changes = targets().flatMap((row) => [...changesOf(row, name, given), ...(name === "actor" ? entrance(row, given[0]) : [])]);
  saving.make(changes, FIELD.get(name).label);
}

function changesOf(row, name, given) {
  const own = clips.own(row, name);
  const change = { clip: row.id, field: name };
  if (given.length) change.value = typeof given[0] === "function" ? given[0](row) : given[0];
  const asBefore = given.length ? own !== undefined && same(own, change.value) : own === undefined;
  return asBefore ? [] : [change];
}

/** A character who acts is on screen. */
function entrance(row, actor) {
  const names = clips.value(row, "characters") ?? [];
  return clips.names().includes(actor) && !names.includes(actor) ? changesOf(row, "characters", [[...names, actor]]) : [];
}

function settle(name, value) {
  asked = "";
  saving.make([{ clip: current.id, field: name, value, settle: true }], `${FIELD.get(name).label} settled`);
}

/** Confirms every value that is known and not yet decided by this reviewer, and goes on. */
function confirm() {
  const changes = targets().flatMap((row) =>
    FIELDS.filter(({ name }) => clips.own(row, name) === undefined && !row.reviews[name]?.conflict && clips.value(row, name) !== undefined)
      .map(({ name }) => ({ clip: row.id, field: name, value: clips.value(row, name) })));
  if (!clips.info.blind) saving.make(changes, "confirmed");
  if (!selection.size) step(1);
}

function step(by) {
  const rows = grid.rows;
  const from = grid.place(current);
  const to = Math.max(0, Math.min(rows.length - 1, from + by));
  if (rows.length && to !== from) open(rows[to]);
}

function move(key, selecting) {
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[key];
  const from = current;
  if (Math.abs(by) > 1 && !grid.rows[grid.place(current) + by]) return;
  step(by);
  if (selecting) {
    selection.reach(grid.rows, current, from);
    grid.refresh();
    show();
  }
}

function page(key) {
  step({ PageUp: -grid.pageSize, PageDown: grid.pageSize, Home: -grid.rows.length, End: grid.rows.length }[key]);
}

function unreviewed(by) {
  const rows = grid.rows;
  for (let index = grid.place(current) + by; index >= 0 && index < rows.length; index += by)
    if (!isReviewed(rows[index])) return open(rows[index]);
  at("undone").textContent = by > 0 ? "no unreviewed clip after this one" : "no unreviewed clip before this one";
}

function number(digit, acts) {
  if (!asked) return targets().length && editors.name(digit, acts);
  const value = Object.values(current.reviews[asked].voices)[digit - 1];
  if (value !== undefined) settle(asked, value);
}

/** Asks which reviewer is right about the first conflict of the clip, or goes to the next clip with one. */
function conflict() {
  const field = FIELDS.find(({ name }) => current?.reviews[name]?.conflict);
  if (field) {
    asked = field.name;
    at("undone").textContent = `${field.label}: press the number of the reviewer who is right`;
    return;
  }
  const next = grid.rows.find((row, index) => index > grid.place(current) && hasConflict(row)) ?? grid.rows.find(hasConflict);
  if (next) {
    open(next);
    conflict();
  } else at("undone").textContent = "no conflict in the grid";
}

function undo() {
  const action = saving.undo();
  at("undone").textContent = action ? `undone: ${action.name}` : "nothing to undo";
  if (action && !selection.size) open(clips.get(action.at));
}

function select() {
  if (grid.place(current) < 0) return;
  selection.toggle(current);
  step(1);
  grid.refresh();
  show();
}

function choose(row, way) {
  if (way === "range") selection.reach(grid.rows, row, current);
  else if (way === "pick") selection.toggle(row);
  grid.view.focus({ preventScroll: true });
  open(row, way === "open");
  if (way !== "open") grid.refresh();
}

/** Shows the clips most like the current one, or like words; without either, all again. */
async function searchAlike(query, shown) {
  try {
    clips.alike = query ? (await ask(`api/alike?${new URLSearchParams(query)}`)).likeness : null;
    if (query?.clip) clips.alike[query.clip] = 2; // itself comes first
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    at("undone").textContent = error.message;
    return;
  }
  at("alike").hidden = !query;
  at("alike").textContent = `like ${shown} ×`;
  update();
}

function escape() {
  asked = "";
  if (document.body.classList.contains("sheet")) document.body.classList.remove("sheet");
  else if (selection.size) {
    selection.clear();
    grid.refresh();
  } else if (clips.alike) searchAlike(null);
  show();
}

const focus = () => grid.view.focus({ preventScroll: true });

const actions = {
  move, page, unreviewed, confirm, number, conflict, undo, select, escape, focus, update,
  near: (by) => current && open(clips.around(current, 1)[by < 0 ? 0 : 1]),
  edit: (name) => {
    if (selection.size === 0) document.body.classList.add("sheet");
    editors.open(name);
  },
  judge: (keep) => targets().length && editors.judge(keep),
  play: () => {
    switchPlaying();
    grid.playOrPause();
    panel.playOrPause();
  },
  listen: () => panel.listen(),
  selectAll: () => {
    selection.all(grid.rows.filter((row) => row.place !== null));
    grid.refresh();
    show();
  },
  search: () => at("text").select(),
  alike: () => current && clips.info.alike.length && searchAlike({ clip: current.id }, clock(current.start)),
  filters: () => {
    bar.unfold(true);
    at("level").focus();
  },
  order: () => bar.nextOrder(),
  help: () => at("help").showModal(),
};

/** Shows changed clips again; null: all of them. */
function changed(rows) {
  grid.refresh(rows);
  showProgress(clips);
  if (current) {
    panel.show(current);
    editors.show();
  }
}

async function begin() {
  const [info, { clips: rows }, reviews] = await Promise.all([ask("api/info"), ask("api/clips"), readReviews()]);
  clips = new Clips(info, rows, reviews);
  const { criteria, clip } = keptVisit(info);
  grid = new Grid(clips, selection, choose);
  panel = new Panel(clips, selection, (row) => row && open(row));
  saving = new Saving(clips, () => showSaving(saving), changed);
  editors = new Editors(clips, targets, { decide, settle, done: focus });
  bar = new FilterBar(clips, criteria, update);
  current = clips.get(clip ?? info.last) ?? null;
  document.title = `${info.name} – ${info.sample ? "audit" : "review"}`;
  showNotices(info);
  showProgress(clips);
  showSaving(saving);
  update();
  listen(actions);
  focus();
  connect();
}

function connect() {
  if (clips.info.blind) at("confirm").firstChild.textContent = "Next clip ";
  at("confirm").onclick = confirm;
  at("alike").onclick = () => searchAlike(null);
  at("find-alike").hidden = !clips.info.alike.length;
  at("find-alike").onclick = actions.alike;
  if (clips.info.alike.includes("words")) at("text").placeholder = "search; ~ finds pictures by words  ( / )";
  at("text").addEventListener("change", ({ target }) => {
    if (target.value.startsWith("~") && target.value.length > 1) searchAlike({ words: target.value.slice(1).trim() }, `“${target.value.slice(1).trim()}”`);
  });
  at("retry").onclick = () => saving.send();
  at("discard").onclick = () => saving.discard().catch(complain);
  at("help-button").onclick = actions.help;
  at("close").onclick = escape;
  at("before").onclick = () => step(-1);
  at("after").onclick = () => step(1);
  at("undo-button").onclick = undo;
  addEventListener("beforeunload", (event) => saving.waiting && event.preventDefault());
  document.addEventListener("visibilitychange", () => document.hidden || saving.refresh().catch(complain));
  if (saving.waiting) saving.send();
}

function complain(error) {
  if (!(error instanceof RequestError)) throw error;
  at("saved").textContent = error.message;
  at("saved").classList.add("failed");
}

begin().catch(complain);
