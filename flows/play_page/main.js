// The game page: what is played, looked at and drawn, and how the parts of the page follow it.

import * as api from "./api.js";
import { Composer } from "./composer.js";
import { forget, keep, kept } from "./memory.js";
import { Screen } from "./screen.js";
import { showBranches, showShelf, showStrip } from "./story.js";
import { Tree } from "./tree.js";
import { showValues } from "./values.js";
import { counted, signed, told } from "./words.js";

const at = (id) => document.getElementById(id);
const screen = new Screen();
const composer = new Composer(play, cancel);

let info = null;
let game = null; // id, or null before the first turn
let tree = null;
let head = null; // the turn that the next instruction goes on from
let viewed = null; // the turn on the screen
let stopFollowing = () => {};

/** Shows everything as it is now. */
function show() {
  const turn = tree.get(viewed);
  const path = tree.path(head);
  const forks = head !== null && tree.ways(head) > 0;
  document.title = turn ? `${path.length}. ${told(tree.get(head).instruction).slice(0, 60)} – AnimeGamer` : "AnimeGamer";
  screen.show(game, turn, turn ? tree.path(viewed).length : 0);
  showValues(turn?.values ?? info.start, turn ? tree.changes(turn) : {});
  composer.ask(turn === undefined);
  showFork(forks, path.length);
  showLooking(path);
  showBranches(tree, head, (leaf) => goTo(leaf));
  showStrip(game, tree, path, viewed, look);
  showShelf(turn ? [] : kept());
  at("count").textContent = path.length ? counted(path.length, "turn") : "";
  at("story-title").textContent = turn ? "Story" : "Your games";
  at("story").hidden = !turn && kept().length === 0;
  at("film").hidden = at("new").hidden = !turn;
  if (turn) at("film").href = api.filmOf(game, head);
}

function showLooking(path) {
  at("looking").hidden = viewed === head;
  const number = path.findIndex((turn) => turn.id === viewed) + 1;
  at("looking").firstElementChild.textContent = `You look back at turn ${number} of ${path.length}.`;
}

function showFork(forks, number) {
  at("fork").hidden = !forks;
  if (!forks) return;
  const back = document.createElement("button");
  back.type = "button";
  back.className = "link";
  back.textContent = "Stay on the old one";
  back.onclick = () => goTo(tree.tip(head));
  at("fork").replaceChildren(`A new branch begins after turn ${number}. `, back);
}

/** Goes on from a turn, and looks at it. */
function goTo(turn) {
  head = viewed = turn;
  history.replaceState(null, "", `#${game}/${turn}`);
  show();
  screen.play();
}

function look(turn) {
  viewed = turn;
  show();
  screen.play();
  at("stage").scrollIntoView({ block: "nearest" });
}

async function play(instruction) {
  composer.complain("");
  composer.hint("");
  try {
    if (game === null) {
      game = (await api.makeGame()).id;
      history.pushState(null, "", `#${game}`);
    }
    followDrawing(await api.play(game, head, instruction));
  } catch (error) {
    composer.complain(said(error));
  }
}

async function cancel() {
  try {
    await api.cancel(game);
  } catch (error) {
    composer.complain(said(error));
  }
}

function followDrawing(drawing) {
  stopFollowing();
  showDrawing(drawing);
  at("stage").scrollIntoView({ block: "nearest" });
  stopFollowing = api.follow(game, (step) => (isUnderWay(step) ? showDrawing(step) : finish(step)));
}

const isUnderWay = ({ status }) => status === "waiting" || status === "drawing" || status === "silent";

function showDrawing(drawing) {
  screen.draw(drawing);
  composer.wait(true);
}

async function finish(drawing) {
  const sent = composer.wait(false);
  screen.draw(null);
  if (drawing.status === "done") await showNew(drawing.turn, sent);
  else if (drawing.status === "cancelled") composer.hint("Cancelled. Nothing has changed.");
  else if (drawing.status === "refused" || drawing.status === "failed") composer.complain(drawing.message);
  else await recover();
}

async function showNew(turn, sent) {
  await read(game);
  composer.clear(sent);
  goTo(turn);
  keep(game, tree.path(turn)[0].instruction, tree.path(turn).length, turn);
  const { values } = tree.get(turn);
  const changes = Object.entries(tree.changes(tree.get(turn))).filter(([, by]) => by);
  const said = changes.map(([name, by]) => `${name} ${signed(by)}, now ${values[name]}`);
  at("news").textContent = [`Turn ${tree.path(turn).length} is on the screen`, ...said].join("; ");
}

/** After the connection or the server was lost: what is on disk counts. */
async function recover() {
  try {
    await read(game);
    show();
    composer.complain("The drawing was interrupted. Your game is whole: play the turn again.");
  } catch (error) {
    composer.complain(said(error));
  }
}

const said = (error) => {
  if (!(error instanceof api.Refusal)) throw error;
  return error.message;
};

/** Reads the game anew; returns its drawing under way, if any. */
async function read(id) {
  const reply = id === null ? { turns: [], drawing: null } : await api.readGame(id);
  game = id;
  tree = new Tree(reply.turns, info.start);
  return reply.drawing;
}

/** Opens what the address names: `#`, `#GAME` or `#GAME/TURN`. */
async function open() {
  const [id, turn] = location.hash.slice(1).split("/");
  if (tree && (id || null) === game && tree.get(turn)) return goTo(turn);
  stopFollowing();
  composer.wait(false);
  composer.complain("");
  screen.draw(null);
  let drawing = null;
  try {
    drawing = await read(id || null);
  } catch (error) {
    await read(null);
    if (error.status === 404) forget(id);
    composer.complain(said(error));
  }
  head = viewed = tree.get(turn)?.id ?? tree.newest;
  show();
  screen.play();
  if (drawing) followDrawing(drawing);
}

at("continue").onclick = () => {
  goTo(viewed);
  composer.focus();
};
at("newest").onclick = () => goTo(head);
at("new").onclick = () => (location.hash = "");
addEventListener("hashchange", open);

try {
  info = await api.readInfo();
  composer.offer(info.characters);
  await open();
} catch (error) {
  composer.complain(said(error));
}
