// The figures of a study: the front of two results, and parallel coordinates of all machines.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const ROWS = DATA.rows;
const SVG = Object.assign(document.createElement("template"), { innerHTML: "<svg></svg>" }).content.firstChild.namespaceURI;
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) key.startsWith("on") ? made.addEventListener(key.slice(2), value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const shown = (value) => (typeof value === "number" ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : value);
const titled = (name) => (DATA.estimates.includes(name) ? `${name} (estimate)` : name);
const about = (row) => [...DATA.keys, ...DATA.objectives].map((name) => `${titled(name)} ${shown(row[name])}`).join("\n");

// A scale of one column: where a value lies, 0 to 1, and the values to write beside its axis.
function scale(name) {
  const words = DATA.words[name];
  if (words) return { at: (row) => (words.length < 2 ? 0.5 : words.indexOf(row[name]) / (words.length - 1)), ticks: words.map((word, i) => [i / Math.max(1, words.length - 1), word]) };
  const values = ROWS.map((row) => Number(row[name]));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const log = low > 0 && high > 8 * low;
  const part = (value) => (high === low ? 0.5 : log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const steps = high === low ? [low] : [0, 1, 2, 3, 4].map((i) => (log ? low * (high / low) ** (i / 4) : low + ((high - low) * i) / 4));
  const whole = values.every(Number.isInteger) && high - low <= 12;
  const ticks = whole ? [...new Set(values)].sort((a, b) => a - b) : steps;
  const brief = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 3, notation: Math.abs(value) >= 1e5 ? "compact" : "standard" });
  return { at: (row) => part(Number(row[name])), ticks: ticks.map((value) => [part(value), brief(value)]) };
}

let chosen = null;
const kept = new Map(); // by column: the range 0 to 1 of the machines to show
const drawn = [];
function choose(row) {
  chosen = row;
  for (const line of document.querySelectorAll("#machines tr[data-point]")) line.classList.toggle("here", row !== null && Number(line.dataset.point) === row.point);
  for (const draw of drawn) draw();
}
const scales = Object.fromEntries([...new Set([...DATA.keys, ...DATA.numeric])].map((name) => [name, scale(name)]));
const isKept = (row) => [...kept].every(([name, [low, high]]) => low - 1e-9 <= scales[name].at(row) && scales[name].at(row) <= high + 1e-9);

