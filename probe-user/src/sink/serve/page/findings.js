// The findings: the worst first, effects below their cause, each with its evidence. If there are none, what
// that statement is based on.

import { List, about, el, table } from "./dom.js";
import { get } from "./server.js";
import { ago, brief, clock, count, podName, span, wall } from "./words.js";

const SEVERITIES = ["critical", "warning", "info"];
const STAGES = ["confirmed", "candidate", "closed"];
const rank = (it) => SEVERITIES.indexOf(it.severity) * STAGES.length + STAGES.indexOf(it.stage);
const order = (a, b) => rank(a) - rank(b) || b.since.localeCompare(a.since) || a.key.localeCompare(b.key);

export const href = (key) => `#/findings/${encodeURIComponent(key)}`;

const kindOf = (key) => key.split("/", 1)[0];

/** Groups the items by incident, each effect below its cause, `depth` steps from the first finding. */
const grouped = (items, all) => {
  const known = new Map(all.map((it) => [it.key, it]));
  const shown = new Set(items.map((it) => it.key));
  const up = (it) => {
    const above = known.get(it.caused_by?.at(-1) ?? it.incident);
    return above && above !== it && above.incident === it.incident ? above : null;
  };
  const below = new Map();
  for (const it of items) {
    let above = up(it);
    while (above && !shown.has(above.key)) above = up(above);
    const key = above?.key ?? null;
    below.set(key, [...(below.get(key) ?? []), it]);
  }
  const walk = (it, depth) => {
    const rows = (below.get(it.key) ?? []).sort(order).map((effect) => walk(effect, depth + 1));
    // An incident is sorted by its worst finding.
    const worst = rows.reduce((before, row) => (order(row.worst, before) < 0 ? row.worst : before), it);
    return { worst, rows: [{ ...it, depth }, ...rows.flatMap((row) => row.rows)] };
  };
  return (below.get(null) ?? []).map((it) => walk(it, 0)).sort((a, b) => order(a.worst, b.worst)).flatMap((it) => it.rows);
};

/** The cause, in a few words. */
const because = (it) => {
  if (it.caused_by) {
    const more = it.caused_by.length - 1;
    return `caused by ${kindOf(it.caused_by.at(-1))}${more ? ` and ${more} more` : ""}`;
  }
  return it.incident && it.incident !== it.key ? `of the incident ${kindOf(it.incident)}` : null;
};

/** The text that a filter searches. */
const words = (it) => `${it.kind} ${it.severity} ${it.stage} ${podName(it.pod)} ${it.summary} ${it.key}`.toLowerCase();

export class Findings {
  path = "v1/findings?state=all";
  gap = 500;
  title = "Findings";
  #all = [];
  #health = null;
  #filter = "";
  /** The findings whose details are open, as they were last read, by key. */
  #opened = new Map();
  #wanted = null;
  /** Whether the findings were read at all. */
  #wasRead = false;

