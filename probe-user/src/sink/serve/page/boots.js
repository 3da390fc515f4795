// What each restart of the node cost, as `sandprobe boot` shows it.

import { about, el, svg, table } from "./dom.js";
import { axis, bar, roundUp } from "./waterfall.js";
import { span } from "./words.js";

const COLUMNS = ["kubelet_ns", "static_pod_ns", "first_service_ns", "last_service_ns"];
const PERIODS = ["first_ns", "second_ns", "third_ns", "fourth_ns"];
const NAMES = ["kubelet", "first static pod", "first service pod", "last service pod"];
const HEADINGS = ["boot (UTC)", "kernel", "kubelet", "static pod", "first service", "last service", "1", "2", "3", "4", "whole"];

const RESTARTS = ["started_ns", "ready_ns", "first_pod_ns", "as_before_ns"];
const RESTART_HEADINGS = ["restart (UTC)", "program", "started", "ready", "first pod", "as before", "1", "2", "3", "4", "whole"];

const ms = (ns) => (ns === undefined || ns === null ? "-" : String(Math.floor((Number(ns) + 500_000) / 1e6)));
const seconds = (ns) => (ns === undefined || ns === null ? "-" : (Math.floor((Number(ns) + 5e6) / 1e7) / 100).toFixed(2));
const line = (first, second, { columns, periods, whole_ns, inexact }, names = COLUMNS) => {
  const mark = (name, text) => (inexact.includes(name) ? `~${text}` : text);
  return [first, second, ...names.map((it) => mark(it, ms(columns[it]))),
    ...PERIODS.map((it) => mark(it, seconds(periods[it]))), mark(names.at(-1), seconds(whole_ns))];
};

export class Boots {
  path = "v1/boot";
  gap = 10_000;
  title = "Boots";
  #told = null;
  #filter = "";

  constructor(section) {
    this.body = el("div");
    section.append(this.body);
  }

  touches = ({ event }) => event === "container.started" || event === "cni.finished";

  badge = () => this.#told?.boots.length ?? 0;

  show(told) {
    this.#told = told;
    this.#draw();
  }

  filter(text) {
    this.#filter = text;
    this.#draw();
  }

  #draw() {
    const { boots, average, statistics } = this.#told ?? { boots: [], average: {}, statistics: { ranks: [], notes: [] } };
    const open = new Set([...this.body.querySelectorAll("details[open]")].map((it) => it.dataset.boot));
    const had = this.body.contains(document.activeElement) ? document.activeElement.closest("details")?.dataset.boot : null;
    const shown = boots.filter((it) => `${it.title} ${it.kernel} ${it.boot_id}`.toLowerCase().includes(this.#filter));
    const ends = shown.flatMap((it) => COLUMNS.map((column) => Number(it.columns[column] ?? 0)));
    const scale = ends.length ? roundUp(Math.max(1, ...ends)) : null;
    const nothing = { columns: {}, periods: {}, inexact: [] };
    const gap = ({ unseen }) => (unseen ? [line(unseen.title, "", nothing)] : []);
    const rows = shown.flatMap((it) => [...gap(it), line(it.title, it.kernel, it)]);
    if (average.boots > 1) {
      rows.push(line(average.title, "", average));
      const columns = Object.fromEntries(COLUMNS.map((column, n) => [column, average.periods[PERIODS[n]]]));
      const inexact = COLUMNS.filter((_, n) => average.inexact.includes(PERIODS[n]));
      rows.push(line("Diff", "", { columns, periods: {}, inexact }), ...statistics.ranks.map((it) => line(it.title, "", it)));
    }
    this.body.replaceChildren(
      el("p", { class: "faint" }, "Milliseconds from the order of the restart (* from the kernel's start, ~ not exact; + to when pods first listened), and the periods between in seconds."),
      table(HEADINGS, rows), ...statistics.notes.map((note) => el("p", { class: "faint" }, note)), scale ? el("div", { class: "line head" }, el("span", null, "boot"), axis(scale),
        el("span", { class: "took" }, "took"), el("span", null, "lost")) : "",
      ...shown.toReversed().map((it) => this.#boot(it, scale, open)), ...this.#restarts(open));
    if (had) this.body.querySelector(`details[data-boot="${CSS.escape(had)}"] summary`)?.focus({ preventScroll: true });
  }

  #restarts(open) {
    const { restarts, restart_statistics } = this.#told ?? { restarts: [], restart_statistics: [] };
    const shown = restarts.filter((it) => `${it.title} ${it.program} ${it.boot_id}`.toLowerCase().includes(this.#filter));
    if (!shown.length) return [];
    const rows = shown.map((it) => line(it.title, it.program, it, RESTARTS));
    for (const { program, restarts: count, average, ranks } of restart_statistics) {
      if (count > 1) rows.push(...[average, ...ranks].map((it) => line(it.title, program, it, RESTARTS)));
    }
    return [
      el("h3", null, "Restarts of the runtime or the kubelet alone"),
      el("p", { class: "faint" }, "Milliseconds from the end of the program (* from its start, the end was not seen; ~ not exact), and the periods between in seconds."),
      table(RESTART_HEADINGS, rows), ...restart_statistics.flatMap((it) => it.notes).map((note) => el("p", { class: "faint" }, note)),
      ...shown.toReversed().map((it) => this.#restart(it, open))];
  }

  #restart(restart, open) {
    const key = `${restart.boot_id} ${restart.boot_ns}`;
    return el("details", { "data-boot": key, open: open.has(key) },
      el("summary", null, `${restart.title} ${restart.program}`, restart.marks.map((mark) => [" ", el("i", null, mark)])),
      el("ul", null, restart.notes.map((note) => el("li", null, note))));
  }

  #boot(boot, scale, open) {
    const known = COLUMNS.map((it, n) => [NAMES[n], boot.columns[it], `p${n + 1}`]).filter(([, at]) => at !== undefined);
    let from = 0;
    const bars = known.flatMap(([, at, kind]) => {
      const to = Math.max(from, Number(at));
      const drawn = bar(kind, from, to - from, scale);
      from = to;
      return drawn;
    });
    return el("details", { "data-boot": boot.boot_id, open: open.has(boot.boot_id) },
      el("summary", { class: "line" },
        el("span", { class: "name" }, boot.title, boot.marks.map((mark) => [" ", el("i", null, mark)])),
        svg("svg", { "aria-hidden": "true" }, bars),
        el("span", { class: "took" }, boot.whole_ns ? span(boot.whole_ns) : "-"),
        el("span", { class: "slow" }, boot.cni.failed || boot.cni.hung ? `network ${span(boot.cni.lost_ns)}` : "")),
      el("div", { class: "body" },
        about([["kernel", boot.kernel], ["boot", boot.boot_id]]),
        el("ul", null, boot.notes.map((note) => el("li", null, note))),
        table(["milestone", "after boot", "known", "pod"], boot.milestones.map((it) =>
          [it.title, span(it.boot_ns), it.known, it.pod ?? ""]), { class: "texts" })));
  }
}
