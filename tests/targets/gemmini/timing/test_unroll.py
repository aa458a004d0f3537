"""The front end takes the recorded commands in the recorded cycles, given how full the reservation station was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.timing.replay import replayed
from tests.targets.gemmini.vectors import LOOPS, names, parted, program, runs
from tilewright.targets.gemmini.loops import expand

#: Programs without loops: fences, flushes, random mixes.
OTHERS = ("raw", "rand", "mmos")


@pytest.mark.golden
@pytest.mark.parametrize("name", parted(names(*LOOPS, *OTHERS, config="default")))
def test_a_recorded_run_is_replayed_exactly(name: str) -> None:
    arrays, _ = program(name)
    for run in runs(arrays):
        expansion = expand(arrays["cmds"], run.config)
        order, taken, accepted = replayed(expansion, run.config, run.times, run.accept)
        where = f"{run.build}, latency {run.latency}"
        if run.prims is not None:
            np.testing.assert_array_equal(expansion.prims[order], run.prims, err_msg=where)
        np.testing.assert_array_equal(taken, run.times[:, 0], err_msg=where)
        np.testing.assert_array_equal(accepted, run.accept, err_msg=where)
