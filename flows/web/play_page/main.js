// The game page: what is played, looked at and drawn, and how the parts of the page follow it.

import { RequestError } from "./api.js";
import { Composer } from "./composer.js";
import * as api from "./game.js";
import { forget, keep, kept, Tree } from "./game.js";
import { Keep } from "./keep.js";
import { at, counted, element } from "./page.js";
import { Rules } from "./rules.js";
import { Screen, showValues } from "./screen.js";
import { showBranches, showShelf, showStrip } from "./story.js";
import { signed, told } from "./words.js";

const screen = new Screen();
const composer = new Composer(play, cancel);
const keeping = new Keep((id) => (location.hash = id));
const rules = new Rules(composer);

let info = null;
let game = null; // id, or null before the first turn
let tree = null;
let head = null; // the turn that the next instruction goes on from
let viewed = null; // the turn on the screen
let stopFollowing = null; // while a drawing is followed
let opened = 0; // how often a game was opened: what was asked for before the last time is no longer of interest
let opening = false;
let arrived = null; // the promise that what the address names, or the turn just drawn, is here

/** Shows everything as it is now. */
function show() {
  const turn = tree.get(viewed);
  const path = tree.path(head);
  const forks = head !== null && tree.ways(head) > 0;
  document.title = turn ? `${path.length}. ${told(tree.get(head).instruction).slice(0, 60)} – AnimeGamer` : "AnimeGamer";
  screen.show(game, turn, turn ? tree.path(viewed).length : 0);
  if (info.rules) rules.show(game, viewed, head);
  else showValues(turn?.values ?? info.start, turn ? tree.changes(turn) : {});
  composer.ask(turn === undefined);
  showFork(forks, path.length);
  showTakes(turn);
  showLooking(path);
  showBranches(tree, head, (leaf) => goTo(leaf));
  showStrip(game, tree, path, viewed, look);
  showShelf(turn ? [] : kept());
  at("count").textContent = path.length ? counted(path.length, "turn") : "";
  at("story-title").textContent = turn ? "Story" : "Your games";
  at("story").hidden = !turn && kept().length === 0;
  at("new").hidden = !turn;
  keeping.show(game, head, path.length);
}

function showLooking(path) {
  at("looking").hidden = viewed === head;
  const number = path.findIndex((turn) => turn.id === viewed) + 1;
  at("looking").firstElementChild.textContent = `You look back at turn ${number} of ${path.length}.`;
}

function showTakes(turn) {
  at("takes").hidden = !turn;
  if (!turn) return;
  const takes = tree.takes(turn);
  const number = takes.indexOf(turn.id);
  const [before, said, after] = at("takes").lastElementChild.children;
  at("takes").lastElementChild.hidden = takes.length < 2;
  said.textContent = `take ${number + 1} of ${takes.length}`;
  for (const [button, take] of [[before, takes[number - 1]], [after, takes[number + 1]]]) {
    button.disabled = !take;
    button.onclick = () => goTo(take);
  }
  at("again").onclick = () => composer.busy || draw(turn.parent, turn.instruction, !turn.continues);
}

