// Times, and what an event or a phase says, in the words of the commands.

const UNITS = [[86_400, "d", 3_600, "h"], [3_600, "h", 60, "m"], [60, "m", 1, "s"]];

/** Nanoseconds, as a number or a decimal string, in the unit that suits them. */
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

/** `2026-11-21 09:49:27.156 UTC`. */
export const wall = (at) => `${String(at).slice(0, 23).replace("T", " ").replace(/Z$/, "")} UTC`;
/** `09:49:27.156243`. */
export const clock = (at) => String(at).slice(11, 26).replace(/Z$/, "");

export const podName = (pod) => {
  if (!pod) return "-";
  if (pod.name) return `${pod.namespace ?? "?"}/${pod.name}`;
  return pod.uid ?? (pod.namespace ? `${pod.namespace}/?` : "-");
};

/** Ids of 64 digits, cut to what people know them by. */
export const brief = (text) => String(text ?? "").replace(/[0-9a-f]{40,}/gi, (id) => `${id.slice(0, 12)}…`);
const short = (id) => String(id ?? "?").slice(0, 12);
const count = (n, noun) => `${n} ${noun}${Number(n) === 1 ? "" : "s"}`;
export { count, short };

/** `cni bridge`, `image web`. */
export const phaseName = ({ phase, plugin }) => (plugin ? `${phase} ${plugin}` : phase);
export const phaseTitle = (it) =>
  (it.container ? `${phaseName(it)} ${it.container.name ?? short(it.container.id)}` : phaseName(it));

/** At what a socket listens. */
export const socket = ({ port, family }) => `${port ? `port ${port}` : "a port of the kernel's choice"} (${family ?? "?"})`;

const MARKS = [["complete", "not complete", false], ["revised", "revised", true], ["rebuilt", "rebuilt", true],
  ["listed", "listed", true], ["suspended", "suspended", true], ["gapped", "gapped", true], ["containers_known", "containers not known", false]];
export const marks = (start) =>
  MARKS.filter(([name, , when]) => (start[name] ?? false) === when).map(([, mark]) => mark);

/** What is known of why a phase took so long, a sentence each. */
export const causes = (it) => {
  const whole = Number(it.duration_ns);
  const of = (part) => `${span(part)} of ${span(whole)}`;
  const said = [];
  if (it.sandboxes) said.push(`${it.sandboxes} sandbox${it.sandboxes === 1 ? "" : "es"} came to nothing`);
  if (it.failed) said.push(`${it.failed} of ${it.adds} ADDs failed, which took ${span(it.failed_ns ?? 0)}`);
  if (it.plugin && Number(it.plugin_ns ?? 0) > whole) said.push(`the plugin itself took ${span(it.plugin_ns)}, beside others`);
  if (it.runs > 1) said.push(`ran ${it.runs} times`);
  if (it.inferred && it.phase === "post_start") {
    said.push("executed into the container right after its start: inferred to be its postStart hook");
  } else if (it.inferred) said.push("inferred to be an init container");
  if (it.teardown_ns) said.push(`other network namespaces were taken apart for ${of(it.teardown_ns)}`);
  if (it.cpu && (Number(it.cpu.throttled_periods) || Number(it.cpu.throttled_ns))) {
    said.push(`throttled ${of(it.cpu.throttled_ns)} (${it.cpu.throttled_periods} periods)`);
  }
  const reached = Object.entries(it.memory ?? {}).filter(([, n]) => Number(n)).map(([name, n]) => `${name} ${n} times`);
  if (reached.length) said.push(`memory limit reached: ${reached.join(", ")}`);
  for (const [what, name] of [["cpu", "CPU"], ["memory", "memory"], ["io", "I/O"]]) {
    const some = Number(it.stall?.[what]?.some_ns ?? 0);
    if (some && some * 10 >= whole) said.push(`waited for ${name} ${of(some)}`);
  }
  if (it.gapped) said.push("something was lost meanwhile");
  return said;
};

/** The first of the longest. */
export const slowest = (phases) =>
  phases.reduce((most, it) => (most && Number(most.duration_ns) >= Number(it.duration_ns) ? most : it), null);