  constructor(section) {
    this.verdict = el("div", { id: "verdict" });
    this.list = el("div", { class: "findings" });
    this.closed = el("div", { class: "findings" });
    this.past = el("details", { class: "past", hidden: true }, el("summary", null, "Closed lately"), this.closed);
    section.append(this.verdict, this.list, this.past);
    this.rows = new List(this.list, (it) => it.key, (it, old) => this.#row(it, old));
    this.pastRows = new List(this.closed, (it) => it.key, (it, old) => this.#row(it, old));
  }

  touches = (event) => Boolean(event.finding);

  badge = () => this.#all.filter((it) => it.stage !== "closed").length;
  worst = () => this.#all.find((it) => it.stage !== "closed")?.severity ?? null;
  leaks = (network) => this.#all.filter((it) =>
    it.kind === "leaked_address" && it.stage !== "closed" && it.detail?.network === network);

  async show({ findings }) {
    this.#all = findings.sort(order);
    this.#wasRead = true;
    await this.#draw();
    for (const it of this.#all) {
      const known = this.#opened.get(it.key);
      // Evidence is added to open details; closed ones are read when they are opened.
      if (known && known !== JSON.stringify(it)) this.#read(it.key);
    }
    if (this.#wanted) this.open(this.#wanted);
  }

  setHealth(health) {
    this.#health = health;
    this.#basis();
  }

  async filter(text) {
    this.#filter = text;
    await this.#draw();
  }

  async #draw() {
    const shown = this.#all.filter((it) => words(it).includes(this.#filter));
    this.#basis();
    const past = shown.filter((it) => it.stage === "closed");
    this.past.hidden = past.length === 0;
    this.past.querySelector("summary").textContent = `Closed lately (${past.length})`;
    await this.rows.show(grouped(shown.filter((it) => it.stage !== "closed"), this.#all));
    await this.pastRows.show(grouped(past, this.#all));
  }

  #basis() {
    const open = this.#all.filter((it) => it.stage !== "closed");
    if (open.length) {
      const by = SEVERITIES.map((name) => [name, open.filter((it) => it.severity === name).length]).filter(([, n]) => n);
      const hidden = open.filter((it) => !words(it).includes(this.#filter)).length;
      const incidents = new Set(open.map((it) => it.incident ?? it.key)).size;
      this.verdict.className = "verdict wrong";
      this.verdict.replaceChildren(el("p", null, el("b", null, count(open.length, "open finding")), incidents < open.length ? ` in ${count(incidents, "incident")}` : "", ": ",
        by.map(([name, n], at) => [at ? ", " : "", el("span", { class: `sev ${name}` }, `${n} ${name}`)]),
        hidden ? `; ${hidden} not shown by the filter` : ""));
      return;
    }
    const health = this.#health;
    if (!health || !this.#wasRead) {
      this.verdict.replaceChildren();
      return;
    }
    this.verdict.className = health.isWhole ? "verdict well" : "verdict unsure";
    this.verdict.replaceChildren(
      el("p", null, el("b", null, health.isWhole ? "Nothing is wrong." : "Nothing was found, but not all can be seen.")),
      el("ul", { class: "notes" }, health.basis.map((it) => el("li", null, it))));
  }

  #row(it, old) {
    const isNew = !old;
    const row = old ?? el("details", { "data-key": it.key }, el("summary", { class: "finding" }));
    row.classList.toggle("closed", it.stage === "closed");
    row.dataset.depth = Math.min(it.depth, 4);
    row.querySelector("summary").replaceChildren(
      el("span", { class: `sev ${it.severity}` }, it.severity),
      el("span", { class: "what" }, el("b", null, it.kind), " ", brief(it.summary),
        it.stage === "confirmed" ? null : [" ", el("i", null, it.stage)], it.gapped ? [" ", el("i", null, "gapped")] : null,
        because(it) ? [" ", el("span", { class: "because" }, because(it))] : null),
      el("span", { class: "pod" }, podName(it.pod)),
      el("time", { class: "since", datetime: it.since, title: wall(it.since) }, ago(it.since)));
    if (isNew) {
      row.addEventListener("toggle", () => {
        if (row.open) {
          if (!this.#opened.has(it.key)) this.#read(it.key);
          history.replaceState(null, "", href(it.key));
        } else {
          this.#opened.delete(it.key);
          row.querySelector(".body")?.remove();
        }
      });
    }
    return row;
  }

  /** Shows this finding, or waits for it if it is not known yet. */
  open(key) {
    const row = this.rows.row(key) ?? this.pastRows.row(key);
    this.#wanted = row ? null : key;
    if (!row) return;
    if (this.pastRows.row(key)) this.past.open = true;
    row.open = true;
    row.scrollIntoView({ block: "nearest" });
    row.querySelector("summary").focus({ preventScroll: true });
  }

  async #read(key) {
    this.#opened.set(key, JSON.stringify(this.#all.find((it) => it.key === key)));
    const row = this.rows.row(key) ?? this.pastRows.row(key);
    let body;
    try {
      body = this.#body(await get(`v1/findings/${encodeURIComponent(key)}`));
    } catch (error) {
      this.#opened.delete(key);
      body = el("div", { class: "body" }, el("p", { class: "error" }, `Cannot be read: ${error.message}`));
    }
    if (!row?.open) return;
    const had = row.querySelector(".body");
    if (had) had.replaceWith(body); else row.append(body);
  }

  #body(it) {
    const pod = it.pod?.name ? el("a", { href: `#/pods/${encodeURIComponent(it.pod.namespace ?? "")}/${encodeURIComponent(it.pod.name)}` }, podName(it.pod)) : podName(it.pod);
    const zero = Number(it.evidence[0]?.boot_ns ?? 0);
    const offset = (event) => `+${span(Math.max(0, Number(event.boot_ns) - zero))}`;
    const script = it.repair.join("\n");
    const copy = el("button", { type: "button" }, "Copy");
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(script);
        copy.textContent = "Copied";
      } catch {
        // Only pages over TLS or from this machine may use the clipboard, so the text is selected instead.
        getSelection().selectAllChildren(copy.nextElementSibling);
        copy.textContent = "Marked";
      }
    });
    return el("div", { class: "body" },
      about([["pod", pod], ["since", `${wall(it.since)} (${ago(it.since)})`], ["opened", wall(it.opened_at)],
        ["confirmed", it.confirmed_at && wall(it.confirmed_at)], ["closed", it.closed_at && wall(it.closed_at)],
        ["addresses", it.detail?.first_addresses && `${it.detail.count}, the first: ${it.detail.first_addresses.join(" ")}`],
        ["sandboxes", it.sandboxes?.join(", ")], ["key", it.key]]),
      el("h4", null, "Why"), el("p", { class: "prose" }, it.cause),
      it.causes || it.effects ? [el("h4", null, "Incident"), el("ul", { class: "notes" },
        (it.causes ?? []).map((cause) => el("li", null, "caused by ", el("a", { href: href(cause.key) }, kindOf(cause.key)), `: ${cause.summary}; so ${cause.why}`)),
        (it.effects ?? []).map((key) => el("li", null, "led to ", el("a", { href: href(key) }, key))))] : null,
      el("h4", null, `Evidence${it.evidence.length ? ` (+0 is ${clock(it.evidence[0].at)} UTC)` : ""}`),
      it.evidence.length === 0 ? el("p", null, "Nothing of it was seen as it happened.")
        : el("div", { class: "evidence" }, table(["at", "event", "what"], it.evidence.map((event) =>
          [el("time", { datetime: event.at, title: wall(event.at) }, offset(event)), event.event, event.text]))),
      it.programs?.length ? [el("h4", null, "Programs"), table(["program", "version"],
        it.programs.map((program) => [program.path, program.version ?? "not known"]), { class: "texts" })] : null,
      it.fixed_in ? [el("h4", null, "Fixed in a later version upstream"), table(["program", "version", "fixed in", "what", "source"],
        it.fixed_in.map((fix) => [fix.path, fix.version, fix.fixed, fix.what, fix.source]), { class: "texts" })] : null,
      it.known.length ? [el("h4", null, "Known as"), el("ul", { class: "notes" }, it.known.map((it) => el("li", null, `${it.title} (${it.id})`, it.links.map((link) => [" ", el("a", { href: link }, link)]))))] : null,
      it.repair.length ? [el("h4", null, "How to repair"), copy, el("pre", { tabindex: 0 }, script)] : null,
      el("p", { class: "faint" }, "More: ", el("a", { href: it.documentation }, it.documentation)));
  }
}
