"""The loader's addresses: which data word and which weight each lane takes, for convolutions and for FC layers.

A walker has the registers of a state machine's loops. It moves when the engine tells it: to the next lane, and then to
the next iteration of the same sum or to the next sum. Addresses are sums of the loops' registers; nothing is divided.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import clear, drive
from tilewright.targets.zynq.config import GROUP, LANES, Config
from tilewright.targets.zynq.gateware.arithmetic import product
from tilewright.targets.zynq.isa.layer import LAYOUT

#: Bits of the address of a word in an operand's address space (image.MAX_WORDS), and a sign.
ADDRESS = 29


def operand_of(config: Config, store: str) -> data.StructLayout:
    """Return the struct of the word of a store that a lane takes.

    If `used` is 0, the lane is 0 instead: at padding, and at the end of a sum. `needed`: the word's block must be in
    the store, even if the lane does not use the word. `more`: the iteration that begins with this lane also reads the
    next block. `kept`: all blocks fit the store, and stay there.
    """
    flags = dict.fromkeys(("used", "needed", "more", "kept"), 1)
    return data.StructLayout({**flags, "block": config.block_bits, "offset": getattr(config, f"{store}_bits")})


#: The descriptor of a layer.
DESCRIPTOR = data.FlexibleLayout(
    LAYOUT.bits,
    {field.name: data.Field(Shape(field.width, field.signed), LAYOUT.offsets[field.name]) for field in LAYOUT.fields},
)


class Walker(wiring.Component):
    """What both walkers have in common. `start` begins a layer.

    The step `next_lane` may be in the cycle of `next_iteration` or of `next_sum`. `complete`: the lanes so far, with
    that of this cycle, complete the sum. `last`: this sum is the layer's last. `column` is the output channel or the FC
    output. `short`: fewer than all lanes' products of an FC sum are left.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "layer": In(DESCRIPTOR),
                **{name: In(1) for name in ("start", "next_lane", "next_iteration", "next_sum")},
                **{name: Out(operand_of(config, name)) for name in ("data", "weight")},
                "complete": Out(1),
                "last": Out(1),
                "column": Out(16),
                "short": Out(1),
            }
        )

    def places(self, m: Module, operand: Any, address: Value, bits: int) -> None:
        """Split the address of a word into its block and its offset."""
        m.d.comb += drive(operand, block=address >> bits, offset=address)


class FcLoader(Walker):
    """FC layers: the words of a column's data and weights, one after another."""

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        k, lane, weight = Signal(25), Signal(range(LANES + 1)), Signal(ADDRESS)
        used = Signal()
        following, word = Signal.like(k), Signal.like(weight)
        m.d.comb += [
            following.eq(k + (used & self.next_lane)),
            word.eq(weight + (used & self.next_lane)),
            used.eq((k < self.layer.r) & (lane < config.fc_lanes)),
            *(place.eq(used) for operand in (self.data, self.weight) for place in (operand.used, operand.needed)),
            *drive(
                self,
                complete=following == self.layer.r,
                last=self.column == self.layer.l - 1,
                short=self.layer.r - k < config.fc_lanes,
            ),
        ]
        self.places(m, self.data, Mux(k == self.layer.r, 0, k), config.data_bits)  # the next column begins with word 0
        self.places(m, self.weight, weight, config.weight_bits)
        rest = Signal(range(LANES))  # the iteration's lanes after the first
        m.d.comb += [
            rest.eq(Mux(self.short, self.layer.r - k, config.fc_lanes) - 1),
            *drive(
                self.data,
                more=(k + rest) >> config.data_bits != self.data.block,
                kept=self.layer.r <= config.frames * config.block_words("data"),
            ),
            self.weight.more.eq((weight + rest) >> config.weight_bits != self.weight.block),
        ]
        with m.If(self.start):
            m.d.sync += clear(k, lane, weight, self.column)
        with m.Else():
            m.d.sync += [k.eq(following), weight.eq(word)]
            with m.If(self.next_lane):
                m.d.sync += lane.eq(lane + 1)
            with m.If(self.next_iteration | self.next_sum):
                m.d.sync += lane.eq(0)
            with m.If(self.next_sum):
                m.d.sync += [k.eq(0), self.column.eq(self.column + 1)]
        return m


