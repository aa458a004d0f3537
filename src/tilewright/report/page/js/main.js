// Put the figures into their places, once the arrays are unpacked.
const figureOf = (id) => document.querySelector(`#${id} .figure`);

function hazards(figure, timed, timeline) {
  const show = (launch, step) => {
    timed.view.select({ launch, step });
    timeline.focus();
    document.getElementById("timeline").scrollIntoView({ block: "nearest" });
  };
  figure.replaceChildren(); // which has the findings without their instructions
  const text = (finding) => ` ${finding.launch ? `in ${finding.launch}` : ""}: ${finding.message}`;
  const causes = SUMMARY.hazard_causes || SUMMARY.findings.map((finding) => ({ shown: [finding], others: "" }));
  for (const { shown: [finding, ...consequences], others } of causes.slice(0, DATA.listed)) {
    const launch = timed.launches.find((each) => each.name === finding.launch) || timed.launches[0];
    const box = element("div", { class: "hazard" }, element("p", {}, element("b", {}, finding.kind), text(finding)));
    finding.steps.slice(0, 2).forEach((step, place) => {
      if (place && finding.kind === "race") box.append(element("div", { class: "missing" }, "⇣ no token orders these two"));
      for (let near = Math.max(0, step - 1); near <= Math.min(launch.count - 1, step + 1); near++)
        box.append(element("button", { class: near === step ? "link here" : "link", onclick: () => show(launch, near) }, `${launch.units[launch.of("unit", near)]} #${near}  ${launch.text(near)}`));
    });
    for (const each of consequences) box.append(element("p", {}, "so ", element("b", {}, each.kind), text(each)));
    if (others) box.append(element("p", {}, others));
    figure.append(box);
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement, now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  window.redraw?.();
});

unpack().then((arrays) => {
  const timed = new Timed(arrays), view = (timed.view = new View(timed.cycles));
  let strip = null, chart = null;
  const zoomTo = (index) => {
    const place = timed.layers.find((each) => each.index === index);
    if (place) strip.zoomTo(place), document.getElementById("strip").scrollIntoView({ block: "nearest" });
  };
  if (timed.launches.length) {
    strip = new Strip(figureOf("strip"), timed, view);
    const timeline = new Timeline(figureOf("timeline"), timed, view, new Detail(view));
    chart = figureOf("chart") && new Chart(figureOf("chart"), timed, view);
    if (SUMMARY.findings.length) hazards(figureOf("hazards"), timed, timeline);
  }
  const flame = figureOf("flame") && new Flame(figureOf("flame"), timed);
  tableOfLayers(document.getElementById("layers"), zoomTo);
  const roofline = figureOf("roofline") && new Roofline(figureOf("roofline"), zoomTo);
  if (figureOf("network")) new Network(figureOf("network"), zoomTo);
  window.redraw = () => (view.changed(), roofline?.render(), flame?.render());
  window.addEventListener("resize", window.redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", window.redraw);
  window.redraw();
  document.documentElement.dataset.ready = "yes";
  window.tilewright = { RUN, LEFT, timed, view, chart }; // for tests and for the console
});
