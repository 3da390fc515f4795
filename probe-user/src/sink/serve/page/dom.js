// Makes elements and the text in them.
//
// Invariant: text from the node becomes a text node or an attribute's value, never markup. Only `el` and
// `svg` make elements, and the names of elements are this program's own.

// Control characters, and characters that change the direction of text or are invisible (Unicode TR 36).
const ACTS = /[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Escapes all characters that would act on the display, as the commands do. */
export const safe = (text) =>
  String(text).replace(ACTS, (c) => SHORT[c] ?? `\\u{${c.codePointAt(0).toString(16)}}`);

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, safe(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : safe(child));
  }
  return element;
};

export const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

export const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/** Names and words as a `<dl>`; names without a word are left out. */
export const about = (pairs) =>
  el("dl", { class: "about" }, pairs.filter(([, word]) => word !== null && word !== undefined && word !== "")
    .map(([name, word]) => el("div", null, el("dt", null, name), el("dd", null, word))));

/** A table; the first cell of each row is its name. */
export const table = (headings, rows, attributes) =>
  el("div", { class: "wide" }, el("table", attributes,
    el("thead", null, el("tr", null, headings.map((it) => el("th", { scope: "col" }, it)))),
    el("tbody", null, rows.map((cells) => el("tr", null, cells.map((cell, n) =>
      (n === 0 ? el("th", { scope: "row" }, cell) : el("td", null, cell))))))));

/** How long a script may hold up typing and scrolling, in milliseconds. */
const SLICE_MS = 8;

/** The rows of a list by their keys. Unchanged rows stay, and many rows are drawn a slice at a time. */
export class List {
  #rows = new Map();
  #turn = 0;

  /** `make(item, old)` returns a row's element; `key` returns the row's key. */
  constructor(parent, key, make) {
    Object.assign(this, { parent, key, make });
  }

  row(key) {
    return this.#rows.get(key)?.node;
  }

  /** `beside`: other state that rows depend on. Returns true once all is shown, false if newer items came. */
  async show(items, beside = "") {
    const turn = ++this.#turn;
    const keys = new Set(items.map(this.key));
    for (const [key, { node }] of this.#rows) {
      if (!keys.has(key)) {
        node.remove();
        this.#rows.delete(key);
      }
    }
    let begun = performance.now();
    let at = this.parent.firstElementChild;
    for (const item of items) {
      if (performance.now() - begun > SLICE_MS) {
        await new Promise((resolve) => { setTimeout(resolve); });
        if (turn !== this.#turn) return false;
        begun = performance.now();
      }
      const key = this.key(item);
      const said = JSON.stringify(item) + beside;
      const old = this.#rows.get(key);
      if (old?.said !== said) {
        const node = this.make(item, old?.node);
        if (old && old.node !== node) {
          if (at === old.node) at = node;
          const had = old.node.contains(document.activeElement);
          old.node.replaceWith(node);
          if (had) (node.querySelector("summary, a, button") ?? node).focus({ preventScroll: true });
        }
        this.#rows.set(key, { node, said });
      }
      const { node } = this.#rows.get(key);
      if (node === at) {
        at = at.nextElementSibling;
      } else {
        const focused = node.contains(document.activeElement) ? document.activeElement : null;
        this.parent.insertBefore(node, at);
        focused?.focus({ preventScroll: true });
      }
    }
    return true;
  }
}
