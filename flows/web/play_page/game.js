// A game: its requests to the server, its turns as a tree, and the games that this browser remembers.

import { ask, post } from "./api.js";

export const readInfo = () => ask("api/info");
export const readDraft = (instruction, first) => post("api/readings", { instruction, first });
export const makeGame = () => post("api/games", {});
export const readGame = (game) => ask(`api/games/${game}`);
export const play = (game, after, instruction, newShot) =>
  post(`api/games/${game}/turns`, { after, instruction, new_shot: newShot });
export const cancel = (game) => ask(`api/games/${game}/drawing`, { method: "DELETE" });

/** How the characters of a game are after a turn, and what may come next; before the first turn without a game. */
export const readStanding = (game, turn) => ask(turn ? `api/games/${game}/turns/${turn}/standing` : "api/standing");

export const videoOf = (game, turn) => `api/games/${game}/turns/${turn}.mp4`;
export const posterOf = (game, turn) => `api/games/${game}/turns/${turn}.jpg`;
export const earlyOf = (game) => `api/games/${game}/drawing.png?${Date.now()}`;
export const readSavable = (game) => ask(`api/games/${game}/savable`);
export const savedOf = (game) => `api/games/${game}/saved`;
export const filmOf = (game, turn, kind = "mp4", captions = false) => `api/games/${game}/films/${turn}.${kind}?captions=${captions}`;
export const openSaved = (file) =>
  ask("api/games/saved", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });

/** Lets a film be made, and tells `report` how far it is, until it is done or the returned function is called. */
export function followFilm(game, turn, kind, captions, report) {
  const source = new EventSource(`api/games/${game}/films/${turn}?kind=${kind}&captions=${captions}`);
  source.onmessage = (event) => report(JSON.parse(event.data));
  source.onerror = () => report({ share: 0, message: "The server does not answer. Is it still running in its terminal?" });
  return () => source.close();
}

/** Tells `report` of every step of the game's drawing, until it ends or the returned function is called. */
export function follow(game, report) {
  const source = new EventSource(`api/games/${game}/drawing`);
  source.onmessage = (event) => {
    const drawing = JSON.parse(event.data);
    if (drawing.status !== "waiting" && drawing.status !== "drawing") source.close();
    report(drawing);
  };
  source.onerror = () =>
    report({ status: source.readyState === EventSource.CLOSED ? "lost" : "silent" });
  return () => source.close();
}

/** The turns as a tree. A branch is the way from a first turn to one that has no next. */
export class Tree {
  /** `start`: the values before the first turn, null under rules; `fulfilled`: the wishes that came true, by turn. */
  constructor(turns, start, fulfilled = {}) {
    this.turns = new Map(turns.map((turn) => [turn.id, turn]));
    this.start = start;
    this.fulfilled = fulfilled;
    this.children = new Map();
    for (const turn of turns) {
      const siblings = this.children.get(turn.parent) ?? [];
      this.children.set(turn.parent, [...siblings, turn.id]);
    }
  }

  get(id) {
    return this.turns.get(id);
  }

  get newest() {
    return [...this.turns.keys()].at(-1) ?? null;
  }

  /** The turns from the first one to `id`. */
  path(id) {
    const path = [];
    for (let turn = this.get(id); turn; turn = this.get(turn.parent)) path.unshift(turn);
    return path;
  }

  /** The last turns of all branches, in the order in which the branches began: a branch keeps its place for ever. */
  leaves() {
    const first = (parent) => this.children.get(parent)?.[0];
    const begins = ({ id, parent }) => parent === null || first(parent) !== id; // a first child goes on with its parent's
    return [...this.turns.values()].filter(begins).map(({ id }) => {
      while (this.children.has(id)) id = first(id);
      return id;
    });
  }

  /** The end of the newest branch that passes through `id`. */
  tip(id) {
    let tip = id;
    while (this.children.has(tip)) tip = this.children.get(tip).at(-1);
    return tip;
  }

  /** How many ways go on from a turn. */
  ways(id) {
    return this.children.get(id)?.length ?? 0;
  }

  /** The turns that were drawn from the same instruction after the same turn, in the order in which they were drawn. */
  takes({ parent, instruction }) {
    return (this.children.get(parent) ?? []).filter((id) => this.get(id).instruction === instruction);
  }

  /** The first turn that only this branch has, or its last turn if there is none. */
  ownTurn(leaf) {
    const path = this.path(leaf);
    return path[path.findLastIndex((turn) => this.ways(turn.parent) > 1)] ?? path.at(-1);
  }

  /** By how much a turn changed the three values; under rules they are the characters'. */
  changes(turn) {
    if (!this.start) return {};
    const before = this.get(turn.parent)?.values ?? this.start;
    return Object.fromEntries(Object.entries(turn.values).map(([name, value]) => [name, value - before[name]]));
  }
}

const KEY = "games";
const MOST = 12;

/** The games, the one played last first. */
export function kept() {
  try {
    const games = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(games) ? games : [];
  } catch {
    return []; // written by something else on this address
  }
}

export function keep(id, title, turns, turn) {
  const others = kept().filter((game) => game.id !== id);
  const game = { id, title: title.slice(0, 200), turns, turn };
  localStorage.setItem(KEY, JSON.stringify([game, ...others].slice(0, MOST)));
}

export function forget(id) {
  localStorage.setItem(KEY, JSON.stringify(kept().filter((game) => game.id !== id)));
}
