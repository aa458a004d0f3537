"""Codes for the inputs of a .tflite file, and a comparison of the reference with the frameworks' answers to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.model.tflite_writer import run_litert, run_tflm
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.model import load

SAMPLES = 3


def codes(graph: Graph, seed: int) -> dict[str, Array]:
    """Random codes of every input, extremes among them."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in graph.inputs:
        tensor, info = graph.tensors[name], np.iinfo(graph.tensors[name].dtype)
        some = rng.integers(info.min, info.max + 1, (SAMPLES, *tensor.shape))
        ends = rng.choice([info.min, info.max], some.shape)
        made[name] = np.where(rng.random(some.shape) < 0.05, ends, some).astype(tensor.dtype)
    return made


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
