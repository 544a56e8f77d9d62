// The server of the study's page: JSON over fetch, below the participant's link.

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
    throw new Refusal("The study's server does not answer. Your choices wait in this browser.", 0);
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(reply.message ?? `The server answered ${response.status}.`, response.status);
  return reply;
}

export const readStudy = () => ask("api/study");

/** Resolves when the order is on the server's disk. */
export const save = (game, criterion, order) =>
  ask("api/answers", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ game, criterion, order }),
  });

export const filmOf = (film) => `api/films/${film.name}.mp4`;
