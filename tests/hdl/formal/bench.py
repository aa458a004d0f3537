"""Formal wrappers: a block, free inputs, what is assumed of them, and what is claimed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import process_time
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory

from tests.hdl.formal.engine import CONSTANT, Design, Method, NoAnswer, Outcome
from tilewright.array import uncollected
from tilewright.hdl.build import yosys_result

#: Milliseconds for a question to the solver.
PATIENCE = 120_000
SCRIPT = (
    "hierarchy -top top; proc -norom; flatten; chformal -lower; opt_expr; opt_clean; memory_collect; memory_nordff; "
    "opt_expr; opt_clean; "
    "setundef -undriven -anyseq; write_btor -v result"
)


class Bench(Elaboratable):
    """A block as the submodule `dut`. Properties can read its ports, its registers and its memories."""

    def __init__(self, dut: Any) -> None:
        dut._MustUse__silence = True  # its elaborated module is used instead
        self.m = Module()
        self.ports = dict[str, tuple[Any, Any]]()
        self.signals = dict[str, Any]()
        self.memories = dict[str, Memory]()
        self.parts = dict[str, Any]()
        self.claims = list[str]()
        self.m.domains.sync = ClockDomain(reset_less=True)
        self.m.submodules.dut = self._opened(dut, "")
        for path, member, value in dut.signature.flatten(dut):
            if member.flow is wiring.In:
                self.ports["in_" + "__".join(map(str, path))] = (Value.cast(value), None)

    def _opened(self, component: Any, path: str) -> Module:
        """Elaborate a block and its inner blocks, so that their signals and memories can be named."""
        inner: Module = component.elaborate(None)
        inner._flush()
        for name, (part, src) in list(inner._named_submodules.items()):
            if isinstance(part, Memory):
                self.memories[path + name] = part
            elif isinstance(part, wiring.Component):
                self.parts[path + name] = part
                part._MustUse__silence = True
                inner._named_submodules[name] = (self._opened(part, f"{path}{name}."), src)
        if not path:
            self.opened = inner._statements
        for statements in inner._statements.values():
            for statement in statements:
                for signal in statement._lhs_signals():
                    namesakes = [path + signal.name + (f"#{number}" if number > 1 else "") for number in range(1, 40)]
                    if not any(self.signals.get(name) is signal for name in namesakes):
                        name = next(name for name in namesakes if name not in self.signals)
                        self.signals[name] = signal
        return inner

    def elaborate(self, platform: Any) -> Module:
        return self.m

    def inside(self, name: str) -> Any:
        """Return a signal of the block by its path and name."""
        return self.signals[name]

    def component(self, name: str) -> Any:
        """Return an inner block by its path and name."""
        return self.parts[name]

    def stored(self, name: str, address: Any) -> Value:
        """Return the element of a memory of the block at `address`."""
        port = self.memories[name].read_port(domain="comb")
        self.m.d.comb += port.addr.eq(address)
        return Value.cast(port.data)

    def free(self, name: str, shape: Any = 1) -> Any:
        """Return an input, with any value in each cycle."""
        signal = Signal(shape, name=name)
        self.ports[name] = (Value.cast(signal), None)
        return signal

    def constant(self, name: str, shape: Any = 1) -> Any:
        """Return an input with any value, which is the same in all cycles."""
        return self.free(CONSTANT + name, shape)

    def fix(self, port: Any, value: Any) -> None:
        """Drive an input of the block."""
        self.m.d.comb += Value.cast(port).eq(value)
        self.ports = {name: pair for name, pair in self.ports.items() if pair[0] is not Value.cast(port)}

    def cut(self, name: str) -> None:
        """Make a register of the block an input, with any value in each cycle."""
        signal = self.signals[name]
        for statements in self.opened.values():
            statements[:] = [each for each in statements if signal not in each._lhs_signals()]
        self.ports[f"cut_{name}"] = (signal, None)

    def past(self, value: Any, cycles: int = 1) -> Any:
        """Return the value of some cycles ago."""
        for _ in range(cycles):
            later = Signal.like(Value.cast(value), name="past")
            self.m.d.sync += later.eq(value)
            value = later
        return value

    def named(self, name: str, value: Any) -> Any:
        signal = Signal.like(Value.cast(value), name=name)
        self.m.d.comb += signal.eq(value)
        return signal

    def register(self, name: str, shape: Any, init: int = 0) -> Any:
        return Signal(shape, name=name, init=init)

    def assume(self, condition: Any) -> None:
        self.m.d.comb += Assume(condition)

    def claim(self, name: str, condition: Any) -> None:
        holds = Signal(name=f"claim_{name}")
        self.m.d.comb += [holds.eq(Value.cast(condition).bool()), Assert(holds)]
        self.claims.append(name)

    def design(self) -> Design:
        with uncollected():
            text = rtlil.convert(self, name="top", ports=self.ports, emit_src=False)
        return Design.of(yosys_result(text, SCRIPT))


def implies(condition: Any, conclusion: Any) -> Value:
    return ~Value.cast(condition).bool() | Value.cast(conclusion).bool()


@dataclass
class Proof:
    """A proof about a block: its properties, by a method, with a depth. `slow`: not in CI."""

    block: str
    properties: str
    build: Callable[[], Bench]
    method: Method
    depth: int
    slow: bool = False

    @cached_property
    def design(self) -> Design:
        return self.build().design()

    def check(self, design: Design, limit: int) -> Outcome:
        """Try to prove a design. A question to the solver may take `limit` milliseconds."""
        try:
            return self.method(design, self.depth, limit)
        except NoAnswer:
            return Outcome("no answer")

    def run(self) -> tuple[Outcome, float]:
        """Return the outcome, and the seconds of processor time of the solver."""
        start = process_time()
        outcome = self.check(self.design, PATIENCE)
        return outcome, process_time() - start


__all__ = ["Bench", "Mapping", "Mux", "Proof", "Sequence", "implies", "signed"]
