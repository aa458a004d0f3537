"""Building blocks of all gateware: ports, delays, flags, memories, and words with several values."""

from __future__ import annotations

from typing import Any, TypeVar

from amaranth.hdl import Elaboratable, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.tracer import get_src_loc

_Part = TypeVar("_Part", bound=wiring.Component)


class Part(wiring.Component):
    """A component whose ports are keyword arguments. Subclasses add the logic in `define`."""

    def __init__(self, **ports: Any) -> None:
        super().__init__(ports, src_loc_at=1)

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        self.define(m)
        return m

    def define(self, m: Module) -> None:
        """Add the logic of this part to its module."""
        raise NotImplementedError


def flags(flow: Any, *names: str) -> dict[str, Any]:
    """Return one-bit ports by name. `flow` is In or Out."""
    return dict.fromkeys(names, flow(1))


def add(m: Module, name: str, part: _Part, /, **inputs: Any) -> _Part:
    """Add a component to a module, drive the given inputs, and return the component."""
    m._add_submodule(part, name, src_loc=get_src_loc())  # `src` attributes name the caller's line
    m.d.comb += drive(part, 2, **inputs)
    return part


def drive(target: Any, depth: int = 1, /, **values: Any) -> list[Any]:
    """Return assignments of `values` to ports or fields of `target`. Their `src` is the line `depth` calls above."""
    # Without a depth, all assignments would have the source line of this function.
    assignments = []
    for name, value in values.items():
        assignments.append(Value.cast(getattr(target, name)).eq(value, src_loc_at=depth))
    return assignments


def clear(*registers: Any) -> list[Any]:
    assignments = []
    for register in registers:
        assignments.append(Value.cast(register).eq(0, src_loc_at=1))
    return assignments


def ports(part: Any, *names: str) -> dict[str, Any]:
    """Return the ports with these names as {name: port}, for example as inputs of another part."""
    return {name: getattr(part, name) for name in names}


def expose(m: Module, inner: Any, outer: Any) -> None:
    """Connect an interface of an inner part to the same interface of the component around it."""
    wiring.connect(m, inner, wiring.flipped(outer))


def after(m: Module, value: Any, cycles: int, name: str = "later") -> Any:
    for _ in range(cycles):
        later = Signal.like(value, name=name, src_loc_at=1)
        m.d.sync += later.eq(value)
        value = later
    return value


def latch(m: Module, register: Signal, sets: Value, clears: Value) -> None:
    """Set a register to 1 in the cycle after `sets`, and otherwise to 0 in the cycle after `clears`."""
    with m.If(sets):
        m.d.sync += register.eq(1)
    with m.Elif(clears):
        m.d.sync += register.eq(0)


def ram(
    m: Module, name: str, shape: ShapeLike, depth: int, granularity: int | None = None, transparent: bool = False
) -> tuple[Any, Any]:
    """Add a memory with zeros as initial content. Return its write port and its read port.

    Each bit of `en` of the write port enables `granularity` bits (None: all bits). A read in the cycle of a write
    returns the old data, or the new data if `transparent`.
    """
    memory = Memory(shape=shape, depth=depth, init=[], src_loc_at=1)
    m._add_submodule(memory, name, src_loc=get_src_loc())
    write = memory.write_port(granularity=granularity)
    read = memory.read_port(transparent_for=(write,) if transparent else ())
    return write, read


def split(word: Value, bits: int) -> list[Value]:
    """Split a word into values of `bits` bits, the lowest bits first."""
    return [word[at : at + bits] for at in range(0, len(word), bits)]


def clamped(value: Value, low: Any, high: Any) -> Value:
    """Return `value` limited to the range `low` to `high`. If `low` exceeds `high`, values below `low` become `low`."""
    return Mux(value < low, low, Mux(value > high, high, value))


def step_loops(m: Module, innermost: tuple[Signal, Value], *outer: tuple[Signal, Value]) -> None:
    """Advance nested loops by one iteration. A loop is a pair: its counter, and whether this is its last value."""
    counter, is_last = innermost
    m.d.sync += counter.eq(counter + 1)
    with m.If(is_last):
        m.d.sync += counter.eq(0)
        if outer:
            step_loops(m, *outer)
