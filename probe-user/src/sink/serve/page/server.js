// What is asked of the agent: documents, and the stream of events as lines.
//
// The token, where one is needed, is in this module's memory alone. It goes in a header, which an EventSource cannot
// send: so the stream is read as lines.

let token = null;
let askForToken = async () => { throw new Error("no token"); };
let asking = null;

/** `ask(why)` gives a token. */
export const onAsked = (ask) => { askForToken = ask; };

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Whether somebody is being asked: that takes as long as it takes. */
export const isAsking = () => asking !== null;

/** `signal()` gives what ends a try. */
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
    // Of many that are refused at once, one asks.
    if (used === token) {
      asking ??= askForToken(used === null ? "" : "That is not the token.").finally(() => { asking = null; });
      token = await asking;
    }
  }
};

/** A document; it is given up after a while, as the server does. */
export const get = async (path) => (await request(path, () => AbortSignal.timeout(15_000))).json();

/** Each line of the stream as an object, until it ends. */
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
