"""The loader's addresses in convolutions and FC layers: the data word and the weight to read for each lane.

A walker contains the loop counters. The engine moves the walker to the next lane, to the next iteration of the same
sum, or to the next sum. The walker updates addresses by additions, so it needs no division.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import product
from tilewright.hdl.parts import Part, clear, drive, flags
from tilewright.targets.zynq.config import GROUP, LANES, Config
from tilewright.targets.zynq.isa.layer import LAYOUT

#: The width of a signed address in an operand's address space of image.MAX_WORDS words.
ADDRESS = 29


def operand_of(config: Config, store: str) -> data.StructLayout:
    """Return the struct that describes the word of a store for a lane.

    If `used` is 0 (padding, or after the end of a sum), the lane gets the value 0. If `needed` is 1, the word's block
    must be in the store, even if the word is not used. With `more`, the iteration that begins with this lane also reads
    the next block. With `kept`, all blocks fit into the store, so each of them is loaded once.
    """
    bits = dict.fromkeys(("used", "needed", "more", "kept"), 1)
    return data.StructLayout({**bits, "block": config.block_bits, "offset": getattr(config, f"{store}_bits")})


#: The descriptor of a layer.
DESCRIPTOR = data.FlexibleLayout(
    LAYOUT.bits,
    {field.name: data.Field(Shape(field.width, field.signed), LAYOUT.offsets[field.name]) for field in LAYOUT.fields},
)


#: The position of a lane in a convolution: the tap (dx, dy), and the channel in the channel group. With `is_over`, the
#: iteration has no more words. Then three addresses in the group's first channel: of the window, of the window's
#: current row, and of the current tap.
LANE = data.StructLayout(
    {"dx": 2, "dy": 2, "channel": 4, "is_over": 1} | dict.fromkeys(("begin", "line", "tap"), signed(ADDRESS))
)


class Walker(Part):
    """The ports of a walker. A pulse of `start` begins a layer."""

    def __init__(self, config: Config) -> None:
        # `next_lane`, `next_iteration` (of the same sum) and `next_sum` move the walker. `next_lane` may be 1 together
        # with `next_iteration` or `next_sum`. `complete` marks the last lane of a sum, and `last` marks the last sum of
        # the layer. `column` is the output channel or the FC output. With `short`, fewer products than lanes remain in
        # an FC sum.
        self.config = config
        super().__init__(
            layer=In(DESCRIPTOR),
            **flags(In, "start", "next_lane", "next_iteration", "next_sum"),
            **{name: Out(operand_of(config, name)) for name in ("data", "weight")},
            complete=Out(1),
            last=Out(1),
            column=Out(16),
            short=Out(1),
        )


class FcLoader(Walker):
    """The walker of FC layers: the data and weights of a column, in the order of their words."""

    def define(self, m: Module) -> None:
        config = self.config
        k = Signal(25)
        lane = Signal(range(LANES + 1))
        weight = Signal(ADDRESS)
        used = Signal()
        following = Signal.like(k)
        word = Signal.like(weight)
        m.d.comb += drive(
            self,
            complete=following == self.layer.r,
            last=self.column == self.layer.l - 1,
            short=self.layer.r - k < config.fc_lanes,
        )
        m.d.comb += [
            following.eq(k + (used & self.next_lane)),
            word.eq(weight + (used & self.next_lane)),
            used.eq((k < self.layer.r) & (lane < config.fc_lanes)),
            *(place.eq(used) for operand in (self.data, self.weight) for place in (operand.used, operand.needed)),
        ]
        place = Mux(k == self.layer.r, 0, k)  # the next column begins at word 0
        m.d.comb += drive(self.data, block=place >> config.data_bits, offset=place)
        m.d.comb += drive(self.weight, block=weight >> config.weight_bits, offset=weight)
        rest = Signal(range(LANES))  # the number of lanes after the first in this iteration
        m.d.comb += drive(
            self.data,
            more=(k + rest) >> config.data_bits != self.data.block,
            kept=self.layer.r <= config.frames * config.block_words("data"),
        )
        m.d.comb += [
            rest.eq(Mux(self.short, self.layer.r - k, config.fc_lanes) - 1),
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


class ConvLoader(Walker):
    """The walker of convolutions. An iteration has 9 taps of 16 channels, or of all channels if there are fewer.

    The layouts `rows` and `hwc` are read by tap, and `chw` is read by channel. In the layout `rows`, each block begins
    on a row, so each window lies in a single block. This block must be in the store even while the walker reads
    padding.
    """

    def define(self, m: Module) -> None:
        config = self.config
        layer = self.layer
        planes = config.layout == "chw"
        by_rows = config.layout == "rows"
        # The sizes of a row, of the image and of a kernel, in words. They are valid a few cycles after the descriptor.
        # In the layout chw, `row` and `image` are for one plane.
        row = Signal(28)
        image = Signal(28)
        kernel = Signal(20)
        m.d.sync += [
            row.eq(layer.cols if planes else product(layer.cols, layer.ic, config.logic)),
            image.eq(product(layer.rows, layer.cols if planes else row, config.logic)),
            kernel.eq((layer.ic << 3) + layer.ic),
        ]
        x = Signal(12)
        y = Signal(12)
        first = Signal(16)
        at = Signal(LANE)
        # These products are computed once per layer, so that the loops need only additions.
        groups = Mux(layer.ic < GROUP, layer.ic, GROUP)
        word, corner, plane, place = (
            Signal(signed(ADDRESS), name=name) for name in ("word", "corner", "plane", "place")
        )
        m.d.comb += word.eq(at.line + at.dx if planes else at.tap + at.channel)
        padded = ((at.dy == 0) & (y == 0)) | ((at.dy == 2) & (y == layer.rows - 1))
        padded |= ((at.dx == 0) & (x == 0)) | ((at.dx == 2) & (x == layer.cols - 1))
        works = ~at.is_over
        m.d.comb += drive(self.weight, used=works, needed=works)
        m.d.comb += drive(self.data, used=works & ~padded, needed=works & (1 if by_rows else ~padded))
        m.d.comb += self.complete.eq(first + groups >= layer.ic)
        m.d.comb += plane.eq(at.begin)
        with m.If(self.next_lane & works):
            self._next_lane(m, at, at.channel == groups - 1, row, plane, image)
        with m.If(self.next_iteration):
            following = plane if planes else at.begin + GROUP
            m.d.sync += [*clear(at.dx, at.dy, at.channel, at.is_over), first.eq(first + GROUP)]
            m.d.sync += drive(at, begin=following, line=following, tap=following)
        starts = Signal()
        turns = Signal()
        block = Signal(config.block_bits)
        m.d.comb += place.eq(Mux(turns, corner + (1 if planes else layer.ic), corner))
        whole = self._positions(m, (x, y, block), starts, turns, row, image, place)
        with m.If(self.start | self.next_sum):
            m.d.sync += [*clear(at.dx, at.dy, at.channel, at.is_over, first), corner.eq(place)]
            m.d.sync += drive(at, begin=place, line=place, tap=place)
        if by_rows:
            m.d.comb += drive(self.data, block=block, offset=word)
        else:
            m.d.comb += drive(self.data, block=word >> config.data_bits, offset=word)
        if config.resident:  # whether two blocks, which share two rows, hold the image
            both = Signal(ADDRESS)
            m.d.sync += both.eq(product(((layer.rows + 1) >> 1) + 2, row, config.logic))
            m.d.comb += self.data.kept.eq(~whole & (both <= config.block_words("data")))
        self._weights(m, starts, kernel, at.is_over, turns)

    def _next_lane(self, m: Module, at: Any, is_last_channel: Value, row: Value, plane: Signal, image: Value) -> None:
        """Move to the next tap and channel. Set `plane` to the address of the first channel after this lane."""
        steps = (at.dx == 2, at.dy == 2, is_last_channel)
        if self.config.layout == "chw":
            with m.If(~steps[0]):
                m.d.sync += at.dx.eq(at.dx + 1)
            with m.Elif(~steps[1]):
                m.d.sync += drive(at, dx=0, dy=at.dy + 1, line=at.line + row)
            with m.Else():
                m.d.comb += plane.eq(at.begin + image)
                m.d.sync += drive(at, dx=0, dy=0, channel=at.channel + 1, begin=plane, line=plane, is_over=steps[2])
            return
        below = at.line + row
        with m.If(~steps[2]):
            m.d.sync += at.channel.eq(at.channel + 1)
        with m.Elif(~steps[0]):
            m.d.sync += drive(at, channel=0, dx=at.dx + 1, tap=at.tap + self.layer.ic)
        with m.Else():
            m.d.sync += drive(at, channel=0, dx=0, dy=at.dy + 1, is_over=steps[1], line=below, tap=below)

    def _positions(
        self,
        m: Module,
        position: tuple[Signal, Signal, Signal],
        starts: Signal,
        turns: Value,
        row: Value,
        image: Value,
        place: Signal,
    ) -> Value:
        """Add the loops over positions and output channels. Return whether a single block holds the whole image.

        `position` is (column, row, block) of the current sum, and `place` is the corner of the window of the next sum.
        """
        x, y, block = position
        layer = self.layer
        config = self.config
        pixel = 1 if config.layout == "chw" else layer.ic
        is_row_end = x == layer.cols - 1
        is_end = y == layer.rows - 1
        whole = Signal()
        below = Signal(ADDRESS)
        top = Signal(signed(ADDRESS))  # the corner of an image's or a block's first window
        m.d.comb += top.eq(Mux(whole, -row - pixel, -pixel))
        m.d.comb += whole.eq(image <= config.block_words("data") if config.layout == "rows" else 1)
        is_new_block = ~whole & (below + row > config.block_words("data"))
        ends = is_row_end & is_end
        next_position = self.next_sum & turns
        m.d.comb += starts.eq(self.start | next_position & ends)
        m.d.comb += self.last.eq(ends & (self.column == layer.oc - 1))
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
        return whole

    def _weights(self, m: Module, starts: Value, kernel: Value, is_over: Value, turns: Signal) -> None:
        """Add the addresses of weights. `turns` is 1 in the last sum of a position, before the next position."""
        # The loops are, outermost first: kernel, position, word of the kernel. With oc_blocking, they are: weight
        # block, position, kernel of the block, word of the kernel.
        config = self.config
        words = self.config.block_words("weight")
        begin = Signal(ADDRESS)
        word = Signal(ADDRESS)
        block = Signal(config.block_bits)
        following = Signal(ADDRESS)
        top = Signal(16)
        is_full = Signal()
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
            m.d.comb += drive(self.weight, block=word >> config.weight_bits, offset=word)
