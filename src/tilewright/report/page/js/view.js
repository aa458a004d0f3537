// What part of the run is shown, in cycles, and what is selected. All figures over time share it.
class View {
  constructor(cycles) {
    this.whole = Math.max(1, cycles);
    this.from = 0;
    this.to = this.whole;
    this.selected = null; // {launch, step}
    this.hovered = null;
    this.drawers = [];
    this.watchers = [];
  }
  show(from, to) {
    const span = Math.min(this.whole, Math.max(8, to - from));
    this.from = Math.min(Math.max(0, from), this.whole - span);
    this.to = this.from + span;
    this.changed();
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }
  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }
  select(found) {
    this.selected = found;
    for (const watch of this.watchers) watch(found);
    this.changed();
  }
  changed() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      for (const draw of this.drawers) draw();
    });
  }
}

// The pixel of a cycle in a figure whose axis begins at `left` and has `width` pixels, and back.
const scale = (view, left, width) => (cycle) => left + ((cycle - view.from) / (view.to - view.from)) * width;
const unscale = (view, left, width) => (x) => view.from + ((x - left) / width) * (view.to - view.from);

// Steps of 1, 2, 5, 10, ... that give an axis about one tick each 110 pixels.
function ticks(from, to, width) {
  const rough = ((to - from) / Math.max(1, width)) * 110;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find((n) => n * power >= rough) * power);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

// Let a canvas pan by dragging, zoom by wheel, pinch and keys, and say which point is hovered or clicked.
function interactive(canvas, view, axis, { hover, click, keys = {} }) {
  const cycleAt = (event) => unscale(view, ...axis())(event.clientX - canvas.getBoundingClientRect().left);
  const pointers = new Map();
  let moved = 0;
  canvas.tabIndex = 0;
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && !event.altKey && document.activeElement !== canvas) return; // the page scrolls
    event.preventDefault();
    Math.abs(event.deltaX) > Math.abs(event.deltaY) ? view.pan(event.deltaX / 800) : view.zoom(1.0018 ** event.deltaY, cycleAt(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before) {
      const by = ((before.clientX - event.clientX) / axis()[1]) * (view.to - view.from);
      moved += Math.abs(before.clientX - event.clientX);
      if (pointers.size === 2) {
        const [other] = [...pointers.values()].filter((each) => each.pointerId !== event.pointerId);
        const gap = (each) => Math.max(10, Math.abs(each.clientX - other.clientX));
        view.zoom(gap(before) / gap(event), cycleAt(other));
      } else view.show(view.from + by, view.to + by);
      pointers.set(event.pointerId, event);
    } else hover?.(event);
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => {
    if (pointers.delete(event.pointerId) && kind === "pointerup" && moved < 4) click?.(event, cycleAt(event));
  });
  canvas.addEventListener("pointerleave", () => hover?.(null));
  const actions = {
    ArrowLeft: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2), ArrowUp: () => view.zoom(0.6), ArrowDown: () => view.zoom(1 / 0.6),
    a: () => view.pan(-0.2), d: () => view.pan(0.2), w: () => view.zoom(0.6), s: () => view.zoom(1 / 0.6),
    "+": () => view.zoom(0.6), "-": () => view.zoom(1 / 0.6), Home: () => view.show(0, view.whole), "0": () => view.show(0, view.whole),
    Escape: () => view.select(null), ...keys,
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey ? null : actions[event.key];
    if (act) event.preventDefault(), act();
  });
}
