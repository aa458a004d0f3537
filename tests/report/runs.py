"""Results of runs to report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.fake import trace
from tilewright.report.metrics import Layer, Result
from tilewright.report.result import RunResult
from tilewright.report.summary import Summary
from tilewright.sim.chart import Chart, Kind, Row

#: A box: the only frame of the fake machine holds page 7 from cycle 10 to 30, because of step 1.
CHART = Chart("Pages", (Row("frame"),), (Kind("page #", "load"),), np.array([[0, 0, 7, 10, 30, 1]]).T)
TRACE = replace(trace(), draw=lambda: CHART)
LAUNCH = Layer("conv", "conv2d", "fake", cycles=50, macs=64, stalls={"load->compute token": 10}, trace=TRACE)


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


def summed(result: Result, source: str, clock_mhz: float, **about: Any) -> Summary:
    """The summary of a run on a machine with this clock."""
    return Summary(replace(result, clock_mhz=clock_mhz), source, **about)
