// A flame graph: all cycles, divided by layer, function and source line. A click zooms to a box, or out again.
class Flame {
  constructor(figure, timed) {
    this.root = { name: SUMMARY.model, cycles: 0, parts: [] };
    for (const launch of timed.launches) this.add(launch);
    this.shown = this.root;
    this.height = 4 * 26 + 4;
    this.canvas = element("canvas", { "aria-label": "Flame graph of layers, functions and source lines; click to zoom" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.merged = element("input", { type: "checkbox", onchange: () => ((this.shown = this.top), this.render()) });
    figure.append(element("div", { class: "tools" }, element("label", {}, this.merged, " all layers together")), this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      this.shown = !found || found === this.shown ? this.top : found;
      this.render();
    });
    exports(figure, "functions", () => {
      const pen = new SvgPen(this.width, this.height);
      this.draw(pen);
      return pen.done();
    }, () => [["layer", "function", "source line", "cycles"], ...this.root.parts.flatMap((layer) => layer.parts.flatMap((own) => own.parts.map((line) => [layer.name, own.name, line.name, line.cycles])))]);
  }
  // The layers of a launch, each with its functions and their lines.
  add(launch) {
    (launch.shares["source lines"] || launch.shares.functions || []).forEach((parts, step) => {
      const name = LAYERS[launch.layer + step]?.name || launch.text(step), functions = new Map();
      for (const [key, cycles] of Object.entries(parts)) {
        const [own, line = ""] = key.split(", ", 2);
        if (!functions.has(own)) functions.set(own, { name: own, cycles: 0, parts: [] });
        functions.get(own).parts.push({ name: line, cycles, parts: [] });
        functions.get(own).cycles += cycles;
      }
      const layer = { name, parts: [...functions.values()].sort((a, b) => b.cycles - a.cycles) };
      layer.cycles = layer.parts.reduce((sum, part) => sum + part.cycles, 0);
      this.root.parts.push(layer);
      this.root.cycles += layer.cycles;
    });
  }
  get top() {
    if (!this.merged.checked) return this.root;
    const merge = (nodes) => {
      const found = new Map();
      for (const node of nodes) {
        const known = found.get(node.name);
        known ? ((known.cycles += node.cycles), known.all.push(...node.parts)) : found.set(node.name, { name: node.name, cycles: node.cycles, all: [...node.parts] });
      }
      return [...found.values()].map(({ name, cycles, all }) => ({ name, cycles, parts: merge(all) })).sort((a, b) => b.cycles - a.cycles);
    };
    return (this.together ||= { ...this.root, parts: merge(this.root.parts.flatMap((layer) => layer.parts)) });
  }
  get width() {
    return this.canvas.parentElement.clientWidth;
  }
  render() {
    this.draw(new CanvasPen(this.canvas, this.width, this.height));
  }
  draw(pen) {
    this.boxes = [];
    const place = (node, left, wide, row) => {
      if (wide < 0.4) return;
      const name = node.name || "?", hue = [...name].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 70, 7);
      const colour = row ? `hsl(${hue} 75% ${62 + (hue % 9)}%)` : "#8a8f98";
      pen.rect(left, row * 26 + 2, Math.max(0.4, wide - 1), 24, colour);
      pen.text(`${name} ${((100 * node.cycles) / this.root.cycles).toFixed(1)}%`, left + 4, row * 26 + 14, "#111", { room: wide - 8 });
      this.boxes.push({ node, left, wide, row });
      let at = left;
      for (const part of node.parts) {
        place(part, at, (wide * part.cycles) / node.cycles, row + 1);
        at += (wide * part.cycles) / node.cycles;
      }
    };
    place(this.shown, 0, this.width, 0);
  }
  at(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, row = Math.floor((event.clientY - box.top) / 26);
    return this.boxes.find((each) => each.row === row && each.left <= x && x < each.left + each.wide)?.node;
  }
  hover(event) {
    const node = this.at(event), box = this.canvas.getBoundingClientRect();
    this.tip.hidden = !node;
    if (!node) return;
    this.tip.replaceChildren(element("b", {}, node.name || "?"), element("div", {}, `${number(node.cycles)} cycles, ${((100 * node.cycles) / this.root.cycles).toFixed(2)}% ${time(node.cycles)}`));
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, this.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${event.clientY - box.top + 40}px`;
  }
}
