// The pods of the node, and where the time of their starts went.

import { List, about, el, table } from "./dom.js";
import { axis, fall, legend, line, roundUp } from "./waterfall.js";
import { podName, slowest, span } from "./words.js";

const key = (pod) => pod.uid ?? podName(pod);
const total = (pod) => Number(pod.start?.total_ns ?? -1);
const began = (pod) => Number(pod.start?.begin_ns ?? -1);
const byName = (a, b) => podName(a).localeCompare(podName(b));
const ORDERS = {
  slowest: (a, b) => total(b) - total(a) || byName(a, b),
  latest: (a, b) => began(b) - began(a) || byName(a, b),
  name: byName,
};

const addresses = (pod) => pod.sandboxes.flatMap((it) => it.addresses.map((at) => `${at.address}/${at.prefix}`));
const words = (pod) => `${podName(pod)} ${pod.uid ?? ""} ${addresses(pod).join(" ")}`.toLowerCase();

export class Pods {
  path = "v1/pods";
  gap = 2_000;
  title = "Pods";
  #pods = [];
  #filter = "";
  #order = "slowest";
  #scale = 0;
  #wanted = null;

  constructor(section) {
    const select = el("select", { id: "order" },
      [["slowest", "slowest start first"], ["latest", "latest start first"], ["name", "by name"]].map(([value, text]) =>
        el("option", { value }, text)));
    select.addEventListener("change", () => { this.#order = select.value; this.#draw(); });
    this.said = el("p", { class: "faint" });
    this.shares = el("details", { class: "past" }, el("summary", null, "How long each phase takes on this node"));
    this.head = el("div", { class: "line head" });
    this.list = el("div", { class: "pods" });
    this.legend = el("details", { class: "past" }, el("summary", null, "What the colors mean"));
    section.append(el("p", { class: "tools" }, el("label", null, "Order ", select)), this.said, this.shares, this.legend,
      this.head, this.list);
    this.rows = new List(this.list, key, (it, old) => this.#row(it, old));
  }

  touches = ({ event }) => /^(pod|sandbox|container|address)\./.test(event);

  badge = () => this.#pods.length;

  /** The names of the pods that are not up yet and may be stuck. */
  waiting = () => this.#pods.filter((pod) => pod.state === "created").map(podName);

  async show({ pods, phases, legend: meanings }) {
    this.#pods = pods;
    if (!this.legend.querySelector("ul")) this.legend.append(legend(meanings));
    this.shares.querySelector(".wide")?.remove();
    this.shares.hidden = phases.length === 0;
    this.shares.append(table(["phase", "starts", "p50", "p90", "p99"], phases.map((it) =>
      [it.title, it.starts, span(it.p50_ns), span(it.p90_ns), span(it.p99_ns)])));
    await this.#draw();
    if (this.#wanted) this.open(...this.#wanted);
  }

  async filter(text) {
    this.#filter = text;
    await this.#draw();
  }

  async #draw() {
    const shown = this.#pods.filter((pod) => words(pod).includes(this.#filter)).sort(ORDERS[this.#order]);
    const longest = Math.max(1, ...shown.map(total));
    const scale = roundUp(longest);
    if (scale !== this.#scale) {
      this.#scale = scale;
      this.head.replaceChildren(el("span", null, "pod"), axis(scale), el("span", { class: "took" }, "took"),
        el("span", null, "slowest"));
    }
    const seen = shown.filter((pod) => pod.start).length;
    this.head.hidden = seen === 0;
    this.said.textContent = this.#pods.length === 0 ? "There is no pod on this node."
      : `${shown.length} of ${this.#pods.length} pods; the start of ${seen} was seen.`;
    await this.rows.show(shown, String(scale));
  }

  #row(pod, old) {
    const row = old ?? el("details", null, el("summary", { class: "line" }));
    const most = pod.start && slowest(pod.start.phases);
    const now = pod.state;
    row.querySelector("summary").replaceChildren(
      el("span", { class: "name" }, podName(pod), now === "ready" ? null : [" ", el("i", null, now)],
        pod.start ? (pod.start.marks ?? []).map((mark) => [" ", el("i", null, mark)]) : null),
      pod.start ? line(pod.start, this.#scale) : el("span", { class: "faint" }, "its start was not seen"),
      el("span", { class: "took" }, pod.start ? span(pod.start.total_ns) : "-"),
      el("span", { class: "slow" }, most ? `${most.title} ${span(most.duration_ns)}` : ""));
    row.pod = pod;
    if (!old) row.addEventListener("toggle", () => this.#fill(row));
    else if (row.open) this.#fill(row);
    return row;
  }

  #fill(row) {
    row.querySelector(".body")?.remove();
    if (!row.open) return;
    const { pod } = row;
    row.append(el("div", { class: "body" },
      about([["uid", pod.uid], ["name from", pod.source.replaceAll("_", " ")], ["state", pod.state],
        ["addresses", addresses(pod).join(", ")]]),
      pod.start ? fall(pod.start) : null,
      pod.sandboxes.length ? table(["sandbox", "state", "netns", "addresses"], pod.sandboxes.map((it) =>
        [it.id, it.state, it.host_network ? "the node's own" : it.netns?.inode ?? "-",
          it.addresses.map((at) => `${at.address}/${at.prefix} on ${at.ifname}`).join(", ") || "-"]), { class: "texts" }) : null,
      pod.containers.length ? table(["container", "state", "process", "id"], pod.containers.map((it) =>
        [it.name ?? "?", it.state, it.pid ?? "-", it.id]), { class: "texts" }) : null));
  }

  /** Shows the pod of this name. */
  open(namespace, name) {
    const pod = this.#pods.find((it) => (it.namespace ?? "") === namespace && it.name === name);
    const row = pod && this.rows.row(key(pod));
    this.#wanted = row ? null : [namespace, name];
    if (!row) return;
    row.open = true;
    row.scrollIntoView({ block: "nearest" });
    row.querySelector("summary").focus({ preventScroll: true });
  }
}
