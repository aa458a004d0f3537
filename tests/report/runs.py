"""Results of runs to report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.fake import trace
from tilewright.report.metrics import Layer
from tilewright.report.result import RunResult

LAUNCH = Layer("conv", "conv2d", "fake", cycles=50, macs=64, stalls={"load->compute token": 10}, trace=trace())


SOFTMAX = Layer("softmax", "softmax", "host", reason="no exponential")


def result(*layers: Layer) -> RunResult:
    return RunResult(
        model="net",
        target="fake",
        config={},
        rounding="tflm",
        timing="guess",
        evidence="nothing at all",
        samples=1,
        outputs={"out": np.zeros((1, 1, 2), np.int8)},
        layers=layers,
        findings=(),
        matches_reference=True,
        macs_per_cycle=4,
        seconds=0.1,
    )


RUN = result(LAUNCH, SOFTMAX, replace(LAUNCH, name="dense"))
