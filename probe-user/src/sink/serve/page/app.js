// The page: views of the agent's state, read again when an event says that they may have changed.

import { Boots } from "./boots.js";
import { el } from "./dom.js";
import { Events } from "./events.js";
import { follow } from "./feed.js";
import { Findings } from "./findings.js";
import { Health } from "./health.js";
import { Pods } from "./pods.js";
import { Pools } from "./pools.js";
import { get, onAsked } from "./server.js";
import { ago, count, setClock } from "./words.js";

const $ = (id) => document.getElementById(id);
const main = $("main");

// The sections, by their names in the address.
const sections = new Map();
const section = (name, title) => {
  const heading = el("h2", { tabindex: -1 }, title);
  const made = el("section", { id: `view-${name}`, "aria-label": title, hidden: true }, heading);
  main.append(made);
  sections.set(name, made);
  return made;
};

const strip = el("ul", { id: "health", "aria-label": "what the agent cannot see" });
main.prepend(strip);
const findings = new Findings(section("findings", "Findings"));
const pods = new Pods(section("pods", "Pods"));
const pools = new Pools(section("pools", "Addresses"), findings.leaks);
const boots = new Boots(section("boots", "Boots"));
const events = new Events(section("events", "Events"));
const health = new Health(section("agent", "Agent"), strip);
const views = { findings, pods, pools, boots, events, agent: health };

const nav = Object.fromEntries(Object.entries(views).map(([name, view]) => {
  const badge = el("span", { class: "badge" });
  const link = el("a", { href: `#/${name}` }, view.title, " ", badge);
  $("nav").append(el("li", null, link));
  return [name, { link, badge }];
}));

let shown = null;

// Reading views.

/** How many pods are named. */
const NAMED = 3;
/** The stream is connected. */
let isLive = false;

/** A view that takes long to read is read less often. */
const PATIENCE = 10;
const LONGEST_MS = 15_000;
const plans = new Map(Object.values(views).filter((view) => view.path)
  .map((view) => [view, { isStale: true, isBusy: false, timer: null, next: 0, failures: 0, wasRead: false }]));

/** Findings and the agent's health are always read; the other views only while they are shown. */
const isWanted = (view, plan) => !document.hidden && (view === findings || view === health || views[shown] === view || !plan.wasRead);

const refresh = (view) => {
  const plan = plans.get(view);
  if (!plan.isStale || plan.isBusy || plan.timer !== null || !isWanted(view, plan)) return;
  const wait = plan.next - performance.now();
  if (wait > 0) plan.timer = setTimeout(() => { plan.timer = null; refresh(view); }, wait);
  else read(view, plan);
};

const stale = (view) => {
  plans.get(view).isStale = true;
  refresh(view);
};

const read = async (view, plan) => {
  Object.assign(plan, { isStale: false, isBusy: true });
  const begun = performance.now();
  try {
    const told = await get(view.path);
    setClock(told.at);
    name(told.node);
    await view.show(told);
    Object.assign(plan, { failures: 0, wasRead: true });
    tell();
  } catch (error) {
    plan.failures += 1;
    plan.isStale = true;
    notice(`unread-${view.title}`, `${view.title} could not be read: ${error.message}`);
    tell();
  }
  if (plan.failures === 0) notices.get(`unread-${view.title}`)?.remove();
  const took = performance.now() - begun;
  plan.next = performance.now() + Math.max(view.gap, Math.min(took * PATIENCE, LONGEST_MS), plan.failures ? 2_000 * plan.failures : 0);
  plan.isBusy = false;
  refresh(view);
};

const all = () => [...plans.keys()].forEach(stale);

/** Shows what depends on more than one view. */
const tell = () => {
  for (const [name_, view] of Object.entries(views)) {
    const n = plans.get(view)?.wasRead ? view.badge() : null;
    nav[name_].badge.textContent = n === null ? "" : String(n);
  }
  nav.findings.badge.className = `badge ${findings.worst() ?? ""}`;
  pools.redraw();
  if (health.told) findings.setHealth(health.basis(pods.badge(), pools.badge(), doubts()));
};

/** Returns why it is not certain that nothing is wrong, a sentence each. */
const doubts = () => {
  const unread = [...plans].filter(([, plan]) => !plan.wasRead || plan.failures > 0).map(([view]) => view.title);
  const waiting = pods.waiting();
  return [
    ...(isLive ? [] : ["The agent does not answer: this is what it said before."]),
    ...(unread.length ? [`Not read yet, or not any more: ${unread.join(", ")}.`] : []),
    ...(waiting.length ? [`Not up yet: ${waiting.slice(0, NAMED).join(", ")}${waiting.length > NAMED ? ` and ${waiting.length - NAMED} more` : ""}.`] : []),
  ];
};

