"""Ctrl-C ends the wait for a compiled loop."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.sim.jit import LONG, compiled, in_parallel, interruptible


@compiled
def turn(state: Array, turns: int) -> None:
    """Go round in a circle: a second for about a thousand million turns."""
    for _ in range(turns):
        state[0] = state[0] * 0x5DEECE66D + 11


def interrupted(seconds: float) -> None:
    """Send this process the signal of Ctrl-C after a while, once."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def test_a_long_loop_is_left_at_once() -> None:
    state = np.zeros(1, np.int64)
    turn(state, 1)  # compiled before the clock runs
    start = time.monotonic()
    turn.interruptible(state, 1 << 24)
    turns = int(4 / max(time.monotonic() - start, 1e-4)) << 24  # for 4 seconds
    with pytest.raises(KeyboardInterrupt):
        interrupted(0.2)
        start = time.monotonic()
        turn.of(LONG)(state, turns)
    assert time.monotonic() - start < 2


def test_work_beside_a_block_is_left_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        start = time.monotonic()
        interrupted(0.2)
        with in_parallel(lambda: time.sleep(4)):
            pass
    assert time.monotonic() - start < 2


def test_results_and_errors_come_through() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
