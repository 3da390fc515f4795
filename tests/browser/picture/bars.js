// Each row of a picture as it is drawn, in pixels: its scale in ms, the bars of its line, and how far any bar is
// outside of what it lies in.
const ms = (text) => {
  const units = { "µs": 0.001, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  return [...text.matchAll(/([0-9.]+) ?(µs|ms|s|m|h|d)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
};
const out = (svg) => {
  const within = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("rect")].map((it) => it.getBoundingClientRect()).reduce(
    (most, box) => Math.max(most, within.left - box.left, box.right - within.right - 3, within.top - box.top,
      box.bottom - within.bottom), 0);
};
const labels = document.querySelectorAll(".line.head .axis span");
const scale = ms(labels[labels.length - 1].textContent);
return [...document.querySelectorAll("details")].map((row) => {
  const line = row.querySelector("summary svg");
  const box = line.getBoundingClientRect(), rule = parseFloat(getComputedStyle(line).borderRightWidth);
  const bars = [...line.querySelectorAll("rect:not(.u)")].map((it) => {
    const bar = it.getBoundingClientRect();
    return { at: bar.left - box.left, wide: bar.width };
  });
  return { name: row.querySelector(".name").firstChild.data, scale, wide: box.width - rule, bars,
    out: Math.max(...[...row.querySelectorAll("svg")].map(out)) };
});
