"""The extensions that work on the image memory, in one unit: its memories, its sequencers and requantisation."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.modules import part
from tilewright.hdl.rescale import after
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config

from .addition import Addition
from .array import LEFT_BITS, SUM_BITS
from .buffers import HalfRow
from .convolution import Convolution
from .dma import BusMaster, Dma
from .image import IN_PAIR, ImageMemory
from .layer import LAYER, LayerRegisters
from .pool import MeanPool
from .requantise import LANES, ChannelTables, ScalingLane
from .results import ResultReader

#: Cycles from the read of C to the write of its results, and to the end of the convolution.
STORE_LATENCY, END_LATENCY = 3, 4
COMMANDS = (
    *("put", "push_image", "get_image", "push_channel", "push_shift"),
    *("start_conv", "start_add", "start_pool", "fetch", "fetch_image", "fetch_channels"),
)
#: Cycles from the read of two operands to the write of their sum, without and with `add4`.
ADD_LATENCY, ADD4_LATENCY = 4, 3
#: The left shift of operands of an addition: the second one is also halved.
ADD_BITS = 20


class CoupledUnit(wiring.Component):
    """The image memory, and the commands on it. Each command's port is high in its cycle, with the operands beside it.

    A start latches the layer registers. It has no effect while the unit or the array (`array_busy`) works, or if a size
    is 0; `begins` is high in the cycle of a start that has. `busy` is high from the cycle after it to the last one of
    its work. `word` answers get_image. The other ports, with im2col, drive the array and buffer C: see MatrixUnit.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.convolves = "im2col" in config.extension_names
        ports: dict[str, Any] = dict.fromkeys((*COMMANDS, "array_busy"), In(1))
        ports |= {"first": In(32), "second": In(32), "word": Out(32), "busy": Out(1), "begins": Out(1)}
        if self.convolves:
            ports |= {"array": Out(ArrayControl(config)), "sums": In(config.array * SUM_BITS)}
        self.fetches = bill.fetches(config)
        if self.fetches:
            ports |= {"bus": Out(BusMaster()), "filled": Out(HalfRow(config)), "fetching": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Elaboratable:
        m, names = Module(), self.config.extension_names
        registers, image = LayerRegisters(), ImageMemory(bill.copies(self.config))
        m.submodules.registers = part(registers, "LayerRegisters")
        m.submodules.image = part(image, "ImageMemory")
        layer, now = Signal(LAYER), registers.layer
        free = ~(self.busy | self.array_busy)
        m.d.comb += [
            *(block.put.eq(self.put) for block in (registers, image)),
            *(block.first.eq(self.first) for block in (registers, image)),
            *(block.second.eq(self.second) for block in (registers, image)),
            image.push.eq(self.push_image),
            image.get.eq(self.get_image),
        ]
        filling = tabling = waiting = Const(0)
        if self.fetches:
            dma = self._fetch(m, image)
            filling, tabling, waiting = dma.filling, dma.tabling, dma.waiting
        was_filling = Signal(name="was_filling")
        m.d.sync += was_filling.eq(filling)
        m.d.comb += [image.busy.eq(~free | filling), self.word.eq(Mux(image.busy | was_filling, 0, image.word))]
        with m.If(self.begins):
            m.d.sync += layer.eq(now)
        self._begins, self._busy = list[Value](), list[Value]()
        if "im2col" in names or "add" in names:
            lanes = [ScalingLane("add4" in names) for _ in range(LANES)]
            for number, lane in enumerate(lanes):
                m.submodules[f"scaling_{number}"] = part(lane, "ScalingLane")
                m.d.comb += [getattr(lane, name).eq(layer[name]) for name in ("low", "high")]
                m.d.comb += lane.offset.eq(layer.output_offset)
        if self.convolves:
            sizes = ("out_h", "out_w", "out_c", "kernel_h", "kernel_w", "in_c")
            begins = self.start_conv & free & _none(now[name] == 0 for name in sizes)
            convolution, tables = self._convolve(m, begins, layer, image, lanes)
            m.d.comb += [convolution.hold.eq(waiting), tables.busy.eq(~free | tabling)]
            if self.fetches:
                m.d.comb += [
                    dma.channel.eq(tables.next),
                    tables.fill.eq(dma.to_tables),
                    tables.fill_half.eq(dma.beat[0]),
                    tables.fill_entry.eq(dma.place + (dma.beat >> 1)),
                    tables.fill_data.eq(dma.data),
                ]
        if "add" in names:
            begins = self.start_add & free & now.size.any()
            m.d.comb += self._add(m, begins, now, layer, image, lanes).hold.eq(filling)
        if "pool" in names:
            begins = self.start_pool & free & _none(now[name] == 0 for name in ("in_h", "in_w", "in_c"))
            m.d.comb += self._pool(m, begins, now, layer, image).hold.eq(filling)
        m.d.comb += [self.begins.eq(Cat(self._begins).any()), self.busy.eq(Cat(self._busy).any())]
        return m

    def _fetch(self, m: Module, image: ImageMemory) -> Dma:
        """Add the DMA, which fills B and the image memory."""
        m.submodules.dma = part(dma := Dma(self.config), "Dma")
        wiring.connect(m, dma.bus, wiring.flipped(self.bus))
        m.d.comb += [
            dma.put.eq(self.put),
            dma.first.eq(self.first),
            dma.second.eq(self.second),
            dma.fetch.eq(self.fetch & ~self.array_busy),
            dma.fetch_image.eq(self.fetch_image & ~self.busy & ~self.array_busy),
            dma.fetch_channels.eq(self.fetch_channels),
            dma.pointer.eq(image.pointer),
            dma.mark.eq(self.begins),
            self.fetching.eq(dma.fetching),
            self.filled.en.eq(dma.to_b),
            self.filled.row.eq(dma.place + (dma.beat >> 1)),
            self.filled.half.eq(dma.beat[0]),
            self.filled.data.eq(dma.data),
            image.fill.eq(dma.to_image),
            image.fill_address.eq(dma.place + (dma.beat << 3)),
            image.fill_data.eq(dma.data),
        ]
        return dma

    def _convolve(
        self, m: Module, begins: Value, layer: Any, image: ImageMemory, scaling: list[ScalingLane]
    ) -> tuple[Convolution, ChannelTables]:
        """Add the convolution: its sequencer, the channel tables, and the way from C to the image memory."""
        config, array = self.config, self.array
        convolution, reader, tables = Convolution(config), ResultReader(config), ChannelTables()
        m.submodules.convolution = part(convolution, "Convolution")
        m.submodules.reader = part(reader, "ResultReader")
        m.submodules.tables = part(tables, "ChannelTables")
        m.d.comb += [
            tables.put.eq(self.put),
            tables.push_channel.eq(self.push_channel),
            tables.push_shift.eq(self.push_shift),
            tables.restart.eq(begins),
            tables.first.eq(self.first),
            tables.second.eq(self.second),
            tables.entry.eq(reader.entry),
            convolution.start.eq(begins),
            convolution.layer.eq(layer),
            image.gather.eq(convolution.gather),
            reader.launch.eq(convolution.launch),
            reader.layer.eq(layer),
            *(
                getattr(array, name).eq(getattr(convolution, name))
                for name in ("clear", "row", "write", "left", "b_row")
            ),
            array.active.eq(convolution.busy),
            array.begins.eq(begins),
            array.write_row.eq(convolution.c_row),
            array.reads.eq(reader.place.valid),
            array.read_row.eq(reader.c_row),
        ]
        self._begins.append(begins)
        self._busy.append(convolution.busy)
        ready: Value = convolution.computed
        if "overlap" in config.extension_names:
            tiles = Signal(len(reader.c_row), name="tiles")  # those in C that are not stored yet
            m.d.sync += tiles.eq(Mux(convolution.launch, 0, tiles + convolution.tile_done - reader.taken))
            ready = Mux((layer.stride_w == 1) | (layer.in_c[:2] != 1), tiles.any(), ready)
        m.d.comb += reader.ready.eq(ready)
        for lane in range(config.array):
            m.d.comb += getattr(image, f"address_{lane}").eq(getattr(convolution, f"address_{lane}"))
            m.d.comb += getattr(convolution, f"pair_{lane}").eq(getattr(image, f"pair_{lane}"))
        # Lane b takes the channel of bank b of the tables. Its place among the four results is b - entry, modulo 4.
        quad, shift = Signal.like(reader.quad), Signal(2, name="rotation")
        m.d.sync += [quad.eq(reader.quad), shift.eq(reader.entry)]
        for number, lane in enumerate(scaling):
            entry, place = getattr(tables, f"bank_{number}"), Signal(2, name=f"place_{number}")
            m.d.comb += [
                place.eq(number - shift),
                lane.value.eq(self.sums.word_select(Cat(place, quad), SUM_BITS).as_signed() + entry.bias),
                lane.factor.eq(entry.multiplier),
                lane.shift.eq(entry.shift),
            ]
        place, rotation = after(m, reader.place, STORE_LATENCY), after(m, shift, STORE_LATENCY - 1)
        codes = Cat(lane.code for lane in scaling)
        self._store(m, image, place, Cat(codes, codes) >> (rotation << 3))
        m.d.comb += convolution.finished.eq(after(m, reader.last, END_LATENCY))
        return convolution, tables

    def _add(
        self, m: Module, begins: Value, now: Any, layer: Any, image: ImageMemory, scaling: list[ScalingLane]
    ) -> Addition:
        """Add the addition: operands from two ports of the image memory go through the scaling lanes twice."""
        four = "add4" in self.config.extension_names
        latency = ADD4_LATENCY if four else ADD_LATENCY
        m.submodules.addition = part(unit := Addition(four), "Addition")
        m.d.comb += [unit.start.eq(begins), unit.now.eq(now), unit.layer.eq(layer)]
        self._begins.append(begins)
        self._busy.append(unit.busy)
        with m.If(unit.busy):
            m.d.comb += [image.address_0.eq(unit.address_x), image.address_1.eq(unit.address_y)]
        x, y = (
            unaligned(m, address, pair)
            for address, pair in ((unit.address_x, image.pair_0), (unit.address_y, image.pair_1))
        )
        m.d.comb += (again := Signal(name="again")).eq(after(m, unit.place.valid, latency - 1))
        for number, lane in enumerate(scaling):
            left, right = (
                (word.word_select(number, 8).as_signed() + offset)[:LEFT_BITS].as_signed()
                for word, offset in ((x, layer.input_offset), (y, layer.input2_offset))
            )
            m.d.comb += [
                lane.again.eq(again),
                lane.addend.eq(after(m, right, latency - 2) << ADD_BITS - 1),
                lane.again_factor.eq(layer.output_multiplier),
                lane.again_shift.eq(layer.output_shift),
            ]
            with m.If(unit.busy):
                m.d.comb += [lane.value.eq(left << ADD_BITS), lane.factor.eq(layer.input_multiplier)]
                m.d.comb += lane.shift.eq(layer.input_shift)
        self._store(m, image, after(m, unit.place, latency), Cat(lane.code for lane in scaling))
        return unit

    def _pool(self, m: Module, begins: Value, now: Any, layer: Any, image: ImageMemory) -> MeanPool:
        """Add the mean."""
        m.submodules.pool = part(unit := MeanPool(), "MeanPool")
        m.d.comb += [unit.start.eq(begins), unit.now.eq(now), unit.layer.eq(layer)]
        self._begins.append(begins)
        self._busy.append(unit.busy)
        with m.If(unit.busy):
            m.d.comb += image.address_0.eq(unit.address)
        m.d.comb += unit.word.eq(unaligned(m, unit.address, image.pair_0))
        self._store(m, image, unit.place, unit.code)
        return unit

    def _store(self, m: Module, image: ImageMemory, place: Any, content: Value) -> None:
        """Write `content` to the image memory in cycles with `place.valid`."""
        with m.If(place.valid):
            m.d.comb += [
                image.store.eq(1),
                image.store_address.eq(place.address),
                image.store_count.eq(place.count),
                image.store_data.eq(content),
            ]


class ArrayControl(wiring.Signature):
    """How a convolution drives the array and C. `active`: instead of a launch; `begins`: its command is in this cycle.

    `left` is a value for each lane, of which lane r runs r cycles late; `b_row` is the row of B for lane 0. With
    `write`, row `row` of the sums goes to row `write_row` of C. With `reads`, row `read_row` of C is read.
    """

    def __init__(self, config: Config) -> None:
        rows = ceil_log2(config.buffer_rows)
        flags = dict.fromkeys(("active", "begins", "clear", "write", "reads"), Out(1))
        numbers = dict.fromkeys(("b_row", "write_row", "read_row"), Out(rows))
        left = {"left": Out(config.array * LEFT_BITS), "row": Out(ceil_log2(config.array))}
        super().__init__({**flags, **numbers, **left})


def unaligned(m: Module, address: Value, pair: Value) -> Value:
    """Return the four bytes from byte `address` of the cycle before on, of which `pair` has the two words."""
    place = Signal(IN_PAIR)
    m.d.sync += place.eq(address)
    return (Cat(pair, pair) >> (place << 3))[:32]


def _none(values: Any) -> Value:
    return ~Cat(*values).any()
