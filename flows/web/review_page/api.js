// The server of the review page: JSON over fetch.

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
    throw new Refusal("The server does not answer. Is `animegamer review` still running?", 0);
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(reply.message ?? `The server answered ${response.status}.`, response.status);
  return reply;
}

export const readInfo = () => ask("api/info");
export const readClips = async () => (await ask("api/clips")).clips;
export const readReviews = async () => (await ask("api/reviews")).reviews;

/** Resolves with the new standings of the clips when the changes are on the server's disk. */
export const save = async (changes) =>
  (await ask("api/decisions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ changes }),
  })).reviews;

export const videoOf = (clip) => `api/clips/${clip.id}.mp4`;
