// What one instruction is: a tip beside the pointer, and a panel for the selected one with its neighbours and tokens.
class Detail {
  constructor(view) {
    this.view = view;
    this.tip = element("div", { class: "tip", hidden: "" });
    this.panel = element("div", { class: "panel", "aria-live": "polite" });
    view.watchers.push((found) => this.show(found));
    this.show(null);
  }
  lines({ launch, step, stretch }) {
    const of = (column) => launch.of(column, step), start = of("start"), end = of("end");
    const found = [`${launch.units[of("unit")]} #${step}, cycles ${number(launch.offset + start)} – ${number(launch.offset + end)} (${number(end - start)}${time(1) && `, ${time(end - start)}`})`];
    if (stretch !== undefined) {
      const { starts, ends, kinds, names } = launch.path;
      found.unshift(`critical path: ${names[kinds[stretch]]}, ${number(ends[stretch] - starts[stretch])} cycles`);
    }
    if (of("wait") > 0) {
      const giver = launch.waitedFor(step);
      const by = giver < 0 ? "" : `, which ${launch.units[launch.of("unit", giver)]} #${giver} (${launch.text(giver)}) gave`;
      found.push(`waited ${number(of("wait"))} cycles for ${launch.waits[of("wait_for")] || "its unit"}${by}`);
      const definition = (RUN.definitions || {})[launch.waits[of("wait_for")]];
      if (definition) found.push(definition);
    }
    if (of("read")) found.push(`reads ${bytes(of("read"))} of DRAM`);
    if (of("written")) found.push(`writes ${bytes(of("written"))} of DRAM`);
    return found;
  }
  point(found, event) {
    this.tip.hidden = !found;
    if (found) this.tell(event, found.launch.text(found.step), this.lines(found));
  }
  tell(event, title, lines) {
    this.tip.hidden = false;
    this.tip.replaceChildren(element("b", {}, title), ...lines.map((line) => element("div", {}, line)));
    const box = this.tip.parentElement.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }
  show(found) {
    if (!found) {
      this.panel.replaceChildren(element("p", { class: "hint" }, "Drag to pan. Click the timeline, then scroll or press w and s to zoom. Click an instruction to see its tokens; n and p step to its neighbours."));
      return;
    }
    const { launch, step } = found;
    const link = (other) => element("button", { class: "link", onclick: () => this.view.select({ launch, step: other }) }, `${launch.units[launch.of("unit", other)]} #${other}  ${launch.text(other)}`);
    const track = launch.tracks[launch.of("unit", step)], place = after(track.steps, step) - 1;
    const listing = [];
    for (let i = Math.max(0, place - 2); i < Math.min(track.steps.length, place + 3); i++)
      listing.push(element("div", { class: i === place ? "here" : "" }, `${number(launch.offset + track.starts[i])}  `, link(track.steps[i])));
    const { into, out } = launch.edges();
    const ends = (edges, side, word) => (edges || []).map((edge) => element("div", {}, `${word} ${launch.queues[launch.tokens[2][edge]]} token `, link(launch.tokens[side][edge])));
    this.panel.replaceChildren(
      element("div", {}, element("h3", {}, `${launch.name}: ${launch.text(step)}`), ...this.lines({ launch, step }).map((line) => element("div", {}, line))),
      element("div", {}, element("h3", {}, `around it, in ${launch.units[launch.of("unit", step)]}`), ...listing),
      element("div", {}, element("h3", {}, "tokens"), ...ends(into.get(step), 0, "takes a"), ...ends(out.get(step), 1, "gives a")),
    );
  }
}
