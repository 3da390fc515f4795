// The stream of events: goes on where it was after each break, and says what became of it.

import { isAsking, lines } from "./server.js";

/** The agent says that it lives every 15 s. */
const SILENCE_MS = 40_000;
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

/**
 * `event(event)` for each; `state(name, pause)`: `live`, or `lost` with when it is tried again; `missed(count)`;
 * `restarted()`, and then nobody knows how many.
 */
export const follow = async ({ event, state, missed, restarted }) => {
  let instance = null;
  let place = null;
  let failures = 0;
  for (;;) {
    const control = new AbortController();
    let watch = null;
    const heard = () => {
      clearTimeout(watch);
      watch = setTimeout(() => (isAsking() ? heard() : control.abort()), SILENCE_MS);
    };
    heard();
    try {
      const since = place === null ? "" : `?since=${encodeURIComponent(`${instance}:${place}`)}`;
      for await (const record of lines(`v1/events${since}`, control.signal)) {
        heard();
        if (!record.stream) {
          if (record.seq !== undefined) place = record.seq;
          event(record);
          continue;
        }
        if (record.event === "stream.opened") {
          failures = 0;
          state("live");
        } else if (record.event === "stream.missed") {
          if (record.stream.why === "other_run") restarted(); else missed(record.stream.missed);
        }
        instance = record.stream.instance;
        place = record.stream.since.slice(record.stream.since.lastIndexOf(":") + 1);
      }
    } catch (error) {
      if (!control.signal.aborted && !(error instanceof TypeError)) console.info("events:", error.message);
    }
    clearTimeout(watch);
    const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
    failures += 1;
    state("lost", pause);
    await new Promise((resolve) => {
      const wait = setTimeout(resolve, pause);
      addEventListener("online", () => { clearTimeout(wait); resolve(); }, { once: true });
    });
  }
};
