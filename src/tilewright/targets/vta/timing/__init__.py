"""What each VTA instruction costs: one frozen table a timing model, each number with its source."""

from __future__ import annotations

from dataclasses import replace

from tilewright.sim import jit
from tilewright.sim.findings import Finding
from tilewright.sim.order import Order
from tilewright.sim.timeline import EVENT_US, timeline
from tilewright.sim.tokens import lost_tokens
from tilewright.sim.trace import Trace
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.timing.chisel import CHISEL
from tilewright.targets.vta.timing.hls import HLS
from tilewright.targets.vta.timing.ideal import IDEAL
from tilewright.targets.vta.timing.model import Timing
from tilewright.targets.vta.timing.tilewright import TILEWRIGHT

__all__ = ["DEFAULT", "MODELS", "Timing", "both", "expect", "lost", "run"]

MODELS = {model.source.name: model for model in (TILEWRIGHT, HLS, CHISEL, IDEAL)}
DEFAULT = TILEWRIGHT.source.name


def run(program: Elaborated, relation: Order, name: str, serial: bool = False) -> Trace:
    """The trace of a launch under model `name`; `serial`: without any overlap.

    Raises HazardError for a command or token queue that fills for good.
    """
    return _runs(program, relation, name, (serial,))[0]


def both(program: Elaborated, relation: Order, name: str) -> tuple[Trace, Trace]:
    """The trace of a launch, and the one without any overlap. Raises as `run`."""
    trace, serial = _runs(program, relation, name, (False, True))
    return trace, serial


def _runs(program: Elaborated, relation: Order, name: str, serial: tuple[bool, ...]) -> list[Trace]:
    model, table = MODELS[name], program.table
    if not model.tokens_wait:
        table = replace(table, queues=tuple(replace(queue, depth=len(table)) for queue in table.queues))
    given = model.simulated(program, model)
    return [timeline(table, relation, *given, serial=one) for one in serial]


def expect(steps: int) -> None:
    """Announce a trace of so many steps, and a serial one: each step is delivered, starts and ends."""
    jit.expect(2 * 3 * EVENT_US * steps)


def lost(program: Elaborated, trace: Trace, name: str) -> list[Finding]:
    """Tokens that the model's counters lose; the trace is as if they had not been."""
    limit = MODELS[name].token_limit
    return [] if limit is None else lost_tokens(trace, min(limit, program.config.token_depth))
