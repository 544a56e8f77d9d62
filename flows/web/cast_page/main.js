// The cast page: rows of figures, the one that is worked on, and what the keys do to it.

import { ask, post, RequestError } from "./api.js";
import { listen } from "./keys.js";
import { at, counted } from "./page.js";
import { Strip } from "./strip.js";

let info, state, strip;
let several = []; // names for the row or the marked pictures, to which the next one comes
let busy = Promise.resolve(); // actions go to the server one after the other
let underWay = 0;
let unforeseen = 0; // of these, actions of which only the server knows the rows that they leave

const say = (text, failed = false) => {
  at("said").textContent = text;
  at("said").classList.toggle("failed", failed);
};

/** Takes the rows that the server has, and shows them. */
function take(found) {
  state = found;
  strip.show(state.rows);
  const decided = state.rows.filter((row) => !row.open).reduce((sum, row) => sum + row.figures.length, 0);
  at("progress").textContent = `${decided.toLocaleString("en")} of ${counted(info.figures.length, info.what)} decided`;
  at("names").replaceChildren(...state.names.slice(0, 9).map(([name, count], index) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("kbd"), { textContent: index + 1 }), ` ${name} `, Object.assign(document.createElement("small"), { textContent: count }));
    return item;
  }));
}

/** Sends an action; the rows come back when it is on the server's disk. */
function act(does, { names = [], rows = [], figures = [] } = {}) {
  say("saving");
  const isForeseen = ["name", "discard"].includes(does);
  if (isForeseen) take({ ...state, rows: without(rows, new Set(figures)) }); // the next key is for the next row
  underWay += 1;
  unforeseen += !isForeseen;
  busy = busy.catch(() => {}).then(async () => {
    try {
      const found = await post("api/actions", { does, names, rows, figures, version: state.version });
      if (underWay === 1) take(found);
      else state.version = found.version; // its rows are older than those on the screen
      say(`saved: ${found.done}`);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      say(error.message, true);
      if (error.status) take(await ask("api/rows"));
    } finally {
      underWay -= 1;
      unforeseen -= !isForeseen;
    }
  });
}

/** The rows that are left, without some of them and without some figures of the others. */
function without(rows, figures) {
  const left = state.rows.filter((row) => !rows.includes(row.figures[0]));
  if (!figures.size) return left;
  return left.map((row) => ({ ...row, figures: row.figures.filter((place) => !figures.has(place)) })).filter((row) => row.figures.length);
}

/** The marked pictures, or the row itself, as an action takes them. */
function target() {
  const figures = strip.marked();
  return figures.length ? { figures } : { rows: [strip.row.figures[0]] };
}

function name(names) {
  act("name", { ...target(), names: [...several, ...names] });
  several = [];
}

const actions = {
  move: (by) => {
    several = [];
    strip.move(by);
  },
  along: (by) => strip.along(by),
  accept: () => (strip.row?.proposal && !strip.marked().length ? name(strip.row.proposal) : actions.edit()),
  edit: () => strip.row && strip.edit(state.names, (names) => names.length && name(names)),
  number: (digit, isOneOfSeveral) => {
    const [known] = state.names[digit - 1] ?? [];
    if (!strip.row || (digit && !known)) return;
    if (digit && isOneOfSeveral) {
      several.push(known);
      say(`${several.join(", ")}, and …`);
    } else name(digit ? [known] : []);
  },
  discard: () => strip.row && act("discard", target()),
  mark: () => strip.mark(),
  split: () => {
    if (!strip.row) return;
    const figures = strip.marked();
    act(figures.length ? "group" : "split", target());
  },
  merge: () => {
    const other = strip.pick();
    const pair = other ? [strip.row, other] : [];
    const decided = pair.find((row) => row.names.length) ?? pair.find((row) => !row.open);
    if (other) act(decided?.does ?? "group", { rows: [other.figures[0], strip.row.figures[0]], names: decided?.names ?? [] });
    else say(strip.picked ? "go to another row and press m again to merge them" : "");
  },
  unfold: () => strip.unfold(),
  acceptAll: () => act("accept"),
  undo: () => act("undo"),
  escape: () => {
    several = [];
    strip.release();
    say("");
  },
  write: () => {
    say("writing");
    busy = busy.catch(() => {}).then(async () => {
      try {
        say((await post("api/written", {})).done);
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        say(error.message, true);
      }
    });
  },
  help: () => at("help").showModal(),
};

async function begin() {
  info = await ask("api/info");
  strip = new Strip(info);
  document.title = `${info.name} – cast`;
  at("dataset").textContent = info.name;
  at("task").textContent = `cast by ${info.reviewer}`;
  at("remarks").hidden = !info.remarks.length;
  at("remarks").replaceChildren(...info.remarks.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  take(await ask("api/rows"));
  listen(actions, () => unforeseen > 0);
  at("help-button").onclick = actions.help;
  at("rows").focus();
}

begin().catch((error) => {
  if (!(error instanceof RequestError)) throw error;
  say(error.message, true);
});
