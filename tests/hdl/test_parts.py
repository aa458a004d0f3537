"""The parts of all gateware: what is driven, and in which cycle a delay, a flag, a memory or a loop changes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature

from tests.hdl.simulation import simulate
from tilewright.hdl.build import to_rtlil
from tilewright.hdl.parts import (
    Part,
    add,
    after,
    clamped,
    clear,
    drive,
    expose,
    latch,
    ports,
    ram,
    split,
    step_loops,
)

PAIR = data.StructLayout({"low": 4, "high": signed(4)})
LINK = Signature({"ahead": Out(4), "back": In(4)})


class Adder(Part):
    """Adds two numbers; `link` answers with the next number."""

    def __init__(self) -> None:
        super().__init__(a=In(4), b=In(4), total=Out(5), link=In(LINK))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += [self.total.eq(self.a + self.b), self.link.back.eq(self.link.ahead + 1)]
        return m


class Parent(Part):
    """Adds `a` and 3; a struct that is set in one cycle and cleared in the next."""

    def __init__(self) -> None:
        super().__init__(a=In(4), total=Out(5), sets=In(1), pair=Out(PAIR), other=Out(4), link=In(LINK))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        adder = add(m, "adder", Adder(), **ports(self, "a"), b=3)
        expose(m, adder.link, self.link)
        m.d.comb += drive(self, **ports(adder, "total"))
        with m.If(self.sets):
            m.d.sync += drive(self.pair, low=self.a, high=-2)
            m.d.sync += self.other.eq(self.a)
        with m.Else():
            m.d.sync += clear(self.pair, self.other)
        return m


class Timed(Part):
    """A delay of three cycles, a flag, a memory of bytes, and loops of 2 and 3 iterations."""

    def __init__(self) -> None:
        flags = dict.fromkeys(("sets", "clears", "steps"), In(1))
        super().__init__(
            **flags,
            value=In(8),
            later=Out(8),
            same=Out(8),
            flag=Out(1),
            en=In(2),
            read=Out(16),
            inner=Out(2),
            outer=Out(2),
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += [self.later.eq(after(m, self.value, 3)), self.same.eq(after(m, self.value, 0))]
        latch(m, self.flag, self.sets, self.clears)
        write, read = ram(m, "memory", 16, 4, 8)
        m.d.comb += drive(write, addr=1, data=self.value.replicate(2), en=self.en)
        m.d.comb += [read.addr.eq(1), self.read.eq(read.data)]
        with m.If(self.steps):
            step_loops(m, (self.inner, self.inner == 1), (self.outer, self.outer == 2))
        return m


def test_inputs_are_driven_by_name_and_interfaces_are_exposed() -> None:
    part = Parent()

    async def bench(ctx: Any) -> None:
        ctx.set(part.a, 9)
        ctx.set(part.link.ahead, 6)
        assert (ctx.get(part.total), ctx.get(part.link.back)) == (12, 7)

    simulate(part, bench)


def test_fields_are_set_and_cleared() -> None:
    part = Parent()

    async def bench(ctx: Any) -> None:
        ctx.set(part.a, 9)
        ctx.set(part.sets, 1)
        await ctx.tick()
        assert (ctx.get(part.pair.low), ctx.get(part.pair.high), ctx.get(part.other)) == (9, -2, 9)
        ctx.set(part.sets, 0)
        await ctx.tick()
        assert (ctx.get(part.pair.low), ctx.get(part.pair.high), ctx.get(part.other)) == (0, 0, 0)

    simulate(part, bench)


def test_a_delayed_value_follows_after_its_cycles() -> None:
    part = Timed()

    async def bench(ctx: Any) -> None:
        seen = []
        for value in (5, 6, 7, 8, 9):
            ctx.set(part.value, value)
            assert ctx.get(part.same) == value
            seen.append(ctx.get(part.later))
            await ctx.tick()
        assert seen == [0, 0, 0, 5, 6]

    simulate(part, bench)


def test_a_flag_is_set_first_and_stays() -> None:
    part = Timed()

    async def bench(ctx: Any) -> None:
        for sets, clears, flag in ((0, 0, 0), (1, 0, 1), (0, 0, 1), (1, 1, 1), (0, 1, 0), (0, 0, 0), (1, 1, 1)):
            ctx.set(part.sets, sets)
            ctx.set(part.clears, clears)
            await ctx.tick()
            assert ctx.get(part.flag) == flag, (sets, clears)

    simulate(part, bench)


def test_a_memory_writes_its_parts_and_reads_the_old_data() -> None:
    part = Timed()

    async def bench(ctx: Any) -> None:
        ctx.set(part.value, 0xAB)
        seen = []
        for enable in (0, 2, 0, 1, 0):
            ctx.set(part.en, enable)
            await ctx.tick()
            seen.append(ctx.get(part.read))
        assert seen == [0, 0, 0xAB00, 0xAB00, 0xABAB]

    simulate(part, bench)


def test_a_transparent_memory_reads_the_new_data() -> None:
    class Bypass(Part):
        """A memory of one word."""

        def __init__(self) -> None:
            super().__init__(value=In(8), en=In(1), read=Out(8))

        def elaborate(self, platform: Any) -> Module:
            m = Module()
            write, read = ram(m, "memory", 8, 1, transparent=True)
            m.d.comb += [*drive(write, data=self.value, en=self.en), self.read.eq(read.data)]
            return m

    part = Bypass()

    async def bench(ctx: Any) -> None:
        ctx.set(part.value, 0xAB)
        ctx.set(part.en, 1)
        await ctx.tick()
        assert ctx.get(part.read) == 0xAB

    simulate(part, bench)


def test_nested_loops_count_the_innermost_first_and_wrap() -> None:
    part = Timed()

    async def bench(ctx: Any) -> None:
        ctx.set(part.steps, 1)
        seen = []
        for _ in range(7):
            seen.append((ctx.get(part.outer), ctx.get(part.inner)))
            await ctx.tick()
        assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 0)]
        ctx.set(part.steps, 0)
        await ctx.tick()
        assert ctx.get(part.inner) == 1

    simulate(part, bench)


class Bounds(Part):
    """Clamps a value, and splits a word."""

    def __init__(self) -> None:
        numbers = dict.fromkeys(("value", "low", "high"), In(signed(8)))
        super().__init__(**numbers, result=Out(signed(8)), word=In(12), first=Out(4), last=Out(4))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        parts = split(self.word, 4)
        assert len(parts) == 3
        m.d.comb += drive(self, result=clamped(self.value, self.low, self.high), first=parts[0], last=parts[2])
        return m


def test_a_value_is_clamped_and_a_word_split() -> None:
    part = Bounds()

    async def bench(ctx: Any) -> None:
        for value, low, high, result in ((5, -3, 7, 5), (-4, -3, 7, -3), (8, -3, 7, 7), (7, -3, 7, 7), (2, 3, 1, 3)):
            for name, given in (("value", value), ("low", low), ("high", high)):
                ctx.set(getattr(part, name), given)
            assert ctx.get(part.result) == result
        ctx.set(part.word, 0xABC)
        assert (ctx.get(part.first), ctx.get(part.last)) == (0xC, 0xA)

    simulate(part, bench)


def test_attributes_name_the_line_that_uses_a_part() -> None:
    """Verilog for people names Python lines: those of the design, not of hdl/parts.py."""

    struct = Signal(PAIR, name="struct")
    for assignment in (*drive(struct, low=1, high=Const(1)), *clear(struct)):
        assert "test_parts.py" in assignment.src_loc[0]
    sources = [line for line in to_rtlil(Parent(), src=True).split("\n") if "\\src" in line]
    assert sources and not any("hdl/parts.py" in line for line in sources)


def test_the_ports_of_a_memory_have_names() -> None:
    text = to_rtlil(Timed())
    assert "\\write__addr" in text and "\\read__data" in text
