// The roofline: executed MACs a cycle over MACs a byte of DRAM, a dot a layer, both axes logarithmic.
class Roofline {
  constructor(figure, zoomTo) {
    this.points = LAYERS.map((layer, index) => ({ layer, index, traffic: layer.dram_read_bytes + layer.dram_write_bytes }))
      .filter(({ layer, traffic }) => layer.cycles && layer.executed_macs && traffic)
      .map((one) => ({ ...one, x: one.layer.executed_macs / one.traffic, y: one.layer.executed_macs / one.layer.cycles }));
    if (!this.points.length) return void (figure.parentElement.hidden = true);
    this.peak = Math.max(...this.points.map(({ layer }) => layer.macs_per_cycle));
    this.bandwidth = RUN.machine.dram_bytes_per_cycle || 0;
    this.height = 340;
    this.canvas = element("canvas", { "aria-label": "Roofline, a dot a layer" });
    this.tip = element("div", { class: "tip", hidden: "" });
    figure.append(this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.near(event), event));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => this.near(event) && zoomTo(this.near(event).index));
    exports(figure, "roofline", () => {
      const pen = new SvgPen(this.width, this.height);
      this.draw(pen);
      return pen.done();
    }, () => [["layer", "MACs per byte", "MACs per cycle", "binds"], ...this.points.map(({ layer, x, y }) => [layer.name, x, y, layer.binds])]);
  }
  get width() {
    return Math.min(820, this.canvas.parentElement.clientWidth);
  }
  axes() {
    const decades = (values) => [10 ** Math.floor(Math.log10(Math.min(...values))), 10 ** Math.ceil(Math.log10(Math.max(...values) * 1.01))];
    const knee = this.bandwidth ? [this.peak / this.bandwidth] : [];
    const [x0, x1] = decades([...this.points.map(({ x }) => x), ...knee]), [y0, y1] = decades([...this.points.map(({ y }) => y), this.peak]);
    const left = 48, low = this.height - 34, wide = this.width - left - 12, high = low - 30; // the title is above
    const place = (value, from, to) => Math.log10(value / from) / Math.log10(to / from);
    return { x0, x1, y0, y1, left, low, wide, high, x: (value) => left + place(value, x0, x1) * wide, y: (value) => low - place(value, y0, y1) * high };
  }
  draw(pen) {
    const axes = this.axes(), { x, y, x0, x1, y0, y1, left, low, wide } = axes, muted = themed("--muted"), ink = themed("--ink");
    for (let at = x0; at <= x1 * 1.001; at *= 10) pen.line(x(at), y(y1), x(at), low, themed("--line")), pen.text(String(+at.toPrecision(3)), x(at), low + 11, muted, { align: "center" });
    for (let at = y0; at <= y1 * 1.001; at *= 10) pen.line(left, y(at), left + wide, y(at), themed("--line")), pen.text(String(+at.toPrecision(3)), left - 5, y(at), muted, { align: "right" });
    const knee = this.bandwidth ? this.peak / this.bandwidth : x0;
    pen.line(x(Math.max(knee, x0)), y(this.peak), left + wide, y(this.peak), ink, 1.6);
    pen.text(`${number(this.peak)} MACs a cycle`, left + wide, y(this.peak) - 9, ink, { align: "right" });
    if (this.bandwidth) {
      const from = Math.max(x0, y0 / this.bandwidth);
      pen.line(x(from), y(from * this.bandwidth), x(knee), y(this.peak), ink, 1.6);
      pen.text(`${this.bandwidth} bytes a cycle`, x(from) + 18, y(from * this.bandwidth) + 1, ink);
    }
    for (const point of this.points) pen.dot(x(point.x), y(point.y), point === this.hot ? 7 : 5, colourOf(point.layer.binds));
    pen.text("MACs per byte of DRAM", left + wide / 2, this.height - 8, muted, { align: "center" });
    pen.text("MACs per cycle", 4, 8, muted);
  }
  render() {
    if (!this.canvas) return;
    this.canvas.style.width = `${this.width}px`;
    this.draw(new CanvasPen(this.canvas, this.width, this.height));
  }
  near(event) {
    const box = this.canvas.getBoundingClientRect(), { x, y } = this.axes();
    const far = (point) => Math.hypot(x(point.x) - (event.clientX - box.left), y(point.y) - (event.clientY - box.top));
    const best = this.points.reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(best) < 14 ? best : null;
  }
  hover(point, event) {
    this.hot = point;
    this.tip.hidden = !point;
    this.render();
    if (!point) return;
    const { layer } = point;
    this.tip.replaceChildren(element("b", {}, `${layer.name}, ${layer.op}`), element("div", {}, `${point.y.toFixed(1)} MACs a cycle, ${point.x.toFixed(2)} MACs a byte`), element("div", {}, `most cycles: ${layer.binds}`));
    const box = this.canvas.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 12, this.width - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${event.clientY - box.top + 14}px`;
  }
}
