"""Sums over a large layer's weights take memory for a part of them at a time, and stay exact."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tests.targets.bm1684x.networks import Builder
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ops import linear
from tilewright.targets.vta.compiler import constant

SEED, COUNT = 7, 60


def ends_of(w: Array, start: Array, low: Array, high: Array, padded: bool) -> tuple[list[int], list[int]]:
    """The sums of each output, added up one by one."""
    least, most = [], []
    for output, first in zip(w.tolist(), start.tolist(), strict=True):
        terms = [(x * int(low[first + k]), x * int(high[first + k])) for tap in output for k, x in enumerate(tap)]
        least.append(sum(min(*pair, 0) if padded else min(pair) for pair in terms))
        most.append(sum(max(*pair, 0) if padded else max(pair) for pair in terms))
    return least, most


def test_sums_in_parts_are_those_of_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(SEED)
    for _ in range(COUNT):
        monkeypatch.setattr(constant, "TOGETHER", int(random.integers(1, 200)))
        outputs, taps, depth, groups = (int(size) for size in random.integers(1, 9, 4))
        w = random.integers(-128, 128, (outputs, taps, depth)).astype(np.int32)
        start = random.integers(0, groups, outputs) * depth
        low, high = np.sort(random.integers(-255, 256, (2, groups * depth)), axis=0)
        padded = bool(random.random() < 0.5)
        found = constant.sums_of(w, start, low, high, padded)
        expected = ends_of(w, start, low, high, padded)
        assert [each.tolist() for each in found] == [*expected], f"seed {SEED}"


def test_sums_of_a_large_layer_take_little_memory() -> None:
    w = np.ones((128, 1, 16384), np.int32)  # 8 MB; all products at a time would take 80 MB more
    start, low, high = np.zeros(128, np.int64), np.full(16384, -128), np.full(16384, 127)
    tracemalloc.start()
    least, most = constant.sums_of(w, start, low, high, padded=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * w.nbytes
    assert (least == -128 * 16384).all() and (most == 127 * 16384).all()


def test_the_reference_of_a_large_layer_works_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense layer in parts of any size gives what it gives in one part."""
    build = Builder(SEED, (37,))
    graph = build.graph(build.dense(build.input, 11))
    x = np.random.default_rng(SEED).integers(-128, 128, (3, *graph.tensors[graph.inputs[0]].shape)).astype(np.int8)
    whole = reference.run(graph, {graph.inputs[0]: x}, "tflm")
    for together in (1, 12, 100, 300):
        monkeypatch.setattr(linear, "FLOATS_AT_ONCE", together)
        parts = reference.run(graph, {graph.inputs[0]: x}, "tflm")
        assert all(np.array_equal(parts[name], whole[name]) for name in graph.outputs)
