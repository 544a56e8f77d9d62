// Answers on their way to the server's disk. Until an answer is there, it is kept in this browser and shown as not saved.

import * as api from "./api.js";
import { Unsaved } from "./unsaved.js";

const REFUSED = 422; // the status of an answer that can never be saved

/** Newest order of every game and criterion that is not saved yet, sent one at a time. */
export class Saving {
  #waiting = new Map();
  #unsaved = new Unsaved(`unsaved ${location.pathname}`);
  #sending = false;

  /**
   * `games` has the games by token. Answers left behind about others are dropped: their letters stood for other films.
   * `report` is called with the number of answers that wait, and the error if there is one.
   */
  constructor(games, report) {
    this.report = report;
    this.dropped = 0;
    for (const answer of this.#unsaved.adopt()) {
      this.#waiting.set(keyOf(answer), answer);
      if (games.has(answer.game)) continue;
      this.#forget(keyOf(answer));
      this.dropped += 1;
    }
  }

  /** Answers that wait, at first those that a closed page has left behind: {game, criterion, order}. */
  get left() {
    return [...this.#waiting.values()];
  }

  make(game, criterion, order) {
    const answer = { game, criterion, order };
    this.#waiting.delete(keyOf(answer));
    this.#waiting.set(keyOf(answer), answer);
    this.#unsaved.keep(keyOf(answer), answer);
    this.send();
  }

  /** Sends what waits, past answers that are refused; called again to retry. */
  async send() {
    if (this.#sending) return;
    this.#sending = true;
    const refused = new Set();
    let failed = null;
    while (!failed || failed.status === REFUSED) {
      this.#leaveToOthers();
      const [key, answer] = [...this.#waiting].find(([, answer]) => !refused.has(answer)) ?? [];
      if (!answer) break;
      this.report(this.#waiting.size, null);
      try {
        await api.save(answer.game, answer.criterion, answer.order);
        if (this.#waiting.get(key) === answer) this.#forget(key);
      } catch (error) {
        if (!(error instanceof api.Refusal)) throw error;
        failed = error;
        refused.add(answer);
      }
    }
    this.#sending = false;
    this.report(this.#waiting.size, failed);
  }

  /** Forgets answers that another tab has saved, or has replaced by a later one: sent again they would undo it. */
  #leaveToOthers() {
    for (const key of [...this.#waiting.keys()]) if (!this.#unsaved.isOurs(key)) this.#forget(key);
  }

  #forget(key) {
    this.#waiting.delete(key);
    this.#unsaved.drop(key);
  }
}

const keyOf = ({ game, criterion }) => `${game} ${criterion}`;
