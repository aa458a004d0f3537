"""The unit of all extensions that work on the image memory: memories, sequencers and requantisation."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, add, after, drive, expose, flags, ports
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config

from .array import LEFT_BITS, SUM_BITS, HalfRow
from .convolution import Convolution
from .dma import BusMaster, Dma
from .image import IN_PAIR, LAYER, ImageMemory, LayerRegisters
from .pool_add import Addition, MeanPool
from .results import LANES, ChannelTables, ResultReader, ScalingLane

STORE_LATENCY = 3  # cycles from a read of C to the write of its results
END_LATENCY = 4  # cycles from the last read of C to the end of the convolution
COMMANDS = (
    *("put", "push_image", "get_image", "push_channel", "push_shift"),
    *("start_conv", "start_add", "start_pool", "fetch", "fetch_image", "fetch_channels"),
)
ADD_LATENCY = 4  # cycles from the read of two operands to the write of their sum
ADD4_LATENCY = 3  # the same with `add4`
#: The operands of an addition are shifted left by this number of bits, the second operand by one bit less.
ADD_BITS = 20


class CoupledUnit(Part):
    """The image memory and its commands. The port of a command is high while `first` and `second` are its operands.

    The commands start_conv, start_add and start_pool latch the layer registers. They have no effect while the unit or
    the array (`array_busy`) works, or if a size is 0. `begins` is high in the cycle of a command that has an effect.
    `busy` is high from the next cycle to the last cycle of the work. `word` is the answer of get_image. With im2col,
    the other ports drive the array and buffer C (see MatrixUnit).
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.convolves = "im2col" in config.extension_names
        members: dict[str, Any] = flags(In, *COMMANDS, "array_busy")
        members |= {"first": In(32), "second": In(32), "word": Out(32), "busy": Out(1), "begins": Out(1)}
        if self.convolves:
            members |= {"array": Out(ArrayControl(config)), "sums": In(config.array * SUM_BITS)}
        self.fetches = bill.fetches(config)
        if self.fetches:
            members |= {"bus": Out(BusMaster()), "filled": Out(HalfRow(config)), "fetching": Out(1)}
        super().__init__(**members)

    def define(self, m: Module) -> None:
        names = self.config.extension_names
        command = ports(self, "put", "first", "second")
        registers = add(m, "registers", LayerRegisters(), **command)
        image = ImageMemory(bill.copies(self.config))
        add(m, "image", image, **command, push=self.push_image, get=self.get_image)
        layer = Signal(LAYER)
        now = registers.layer
        free = ~(self.busy | self.array_busy)
        dma = self._fetch(m, image, command) if self.fetches else None
        filling, tabling, waiting = (dma.filling, dma.tabling, dma.waiting) if dma else (Const(0), Const(0), Const(0))
        # The word of get_image is read in the cycle before the command. A fetch may still write the word in this cycle,
        # so get_image is blocked for one cycle more than push_image.
        was_filling = after(m, filling, 1)
        m.d.comb += image.busy.eq(~free | filling)
        m.d.comb += self.word.eq(Mux(image.busy | was_filling, 0, image.word))
        with m.If(self.begins):
            m.d.sync += layer.eq(now)
        works = list[tuple[Value, Value]]()  # the signals `begins` and `busy` of each sequencer
        if "im2col" in names or "add" in names:
            bounds = {**ports(layer, "low", "high"), "offset": layer.output_offset}
            scaling = [add(m, f"scaling_{at}", ScalingLane("add4" in names), **bounds) for at in range(LANES)]
        if self.convolves:
            begins = self.start_conv & free & _positive(now, "out_h", "out_w", "out_c", "kernel_h", "kernel_w", "in_c")
            convolution = add(m, "convolution", Convolution(self.config), start=begins, layer=layer, hold=waiting)
            tables = ChannelTables()
            pushes = ports(self, "push_channel", "push_shift")
            add(m, "tables", tables, **command, **pushes, restart=begins, busy=~free | tabling)
            if dma:
                m.d.comb += dma.channel.eq(tables.next)
                m.d.comb += drive(
                    tables,
                    fill=dma.to_tables,
                    fill_half=dma.beat[0],
                    fill_entry=dma.place + (dma.beat >> 1),
                    fill_data=dma.data,
                )
            self._convolve(m, layer, image, scaling, convolution, tables)
            works.append((begins, convolution.busy))
            m.d.comb += self.array.begins.eq(begins)
        if "add" in names:
            begins = self.start_add & free & now.size.any()
            addition = Addition("add4" in names)
            add(m, "addition", addition, start=begins, now=now, layer=layer, hold=filling)
            self._add(m, layer, image, scaling, addition)
            works.append((begins, addition.busy))
        if "pool" in names:
            begins = self.start_pool & free & _positive(now, "in_h", "in_w", "in_c")
            pool = add(m, "pool", MeanPool(), start=begins, now=now, layer=layer, hold=filling)
            with m.If(pool.busy):
                m.d.comb += image.address_0.eq(pool.address)
            m.d.comb += pool.word.eq(unaligned(m, pool.address, image.pair_0))
            self._store(m, image, pool.place, pool.code)
            works.append((begins, pool.busy))
        m.d.comb += drive(
            self, begins=Cat(begins for begins, _ in works).any(), busy=Cat(busy for _, busy in works).any()
        )

    def _fetch(self, m: Module, image: ImageMemory, command: dict[str, Any]) -> Dma:
        dma = add(
            m,
            "dma",
            Dma(self.config),
            **command,
            fetch=self.fetch & ~self.array_busy,
            fetch_image=self.fetch_image & ~self.busy & ~self.array_busy,
            fetch_channels=self.fetch_channels,
            pointer=image.pointer,
            mark=self.begins,
        )
        expose(m, dma.bus, self.bus)
        m.d.comb += self.fetching.eq(dma.fetching)
        row = dma.place + (dma.beat >> 1)
        byte = dma.place + (dma.beat << 3)
        m.d.comb += drive(self.filled, en=dma.to_b, row=row, half=dma.beat[0], data=dma.data)
        m.d.comb += drive(image, fill=dma.to_image, fill_address=byte, fill_data=dma.data)
        return dma

    def _convolve(
        self,
        m: Module,
        layer: Any,
        image: ImageMemory,
        scaling: list[ScalingLane],
        convolution: Convolution,
        tables: ChannelTables,
    ) -> None:
        reader = add(m, "reader", ResultReader(self.config), launch=convolution.launch, layer=layer)
        m.d.comb += tables.entry.eq(reader.entry)
        m.d.comb += image.gather.eq(convolution.gather)
        m.d.comb += drive(
            self.array,
            **ports(convolution, "clear", "row", "write", "left", "b_row"),
            active=convolution.busy,
            write_row=convolution.c_row,
            reads=reader.place.valid,
            read_row=reader.c_row,
        )
        ready: Value = convolution.computed
        if "overlap" in self.config.extension_names:
            tiles = Signal(len(reader.c_row), name="tiles")  # the number of tiles in C that are not stored yet
            m.d.sync += tiles.eq(Mux(convolution.launch, 0, tiles + convolution.tile_done - reader.taken))
            ready = Mux((layer.stride_w == 1) | (layer.in_c[:2] != 1), tiles.any(), ready)
        m.d.comb += reader.ready.eq(ready)
        for lane in range(self.config.array):
            m.d.comb += drive(image, **ports(convolution, f"address_{lane}"))
            m.d.comb += drive(convolution, **ports(image, f"pair_{lane}"))
        # Bank b of the tables is directly connected to lane b, so lane b computes the channel in bank b. This channel
        # is the result with the number (b - entry) modulo 4.
        quad = after(m, reader.quad, 1)
        rotation = after(m, reader.entry[:2], 1)
        for number, lane in enumerate(scaling):
            entry = getattr(tables, f"bank_{number}")
            place = Signal(2, name=f"place_{number}")
            m.d.comb += place.eq(number - rotation)
            total = self.sums.word_select(Cat(place, quad), SUM_BITS).as_signed() + entry.bias
            m.d.comb += drive(lane, value=total, factor=entry.multiplier, shift=entry.shift)
        codes = Cat(lane.code for lane in scaling)
        rotation = after(m, rotation, STORE_LATENCY - 1)
        self._store(m, image, after(m, reader.place, STORE_LATENCY), Cat(codes, codes) >> (rotation << 3))
        m.d.comb += convolution.finished.eq(after(m, reader.last, END_LATENCY))

    def _add(self, m: Module, layer: Any, image: ImageMemory, scaling: list[ScalingLane], unit: Addition) -> None:
        # The lanes scale the first operand, add the second operand, and then scale the sum.
        latency = ADD4_LATENCY if unit.four else ADD_LATENCY
        with m.If(unit.busy):
            m.d.comb += drive(image, address_0=unit.address_x, address_1=unit.address_y)
        x, y = unaligned(m, unit.address_x, image.pair_0), unaligned(m, unit.address_y, image.pair_1)
        m.d.comb += (again := Signal(name="again")).eq(after(m, unit.place.valid, latency - 1))
        for number, lane in enumerate(scaling):
            left, right = (
                (word.word_select(number, 8).as_signed() + offset)[:LEFT_BITS].as_signed()
                for word, offset in ((x, layer.input_offset), (y, layer.input2_offset))
            )
            m.d.comb += drive(
                lane,
                again=again,
                addend=after(m, right, latency - 2) << ADD_BITS - 1,
                again_factor=layer.output_multiplier,
                again_shift=layer.output_shift,
            )
            with m.If(unit.busy):
                m.d.comb += drive(lane, value=left << ADD_BITS, factor=layer.input_multiplier, shift=layer.input_shift)
        self._store(m, image, after(m, unit.place, latency), Cat(lane.code for lane in scaling))

    def _store(self, m: Module, image: ImageMemory, place: Any, content: Value) -> None:
        with m.If(place.valid):
            m.d.comb += drive(image, store=1, store_address=place.address, store_count=place.count, store_data=content)


class ArrayControl(wiring.Signature):
    """The signals from an `active` convolution to the array and C. `begins` is high in the cycle of start_conv.

    `left` has a value of A for each lane; lane r is r cycles later than lane 0. `b_row` is the row of B for lane 0.
    While `write` is high, row `row` of the sums is written to row `write_row` of C. While `reads` is high, row
    `read_row` of C is read.
    """

    def __init__(self, config: Config) -> None:
        rows = ceil_log2(config.buffer_rows)
        signals = flags(Out, "active", "begins", "clear", "write", "reads")
        numbers = dict.fromkeys(("b_row", "write_row", "read_row"), Out(rows))
        left = {"left": Out(config.array * LEFT_BITS), "row": Out(ceil_log2(config.array))}
        super().__init__({**signals, **numbers, **left})


def unaligned(m: Module, address: Value, pair: Value) -> Value:
    """Return four bytes from the two words in `pair`, beginning at the byte `address` of the previous cycle."""
    place = after(m, address[:IN_PAIR], 1)
    return (Cat(pair, pair) >> (place << 3))[:32]


def _positive(layer: Any, *sizes: str) -> Value:
    return ~Cat(layer[size] == 0 for size in sizes).any()
