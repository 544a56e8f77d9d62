// The server of a page: JSON over fetch.

/** An answer other than success, with a sentence to show; status 0: no answer came. */
export class RequestError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new RequestError("The server does not answer. Is it still running in its terminal?", 0);
  }
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(reply.message ?? `The server answered ${response.status}.`, response.status);
  return reply;
}

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
