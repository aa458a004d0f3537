"""Give a command to a CFU from the compiled loop, by the address of machine code: of the model, or of another CFU."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.sim.native import call_c, call_loop
from tilewright.targets.cfu.isa.state import Reg

from .state import Machine


class Port(NamedTuple):
    """The addresses of a CFU's machine code. `model` is that of the compiled model; it is 0 for other CFUs.

    `command(unit, function, a, b, start, cycle, answers)` gives a command to another CFU and returns a fault, or 0. It
    writes the answer and the cycle in which it is ready to the two words at `answers`. Cycles count from `start`.
    `fail(fault, function, cycle, pc)` returns whether the program must stop; it must at every fault if `fail` is 0.
    """

    model: int = 0
    command: int = 0
    unit: int = 0
    start: int = 0
    answers: int = 0
    fail: int = 0


def command(port: Port, m: Machine, function: int, a: int, b: int, cycle: int) -> bool:
    """Give the CFU a command. Its answer is then in Reg.ANSWER and Reg.READY. Return False if the program must stop."""
    if port.model:
        call_loop(port.model, m.cfu, m.buffers, m.ram.byte, function, a, b, cycle)
        return True
    fault = call_c(port.command, port.unit, function, a, b, port.start, cycle, port.answers)
    return fault == 0 or (port.fail != 0 and call_c(port.fail, fault, function, cycle, m.cfu[Reg.PC]) == 0)
