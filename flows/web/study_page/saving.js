// Answers on their way to the server's disk. Until an answer is there, it is kept in this browser and shown as not saved.

import * as api from "./api.js";

const KEY = `unsaved ${location.pathname}`;
const REFUSED = 422; // the status of an answer that can never be saved

/** Newest order of every game and criterion that is not saved yet, sent one at a time. */
export class Saving {
  #waiting = new Map();
  #sending = false;

  /**
   * `games` has the games by token. Answers left behind about others are dropped: their letters stood for other films.
   * `report` is called with the number of answers that wait, and the error if there is one.
   */
  constructor(games, report) {
    this.report = report;
    const before = kept();
    this.#waiting = new Map(before.filter(([, { game }]) => games.has(game)));
    this.dropped = before.length - this.#waiting.size;
    this.#keep();
  }

  /** Answers that wait, at first those that a closed page has left behind: {game, criterion, order}. */
  get left() {
    return [...this.#waiting.values()];
  }

  make(game, criterion, order) {
    const key = `${game} ${criterion}`;
    this.#waiting.delete(key);
    this.#waiting.set(key, { game, criterion, order });
    this.#keep();
    this.send();
  }

  /** Sends what waits, past answers that are refused; called again to retry. */
  async send() {
    if (this.#sending) return;
    this.#sending = true;
    const refused = new Set();
    let failed = null;
    while (!failed || failed.status === REFUSED) {
      const [key, answer] = [...this.#waiting].find(([, answer]) => !refused.has(answer)) ?? [];
      if (!answer) break;
      this.report(this.#waiting.size, null);
      try {
        await api.save(answer.game, answer.criterion, answer.order);
        if (this.#waiting.get(key) === answer) this.#waiting.delete(key);
        this.#keep();
      } catch (error) {
        if (!(error instanceof api.Refusal)) throw error;
        failed = error;
        refused.add(answer);
      }
    }
    this.#sending = false;
    this.report(this.#waiting.size, failed);
  }

  #keep() {
    try {
      if (this.#waiting.size) localStorage.setItem(KEY, JSON.stringify([...this.#waiting]));
      else localStorage.removeItem(KEY);
    } catch {
      // no room in this browser: what is not saved stays in this page, which warns before it closes
    }
  }
}

function kept() {
  try {
    return [...new Map(JSON.parse(localStorage.getItem(KEY) ?? "[]"))];
  } catch {
    return []; // written by something else on this address
  }
}
