// The newest events as they come.

import { el } from "./dom.js";
import { clock, podName, wall } from "./words.js";

const KEPT = 300;
/** The shortest time between two drawings of the list, in milliseconds. */
const EVERY_MS = 250;

export class Events {
  title = "Events";
  #kept = [];
  #filter = "";
  #isPaused = false;
  #isShown = false;
  #timer = null;
  #drawn = new Map();

  constructor(section) {
    this.pause = el("button", { type: "button", "aria-pressed": "false" }, "Pause");
    this.pause.addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      this.pause.setAttribute("aria-pressed", String(this.#isPaused));
      if (!this.#isPaused) this.#draw();
    });
    this.said = el("span", { class: "faint" });
    this.list = el("ol", { class: "events", role: "log", "aria-live": "off", "aria-label": "events, the newest first", tabindex: 0 });
    section.append(el("p", { class: "tools" }, this.pause, " ", this.said), this.list);
  }

  badge = () => null;

  set isShown(isShown) {
    this.#isShown = isShown;
    if (isShown) this.#draw();
  }

  add(event) {
    this.#kept.unshift(event);
    if (this.#kept.length > KEPT) this.#kept.length = KEPT;
    if (this.#isShown && !this.#isPaused) this.#timer ??= setTimeout(() => this.#draw(), EVERY_MS);
  }

  filter(text) {
    this.#filter = text;
    this.#draw();
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const shown = this.#kept.filter((it) =>
      `${it.event} ${podName(it.pod)} ${it.text ?? ""}`.toLowerCase().includes(this.#filter));
    const nodes = new Map(shown.map((it) => [it, this.#drawn.get(it) ?? this.#line(it)]));
    for (const [it, node] of this.#drawn) if (!nodes.has(it)) node.remove();
    let at = this.list.firstElementChild;
    for (const node of nodes.values()) {
      if (node === at) at = at.nextElementSibling; else this.list.insertBefore(node, at);
    }
    this.#drawn = nodes;
    this.said.textContent = this.#kept.length === 0 ? "Nothing has happened since this page was opened."
      : `${shown.length} of the last ${this.#kept.length} events since this page was opened`;
  }

  #line(event) {
    const said = event.text ?? "";
    return el("li", { class: event.event === "gap" || event.finding ? "marked" : null },
      el("time", { datetime: event.at, title: wall(event.at) }, clock(event.at)),
      el("span", { class: "event" }, event.event), el("span", { class: "pod" }, podName(event.pod)),
      el("span", { class: "what", title: said }, said));
  }
}
