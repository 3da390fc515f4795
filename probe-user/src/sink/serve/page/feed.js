// The stream of events. It goes on at its last position after each break, and reports its state.

import { isAsking, lines } from "./server.js";

/** A stream that is silent for this long is lost, because the agent sends a sign of life every 15 s. */
const SILENCE_MS = 40_000;
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

/**
 * Calls `event(event)` for each event; `state(name, pause)` with `live`, or with `lost` and the time to the
 * next try; `missed(count)`; and `restarted()`, after which the number of missed events is unknown.
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