function scatter() {
  const place = document.querySelector("#front .figure"), tools = document.querySelector("#front .tools");
  const pick = (own) => html("select", { "aria-label": "axis", onchange: draw }, ...DATA.numeric.map((name) => html("option", { value: name, ...(name === own ? { selected: "" } : {}) }, titled(name))));
  const x = pick(DATA.objectives[1] || DATA.objectives[0]), y = pick(DATA.objectives[0]);
  tools.append(y, " over ", x);
  function draw() {
    const width = place.clientWidth, height = Math.max(220, Math.min(420, width * 0.5)), left = 64, low = height - 34;
    const [across, up] = [scales[x.value], scales[y.value]];
    const px = (part) => left + part * (width - left - 16), py = (part) => low - part * (low - 26);
    const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.value} over ${x.value}` });
    for (const [part, text] of across.ticks) figure.append(svg("line", { x1: px(part), x2: px(part), y1: 22, y2: low, stroke: "var(--line)" }), svg("text", { x: px(part), y: low + 14, "text-anchor": "middle" }, text));
    for (const [part, text] of up.ticks) figure.append(svg("line", { x1: left, x2: width - 12, y1: py(part), y2: py(part), stroke: "var(--line)" }), svg("text", { x: left - 6, y: py(part) + 4, "text-anchor": "end" }, text));
    figure.append(svg("text", { x: width - 12, y: height - 4, "text-anchor": "end" }, titled(x.value)), svg("text", { x: 4, y: 10 }, titled(y.value)));
    const front = ROWS.filter((row) => row.on_front).sort((a, b) => across.at(a) - across.at(b));
    if (DATA.objectives.length === 2 && DATA.objectives.includes(x.value) && DATA.objectives.includes(y.value) && front.length) {
      const steps = front.map((row, i) => (i ? `H${px(across.at(row))}V${py(up.at(row))}` : `M${px(across.at(row))} ${py(up.at(row))}`));
      figure.append(svg("path", { d: steps.join(""), fill: "none", stroke: "#d55e00", "stroke-width": 1.5 }));
    }
    for (const row of [...ROWS].sort((a, b) => a.on_front - b.on_front)) {
      const mark = { cx: px(across.at(row)), cy: py(up.at(row)), r: row === chosen ? 7 : row.on_front ? 5 : 3, fill: row.on_front ? "#d55e00" : "#0072b2", opacity: isKept(row) ? 0.85 : 0.12 };
      const dot = svg("circle", { ...mark, onpointerenter: () => row !== chosen && choose(row) });
      dot.append(svg("title", {}, `machine ${row.point}\n${about(row)}`));
      figure.append(dot);
    }
    place.replaceChildren(figure);
  }
  drawn.push(draw);
}

function parallel() {
  const place = document.querySelector("#all .figure");
  const names = [...DATA.keys, ...new Set([...DATA.objectives, ...DATA.numeric.filter((name) => name === "cycles")])];
  function draw() {
    const room = Math.max(place.clientWidth, 90 * names.length), height = 300, top = 34, low = height - 12;
    const ax = (index) => 46 + (index * (room - 92)) / Math.max(1, names.length - 1), ay = (part) => low - part * (low - top);
    const figure = svg("svg", { viewBox: `0 0 ${room} ${height}`, role: "img", "aria-label": "parallel coordinates of all machines" });
    for (const row of [...ROWS].sort((a, b) => (a === chosen) - (b === chosen) || a.on_front - b.on_front)) {
      const path = names.map((name, i) => `${i ? "L" : "M"}${ax(i).toFixed(1)} ${ay(scales[name].at(row)).toFixed(1)}`).join("");
      const strong = row === chosen, style = { stroke: strong ? "var(--ink)" : row.on_front ? "#d55e00" : "#0072b2", "stroke-width": strong ? 2.5 : row.on_front ? 1.6 : 1, opacity: !isKept(row) ? 0.04 : strong ? 1 : row.on_front ? 0.9 : 0.25 };
      figure.append(svg("path", { d: path, fill: "none", ...style, onpointerenter: () => row !== chosen && isKept(row) && choose(row) }, svg("title", {}, `machine ${row.point}\n${about(row)}`)));
    }
    names.forEach((name, i) => {
      figure.append(svg("line", { x1: ax(i), x2: ax(i), y1: top, y2: low, stroke: "var(--ink)" }), svg("text", { x: i ? ax(i) : 2, y: i % 2 ? 24 : 11, "text-anchor": i ? "middle" : "start" }, titled(name)));
      for (const [part, text] of scales[name].ticks) figure.append(svg("text", { x: ax(i) + 5, y: ay(part) + 4 }, text));
      const range = kept.get(name);
      if (range) figure.append(svg("rect", { x: ax(i) - 6, width: 12, y: ay(range[1]), height: Math.max(2, ay(range[0]) - ay(range[1])), fill: "var(--ink)", opacity: 0.3 }));
      const handle = svg("rect", { x: ax(i) - 12, width: 24, y: top - 4, height: low - top + 8, fill: "transparent", "data-axis": name });
      handle.addEventListener("pointerdown", (event) => drag(event, figure, name, (y) => Math.min(1, Math.max(0, (low - y) / (low - top)))));
      figure.append(handle);
    });
    place.replaceChildren(figure);
  }
  function drag(event, figure, name, part) {
    const box = figure.getBoundingClientRect(), unit = figure.viewBox.baseVal.height / box.height;
    const at = (moved) => part((moved.clientY - box.top) * unit), first = at(event);
    let last = first;
    const move = (moved) => (last = at(moved));
    const up = (moved) => {
      move(moved);
      window.removeEventListener("pointermove", move);
      if (Math.abs(last - first) < 0.02) kept.delete(name);
      else kept.set(name, [Math.min(first, last), Math.max(first, last)]);
      for (const each of drawn) each();
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up, { once: true });
    event.preventDefault();
  }
  drawn.push(draw);
}

if (ROWS.length) {
  scatter();
  parallel();
  for (const line of document.querySelectorAll("#machines tr[data-point]")) line.addEventListener("pointerenter", () => choose(ROWS.find((row) => row.point === Number(line.dataset.point)) || null));
  for (const draw of drawn) draw();
  window.addEventListener("resize", () => drawn.forEach((draw) => draw()));
}
document.documentElement.dataset.ready = "yes";
