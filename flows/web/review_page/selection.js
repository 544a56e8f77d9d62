// Selected clips: decisions are about all of them, or else about the current one.

export class Selection {
  #rows = new Set();
  #anchor = null;

  get size() {
    return this.#rows.size;
  }

  get rows() {
    return [...this.#rows];
  }

  has(row) {
    return this.#rows.has(row);
  }

  /** Selects a clip, or takes it out. */
  toggle(row) {
    if (!this.#rows.delete(row)) this.#rows.add(row);
    this.#anchor = row;
  }

  /** Selects all from the clip selected last to this one. */
  reach(rows, row, from) {
    const [start, end] = [rows.indexOf(this.#anchor ?? from), rows.indexOf(row)];
    if (start < 0 || end < 0) return this.toggle(row);
    this.#anchor ??= from;
    for (const one of rows.slice(Math.min(start, end), Math.max(start, end) + 1)) this.#rows.add(one);
  }

  all(rows) {
    this.#rows = new Set(rows);
  }

  clear() {
    this.#rows.clear();
    this.#anchor = null;
  }
}
