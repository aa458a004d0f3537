"""Lower bounds of machines: no measured machine is below its bounds, and they are not far below."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.conftest import ROOT, SHARED
from tilewright.explore import Space, Study, bounds, study_of
from tilewright.explore.measure import machine, measured, sizes
from tilewright.explore.study import BASE
from tilewright.explore.trial import Trial

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
    """Measure random machines, check that none is below its bounds, and return measured figures over bounds."""
    seed = random.randrange(1 << 32)
    rng, found = random.Random(seed), list[dict[str, float]]()
    base = measured(study.subject, BASE, {})
    while len(found) < points:
        point = rng.randrange(study.space.size)
        keys = study.space.at(point)
        config = machine(study.subject, point, keys)
        if isinstance(config, Trial):
            continue
        trial = measured(study.subject, point, keys, base)
        if not trial.measured:
            continue
        known = sizes(study.subject, config)
        least = bounds.least(study.subject, OBJECTIVES, config, known, base.host)
        pairs = dict(zip(OBJECTIVES, zip(trial.objectives(OBJECTIVES), least, strict=True), strict=True))
        for name, (value, bound) in pairs.items():
            assert value >= bound * (1 - 1e-12), f"seed {seed}, {keys}: {name} is {value}, its bound {bound}"
        found.append({name: value / bound for name, (value, bound) in pairs.items() if bound})
    return found


def study(model: Any, timing: str | None = None) -> Study:
    return study_of([model], "vta", Space.from_json({"keys": KEYS}), timing=timing)


@pytest.mark.parametrize("timing", [None, "hls", "ideal"])
def test_no_machine_is_below_its_bounds(timing: str | None) -> None:
    ratios = check(study(DIGITS, timing), 6)
    assert all(ratio.keys() == {*OBJECTIVES} for ratio in ratios)


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", ["kws_ref_model", "vww_96_int8", "pretrainedResnet_quant", "ad01_int8"])
def test_no_machine_is_below_its_bounds_on_mlperf_tiny(name: str) -> None:
    """Depthwise layers, constant channels, image rows as strips."""
    ratios = check(study(SHARED / "mlperf_tiny" / "models" / f"{name}.tflite"), 12)
    assert min(ratio["dram_bytes"] for ratio in ratios) < 3
