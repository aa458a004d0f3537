"""Verilog for people: which modules are written, how they are called, and that they are the component."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from tests.hdl.written import from_verilog
from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.hdl.build import yosys
from tilewright.hdl.modules import part, verilog_files


class Delay(wiring.Component):
    """Gives back `i` a cycle later, plus `step`."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.d.sync += self.o.eq(self.i + self.step)
        return m


class Twice(wiring.Component):
    """Doubles `i`.

    Without registers.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.d.comb += self.o.eq(2 * self.i)
        return m


class Inner(wiring.Component):
    """A delay, then twice."""

    def __init__(self) -> None:
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.delay, m.submodules.twice = delay, twice = Delay(1), Twice()
        m.d.comb += [delay.i.eq(self.i), twice.i.eq(delay.o), self.o.eq(twice.o)]
        return m


class Chain(wiring.Component):
    """Two different delays, a part with one of them, and doubling with a name of its own."""

    def __init__(self) -> None:
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.first, m.submodules.second = first, second = Delay(1), Delay(7)
        m.submodules.inner, m.submodules.last = inner, last = Inner(), part(Twice(), "Doubling")
        at: Any = self.i
        for each in (first, second, inner, last):
            m.d.comb += each.i.eq(at)
            at = each.o
        m.d.comb += self.o.eq(at)
        return m


class Peeks(wiring.Component):
    """A fault: it reads a register of another component that is no port."""

    def __init__(self) -> None:
        super().__init__({"o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.counter = counter = Counter()
        m.d.comb += self.o.eq(counter.inside)
        return m


class Counter(wiring.Component):
    """Counts."""

    def __init__(self) -> None:
        self.inside = Signal(8)
        super().__init__({"o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.d.sync += self.inside.eq(self.inside + 1)
        m.d.comb += self.o.eq(self.inside)
        return m


def test_a_signal_that_is_no_port_cannot_leave_its_module() -> None:
    with pytest.raises(ConfigError, match="Peeks reads inside of Counter, which is no port"):
        verilog_files(Peeks(), "Peeks")


def test_equal_components_share_a_module_and_others_have_their_place_in_the_name() -> None:
    files = verilog_files(Chain(), "Chain", reset="reset")
    assert list(files) == [
        "Chain.v", "Delay_first.v", "Delay_second.v", "Doubling.v", "Inner.v", "Twice.v"
    ]  # fmt: skip
    used = re.findall(r"^  (\w+) (\w+) \($", files["Chain.v"] + files["Inner.v"], re.MULTILINE)
    assert sorted(used) == [
        ("Delay_first", "delay"), ("Delay_first", "first"), ("Delay_second", "second"),
        ("Doubling", "last"), ("Inner", "inner"), ("Twice", "twice"),
    ]  # fmt: skip
    assert files["Twice.v"].startswith("// Doubles `i`.\n//\n// Without registers.\n(* src")
    assert "clk" not in files["Twice.v"] and "posedge clk" in files["Delay_first.v"]
    assert re.search(r"input reset;", files["Inner.v"]) and not re.search(r"\brst\b", files["Inner.v"])


@pytest.mark.gxx
def test_the_verilog_computes_what_the_component_does(tmp_path: Path) -> None:
    model = from_verilog(Chain(), tmp_path).model()
    values: Array = np.arange(0, 250, 7)
    found = model.play({"i": values}, "o").ravel()
    assert np.array_equal(found[2:], (4 * (values[:-2] + 1 + 7 + 1)).astype(np.uint8))


class Queued(wiring.Component):
    """A queue of Amaranth's library, which is no component."""

    def __init__(self) -> None:
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=8, depth=4)
        m.d.comb += [queue.w_data.eq(self.i), queue.w_en.eq(1), queue.r_en.eq(1), self.o.eq(queue.r_data)]
        return m


def test_a_module_that_is_no_component_has_a_file_too(tmp_path: Path) -> None:
    files = verilog_files(Queued(), "Top")
    assert files.keys() == {"Top.v", "Top_queue.v"}
    assert files["Top_queue.v"].startswith("// A part of Top.\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    yosys(f"read_verilog {' '.join(files)}; hierarchy -check -top Top; check -assert", tmp_path)
