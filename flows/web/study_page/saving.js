// Answers on their way to the server's disk. Until an answer is there, it is kept in this browser and shown as not saved.

import * as api from "./api.js";

const KEY = `unsaved ${location.pathname}`;

/** Newest order of every game and criterion that is not saved yet, sent one at a time. */
export class Saving {
  #waiting = new Map();
  #sending = false;

  /** `report` is called with the number of answers that wait, and the error if there is one. */
  constructor(report) {
    this.report = report;
    this.#waiting = kept();
  }

  /** Answers that a closed page has left behind: {game, criterion, order}. */
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

  /** Sends what waits; called again to retry. */
  async send() {
    if (this.#sending) return;
    this.#sending = true;
    let failed = null;
    while (this.#waiting.size && !failed) {
      this.report(this.#waiting.size, null);
      const [key, answer] = this.#waiting.entries().next().value;
      try {
        await api.save(answer.game, answer.criterion, answer.order);
        if (this.#waiting.get(key) === answer) this.#waiting.delete(key);
        this.#keep();
      } catch (error) {
        if (!(error instanceof api.Refusal)) throw error;
        failed = error;
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
    return new Map(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Map(); // written by something else on this address
  }
}
