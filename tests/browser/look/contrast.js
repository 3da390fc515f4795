// The contrast of each text that is seen with what is behind it ("Web Content Accessibility Guidelines" 2.2,
// relative luminance); gives those below arguments[0].
const least = arguments[0];
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const parsed = new Map();
// Whatever a color is written as, the canvas makes it four numbers.
const parse = (color) => {
  if (!parsed.has(color)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    parsed.set(color, [...canvas.getImageData(0, 0, 1, 1).data].map((it) => it / 255));
  }
  return parsed.get(color);
};
const over = (top, below) => below.map((it, n) => (n === 3 ? 1 : top[n] * top[3] + it * (1 - top[3])));
const luminance = ([r, g, b]) => {
  const [lr, lg, lb] = [r, g, b].map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
  return 0.2126 * lr + 0.7152 * lg + 0.0722 * lb;
};
const ground = (element) => {
  const above = [];
  for (let it = element; it; it = it.parentElement) {
    const color = parse(getComputedStyle(it).backgroundColor);
    above.push(color);
    if (color[3] === 1) break;
  }
  return above.reverse().reduce((below, color) => over(color, below), parse("Canvas"));
};
const faint = [];
let seen = 0;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode, element = text.parentElement;
  if (!text.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
  const range = document.createRange();
  range.selectNode(text);
  if (!range.getBoundingClientRect().width) continue;
  seen += 1;
  const behind = ground(element);
  const [a, b] = [over(parse(getComputedStyle(element).color), behind), behind].map(luminance);
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < least) faint.push([Number(contrast.toFixed(2)), element.className, text.data.trim().slice(0, 40)]);
}
return { seen, faint: faint.slice(0, 20) };
