"""What each VTA instruction costs: one frozen table a timing model, each number with its source."""

from __future__ import annotations

from dataclasses import replace

from tilewright.sim import jit
from tilewright.sim.order import Order
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import EVENT_US, timeline, times
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing.hls import HLS
from tilewright.targets.vta.timing.ideal import IDEAL
from tilewright.targets.vta.timing.model import Timing
from tilewright.targets.vta.timing.tilewright import TILEWRIGHT

__all__ = ["DEFAULT", "MODELS", "Timing", "both", "expect", "run"]

MODELS = {model.source.name: model for model in (TILEWRIGHT, HLS, IDEAL)}
DEFAULT = TILEWRIGHT.source.name


def run(program: Elaborated, relation: Order, name: str) -> Trace:
    """The trace of a launch under model `name`. Raises HazardError for a command or token queue that fills for good."""
    model = MODELS[name]
    return timeline(_table(program, model), relation, model.simulated(program, model))


def both(program: Elaborated, relation: Order, name: str) -> tuple[Trace, Trace | None]:
    """The trace of a launch, and the one without any overlap where there is one. Raises as `run`."""
    model = MODELS[name]
    return times(_table(program, model), relation, model.simulated(program, model))


def _table(program: Elaborated, model: Timing) -> StepTable:
    """The steps with the token queues of a model: as deep as the machine's, or never full."""
    table = program.table
    if model.tokens_wait:
        return table
    return replace(table, queues=tuple(replace(queue, depth=len(table)) for queue in table.queues))


def expect(steps: int) -> None:
    """Announce a trace of so many steps, and a serial one: each step is delivered, starts and ends."""
    jit.expect(2 * 3 * EVENT_US * steps)
