// A game is a tree of turns. A branch is the way from a first turn to one that has no next.

export class Tree {
  constructor(turns, start) {
    this.turns = new Map(turns.map((turn) => [turn.id, turn]));
    this.start = start;
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

  /** The first turn that only this branch has, or its last turn if there is none. */
  ownTurn(leaf) {
    const path = this.path(leaf);
    return path[path.findLastIndex((turn) => this.ways(turn.parent) > 1)] ?? path.at(-1);
  }

  /** By how much a turn changed the three values. */
  changes(turn) {
    const before = this.get(turn.parent)?.values ?? this.start;
    return Object.fromEntries(Object.entries(turn.values).map(([name, value]) => [name, value - before[name]]));
  }
}