class ConvLoader(Walker):
    """Convolutions: 9 taps of 16 channels (or of all, if there are fewer), in the order of the layout.

    `rows` and `hwc`: tap by tap, all channels of a tap. `chw`: channel by channel, all taps of a channel. `rows` has
    blocks that start on a row, so that a window lies in one of them, and needs it even where it is padded.
    """

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        planes, by_rows = config.layout == "chw", config.layout == "rows"
        # Sizes of the layer, complete a few cycles after its descriptor.
        row, image, kernel = Signal(28), Signal(28), Signal(20)
        m.d.sync += [
            row.eq(self.layer.cols if planes else product(self.layer.cols, self.layer.ic, config.logic)),
            image.eq(
                product(self.layer.rows, self.layer.cols if planes else row, config.logic)
            ),  # chw: the words of a plane
            kernel.eq((self.layer.ic << 3) + self.layer.ic),
        ]
        x, y = Signal(12), Signal(12)
        dx, dy, channel, first = Signal(2), Signal(2), Signal(4), Signal(16)
        groups = Mux(self.layer.ic < GROUP, self.layer.ic, GROUP)
        is_over = Signal()  # all taps and channels of the iteration have been taken
        # Addresses: of the window's corner; there in the group's first channel; and of the current row or tap of it.
        corner, begin, line, tap = (Signal(signed(ADDRESS), name=name) for name in ("corner", "begin", "line", "tap"))
        word = Signal(signed(ADDRESS))
        pixel = 1 if planes else self.layer.ic
        m.d.comb += word.eq(line + dx if planes else tap + channel)
        padded = ((dy == 0) & (y == 0)) | ((dy == 2) & (y == self.layer.rows - 1))
        padded |= ((dx == 0) & (x == 0)) | ((dx == 2) & (x == self.layer.cols - 1))
        m.d.comb += [
            *drive(self.weight, used=~is_over, needed=~is_over),
            *drive(self.data, used=~is_over & ~padded, needed=~is_over & (1 if by_rows else ~padded)),
            self.complete.eq(first + groups >= self.layer.ic),
        ]
        # Lanes.
        plane = Signal.like(begin)  # where the group's first channel begins, with the lane of this cycle taken
        m.d.comb += plane.eq(begin)
        steps = (dx == 2, dy == 2, channel == groups - 1)
        with m.If(self.next_lane & ~is_over):
            if planes:
                with m.If(~steps[0]):
                    m.d.sync += dx.eq(dx + 1)
                with m.Elif(~steps[1]):
                    m.d.sync += [dx.eq(0), dy.eq(dy + 1), line.eq(line + row)]
                with m.Else():
                    m.d.sync += [*clear(dx, dy), channel.eq(channel + 1)]
                    m.d.comb += plane.eq(begin + image)
                    m.d.sync += [begin.eq(plane), line.eq(plane), is_over.eq(steps[2])]
            else:
                with m.If(~steps[2]):
                    m.d.sync += channel.eq(channel + 1)
                with m.Elif(~steps[0]):
                    m.d.sync += [channel.eq(0), dx.eq(dx + 1), tap.eq(tap + pixel)]
                with m.Else():
                    m.d.sync += [*clear(channel, dx), dy.eq(dy + 1), is_over.eq(steps[1])]
                    m.d.sync += [line.eq(line + row), tap.eq(line + row)]
        again = [dx.eq(0), dy.eq(0), channel.eq(0), is_over.eq(0)]
        with m.If(self.next_iteration):
            following = plane if planes else begin + GROUP
            m.d.sync += [*again, first.eq(first + GROUP), *(each.eq(following) for each in (begin, line, tap))]
        # Sums: positions, then output channels.
        is_row_end, is_end = x == self.layer.cols - 1, y == self.layer.rows - 1
        whole, block, below = Signal(), Signal(config.block_bits), Signal(ADDRESS)
        top = Signal(signed(ADDRESS))  # the corner of the first window of an image or of a block
        m.d.comb += top.eq(Mux(whole, -row - pixel, -pixel))
        m.d.comb += whole.eq(image <= config.block_words("data")) if by_rows else whole.eq(1)
        is_new_block = ~whole & (below + row > config.block_words("data"))
        starts, ends, turns = Signal(), is_row_end & is_end, Signal()
        next_position = self.next_sum & turns
        m.d.comb += [
            starts.eq(self.start | next_position & ends),
            self.last.eq(ends & (self.column == self.layer.oc - 1)),
        ]
        place = Signal(signed(ADDRESS))
        m.d.comb += place.eq(Mux(turns, corner + pixel, corner))
        with m.If(starts):
            m.d.comb += place.eq(top)
            m.d.sync += [*clear(x, y, block), below.eq(row + (row << 1))]
        with m.Elif(next_position):
            m.d.sync += x.eq(Mux(is_row_end, 0, x + 1))
            with m.If(is_row_end):
                m.d.sync += [y.eq(y + 1), below.eq(below + row)]
                with m.If(is_new_block):
                    m.d.comb += place.eq(top)
                    m.d.sync += [block.eq(block + 1), below.eq(row + (row << 1))]
        with m.If(self.start | self.next_sum):
            m.d.sync += [*again, first.eq(0), *(each.eq(place) for each in (corner, begin, line, tap))]
        if by_rows:
            m.d.comb += drive(self.data, block=block, offset=word)
        else:
            self.places(m, self.data, word, config.data_bits)
        if config.resident:  # two blocks, which share two rows, hold the image
            both = Signal(ADDRESS)
            m.d.sync += both.eq(product(((self.layer.rows + 1) >> 1) + 2, row, config.logic))
            m.d.comb += self.data.kept.eq(~whole & (both <= config.block_words("data")))
        self._weights(m, starts, kernel, is_over, turns)
        return m

    def _weights(self, m: Module, starts: Value, kernel: Value, is_over: Value, turns: Signal) -> None:
        """Add the addresses of weights: a kernel's words in order, again for each position, then the next kernel.

        With oc_blocking, all kernels of a block for each position, then the next block. `turns`: the position is next.
        """
        config, words = self.config, self.config.block_words("weight")
        begin, word, block = Signal(ADDRESS), Signal(ADDRESS), Signal(config.block_bits)
        following, top, is_full = Signal(ADDRESS), Signal(16), Signal()
        m.d.comb += following.eq(begin + kernel)
        if config.layout == "rows":
            m.d.comb += is_full.eq(following + kernel > words)
        m.d.comb += turns.eq(is_full | (self.column == self.layer.oc - 1) if config.oc_blocking else 1)
        with m.If(self.start):
            m.d.sync += clear(begin, word, block, self.column, top)
        with m.Elif(starts if not config.oc_blocking else starts | self.next_sum & ~turns):
            m.d.sync += [begin.eq(following), word.eq(following), self.column.eq(self.column + 1)]
            with m.If(is_full):
                m.d.sync += [*clear(begin, word), block.eq(block + 1), top.eq(self.column + 1)]
        with m.Elif(self.next_sum):
            m.d.sync += word.eq(begin)
            if config.oc_blocking:
                m.d.sync += [*clear(begin, word), self.column.eq(top)]
        with m.Elif(self.next_lane & ~is_over):
            m.d.sync += word.eq(word + 1)
        if config.layout == "rows":
            m.d.comb += drive(self.weight, block=block, offset=word)
        else:
            self.places(m, self.weight, word, config.weight_bits)
