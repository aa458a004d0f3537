// The network: a row a node in the order of the run, edges in lanes at the left as a version history shows branches.
const LANE = 14, LINE = 26;

class Network {
  constructor(figure, zoomTo) {
    const nodes = RUN.graph;
    if (!nodes.length) return;
    this.nodes = nodes;
    this.layerOf = new Map(LAYERS.map((layer, index) => [layer.name, index]));
    this.lanes();
    const box = element("div", { class: "network", tabindex: "0" });
    box.innerHTML = this.svg(); // all text in it is escaped
    box.addEventListener("click", (event) => {
      const row = event.target.closest("[data-layer]");
      if (row) zoomTo(Number(row.dataset.layer));
    });
    figure.append(box);
    exports(figure, "network", () => this.svg(), () => [["node", "op", "shape", "where", "reason", "inputs"], ...nodes.map((node) => [node.name, node.op, node.shape, node.reason ? "host" : SUMMARY.target, node.reason, node.inputs.join(" ")])]);
  }
  // Give each tensor that a later node reads a lane, from its producer to its last reader.
  lanes() {
    const last = new Map();
    this.nodes.forEach((node, row) => node.inputs.forEach((name) => last.set(name, row)));
    const free = [], lane = new Map();
    this.edges = [];
    const source = new Map();
    this.width = 1;
    this.nodes.forEach((node, row) => {
      for (const name of node.inputs) {
        if (!source.has(name)) continue;
        this.edges.push({ from: source.get(name), to: row, lane: lane.get(name) });
        if (last.get(name) === row) free[lane.get(name)] = true;
      }
      for (const name of node.outputs) {
        if (!last.has(name)) continue;
        let place = free.indexOf(true);
        if (place < 0) place = free.length;
        free[place] = false;
        lane.set(name, place);
        source.set(name, row);
        this.width = Math.max(this.width, place + 1);
      }
    });
  }
  svg() {
    const safe = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
    const left = this.width * LANE + 10, wide = 860, high = this.nodes.length * LINE + 8;
    const x = (lane) => 8 + lane * LANE, y = (row) => row * LINE + 16, most = Math.max(1, ...LAYERS.map((layer) => layer.cycles));
    const edges = this.edges.map(({ from, to, lane }) => `<path d="M${left} ${y(from)}L${x(lane)} ${y(from) + 8}L${x(lane)} ${y(to) - 8}L${left} ${y(to)}" fill="none" stroke="currentColor" opacity=".45" stroke-width="1.4"/>`);
    const rows = this.nodes.map((node, row) => {
      const index = this.layerOf.get(node.name), layer = LAYERS[index];
      const host = Boolean(node.reason), colour = host ? "#8a8f98" : colourOf(layer?.binds);
      const title = host ? `on the host: ${node.reason}` : layer ? `${number(layer.cycles)} cycles, most of them ${layer.binds}` : SUMMARY.target;
      const bar = layer && !host ? `<rect x="620" y="${y(row) - 7}" width="${((200 * layer.cycles) / most).toFixed(1)}" height="14" fill="${colour}"/>` : `<text x="620" y="${y(row) + 4}" opacity=".7">${host ? safe(fit(node.reason, 235)) : ""}</text>`;
      return `<g ${index === undefined ? "" : `data-layer="${index}"`}><title>${safe(title)}</title><rect x="0" y="${y(row) - 12}" width="${wide}" height="${LINE - 2}" fill="transparent"/>` +
        `<circle cx="${left}" cy="${y(row)}" r="5" fill="${colour}" stroke="currentColor" stroke-width="${host ? 1 : 0}"/>` +
        `<text x="${left + 14}" y="${y(row) + 4}" font-weight="600">${safe(fit(node.name, 300 - left))}</text><text x="330" y="${y(row) + 4}">${safe(fit(node.op, 150))}</text>` +
        `<text x="490" y="${y(row) + 4}" opacity=".7">${safe(fit(node.shape, 125))}</text>${bar}</g>`;
    });
    return `<svg xmlns="${SVG}" width="${wide}" height="${high}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">${edges.join("")}${rows.join("")}</svg>`;
  }
}
