"""Lower bounds of machines: no measured machine is below its bounds, and they are not far below."""

from __future__ import annotations

import random
from itertools import product
from math import prod
from typing import Any

import pytest

import tilewright as tw
from tests.conftest import ROOT, SHARED
from tilewright.explore import Space, Study, _complete, bounds, study_of
from tilewright.explore.bounds import Bounded
from tilewright.explore.measure import machine, measured, sizes
from tilewright.explore.trial import BASE, Trial
from tilewright.graph.ops import DepthwiseConv2D, FullyConnected
from tilewright.graph.ops.linear import Convolution
from tilewright.targets import get

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
OBJECTIVES = "cycles", "dram_bytes", "energy", "microseconds", "on_chip_kib"
#: Machines of VTA: sizes, both forms of the pipeline, ALUs that requantise and one that does not.
KEYS = {
    **{"LOG_BLOCK": "3..5", "LOG_BATCH": "0..1", "LOG_INP_BUFF_SIZE": "13..16", "LOG_WGT_BUFF_SIZE": "15..19"},
    **{"LOG_ACC_BUFF_SIZE": "14..17", "LOG_BUS_WIDTH": "6..9", "dram_latency": "0, 16, 300", "stages": "3..4"},
    **{"alu": "upstream, rounding, fused"},
}

pytestmark = pytest.mark.usefixtures("brief_search")


def check(study: Study, points: int) -> list[dict[str, float]]:
    """Check that the base and random machines are not below their bounds; return measured figures over bounds."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    base = measured(study.subject, BASE, {})
    found = [over_bounds(study, base, _complete(study, base, base), {}, "the base machine")]
    while len(found) <= points:
        point = rng.randrange(study.space.size)
        keys = study.space.at(point)
        if isinstance(machine(study.subject, point, keys), Trial):
            continue
        trial = _complete(study, base, measured(study.subject, point, keys))
        if trial.measured:
            found.append(over_bounds(study, base, trial, keys, f"seed {seed}, {keys}"))
    return found


def over_bounds(study: Study, base: Trial, trial: Trial, keys: Any, where: str) -> dict[str, float]:
    """Return each measured figure of a machine over its bound, and check that none is below 1."""
    config = machine(study.subject, trial.point, keys)
    assert not isinstance(config, Trial)
    least = bounds.least(study.subject, OBJECTIVES, config, sizes(study.subject, config), base.host)
    pairs = dict(zip(OBJECTIVES, zip(trial.objectives(OBJECTIVES), least, strict=True), strict=True))
    for name, (value, bound) in pairs.items():
        assert value >= bound * (1 - 1e-12), f"{where}: {name} is {value}, its bound {bound}"
    return {name: value / bound for name, (value, bound) in pairs.items() if bound}


def study(model: Any, timing: str | None = None) -> Study:
    return study_of([model], "vta", Space.from_json({"keys": KEYS}), timing=timing)


@pytest.mark.parametrize("timing", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in ("hls", "ideal"))])
def test_no_machine_is_below_its_bounds(timing: str | None) -> None:
    ratios = check(study(DIGITS, timing), 6)
    assert all(ratio.keys() == {*OBJECTIVES} for ratio in ratios)


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", ["kws_ref_model", "vww_96_int8", "pretrainedResnet_quant", "ad01_int8"])
def test_no_machine_is_below_its_bounds_on_mlperf_tiny(name: str) -> None:
    """Depthwise layers, constant channels, image rows as strips."""
    ratios = check(study(SHARED / "mlperf_tiny" / "models" / f"{name}.tflite"), 3)
    assert ratios[0]["dram_bytes"] < 3  # random machines may have buffers so small that they load everything often


def test_the_bounds_count_every_product_and_every_code_once() -> None:
    """Against plain loops over all taps of digits, which has all kinds of layers with weights."""
    graph, config = tw.load(DIGITS), get("vta").config(None, {"alu": "fused"})
    products = micro_ops = weights = written = 0
    read = dict[str, set[tuple[int, ...]]]()
    for site in graph.sites():
        op, x, out = site.node.op, site.input(0), site.output
        if isinstance(op, FullyConnected):
            own, fan_in, fan_out = x.size * out.shape[-1], x.size, out.shape[-1]
            read[x.name] = {(i,) for i in range(x.size)}
            weights += site.input(1).size
        elif isinstance(op, Convolution):
            kernel, stride, own, taps = op.window.kernel, op.window.stride, 0, set[tuple[int, int]]()
            depth = 1 if isinstance(op, DepthwiseConv2D) else x.shape[3]
            for y, column, a, b in product(*map(range, (*out.shape[1:3], *kernel))):
                i, j = y * stride[0] + a - op.window.padding[0], column * stride[1] + b - op.window.padding[2]
                if 0 <= i < x.shape[1] and 0 <= j < x.shape[2]:
                    own += depth * out.shape[3]
                    taps.add((a, b))
                    read.setdefault(x.name, set()).update((i, j, c) for c in range(x.shape[3]))
            weights += len(taps) * depth * out.shape[3]
            fan_in = prod(kernel) * depth
            fan_out = out.shape[3] * depth // x.shape[3] * prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))
        else:
            continue
        readers = [node.op.kind for node in graph.nodes for name in node.inputs if name == out.name]
        written += out.size if readers != ["add"] else 0
        micro_ops += -(-own // (16 * min(16, fan_in, fan_out)))
        products += own
    target = get("vta")
    assert isinstance(target, Bounded)
    found = target.floor(graph, config, "tflm", "ideal", ())
    assert found.macs[0].count == 256 * micro_ops >= products > 0
    assert (found.read_bytes, found.write_bytes) == (weights + sum(map(len, read.values())), written)
    assert found.cycles == max(micro_ops, -(-found.read_bytes // 8), -(-written // 8))
