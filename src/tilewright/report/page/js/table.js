// The table of layers: sorted by a click on a heading, filtered by text, a row zooms the timeline to its layer.
function tableOfLayers(section, zoomTo) {
  const body = section.querySelector("tbody"), heads = [...section.querySelectorAll("th")];
  const rows = [...body.rows];
  const key = (row, column) => {
    const text = row.cells[column].dataset.v;
    return text !== "" && isFinite(text) ? Number(text) : text;
  };
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === (head.className === "n" ? "descending" : "ascending");
    const order = (head.className === "n") !== down ? -1 : 1; // numbers: the largest first
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order < 0 ? "descending" : "ascending");
    const compare = (a, b) => (a < b ? -order : a > b ? order : 0);
    body.append(...rows.toSorted((a, b) => compare(key(a, column), key(b, column))));
  }));
  section.querySelector("input").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const layer = LAYERS[row.dataset.layer], text = `${layer.name} ${layer.op} ${layer.where} ${layer.binds} ${layer.reason}`.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  for (const row of rows) {
    const go = () => zoomTo(Number(row.dataset.layer));
    row.addEventListener("click", go);
    row.addEventListener("keydown", (event) => event.key === "Enter" && go());
  }
  const columns = Object.keys(LAYERS[0] || {}).filter((name) => typeof LAYERS[0][name] !== "object");
  exports(section, "layers_table", null, () => [columns, ...LAYERS.map((layer) => columns.map((name) => layer[name] ?? ""))]);
}
