// The server's side of the game: JSON over fetch, and the progress of a drawing as server-sent events.

export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal("The game's server does not answer. Is `animegamer play --serve` still running?", 0);
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(reply.message ?? `The server answered ${response.status}.`, response.status);
  return reply;
}

const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const readInfo = () => ask("api/info");
export const makeGame = () => post("api/games", {});
export const readGame = (game) => ask(`api/games/${game}`);
export const play = (game, after, instruction) => post(`api/games/${game}/turns`, { after, instruction });
export const cancel = (game) => ask(`api/games/${game}/drawing`, { method: "DELETE" });

export const videoOf = (game, turn) => `api/games/${game}/turns/${turn}.mp4`;
export const posterOf = (game, turn) => `api/games/${game}/turns/${turn}.jpg`;
export const filmOf = (game, turn) => `api/games/${game}/films/${turn}.mp4`;

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
