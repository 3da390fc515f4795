// The pools of addresses, their leaks, and the state of each plugin's attachments.

import { el, svg, table } from "./dom.js";
import { href } from "./findings.js";

const PARTS = [["in_use", "in use", "ns"], ["pending_cleanup", "to be cleaned up", "be"],
  ["leak_candidate", "perhaps leaked", "cn"], ["leaked", "leaked", "lo"]];
const FATES = [["added", "added"], ["released", "released"], ["released_without_netns", "released without a namespace"],
  ["live", "live"], ["ended", "ended, DEL to come"], ["unreleased", "never released"], ["unknown", "unknown"]];
/** What is 1 where each pod has one sandbox and each ADD its DEL. Attachments that live have no DEL yet. */
const RATIOS = [["sandboxes / pod", (it) => [it.sandboxes, it.pods]], ["ADDs / pod", (it) => [it.added, it.pods]],
  // Without `unverified` it is not known.
  ["releases / ADD", (it) => [it.released + it.released_without_netns - it.unverified, "unverified" in it && it.released + it.released_without_netns + it.unreleased]]];
const words = (pool) => `${pool.network} ${pool.subnet}`.toLowerCase();
const wordsOf = ({ plugin, network }) => `${plugin} ${network ?? ""}`.toLowerCase();
/** One address, or the first of many and how many more there are. */
const leaked = ({ address, count }) => (count > 1 ? `${address} and ${count - 1} more` : address);
const percent = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(2)}%`;

const ratio = (count, whole) => (whole ? (count / whole).toFixed(2) : "-");

export class Pools {
  path = "v1/pools";
  gap = 5_000;
  title = "Addresses";
  #pools = [];
  #balance = [];
  #filter = "";
  #said = null;

  /** `leaks(network)` returns the findings about leaks of the network. */
  constructor(section, leaks) {
    this.leaks = leaks;
    this.list = el("div", { class: "pools" });
    this.plugins = el("section", { class: "balance", "aria-label": "Balance of CNI plugins" });
    section.append(this.list, this.plugins);
  }

  touches = ({ event, finding }) => /^(address|cni)\./.test(event) || finding?.kind === "leaked_address";

  badge = () => this.#pools.length;

  show({ pools, balance = [] }) {
    this.#pools = pools;
    this.#balance = balance;
    this.#draw();
  }

  filter(text) {
    this.#filter = text;
    this.#draw();
  }

  /** Draws again when the leaks change, which are in another view. */
  redraw() {
    this.#draw();
  }

  #draw() {
    const said = JSON.stringify([this.#pools, this.#balance, this.#filter, this.#pools.map((it) => this.leaks(it.network).map(({ key, detail }) => [key, detail.count]))]);
    if (said === this.#said) return;
    this.#said = said;
    const shown = this.#pools.filter((pool) => words(pool).includes(this.#filter));
    const had = document.activeElement?.closest?.(".pools a")?.getAttribute("href");
    this.list.replaceChildren(...(shown.length ? shown.map((it) => this.#pool(it))
      : [el("p", null, this.#pools.length ? "No range is shown by the filter."
        : "No range of addresses is known: the networks' configurations name none.")]));
    this.plugins.replaceChildren(...this.#balances());
    if (had) [...this.list.querySelectorAll("a")].find((it) => it.getAttribute("href") === had)?.focus();
  }

  #balances() {
    const shown = this.#balance.filter((it) => wordsOf(it).includes(this.#filter));
    if (!shown.length) return [];
    const cell = (it, member) => (member === "unreleased" && it[member] ? el("span", { class: "bad" }, it[member]) : it[member]);
    return [el("h3", null, "Balance of CNI plugins"),
      el("p", { class: "faint" }, "Attachments (a sandbox's interface) whose ADD was seen to succeed since the first agent of this boot."),
      table(["plugin", "network", ...FATES.map(([, name]) => name)],
        shown.map((it) => [it.plugin, it.network ?? "?", ...FATES.map(([member]) => cell(it, member))])),
      el("p", { class: "faint" }, "Each is 1.00 where every pod has one sandbox and every ADD a DEL that released it."),
      table(["plugin", "network", "pods", ...RATIOS.map(([name]) => name)],
        shown.map((it) => [it.plugin, it.network ?? "?", it.pods, ...RATIOS.map(([, parts]) => ratio(...parts(it)))]))];
  }

  #pool(pool) {
    let at = 0;
    const bars = PARTS.map(([member, , kind]) => {
      const bar = svg("rect", { class: kind, x: percent(at, pool.size), width: percent(pool[member], pool.size) });
      at += pool[member];
      return bar;
    });
    const leaks = this.leaks(pool.network);
    return el("section", { class: "pool", "aria-label": `${pool.network} ${pool.subnet}` },
      el("h3", null, pool.network, " ", el("span", { class: "faint" }, pool.subnet)),
      el("div", { class: "gauge" }, svg("svg", { "aria-hidden": "true" }, bars)),
      el("dl", { class: "about" },
        [["size", "size", ""], ...PARTS, ["free", "free", ""]].map(([member, name, kind]) => el("div", null,
          el("dt", null, kind ? svg("svg", { class: "key", "aria-hidden": "true" }, svg("rect", { class: kind, width: "100%", height: "100%" })) : null, name),
          el("dd", member === "leaked" && pool.leaked ? { class: "bad" } : null, pool[member])))),
      leaks.length ? el("p", null, "Leaked: ", leaks.map((it, n) =>
        [n ? ", " : "", el("a", { href: href(it.key) }, leaked(it.detail))])) : null);
  }
}