function showFork(forks, number) {
  at("fork").hidden = !forks;
  if (!forks) return;
  const onclick = () => goTo(tree.tip(head));
  const back = element("button", { type: "button", className: "link", textContent: "Stay on the old one", onclick });
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

/** Whether the player is still where something was asked for. */
function here() {
  const [id, when] = [game, opened];
  return () => id === game && when === opened;
}

async function play(instruction) {
  composer.complain("");
  composer.hint("");
  await arrived; // a quick player asks before the page has read the game
  const stays = here();
  try {
    if (game === null) {
      const { id } = await api.makeGame();
      if (!stays()) return;
      game = id;
      history.pushState(null, "", `#${id}`);
    }
  } catch (error) {
    const message = said(error);
    if (stays()) composer.complain(message);
    return;
  }
  await draw(head, instruction, composer.newShot, instruction);
}

/** Asks for a turn after another one; `sent` is the instruction if the player has just written it. */
async function draw(after, instruction, newShot, sent = null) {
  const stays = here();
  try {
    const drawing = await api.play(game, after, instruction, newShot);
    if (!stays()) return;
    composer.hint(drawing.note);
    followDrawing(drawing, sent);
  } catch (error) {
    const message = said(error);
    if (!stays()) return;
    composer.complain(message, sent !== null && error.status === 422);
    if (error.status === 409) await refresh();
  }
}

async function cancel() {
  const stays = here();
  try {
    await api.cancel(game);
  } catch (error) {
    const message = said(error);
    if (stays()) composer.complain(message);
  }
}

/** Follows a drawing to its end; `sent` is the instruction if this page has asked for it. */
function followDrawing(drawing, sent = null) {
  stopFollowing?.();
  showDrawing(drawing);
  at("stage").scrollIntoView({ block: "nearest" });
  stopFollowing = api.follow(game, (step) => (isUnderWay(step) ? showDrawing(step) : finish(step, sent)));
}

const isUnderWay = ({ status }) => status === "waiting" || status === "drawing" || status === "silent";

function showDrawing(drawing) {
  screen.draw(game, drawing);
  composer.wait(true);
}

function stopWaiting(done = false) {
  stopFollowing?.();
  stopFollowing = null;
  composer.wait(false);
  screen.draw(game, null, done);
}

async function finish(drawing, sent) {
  stopWaiting(drawing.status === "done");
  if (drawing.status === "cancelled") composer.hint("Cancelled. Nothing has changed.");
  else if (drawing.status === "invalid" || drawing.status === "failed")
    composer.complain(drawing.message, drawing.status === "invalid");
  else {
    rules.forget(); // until the new turn is here, a quick player would repeat the last one
    await (arrived = showWhatCame(drawing, sent));
  }
}

/** Reads the game after a drawing was done, or the connection or the server was lost: what is on disk counts. */
async function showWhatCame(drawing, sent) {
  const [stays, before] = [here(), tree];
  try {
    const reply = await api.readGame(game);
    if (!stays()) return;
    take(game, reply);
  } catch (error) {
    const message = said(error);
    if (!stays()) return;
    screen.draw(game, null);
    composer.complain(message);
    return;
  }
  const turn = drawing.turn ?? tree.newest;
  if (drawing.turn || (turn !== null && !before.get(turn))) return showNew(turn, sent);
  show();
  composer.complain("The drawing was interrupted. Your game is whole: play the turn again.");
}

function showNew(turn, sent) {
  composer.complain("");
  composer.clear(sent);
  goTo(turn);
  keep(game, tree.path(turn)[0].instruction, tree.path(turn).length, turn);
  const { values } = tree.get(turn);
  const changes = Object.entries(tree.changes(tree.get(turn))).filter(([, by]) => by);
  const said = changes.map(([name, by]) => `${name} ${signed(by)}, now ${values[name]}`);
  at("news").textContent = [`Turn ${tree.path(turn).length} is on the screen`, ...said].join("; ");
}

/** Catches up with what another page of this game has done. */
async function refresh() {
  if (game === null || opening || stopFollowing) return;
  const stays = here();
  let reply;
  try {
    reply = await api.readGame(game);
  } catch (error) {
    said(error); // the player has asked for nothing; the next request tells
    return;
  }
  if (!stays() || stopFollowing) return;
  const [known, wasLast] = [tree.turns.size, tree.ways(head) === 0 && viewed === head];
  take(game, reply);
  if (wasLast && tree.ways(head) > 0) goTo(tree.tip(head));
  else if (tree.turns.size !== known) show();
  if (reply.drawing) followDrawing(reply.drawing);
}

const said = (error) => {
  if (!(error instanceof RequestError)) throw error;
  return error.message;
};

function take(id, { turns, waited, fulfilled }) {
  game = id;
  at("waited").title = waited;
  tree = new Tree(turns, info.rules ? null : info.start, fulfilled);
}

async function begin() {
  try {
    info = await api.readInfo();
    composer.offer(info);
    keeping.limit(info.kept);
    if (info.rules) announce(info.rules);
    await open();
  } catch (error) {
    composer.complain(said(error));
  }
}

const NOTHING = { turns: [], drawing: null, waited: "", fulfilled: {} };

/** Says on the title card that something is at stake. */
function announce({ turns }) {
  document.body.classList.add("ruled");
  at("values").hidden = true;
  const [kicker, , goal] = at("card").children;
  kicker.textContent = turns ? `A story of ${counted(turns, "turn")}` : "An endless game";
  goal.textContent = "Make wishes come true, and let nobody tire, be lonely or bored.";
}

/** Opens what the address names: `#`, `#GAME` or `#GAME/TURN`. */
async function open() {
  const [id, turn] = location.hash.slice(1).split("/");
  if (tree && !opening && (id || null) === game && tree.get(turn)) return goTo(turn);
  const mine = ++opened;
  opening = true;
  stopWaiting();
  if (tree) composer.complain(""); // about another game; at the start, a quick player may have been told something
  let reply = NOTHING;
  let complaint = "";
  try {
    if (id) reply = await api.readGame(id);
  } catch (error) {
    complaint = said(error);
    if (error.status === 404) forget(id);
  }
  if (mine !== opened) return;
  opening = false;
  take(reply === NOTHING ? null : id, reply);
  head = viewed = tree.get(turn)?.id ?? tree.newest;
  if (complaint) composer.complain(complaint);
  show();
  screen.play();
  if (reply.drawing) followDrawing(reply.drawing);
}

at("continue").onclick = () => {
  goTo(viewed);
  composer.focus();
};
at("newest").onclick = () => goTo(head);
at("new").onclick = at("another").onclick = () => (location.hash = "");
at("watch").onclick = () => {
  const [button, film] = [at("watch"), api.filmOf(game, head)];
  button.disabled = true;
  const stop = api.followFilm(game, head, "mp4", false, ({ share, done, message }) => {
    const ended = done || Boolean(message);
    button.textContent = ended ? "Watch the film" : `The film: ${Math.floor(100 * share)}%`;
    if (!ended) return;
    stop();
    button.disabled = false;
    if (done) screen.showFilm(film);
    else at("sum").textContent = message;
  });
};
addEventListener("hashchange", () => (arrived = open()));
document.addEventListener("visibilitychange", () => document.hidden || refresh());

arrived = begin();
