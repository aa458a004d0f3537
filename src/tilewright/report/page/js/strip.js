// The layers in time: width is cycles, colour is the cause of most of them. Click a layer to zoom to it.
class Strip {
  constructor(figure, timed, view) {
    Object.assign(this, { timed, view, height: 64 });
    this.canvas = element("canvas", { "aria-label": "Layers in time; click one to zoom to it" });
    this.tip = element("div", { class: "tip", hidden: "" });
    figure.append(this.canvas, this.tip);
    this.all = new View(view.whole); // the strip itself always shows all
    this.canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found) this.zoomTo(found);
    });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    view.drawers.push(() => this.draw(new CanvasPen(this.canvas, this.width, this.height)));
    exports(figure, "layers", () => {
      const pen = new SvgPen(this.width, this.height);
      this.draw(pen);
      return pen.done();
    }, () => [["layer", "op", "from", "to", "cycles", "binds"], ...timed.layers.map(({ layer, from, to }) => [layer.name, layer.op, from, to, layer.cycles, layer.binds])]);
  }
  get width() {
    return this.canvas.parentElement.clientWidth;
  }
  zoomTo({ from, to, index }) {
    this.view.show(from, to);
    document.querySelectorAll("#layers tr.here").forEach((row) => row.classList.remove("here"));
    document.querySelector(`#layers tr[data-layer="${index}"]`)?.classList.add("here");
  }
  at(event) {
    const cycle = unscale(this.all, 0, this.width)(event.clientX - this.canvas.getBoundingClientRect().left);
    return this.timed.layers.find(({ from, to }) => from <= cycle && cycle < to);
  }
  hover(event) {
    const found = this.at(event);
    this.tip.hidden = !found;
    if (!found) return;
    const { layer } = found;
    const causes = Object.entries(layer.causes).map(([name, cycles]) => element("div", {}, `${name} ${((100 * cycles) / layer.cycles).toFixed(1)}% (${number(cycles)})`));
    this.tip.replaceChildren(element("b", {}, `${layer.name}, ${layer.op}`), element("div", {}, `${number(layer.cycles)} cycles ${time(layer.cycles)}`), ...causes);
    const left = event.clientX - this.canvas.getBoundingClientRect().left + 12;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${this.height + 8}px`;
  }
  draw(pen) {
    const { view } = this, x = scale(this.all, 0, this.width);
    for (const { layer, from, to } of this.timed.layers) {
      const left = x(from), wide = Math.max(0.5, x(to) - left - (x(to) - left > 3 ? 1 : 0));
      const colour = colourOf(layer.binds);
      pen.rect(left, 8, wide, 40, colour);
      pen.text(layer.name, left + 3, 20, inkOn(colour), { room: wide - 4 });
      pen.text(number(layer.cycles), left + 3, 36, inkOn(colour), { room: wide - 4 });
    }
    const left = x(view.from), right = x(view.to);
    pen.rect(0, 4, left, 48, themed("--page"), 0.6);
    pen.rect(right, 4, this.width - right, 48, themed("--page"), 0.6);
    pen.frame(left + 1, 4, Math.max(2, right - left - 2), 48, themed("--ink"), 2);
    for (const [edge, align] of [[0, "left"], [view.whole, "right"]]) pen.text(number(edge), x(edge), 58, themed("--muted"), { align });
  }
}