const named = (process) => `${process?.comm ?? "?"}[${process?.pid ?? "?"}]`;
const SIGNALS = { 1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
  11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM" };
const ended = ({ signal, exit_code: code, oom, killer }) =>
  (signal ? `killed by ${SIGNALS[signal] ?? `signal ${signal}`}` : `exit ${code ?? "?"}`) + (oom ? " (out of memory)" : "")
  + (killer ? ` from ${named(killer)}` : "");
const called = ({ command, plugin, ifname, netns, called_by: by }) =>
  [command, plugin, ifname, netns === "" ? "no netns" : netns?.split("/").pop(), by && `from ${by}`]
    .filter(Boolean).join(" ");
const netns = (event) => `netns ${event.netns?.inode ?? "?"}`;
const by = (event) => (event.process ? ` by ${named(event.process)}` : "");
const box = (event) => short(event.sandbox?.id);
const container = ({ container: it }) => (it?.name ? `${it.name} (${short(it.id)})` : short(it?.id));
const start = (it) => {
  const most = slowest(it.phases);
  const less = marks(it);
  const last = (it.listening ?? []).reduce((most, at) => (most && Number(most.duration_ns) > Number(at.duration_ns) ? most : at), null);
  return `in ${span(it.total_ns)}${most ? `, slowest ${phaseTitle(most)} ${span(most.duration_ns)}` : ""}`
    + (last ? `, ${phaseTitle({ phase: "listening", ...last })} after ${span(last.duration_ns)}` : "")
    + (less.length ? ` (${less.join(", ")})` : "");
};

const SAID = {
  "process.exec": (it) => [named(it.process), it.process?.filename, ...(it.process?.argv ?? []).slice(1)].join(" "),
  "process.exit": (it) => `${named(it.process)} ${ended(it.process ?? {})}`,
  "cni.started": (it) => called(it.cni ?? {}),
  "cni.finished": (it) => `${called(it.cni ?? {})} ${it.cni?.exit_code === undefined ? "ended unseen" : ended({ ...it.process, exit_code: it.cni.exit_code })} in ${span(it.cni?.duration_ns ?? 0)}`,
  "netns.created": (it) => netns(it) + by(it),
  "netns.destroyed": (it) => netns(it) + by(it),
  "netns.freed": (it) => netns(it) + (it.netns?.teardown_ns ? ` torn down in ${span(it.netns.teardown_ns)}` : ""),
  "cgroup.created": (it) => (it.cgroup?.path ?? "?") + by(it),
  "cgroup.emptied": (it) => it.cgroup?.path ?? "?",
  "cgroup.removed": (it) => (it.cgroup?.path ?? "?") + by(it),
  "address.added": (it) => `${it.address?.address}/${it.address?.prefix} on ${it.address?.ifname} in ${netns(it)}`,
  "address.removed": (it) => `${it.address?.address}/${it.address?.prefix} on ${it.address?.ifname} in ${netns(it)}`,
  "sandbox.created": box,
  "sandbox.ready": (it) => `${box(it)} after ${span(it.sandbox?.ready_after_ns ?? 0)}`,
  "sandbox.stopped": (it) => `${box(it)} ${(it.sandbox?.reason ?? "").replaceAll("_", " ")}`,
  "container.started": (it) => `${container(it)} ${named(it.process)}`,
  "container.listening": (it) => `${container(it)} ${named(it.process)} on ${socket(it.listening ?? {})} after ${span(it.listening?.after_ns ?? 0)}`,
  "container.exited": (it) => `${container(it)} ${named(it.process)} ${ended(it.process ?? {})}${it.process?.ran_ns ? ` after ${span(it.process.ran_ns)}` : ""}`,
  "pod.first_seen": (it) => (it.pod?.uid ? `uid ${it.pod.uid}` : ""),
  "pod.started": (it) => (it.start ? start(it.start) : ""),
  "pod.gone": (it) => `lived ${span(it.pod?.lived_ns ?? 0)}`,
  gap: (it) => `${it.gap?.count} lost: ${(it.gap?.what ?? "").replaceAll("_", " ")}`,
};

/** What an event says beyond its name and its pod. */
export const detail = (event) => {
  const said = event.finding ? `${event.finding.summary} (${event.finding.key})` : SAID[event.event]?.(event) ?? "";
  const origin = event.origin && !["kernel", "agent"].includes(event.origin) ? ` [${event.origin}]` : "";
  return brief(said) + (event.late ? " (late)" : "") + origin;
};
