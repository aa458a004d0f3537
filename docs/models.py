"""Measure public models for docs/models.md, and write that page.

    python docs/models.py                    docs/models.md from docs/models_tflite.json and docs/models_onnx.json
    python docs/models.py FOLDER [NAME ...]  first measure the .tflite and .onnx files in a folder (docs/models_onnx.py
                                         measures those of the page)

The path of a file below FOLDER says where it comes from: OWNER/REPOSITORY/PATH, or pypi/PACKAGE-VERSION/PATH. No model
is part of this repository.
A file is loaded, compiled for each target and run there on SAMPLES random samples (one stream, if it has states). The
outputs must equal those of its framework: TFLite Micro for .tflite files, onnxruntime for .onnx. A float model is
quantised first, calibrated with random numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import targets
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.model import load
from tilewright.model.onnx_verify import verify as verify_onnx
from tilewright.model.tflite_verify import in_tflite_micro
from tilewright.quantize import Options, quantize
from tilewright.report.summary import real_share

HERE = Path(__file__).resolve().parent
FILES = {".tflite": HERE / "models_tflite.json", ".onnx": HERE / "models_onnx.json"}
SAMPLES, HALF = 20, 0.5
TITLE = """# Public models

With this page you can look up which published networks Tilewright runs, and what share of their multiply-accumulates
(MACs) each machine computes; the host computes the others. To try a file of your own:

    tilewright run MODEL.tflite -t vta --verify

- *loads*: Tilewright reads the unchanged file (open shapes are given).
- *quantises*: `tilewright quantize` makes an int8 network of a float file: by `tflm` for `cfu`, `symmetric` for
  `gemmini`, `affine` for the others.
- *equal*: on 20 random samples, every machine that computes MACs gives the outputs of the file's own framework (TFLite
  Micro, onnxruntime).

"-" marks entries that were not tried. Three .onnx files have more than 3,000 million MACs: layout_cdla was not run on
`cfu`, and the two spindle detectors were not run on any machine, but all their layers were compared.
`python docs/models.py` writes the page.
"""


@dataclass
class Row:
    """What was measured of one file. `macs_on` is the share of MACs by target; None: not tried."""

    name: str
    source: str
    sha256: str
    loads: bool = False
    quantises: bool | None = None
    macs_on: dict[str, float] = field(default_factory=dict)
    equal: bool | None = None
    reason: str = ""


def samples_of(graph: Graph, seed: int = 20) -> dict[str, Array]:
    """Random codes, or real numbers of -1 to 1, for every input of a network: (SAMPLES, *shape)."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind, shape = np.dtype(tensor.dtype), (SAMPLES, *tensor.shape)
        if kind.kind == "f":
            made[name] = rng.uniform(-1, 1, shape).astype(kind)
        else:
            low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
            made[name] = rng.integers(low, high, shape, np.int64, endpoint=True).astype(kind)
    return made


def equals_framework(row: Row, path: Path, graph: Graph, samples: Mapping[str, Array]) -> bool | None:
    """Whether the reference equals the file's own framework; None if that does not run the file.

    The first difference from onnxruntime becomes the row's reason.
    """
    if path.suffix == ".onnx":
        found = verify_onnx(path, graph, samples)
        if found.differences:
            row.reason = f"codes of '{found.differences[0].tensor}' differ from onnxruntime's"
        return found.passed
    golden = in_tflite_micro(path, samples)
    if golden is None:
        return None
    ours = reference.run(graph, samples, "tflm")
    return all(np.array_equal(ours[name], golden[name]) for name in graph.outputs)


def on_machines(row: Row, path: Path, graph: Graph) -> None:
    """Fill in the shares of MACs, and whether all results are equal."""
    samples = samples_of(graph)
    row.equal = equals_framework(row, path, graph, samples)
    for name in targets.names():
        result = tw.compile(graph, name).run(samples)
        macs = sum(layer.macs for layer in result.layers)
        row.macs_on[name] = round(sum(layer.macs for layer in result.layers if layer.where != "host") / max(1, macs), 3)
        if row.macs_on[name] and row.equal is not None and not result.deviations:
            row.equal = row.equal and result.matches_reference is True


def quantised(path: Path, folder: Path) -> Path:
    """Quantise a float model by the integers of TFLite Micro, calibrated with random numbers; return the new file."""
    from tilewright.quantize.model import read, signature

    calibration, made = folder / "samples.npz", folder / "quantised.onnx"
    values: dict[str, Any] = {name: array[:4] for name, array in samples_of(signature(read(path))).items()}
    np.savez(calibration, **values)
    quantize(path, calibration, made, Options("tflm"), verify=False)
    return made


def measured(path: Path, source: str) -> Row:
    """Return the row of one file."""
    row = Row(path.stem, source, hashlib.sha256(path.read_bytes()).hexdigest())
    with tempfile.TemporaryDirectory() as folder:
        graph: Graph | None = None
        try:
            graph = load(path)
            row.loads = True
        except TilewrightError as error:
            row.reason = why(error)
        try:
            if graph is None or real_share(graph, {node.name for node in graph.nodes}) > HALF:
                row.quantises = False
                path = quantised(path, Path(folder))
                row.quantises, row.reason, graph = True, "", load(path)
            on_machines(row, path, graph)
        except TilewrightError as error:
            row.reason = row.reason or why(error)
    return row


def why(error: TilewrightError) -> str:
    return error.reason if len(error.reason) <= 100 else f"{error.reason[:97]}..."


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file; those of docs/models_onnx.py have further entries, which the page does not show."""
    names = {one.name for one in fields(Row)}
    rows = json.loads(path.read_text()) if path.exists() else []
    return [Row(**{key: value for key, value in row.items() if key in names}) for row in rows]


def measure(folder: Path, names: list[str]) -> None:
    """Measure the files in a folder whose path contains one of `names` (none: all), and keep their rows."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in FILES):
        source = str(path.relative_to(folder))
        if names and not any(name in source for name in names):
            continue
        row, table = measured(path, source), FILES[path.suffix]
        rows = {kept.source: kept for kept in read_rows(table)} | {source: row}
        text = json.dumps([asdict(rows[key]) for key in sorted(rows)], indent=1)
        table.write_text(f"{text}\n")
        print(row, flush=True)


def page() -> Iterator[str]:
    yield TITLE
    for suffix, table in FILES.items():
        rows = read_rows(table)
        if not rows:
            continue
        yield f"## {suffix} ({sum(row.loads or bool(row.quantises) for row in rows)} of {len(rows)} run)\n"
        yield "<!-- claim: public-models -->\n"
        heads = ["model", "loads", "quantises", "equal", *targets.names(), "why not", "SHA-256", "source"]
        yield f"| {' | '.join(heads)} |"
        yield f"|{'---|' * len(heads)}"
        for row in rows:
            shares = [f"{row.macs_on[name]:.0%}" if name in row.macs_on else "-" for name in targets.names()]
            cells = [row.name, said(row.loads), said(row.quantises), said(row.equal), *shares]
            found = [row.reason.replace("|", "/"), f"`{row.sha256[:12]}`", row.source.replace("_", "\\_")]
            yield f"| {' | '.join([*cells, *found])} |"
        yield ""


def said(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]), sys.argv[2:])
    (HERE / "models.md").write_text("\n".join(page()))
