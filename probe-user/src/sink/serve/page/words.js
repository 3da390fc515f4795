// Times, names and counts as text. The text of an event, a phase or a boot comes from the agent.

const UNITS = [[86_400, "d", 3_600, "h"], [3_600, "h", 60, "m"], [60, "m", 1, "s"]];

/** Formats nanoseconds, given as a number or a decimal string, in a suitable unit. */
export const span = (ns) => {
  const micros = Math.floor(Number(ns) / 1_000);
  if (micros < 1_000) return `${micros} µs`;
  if (micros < 100_000) return `${Math.floor(micros / 1_000)}.${Math.floor(micros / 100) % 10} ms`;
  if (micros < 1_000_000) return `${Math.floor(micros / 1_000)} ms`;
  const seconds = Math.floor(micros / 1_000_000);
  if (seconds < 60) return `${seconds}.${String(Math.floor(micros / 10_000) % 100).padStart(2, "0")} s`;
  const [whole, unit, part, below] = UNITS.find(([it]) => seconds >= it);
  return `${Math.floor(seconds / whole)}${unit}${String(Math.floor((seconds % whole) / part)).padStart(2, "0")}${below}`;
};

/** How far the node's clock is ahead of this machine's. */
let ahead = 0;
export const setClock = (at) => {
  const told = Date.parse(at);
  if (!Number.isNaN(told)) ahead = told - Date.now();
};
export const now = () => Date.now() + ahead;

export const ago = (at) => {
  const seconds = Math.max(0, Math.floor((now() - Date.parse(at)) / 1_000));
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.floor(seconds / 10) * 10} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
};

/** Formats a time like `2026-11-21 09:49:27.156 UTC`. */
export const wall = (at) => `${String(at).slice(0, 23).replace("T", " ").replace(/Z$/, "")} UTC`;
/** Formats a time like `09:49:27.156243`. */
export const clock = (at) => String(at).slice(11, 26).replace(/Z$/, "");

export const podName = (pod) => {
  if (!pod) return "-";
  if (pod.name) return `${pod.namespace ?? "?"}/${pod.name}`;
  return pod.uid ?? (pod.namespace ? `${pod.namespace}/?` : "-");
};

/** Shortens long hexadecimal ids to the form that people know. */
export const brief = (text) => String(text ?? "").replace(/[0-9a-f]{40,}/gi, (id) => `${id.slice(0, 12)}…`);
const short = (id) => String(id ?? "?").slice(0, 12);
const count = (n, noun) => `${n} ${noun}${Number(n) === 1 ? "" : "s"}`;
export { count, short };

/** The first of the longest phases. */
export const slowest = (phases) =>
  phases.reduce((most, it) => (most && Number(most.duration_ns) >= Number(it.duration_ns) ? most : it), null);
