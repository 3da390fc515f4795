// Requests to the agent: documents, and the stream of events as lines.
//
// The token, if one is needed, is only in this module's memory. It is sent in a header, which an EventSource
// cannot do, so the stream is read as lines.

let token = null;
let askForToken = async () => { throw new Error("no token"); };
let asking = null;

/** `ask(why)` returns a token. */
export const onAsked = (ask) => { askForToken = ask; };

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Whether the user is being asked for a token, which may take any time. */
export const isAsking = () => asking !== null;

/** `signal()` returns the AbortSignal of a try. */
const request = async (path, signal) => {
  for (;;) {
    const used = token;
    const headers = used === null ? {} : { Authorization: `Bearer ${used}` };
    const answer = await fetch(path, { headers, signal: signal(), cache: "no-store" });
    if (answer.ok) return answer;
    if (answer.status !== 401) {
      const told = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, told.error ?? `${path} was answered with ${answer.status}`);
    }
    // If many requests are refused at once, only one of them asks.
    if (used === token) {
      asking ??= askForToken(used === null ? "" : "That is not the token.").finally(() => { asking = null; });
      token = await asking;
    }
  }
};

/** Reads a document, with a timeout like the server's. */
export const get = async (path) => (await request(path, () => AbortSignal.timeout(15_000))).json();

/** Yields each line of the stream as an object, until the stream ends. */
export async function* lines(path, signal) {
  const answer = await request(path, () => signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) yield JSON.parse(line);
  }
}