const name = (node) => {
  if (!node || $("node").textContent === node) return;
  $("node").replaceChildren(el("span", null, node));
  document.title = `sandprobe: ${$("node").textContent}`;
};

// Notices about the page's own state.

const notices = new Map();
/** Shows a notice, one of each kind; it stays until it is closed. */
const notice = (kind, text) => {
  notices.get(kind)?.remove();
  const close = el("button", { type: "button", "aria-label": `put away: ${text}` }, "Put away");
  const made = el("li", null, el("span", null, text), " ", close);
  close.addEventListener("click", () => made.remove());
  notices.set(kind, made);
  $("notices").append(made);
};

const link = (state, text) => {
  $("link").className = state;
  if ($("link-text").textContent !== text) $("link-text").textContent = text;
};

// New findings are announced, many at once as one, and none before the page has read the existing ones.
const NEWS_MS = 3_000;
let fresh = [];
let saying = null;
const say = (finding) => {
  fresh.push(finding);
  saying ??= setTimeout(() => {
    const [first] = fresh;
    $("news").replaceChildren(el("span", null, fresh.length === 1 ? `New finding: ${first.severity}, ${first.kind}, ${first.summary}`
      : `${count(fresh.length, "new finding")}`));
    fresh = [];
    saying = null;
  }, NEWS_MS);
};

// The stream.

let lostAt = null;
const second = () => new Date().toISOString().slice(11, 19);

const start = () => follow({
  event(it) {
    events.add(it);
    for (const view of plans.keys()) if (view.touches(it)) stale(view);
    if (it.event === "finding.opened") say(it.finding);
  },
  state(state, pause) {
    isLive = state === "live";
    tell();
    if (isLive) {
      link("live", "live");
      lostAt = null;
      // Read all views again, because they may have changed while the stream was lost.
      all();
      return;
    }
    lostAt ??= second();
    link("lost", `disconnected since ${lostAt} UTC: what is shown may be old; trying again ${pause < 2_000 ? "at once" : `every ${pause / 1_000} s`}`);
  },
  missed(n) {
    notice("missed", `${count(n, "event")} ${n === "1" ? "was" : "were"} missed: this page was away too long, or too slow. All views were read anew.`);
    all();
  },
  restarted() {
    notice("restarted", `The agent has restarted (noticed at ${second()} UTC); events may have been missed. All views were read anew.`);
    all();
  },
});

// The address.

const route = (isFirst) => {
  const [, view = "", ...rest] = decode(location.hash);
  const wanted = sections.has(view) ? view : "findings";
  if (wanted !== shown) {
    shown = wanted;
    for (const [name_, made] of sections) made.hidden = name_ !== wanted;
    for (const [name_, { link: it }] of Object.entries(nav)) {
      if (name_ === wanted) it.setAttribute("aria-current", "page"); else it.removeAttribute("aria-current");
    }
    events.isShown = wanted === "events";
    if (!isFirst && rest.length === 0) sections.get(wanted).querySelector("h2").focus({ preventScroll: true });
    if (!isFirst) scrollTo(0, 0);
    const plan = plans.get(views[wanted]);
    if (plan) refresh(views[wanted]);
  }
  if (wanted === "findings" && rest.length) findings.open(rest.join("/"));
  if (wanted === "pods" && rest.length > 1) pods.open(rest[0], rest[1]);
};

const decode = (hash) => hash.split("/").map((it) => {
  try { return decodeURIComponent(it); } catch { return it; }
});

// Asking for a token.

onAsked((why) => new Promise((resolve) => {
  $("ask").hidden = false;
  $("ask-why").textContent = why;
  $("token").value = "";
  $("token").focus();
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    $("ask").hidden = true;
    resolve($("token").value);
    sections.get(shown).querySelector("h2").focus({ preventScroll: true });
  }, { once: true });
}));

// The keyboard and the clock.

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
let filtering = null;
$("filter").addEventListener("input", () => {
  clearTimeout(filtering);
  filtering = setTimeout(() => {
    const text = $("filter").value.trim().toLowerCase();
    for (const view of Object.values(views)) view.filter(text);
  }, 120);
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select")) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape" && event.target === $("filter")) {
    $("filter").value = "";
    $("filter").dispatchEvent(new Event("input"));
  }
});
addEventListener("hashchange", () => route(false));
document.addEventListener("visibilitychange", () => plans.forEach((_, view) => refresh(view)));
setInterval(() => {
  if (document.hidden) return;
  for (const it of document.querySelectorAll("time.since")) {
    const text = ago(it.dateTime);
    if (it.textContent !== text) it.textContent = text;
  }
  if (plans.get(health).next + health.every < performance.now()) stale(health);
}, 10_000);

route(true);
start();
