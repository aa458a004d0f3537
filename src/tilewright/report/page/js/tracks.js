// The launches of the run on one axis of cycles, and what lies on each track.

// A track of slices in order of time that do not overlap. `step[i]` is the step of slice i, `kind[i]` its colour, and
// `height[i]` its share of the track's height (all of it, if `heights` is left out).
class Track {
  constructor(starts, ends, kinds, steps, names, heights = null) {
    Object.assign(this, { starts, ends, kinds, steps, names, heights });
  }
  heightOf(i) {
    return this.heights ? this.heights[i] : 1;
  }
  // Cycles of kind `kind` in slices before slice i, times their heights, for each i: any span is summed exactly.
  before(kind) {
    this.sums ||= new Map();
    if (!this.sums.has(kind)) {
      const sums = new Float64Array(this.starts.length + 1);
      for (let i = 0; i < this.starts.length; i++) sums[i + 1] = sums[i] + (this.kinds[i] === kind ? (this.ends[i] - this.starts[i]) * this.heightOf(i) : 0);
      this.sums.set(kind, sums);
    }
    return this.sums.get(kind);
  }
  // Kinds of the track that occur.
  get present() {
    return (this.found ||= [...new Set(this.kinds)].sort((a, b) => a - b));
  }
  // Cycles of a kind between the beginning and time `at`; `i` is the number of slices that start up to `at`.
  upTo(kind, at, i) {
    const sums = this.before(kind);
    return i === 0 ? 0 : sums[i] - (this.kinds[i - 1] === kind ? Math.max(0, this.ends[i - 1] - at) * this.heightOf(i - 1) : 0);
  }
  // The share of each kind in the cycles of each pixel from `left` to `right`: told to `draw(pixel, kind, share)`.
  // `first` is the cycle at pixel `left`, on the track's own axis.
  shares(left, right, first, perPixel, draw) {
    let at = first, index = after(this.starts, at);
    for (let pixel = left; pixel < right; pixel++) {
      const next = at + perPixel, following = after(this.starts, next, index);
      for (const kind of this.present) draw(pixel, kind, (this.upTo(kind, next, following) - this.upTo(kind, at, index)) / perPixel);
      (at = next), (index = following);
    }
  }
}

class Launch {
  constructor(about, index, arrays, offset) {
    Object.assign(this, about);
    const rows = arrays[`steps/${index}`];
    Object.assign(this, { index, offset, rows, count: rows[0].length });
    this.tokens = arrays[`tokens/${index}`];
    this.chart = { ...about.chart, boxes: arrays[`chart/${index}`] };
    this.tracks = about.units.map((_, unit) => this.unit(unit));
    const [step, cause, end] = arrays[`path/${index}`];
    const begin = Float64Array.from(end, (_, i) => (i ? end[i - 1] : 0));
    this.curves = new Map(about.series.map(([name, unit, most], i) => [name, { unit, most, time: arrays[`series/${index}/${i}`][0], value: arrays[`series/${index}/${i}`][1] }]));
    this.path = step.length ? new Track(begin, end, cause, step, about.causes) : null;
  }
  of(column, step) {
    return this.rows[COLUMN[column]][step];
  }
  unit(unit) {
    const mine = [];
    const units = this.rows[COLUMN.unit];
    for (let step = 0; step < units.length; step++) if (units[step] === unit) mine.push(step);
    const take = (column, type = Float64Array) => type.from(mine, (step) => this.rows[COLUMN[column]][step]);
    return new Track(take("start"), take("until"), take("kind", Int32Array), Int32Array.from(mine), this.causes);
  }
  text(step) {
    return this.texts[this.of("text", step)];
  }
  // Tokens that a step waits for (into) and gives (out of): indices into `tokens`.
  edges() {
    if (!this.edgesOf) {
      const into = new Map(), out = new Map();
      const [giver, taker] = this.tokens;
      for (let i = 0; i < giver.length; i++) {
        into.has(taker[i]) ? into.get(taker[i]).push(i) : into.set(taker[i], [i]);
        out.has(giver[i]) ? out.get(giver[i]).push(i) : out.set(giver[i], [i]);
      }
      this.edgesOf = { into, out };
    }
    return this.edgesOf;
  }
  // The step whose token a waiting step got last: what it waited for. -1: it waited for no step.
  waitedFor(step) {
    const wanted = this.waits[this.of("wait_for", step)];
    let best = -1;
    for (const edge of this.edges().into.get(step) || []) {
      const giver = this.tokens[0][edge];
      if (wanted === `${this.queues[this.tokens[2][edge]]} token` && (best < 0 || this.of("end", giver) > this.of("end", best))) best = giver;
    }
    return best;
  }
}

// All launches, one after another, and the place of each layer on the axis.
class Timed {
  constructor(arrays) {
    let offset = 0;
    this.launches = RUN.launches.map((about, index) => {
      const launch = new Launch(about, index, arrays, offset);
      offset += launch.cycles;
      return launch;
    });
    this.cycles = offset;
    this.layers = this.launches.flatMap((launch) => {
      const mine = LAYERS.slice(launch.layer, launch.layer + launch.layers);
      const total = mine.reduce((sum, layer) => sum + layer.cycles, 0) || 1;
      let from = launch.offset;
      return mine.map((layer, i) => {
        const to = from + (layer.cycles / total) * launch.cycles;
        const placed = { layer, index: launch.layer + i, from, to };
        from = to;
        return placed;
      });
    });
    // Pairs of instructions that a hazard names, with no order between them.
    this.unordered = SUMMARY.findings.filter(({ kind, steps }) => kind === "race" && steps.length > 1).flatMap(({ launch, steps: [from, to] }) => {
      const home = this.launches.find((each) => each.name === launch);
      return home ? [{ launch: home, from, to }] : [];
    });
    this.units = [...new Set(this.launches.flatMap((launch) => launch.units))];
    this.curves = [...new Set(this.launches.flatMap((launch) => [...launch.curves.keys()]))].map((name) => {
      const all = this.launches.map((launch) => launch.curves.get(name)).filter(Boolean);
      const peak = all.reduce((most, curve) => curve.value.reduce((a, b) => Math.max(a, b), most), 0);
      return { name, unit: all[0].unit, order: ["bytes/cycle", "tokens"].indexOf(all[0].unit) + 1 || 9, most: Math.max(...all.map((curve) => curve.most)), peak };
    }).sort((a, b) => a.order - b.order);
  }
  launchAt(cycle) {
    return this.launches.findLast((launch) => launch.offset <= cycle) || this.launches[0];
  }
}
