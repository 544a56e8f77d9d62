// Which games this browser has played: only their addresses. The games themselves lie with the server.

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
