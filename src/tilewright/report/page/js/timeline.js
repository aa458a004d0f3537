// The timeline: a track per unit down to one instruction, the critical path, waits, tokens.
const ROW = 24, GAP = 6, TOP = 22, LEFT = Math.min(160, 76 + innerWidth / 14); // pixels
const FEW = 60; // slices of a track up to which all tokens are drawn

class Timeline {
  constructor(figure, timed, view, detail) {
    Object.assign(this, { timed, view, detail, arrows: true });
    this.canvas = element("canvas", { "aria-label": "Timeline. Arrow keys pan and zoom, n and p step through a unit's instructions, Home shows all." });
    const button = (text, title, act) => element("button", { title, onclick: act }, text);
    const all = element("input", { type: "checkbox", checked: "", onchange: () => ((this.arrows = all.checked), view.changed()) });
    figure.append(
      element("div", { class: "tools" }, button("−", "zoom out (s)", () => view.zoom(1 / 0.6)), button("+", "zoom in (w)", () => view.zoom(0.6)),
        button("all", "show all (Home)", () => view.show(0, view.whole)), button("selection", "zoom to the selected instruction (f)", () => this.focus()),
        element("label", {}, all, " token arrows"), (this.where = element("output"))),
      this.canvas, detail.tip, detail.panel,
    );
    this.path = timed.launches.some((launch) => launch.path);
    this.rows = [...timed.units.map((name) => ({ name })), ...(this.path ? [{ name: "critical path", path: true }] : []), ...timed.curves.map((curve) => ({ name: curve.name, curve }))];
    this.height = TOP + this.rows.length * (ROW + GAP) + 4;
    interactive(this.canvas, view, () => [LEFT, this.width - LEFT], {
      hover: (event) => this.hover(event),
      click: (event) => view.select(this.at(event)),
      keys: { n: () => this.step(1), p: () => this.step(-1), f: () => this.focus(), Enter: () => this.focus() },
    });
    view.drawers.push(() => this.draw(new CanvasPen(this.canvas, this.width, this.height)));
    exports(figure, "timeline", () => this.svg(), () => this.csv());
  }
  get width() {
    return this.canvas.parentElement.clientWidth;
  }
  y(row) {
    return TOP + row * (ROW + GAP);
  }
  track(launch, row) {
    if (row.path) return launch.path;
    if (row.curve) return null;
    const unit = launch.units.indexOf(row.name);
    return unit < 0 ? null : launch.tracks[unit];
  }
  draw(pen) {
    const { view } = this, wide = this.width - LEFT, x = scale(view, LEFT, wide);
    const ink = themed("--ink"), faint = themed("--line"), muted = themed("--muted");
    for (const at of ticks(view.from, view.to, wide)) {
      pen.line(x(at), TOP - 6, x(at), this.height, faint);
      pen.text(number(at), x(at) + 3, 9, muted, { room: this.width - x(at) - 3 });
    }
    this.rows.forEach((row, index) => pen.rect(LEFT, this.y(index), wide, ROW, themed("--track")));
    this.few = true;
    for (const launch of this.timed.launches) {
      if (launch.offset > view.to || launch.offset + launch.cycles < view.from) continue;
      this.rows.forEach((row, index) => {
        if (row.curve) this.curve(pen, launch, row.curve, this.y(index), x);
        const track = this.track(launch, row);
        if (track) this.slices(pen, launch, track, this.y(index), x, row.path);
      });
      if (launch.offset > view.from) pen.line(x(launch.offset), TOP - 6, x(launch.offset), this.height, muted, 1, [2, 3]);
    }
    if (this.arrows) this.tokens(pen, x);
    pen.rect(0, 0, LEFT, this.height, themed("--page"));
    this.rows.forEach((row, index) => pen.text(row.name, LEFT - 6, this.y(index) + ROW / 2, ink, { align: "right", room: LEFT }));
    this.where.textContent = `${number(view.from)} – ${number(view.to)} of ${number(view.whole)} cycles  ${SUMMARY.complete ? time(view.to - view.from) : ""}`;
  }
  // Draw the slices of a track, or shares of each pixel where there are more slices than pixels.
  slices(pen, launch, track, y, x, path) {
    const { view } = this, offset = launch.offset, { starts, ends, kinds, steps } = track;
    const from = after(ends, view.from - offset), to = after(starts, view.to - offset);
    const perPixel = (view.to - view.from) / (this.width - LEFT);
    if (to - from > (this.width - LEFT) / 2) {
      this.few = false;
      const first = Math.max(LEFT, Math.floor(x(offset))), last = Math.min(this.width, x(offset + launch.cycles));
      let low = y + ROW, pixel = -1;
      track.shares(first, last, view.from + (first - LEFT) * perPixel - offset, perPixel, (x, kind, share) => {
        if (x !== pixel) (pixel = x), (low = y + ROW);
        if (share * ROW > 0.2) pen.rect(x, (low -= share * ROW), 1, share * ROW, colourOf(track.names[kind]));
      });
      return;
    }
    if (to - from > FEW) this.few = false;
    const chosen = view.selected?.launch === launch ? view.selected.step : -1;
    for (let i = from; i < to; i++) {
      const left = Math.max(x(offset + starts[i]), LEFT - 2), right = Math.min(x(offset + ends[i]), this.width + 2);
      const step = steps[i], wide = Math.max(0.6, right - left - (right - left > 3 ? 1 : 0));
      const colour = colourOf(track.names[kinds[i]]);
      pen.rect(left, y, wide, ROW, colour);
      if (path) {
        pen.text(track.names[kinds[i]], left + 3, y + ROW / 2, inkOn(colour), { room: wide - 4 });
        continue;
      }
      const wait = launch.of("wait", step);
      if (wait > 0) {
        const since = Math.max(starts[i] - wait, i ? ends[i - 1] : 0); // its unit may have been free before the slice ended
        const idle = Math.max(LEFT, x(offset + since));
        if (left - idle > 2) pen.hatch(idle, y, left - idle, ROW, themed("--muted"));
        pen.text(launch.waits[launch.of("wait_for", step)], idle + 3, y + ROW / 2, themed("--ink"), { room: left - idle - 4 });
      }
      pen.text(launch.text(step), left + 3, y + ROW / 2, inkOn(colour), { room: wide - 4 });
      if (step === chosen) pen.frame(left, y - 1, Math.max(2, wide), ROW + 2, themed("--ink"), 2);
    }
  }
  // Draw a series as an area, filled up to its largest possible value, or to its peak where there is none.
  curve(pen, launch, { name, peak, most }, y, x) {
    const found = launch.curves.get(name), { view } = this;
    if (!found) return;
    const { time, value } = found, first = Math.max(0, after(time, view.from - launch.offset) - 1);
    for (let i = first; i + 1 < time.length && time[i] + launch.offset < view.to; i++) {
      const left = Math.max(LEFT, x(launch.offset + time[i])), right = Math.min(this.width, x(launch.offset + time[i + 1]));
      const high = (value[i] / (most && peak > most / 4 ? most : peak || 1)) * ROW;
      if (high > 0 && right > left) pen.rect(left, y + ROW - high, right - left, high, themed("--curve"));
    }
  }
  middle(launch, step) {
    return this.y(this.rows.findIndex((row) => row.name === launch.units[launch.of("unit", step)])) + ROW / 2;
  }
  // Draw the tokens of the selected or hovered instruction, and all tokens in view where they are few.
  tokens(pen, x) {
    const { view } = this;
    const draw = (launch, edge, colour, thick) => {
      const giver = launch.tokens[0][edge], taker = launch.tokens[1][edge];
      pen.arrow(x(launch.offset + launch.of("end", giver)), this.middle(launch, giver), x(launch.offset + launch.of("start", taker)), this.middle(launch, taker), colour, thick);
    };
    if (this.few) for (const launch of this.timed.launches) {
      if (launch.offset > view.to || launch.offset + launch.cycles < view.from) continue;
      for (let edge = 0; edge < launch.tokens[0].length; edge++) {
        const given = launch.offset + launch.of("end", launch.tokens[0][edge]), taken = launch.offset + launch.of("start", launch.tokens[1][edge]);
        if (taken >= view.from && given <= view.to) draw(launch, edge, themed("--muted"), 0.8);
      }
    }
    for (const { launch, from, to } of this.timed.unordered)
      pen.arrow(x(launch.offset + launch.of("end", from)), this.middle(launch, from), x(launch.offset + launch.of("start", to)), this.middle(launch, to), themed("--bad"), 2, [4, 3]);
    for (const one of [view.hovered, view.selected]) if (one) {
      const { into, out } = one.launch.edges();
      for (const edge of [...(into.get(one.step) || []), ...(out.get(one.step) || [])]) draw(one.launch, edge, themed("--ink"), 1.6);
    }
  }
  // The instruction at a point of the canvas, or null.
  at(event) {
    const box = this.canvas.getBoundingClientRect(), { view } = this;
    const cycle = unscale(view, LEFT, this.width - LEFT)(event.clientX - box.left);
    const index = Math.floor((event.clientY - box.top - TOP) / (ROW + GAP)), row = this.rows[index];
    if (!row || cycle < view.from) return null;
    const launch = this.timed.launchAt(cycle), track = this.track(launch, row);
    if (!track) return null;
    const slack = (2 * (view.to - view.from)) / this.width, within = cycle - launch.offset;
    const i = Math.min(track.starts.length - 1, Math.max(0, after(track.starts, within + slack) - 1));
    if (!(track.starts[i] <= within + slack)) return null;
    if (within <= track.ends[i] + slack) return { launch, step: track.steps[i], stretch: row.path ? i : undefined };
    const next = track.steps[i + 1];
    return !row.path && next !== undefined && launch.of("start", next) - launch.of("wait", next) <= within ? { launch, step: next } : null;
  }
  // Tell the value of the series under the pointer. Return whether there is one.
  read(event) {
    const box = this.canvas.getBoundingClientRect(), row = this.rows[Math.floor((event.clientY - box.top - TOP) / (ROW + GAP))];
    const cycle = unscale(this.view, LEFT, this.width - LEFT)(event.clientX - box.left), launch = this.timed.launchAt(cycle);
    const found = row?.curve && cycle >= this.view.from && launch.curves.get(row.name);
    if (!found) return false;
    const { time, value, unit, most } = found, i = Math.max(0, after(time, cycle - launch.offset) - 1);
    this.detail.tell(event, row.name, [`${+value[i].toPrecision(4)} ${unit}${most ? ` of ${number(most)}` : ""}`, `from cycle ${number(launch.offset + time[i])}`]);
    return true;
  }
  hover(event) {
    const found = event && this.at(event);
    if (event && !found && this.read(event)) return;
    const same = found?.launch === this.view.hovered?.launch && found?.step === this.view.hovered?.step;
    this.view.hovered = found;
    this.detail.point(found, event);
    if (!same) this.view.changed();
  }
  // Select the next or previous instruction of the selected one's unit.
  step(by) {
    const { view } = this;
    const now = view.selected || { launch: this.timed.launchAt(view.from), step: 0 };
    const track = now.launch.tracks[now.launch.of("unit", now.step)];
    const place = after(track.steps, now.step) - 1 + (view.selected ? by : 0);
    if (place < 0 || place >= track.steps.length) return;
    view.select({ launch: now.launch, step: track.steps[place] });
    const at = now.launch.offset + track.starts[place];
    if (at < view.from || at > view.to) view.show(at - (view.to - view.from) / 2, at + (view.to - view.from) / 2);
  }
  focus() {
    if (!this.view.selected) return;
    const { launch, step } = this.view.selected;
    const start = launch.offset + launch.of("start", step), span = Math.max(16, launch.of("end", step) - launch.of("start", step));
    this.view.show(start - 2 * span, start + 3 * span);
  }
  svg() {
    const pen = new SvgPen(this.width, this.height);
    this.draw(pen);
    return pen.done();
  }
  csv() {
    const rows = [["launch", "instruction", "unit", "text", "start", "end", "wait", "waited for", "bytes read", "bytes written"]];
    for (const launch of this.timed.launches) for (let step = 0; step < launch.count; step++) rows.push([
      launch.name, step, launch.units[launch.of("unit", step)], launch.text(step), launch.offset + launch.of("start", step), launch.offset + launch.of("end", step),
      launch.of("wait", step), launch.waits[launch.of("wait_for", step)] || "", launch.of("read", step), launch.of("written", step)]);
    return rows;
  }
}
