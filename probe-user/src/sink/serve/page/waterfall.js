// Phases as bars, like those of the pictures (`pods --html`).

import { el, svg } from "./dom.js";
import { short, span } from "./words.js";

const CLASSES = { prepare: "pr", retry: "re", netns: "ns", cni: "cn", between: "be", pause: "pa", image: "im",
  runtime: "ru", cgroup: "cg", post_start: "in", init: "in", listening: "li" };
/** A bar is at least this fraction (1/500) of the scale wide, so that it is visible. */
const LEAST = 500;
const ROUND_MINUTES = [1, 2, 4, 8, 20, 40, 60, 120, 240, 480, 1_200, 2_400];

/** The next round time, in nanoseconds, whose quarters are round too. */
export const roundUp = (ns) => {
  if (ns > 60e9) {
    const minutes = ROUND_MINUTES.find((it) => it * 60e9 >= ns);
    return minutes ? minutes * 60e9 : Math.ceil(ns / 345_600e9) * 345_600e9;
  }
  for (let power = 1_000; ; power *= 10) {
    const times = [1, 2, 4, 6, 8].find((it) => power * it >= ns);
    if (times) return power * times;
  }
};

export const axis = (scale) =>
  el("span", { class: "axis" }, [0, 1, 2, 3, 4].map((quarter) => el("span", null, span((scale / 4) * quarter))));

const percent = (part, whole) => `${Math.min(100, (100 * part) / whole).toFixed(2)}%`;

export const bar = (kind, at, took, scale, isHatched = false) => {
  if (took === 0) return [];
  const place = { x: percent(at, scale), width: percent(Math.max(took, scale / LEAST), scale) };
  const shape = (name) => svg("rect", { class: name, ...place });
  return isHatched ? [shape(kind), shape("u")] : [shape(kind)];
};

const phaseBar = (it, begin, scale) =>
  bar(CLASSES[it.phase] ?? "pr", Number(it.begin_ns) - begin, Number(it.duration_ns), scale,
    Boolean(it.inferred || it.gapped || it.suspended));

/** All phases in one line. */
export const line = (start, scale) =>
  svg("svg", { "aria-hidden": "true" }, start.phases.map((it) => phaseBar(it, Number(start.begin_ns), scale)));

/** A line for each phase, with its notes. */
export const fall = (start) => {
  const begin = Number(start.begin_ns);
  const beyond = (start.listening ?? []).map((it) => ({ phase: "listening", ...it }));
  const ends = beyond.map((it) => Number(it.begin_ns) - begin + Number(it.duration_ns));
  const scale = roundUp(Math.max(Number(start.total_ns), ...ends));
  let lane = null;
  const rows = [...start.phases, ...beyond].flatMap((it) => {
    const of = it.container ? `container ${it.container.name ?? short(it.container.id)}` : "sandbox";
    const head = of === lane ? [] : [el("tr", { class: "lane" }, el("th", { colspan: 4, scope: "rowgroup" }, of))];
    lane = of;
    const isMarked = [it.inferred && "inferred", it.gapped && "gapped", it.suspended && "suspended"].filter(Boolean);
    return [...head, el("tr", null,
      el("th", { scope: "row" }, it.title, isMarked.map((mark) => [" ", el("i", null, mark)])),
      el("td", null, `+${span(Number(it.begin_ns) - begin)}`), el("td", null, span(it.duration_ns)),
      el("td", null, svg("svg", { "aria-hidden": "true" }, phaseBar(it, begin, scale)),
        (it.notes ?? []).map((note) => el("div", null, note))))];
  });
  return el("div", { class: "wide" }, el("table", { class: "fall" },
    el("thead", null, el("tr", null, ["what", "at", "took", axis(scale)].map((it) => el("th", { scope: "col" }, it)))),
    el("tbody", null, rows)));
};

/** The meaning of each color, from the agent. */
export const legend = (meanings) =>
  el("ul", { class: "legend", "aria-label": "colors" }, meanings.map(({ phase, text }) => el("li", null,
    svg("svg", { "aria-hidden": "true" }, svg("rect", { class: CLASSES[phase] ?? "pr", width: "100%", height: "100%" })), text)));
