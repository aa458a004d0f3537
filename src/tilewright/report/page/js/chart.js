// The machine's own figure: boxes in rows over the run's time, such as the banks that commands use.
const ROW_HIGH = 18, ROW_GAP = 4; // pixels of a row, and between rows

class Chart {
  constructor(figure, timed, view) {
    Object.assign(this, { timed, view });
    const launches = timed.launches.filter((launch) => launch.chart.title);
    this.bands = new Map(launches.map((launch) => [launch, this.tracks(launch)]));
    const used = new Set([...this.bands.values()].flatMap((bands) => bands.map(({ name }) => name)));
    const names = [...new Set(launches.flatMap((launch) => launch.chart.rows.map(([name]) => name)))];
    this.rows = names.filter((name) => used.has(name));
    this.kinds = launches.flatMap((launch) => [...new Set(this.bands.get(launch).flatMap(({ track }) => track.present))].map((kind) => launch.chart.kinds[kind]));
    this.height = TOP + this.rows.length * (ROW_HIGH + ROW_GAP) + 4;
    this.canvas = element("canvas", { "aria-label": `${launches[0].chart.title} over time. Arrow keys pan and zoom, Home shows all.` });
    this.tip = element("div", { class: "tip", hidden: "" });
    figure.append(this.canvas, this.tip, this.legend());
    if (used.size < names.length) figure.append(element("p", { class: "hint" }, `Not used: ${names.filter((name) => !used.has(name)).join(", ")}.`));
    interactive(this.canvas, view, () => [LEFT, this.width - LEFT], {
      hover: (event) => this.hover(event && this.at(event), event),
      click: (event) => view.select(this.at(event)),
    });
    view.drawers.push(() => this.draw(new CanvasPen(this.canvas, this.width, this.height)));
    exports(figure, "chart", () => this.svg(), () => this.csv());
  }
  get width() {
    return this.canvas.parentElement.clientWidth;
  }
  // The boxes of a launch, as a track for each part of a row: {name, top, bottom, track, numbers}.
  tracks(launch) {
    const { rows, kinds, boxes: [row, kind, number, start, end, step] } = launch.chart, found = new Map();
    for (let i = 0; i < row.length; i++) {
      const key = [row[i], kinds[kind[i]][3], kinds[kind[i]][4]].join();
      found.has(key) ? found.get(key).push(i) : found.set(key, [i]);
    }
    return [...found.values()].map((mine) => {
      const take = (column, type = Float64Array) => type.from(mine, (i) => column[i]), [name, most] = rows[row[mine[0]]];
      const [, , , top, bottom] = kinds[kind[mine[0]]], heights = most ? Float64Array.from(mine, (i) => number[i] / most) : null;
      const track = new Track(take(start), take(end), take(kind, Int32Array), take(step, Int32Array), kinds, heights);
      return { name, top: top / 100, bottom: bottom / 100, track, numbers: take(number) };
    }).sort((a, b) => b.bottom - b.top - (a.bottom - a.top)); // the narrow ones lie above the others
  }
  legend() {
    const seen = new Map(this.kinds.map((kind) => [kind[0], kind]));
    return element("ul", { class: "legend" }, ...[...seen.values()].map(([text, colour, style]) =>
      element("li", {}, element("i", { class: style, style: colour ? `--fill:${colourOf(colour)}` : "--fill:var(--bad)" }), text.replace("#", "…"))));
  }
  text(kind, number) {
    return kind[0].replace("#", number);
  }
  fill(pen, [, colour, style], x, y, width, height) {
    const own = style === "alarm" ? themed("--bad") : colourOf(colour);
    pen.rect(x, y, width, height, own, style === "light" || style === "hatched" ? 0.45 : 1);
    if (style === "hatched" && width > 2) pen.hatch(x, y, width, height, own);
  }
  draw(pen) {
    const { view } = this, wide = this.width - LEFT, x = scale(view, LEFT, wide), perPixel = (view.to - view.from) / wide;
    for (const at of ticks(view.from, view.to, wide)) {
      pen.line(x(at), TOP - 6, x(at), this.height, themed("--line"));
      pen.text(number(at), x(at) + 3, 9, themed("--muted"), { room: this.width - x(at) - 3 });
    }
    this.rows.forEach((_, index) => pen.rect(LEFT, this.y(index), wide, ROW_HIGH, themed("--track")));
    for (const [launch, bands] of this.bands) {
      const { offset } = launch;
      if (offset > view.to || offset + launch.cycles < view.from) continue;
      for (const { name, top, bottom, track, numbers } of bands) {
        const y = this.y(this.rows.indexOf(name)) + top * ROW_HIGH, high = (bottom - top) * ROW_HIGH;
        const from = after(track.ends, view.from - offset), to = after(track.starts, view.to - offset);
        if (to - from > wide / 2) {
          const left = Math.max(LEFT, Math.floor(x(offset))), right = Math.min(this.width, x(offset + launch.cycles));
          let low = y + high, pixel = -1;
          track.shares(left, right, view.from + (left - LEFT) * perPixel - offset, perPixel, (at, kind, share) => {
            if (at !== pixel) (pixel = at), (low = y + high);
            if (share * high > 0.1) this.fill(pen, track.names[kind], at, (low -= share * high), 1, share * high);
          });
          continue;
        }
        for (let i = from; i < to; i++) {
          const left = Math.max(x(offset + track.starts[i]), LEFT - 2), right = Math.min(x(offset + track.ends[i]), this.width + 2);
          const kind = track.names[track.kinds[i]], tall = high * track.heightOf(i), room = Math.max(0.6, right - left - (right - left > 3 ? 1 : 0));
          this.fill(pen, kind, left, y + high - tall, room, tall);
          if (tall > 12 && kind[2] !== "alarm") pen.text(this.text(kind, numbers[i]), left + 3, y + high - tall / 2, kind[2] === "solid" ? inkOn(colourOf(kind[1])) : themed("--ink"), { room: room - 4 });
        }
      }
      if (offset > view.from) pen.line(x(offset), TOP - 6, x(offset), this.height, themed("--muted"), 1, [2, 3]);
    }
    pen.rect(0, 0, LEFT, this.height, themed("--page"));
    this.rows.forEach((name, index) => pen.text(name, LEFT - 6, this.y(index) + ROW_HIGH / 2, themed("--ink"), { align: "right", room: LEFT }));
  }
  y(row) {
    return TOP + row * (ROW_HIGH + ROW_GAP);
  }
  // The boxes at a point of the canvas: {launch, step, boxes: [text and cycles of each]}, or null.
  at(event) {
    const box = this.canvas.getBoundingClientRect(), cycle = unscale(this.view, LEFT, this.width - LEFT)(event.clientX - box.left);
    const down = event.clientY - box.top - TOP, name = this.rows[Math.floor(down / (ROW_HIGH + ROW_GAP))], within = (down % (ROW_HIGH + ROW_GAP)) / ROW_HIGH;
    const launch = this.timed.launchAt(cycle), found = [];
    if (!name || cycle < this.view.from) return null;
    for (const { name: own, top, bottom, track, numbers } of this.bands.get(launch) || []) {
      const i = after(track.starts, cycle - launch.offset) - 1;
      if (own !== name || i < 0 || track.ends[i] <= cycle - launch.offset) continue;
      const text = `${this.text(track.names[track.kinds[i]], numbers[i])}, cycles ${number(launch.offset + track.starts[i])} – ${number(launch.offset + track.ends[i])}: ${launch.text(track.steps[i])}`;
      found.push({ step: track.steps[i], text, hit: top <= within && within < bottom });
    }
    const chosen = found.findLast(({ hit }) => hit) || found[0];
    return chosen ? { launch, step: chosen.step, name, boxes: found.map(({ text }) => text) } : null;
  }
  hover(found, event) {
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren(element("b", {}, found.name), ...found.boxes.map((text) => element("div", {}, text)));
    const box = this.canvas.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, this.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }
  svg() {
    const pen = new SvgPen(this.width, this.height);
    this.draw(pen);
    return pen.done();
  }
  csv() {
    const lines = [["launch", "row", "what", "number", "start", "end", "instruction", "text"]];
    for (const launch of this.bands.keys()) {
      const { rows, kinds, boxes: [row, kind, value, start, end, step] } = launch.chart;
      for (let i = 0; i < row.length; i++) lines.push([launch.name, rows[row[i]][0], this.text(kinds[kind[i]], value[i]), value[i], launch.offset + start[i], launch.offset + end[i], step[i], launch.text(step[i])]);
    }
    return lines;
  }
}
