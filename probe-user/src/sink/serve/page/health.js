// What the agent can see, and its own state.

import { about, el, table } from "./dom.js";
import { ago, count, span, wall } from "./words.js";

const GRADES = { full: "full", degraded: "degraded", cannot: "not seen" };
const bytes = (text) => (text === undefined ? null : `${(Number(text) / 1_048_576).toFixed(1)} MiB`);

/** The agent's problems, the worst first, a sentence each. */
const problems = ({ agent, signals, checks }) => {
  const lost = Object.entries(agent.losses).map(([what, n]) => `${n} in ${what.replaceAll("_", " ")}`);
  const degraded = signals.filter((it) => it.grade === "degraded").map((it) => it.signal);
  return [
    ...agent.reasons.map((it) => ["bad", `Not ready: ${it}.`]),
    ...checks.filter((it) => it.grade === "cannot").map((it) => ["bad", `${it.name}: ${it.found}`]),
    ...agent.degraded.map((it) => ["dim", `Degraded: ${it}.`]),
    ...(lost.length ? [["dim", `Lost since the agent began: ${lost.join(", ")}.`]] : []),
    ...(degraded.length ? [["dim", `Seen less well than could be: ${degraded.join(", ")}.`]] : []),
  ];
};

export class Health {
  path = "v1/doctor";
  gap = 2_000;
  /** No event reports a change of this view, so it is read from time to time, in milliseconds. */
  every = 30_000;
  title = "Agent";
  told = null;
  #filter = "";

  constructor(section, strip) {
    this.body = el("div");
    this.strip = strip;
    section.append(this.body);
  }

  touches = ({ event }) => event === "gap";

  badge = () => null;

  /** What "nothing is wrong" is based on, and the doubts about it; `against` has those of the other views. */
  basis(pods, pools, against) {
    const { agent, checks, signals } = this.told;
    const seen = signals.filter((it) => it.mechanism && it.grade !== "cannot");
    const unseen = signals.filter((it) => !seen.includes(it)).map((it) => it.signal);
    const full = signals.filter((it) => it.grade === "full");
    const lost = Object.values(agent.losses).reduce((sum, n) => sum + Number(n), 0);
    const unsure = [...against,
      ...(agent.ready ? [] : ["The agent is not ready."]),
      ...(agent.backfill_complete ? [] : ["What was on the node before the agent is not known yet."]),
      ...(unseen.length ? [`Not seen at all: ${unseen.join(", ")}.`] : []),
      ...checks.filter((it) => it.grade === "cannot").map((it) => `${it.name}: ${it.found}`)];
    return { isWhole: unsure.length === 0, basis: [...unsure,
      `${seen.length} of ${signals.length} signals are seen, ${full.length} of them in the best way there is.`,
      `The agent has watched since ${wall(agent.since)} (${ago(agent.since)}); ${agent.backfill_complete ? "what was there before was read" : "what was there before is still being read"}.`,
      lost ? `${lost} records were lost since then: nothing was concluded from what was not seen meanwhile.` : "Nothing was lost since then.",
      `${count(pods, "pod")} and ${count(pools, "range")} of addresses are watched.`] };
  }

  show(told) {
    this.told = told;
    const found = problems(told);
    this.strip.replaceChildren(...found.map(([grade, text]) => el("li", { class: grade }, text)));
    this.#draw();
  }

  filter(text) {
    this.#filter = text;
    if (this.told) this.#draw();
  }

  #draw() {
    const { agent, checks, signals, version, node, cure } = this.told;
    const cost = agent.cost ?? {};
    const isWanted = (...texts) => texts.join(" ").toLowerCase().includes(this.#filter);
    this.body.replaceChildren(
      about([["node", node], ["version", version], ["kernel", agent.kernel], ["process", agent.pid],
        ["since", `${wall(agent.since)} (${ago(agent.since)})`], ["ready", agent.ready ? "yes" : "no"],
        ["to see more", cure], ["memory", bytes(cost.rss_bytes)], ["CPU time", cost.cpu_ns && span(cost.cpu_ns)], ["threads", cost.threads],
        ["capabilities", agent.capabilities?.join(", ")]]),
      el("h3", null, "How each signal is seen"),
      table(["signal", "", "by", "what to know"], signals.filter((it) => isWanted(it.signal, it.mechanism)).map((it) =>
        [it.signal, el("span", { class: `grade ${it.grade}` }, GRADES[it.grade] ?? it.grade), it.mechanism ?? "-",
          [it.note ? el("div", null, it.note) : null,
            it.lacks ? el("div", null, `It takes ${it.lacks}.`) : null,
            it.missed.map((missed) => el("div", { class: "faint" }, `not ${missed.mechanism}: ${missed.why}`))]]),
      { class: "texts" }),
      el("h3", null, "What was checked"),
      table(["check", "", "found", "advice"], checks.filter((it) => isWanted(it.name, it.found)).map((it) =>
        [it.name, el("span", { class: `grade ${it.grade}` }, GRADES[it.grade] ?? it.grade), it.found, it.advice ?? ""]),
      { class: "texts" }));
  }
}
