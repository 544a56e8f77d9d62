// Values that are not saved yet, kept in this browser under a key each, so that several tabs of a page share them.

/** Values by key, under names that begin with a prefix. Of the values of two tabs by one key, the later counts. */
export class Unsaved {
  #prefix;
  #texts = new Map(); // as this tab has kept them; without those that found no room

  constructor(prefix) {
    this.#prefix = `${prefix} `;
  }

  /** Takes over the values that are kept, also those of tabs still open: saved twice they do no harm. */
  adopt() {
    try {
      const names = Object.keys(localStorage).filter((name) => name.startsWith(this.#prefix));
      this.#texts = new Map(names.map((name) => [name.slice(this.#prefix.length), localStorage.getItem(name)]));
      return [...this.#texts.values()].map((text) => JSON.parse(text));
    } catch {
      return []; // written by something else on this address
    }
  }

  keep(key, value) {
    const text = JSON.stringify(value);
    this.#texts.delete(key);
    try {
      localStorage.removeItem(this.#prefix + key); // an earlier value must not outlive this one
      localStorage.setItem(this.#prefix + key, text);
      this.#texts.set(key, text);
    } catch {
      // no room in this browser: what is not saved stays in this page, which warns before it closes
    }
  }

  /** Whether this tab has to save its value: no other tab has saved it, or kept a later one. */
  isOurs(key) {
    return !this.#texts.has(key) || localStorage.getItem(this.#prefix + key) === this.#texts.get(key);
  }

  /** Forgets the value of this tab; a later one of another tab stays. */
  drop(key) {
    if (this.#texts.has(key) && this.isOurs(key)) localStorage.removeItem(this.#prefix + key);
    this.#texts.delete(key);
  }
}
