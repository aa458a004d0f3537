"""The reference beside the frameworks' answers to a .tflite file."""

from __future__ import annotations

from pathlib import Path

from tests.model.tflite_cases import codes
from tests.model.tflite_writer import run_litert, run_tflm
from tilewright.graph import reference
from tilewright.model import load


def check(path: Path, modes: tuple[str, ...], seed: int) -> None:
    graph = load(path)
    inputs = codes(graph, seed)
    placed = dict(enumerate(inputs.values()))
    for mode in modes:
        theirs = run_tflm(path, placed) if mode == "tflm" else run_litert(path, placed, mode)
        ours = reference.run(graph, inputs, mode)
        for name, golden in zip(graph.outputs, theirs, strict=True):
            mine = ours[name].reshape(golden.shape)
            different = int((mine != golden).sum())
            assert different == 0, f"{mode}, seed {seed}: {different} of {golden.size} codes of '{name}' differ"
