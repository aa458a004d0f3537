// The run's data, unpacked, and small helpers that every figure uses.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const RUN = DATA.run, SUMMARY = RUN.summary, LAYERS = SUMMARY.layers;
const COLUMN = Object.fromEntries(DATA.columns.map((name, row) => [name, row]));

const colourOf = (name) => DATA.palette[name] || "#8a8f98";
// Black or white, whichever is read better on a colour #rrggbb.
const inkOn = (colour) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#111" : "#fff";
};
const number = (value) => Math.round(value).toLocaleString("en-US");
const bytes = (value) => (value < 1024 ? `${value} B` : value < 1 << 20 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / (1 << 20)).toFixed(1)} MiB`);
const time = (cycles) => {
  if (!(RUN.clock_mhz > 0)) return "";
  const micro = cycles / RUN.clock_mhz;
  return micro < 1 ? `${(micro * 1000).toFixed(0)} ns` : micro < 1000 ? `${micro.toFixed(2)} µs` : `${(micro / 1000).toFixed(3)} ms`;
};
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key.startsWith("on") ? made.addEventListener(key.slice(2), value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// The first index in low..high whose value is greater than `value`; the values of `sorted` never decrease.
function after(sorted, value, low = 0, high = sorted.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Unpack the arrays: {"steps/0": [row, ...], ...}; a row is a typed array.
async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("arrays").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const arrays = {};
  let offset = 0;
  DATA.arrays.forEach(({ key, row, type, length, delta }) => {
    let values = new globalThis[type](buffer, offset, length);
    offset += values.byteLength;
    if (delta) {
      let sum = 0;
      values = Float64Array.from(values, (step) => (sum += step));
    }
    (arrays[key] ||= [])[row] = values;
  });
  return arrays;
}

function save(name, type, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
const fileName = (part, suffix) => `${RUN.title.replace(/[^\w.-]+/g, "_")}_${part}.${suffix}`;
const csv = (rows) => rows.map((row) => row.map((cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(",")).join("\n") + "\n";

// Buttons below a figure, which save it as SVG (drawn again by `draw`) and as CSV (`rows`, the first one has the names).
function exports(figure, name, draw, rows) {
  const buttons = element("div", { class: "exports" });
  if (draw) buttons.append(element("button", { onclick: () => save(fileName(name, "svg"), "image/svg+xml", draw()) }, "SVG"));
  buttons.append(element("button", { onclick: () => save(fileName(name, "csv"), "text/csv", csv(rows())) }, "CSV"));
  figure.append(buttons);
}
