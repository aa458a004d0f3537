// Two pens with the same methods: one draws on a canvas, the other writes SVG. Figures are drawn with either.
const FONT = "11px system-ui, sans-serif";

const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class CanvasPen {
  constructor(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    this.context = canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
  }
  rect(x, y, width, height, fill, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }
  frame(x, y, width, height, colour, thick = 1) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = thick;
    this.context.strokeRect(x, y, width, height);
  }
  hatch(x, y, width, height, colour) {
    const context = this.context;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = x - (x % 6) - height; at < x + width; at += 6) context.moveTo(at, y + height), context.lineTo(at + height, y);
    context.stroke();
    context.restore();
  }
  line(x1, y1, x2, y2, colour, thick = 1, dash = []) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = thick;
    this.context.setLineDash(dash);
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
    this.context.setLineDash([]);
  }
  arrow(x1, y1, x2, y2, colour, thick = 1, dash = []) {
    this.line(x1, y1, x2, y2, colour, thick, dash);
    const turn = Math.atan2(y2 - y1, x2 - x1);
    for (const side of [2.7, -2.7]) this.line(x2, y2, x2 + 6 * Math.cos(turn + side), y2 + 6 * Math.sin(turn + side), colour, thick);
  }
  dot(x, y, radius, fill) {
    this.context.fillStyle = fill;
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 7);
    this.context.fill();
  }
  // Text in at most `room` pixels; nothing where not even three letters fit.
  text(text, x, y, fill, { align = "left", room = Infinity } = {}) {
    const fitted = fit(text, room);
    if (!fitted) return;
    this.context.fillStyle = fill;
    this.context.textAlign = align;
    this.context.fillText(fitted, x, y);
  }
}

// The namespace of SVG, taken from an element: the page names no address.
const SVG = Object.assign(document.createElement("template"), { innerHTML: "<svg></svg>" }).content.firstChild.namespaceURI;
const LETTER = 6.1; // pixels, on average
function fit(text, room) {
  if (text.length * LETTER <= room) return text;
  const letters = Math.floor(room / LETTER) - 1;
  return letters < 3 ? "" : `${text.slice(0, letters)}…`;
}

class SvgPen {
  constructor(width, height) {
    this.size = [width, height];
    this.parts = [];
  }
  add(text) {
    this.parts.push(text);
  }
  rect(x, y, width, height, fill, opacity = 1) {
    this.add(`<rect x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${width.toFixed(2)}" height="${height.toFixed(2)}" fill="${fill}" opacity="${opacity}"/>`);
  }
  frame(x, y, width, height, colour, thick = 1) {
    this.add(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="none" stroke="${colour}" stroke-width="${thick}"/>`);
  }
  hatch(x, y, width, height, colour) {
    this.add(`<rect x="${x.toFixed(2)}" y="${y}" width="${width.toFixed(2)}" height="${height}" fill="none" stroke="${colour}" stroke-dasharray="2 2"/>`);
  }
  line(x1, y1, x2, y2, colour, thick = 1, dash = []) {
    this.add(`<line x1="${x1.toFixed(2)}" y1="${y1.toFixed(2)}" x2="${x2.toFixed(2)}" y2="${y2.toFixed(2)}" stroke="${colour}" stroke-width="${thick}" stroke-dasharray="${dash.join(" ")}"/>`);
  }
  dot(x, y, radius, fill) {
    this.add(`<circle cx="${x.toFixed(2)}" cy="${y.toFixed(2)}" r="${radius}" fill="${fill}"/>`);
  }
  text(text, x, y, fill, { align = "left", room = Infinity } = {}) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const safe = fit(text, room).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    if (safe) this.add(`<text x="${x.toFixed(2)}" y="${(y + 4).toFixed(2)}" fill="${fill}" text-anchor="${anchor}">${safe}</text>`);
  }
  done() {
    const [width, height] = this.size;
    return `<svg xmlns="${SVG}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="11"><rect width="100%" height="100%" fill="${themed("--page")}"/>${this.parts.join("\n")}</svg>\n`;
  }
}
SvgPen.prototype.arrow = CanvasPen.prototype.arrow;
