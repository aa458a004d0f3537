"""Position groups (the positions of a convolution that are summed together), and the loads of their data.

The data of a group are three runs of contiguous pixels in a data block, one run per row of the window. A run has the
pixels of the positions and one more pixel at each end. A run may continue on the next row of the image, because taps
outside of the image are masked.

The window buffer, made of logic, has room for the pixels of two groups. The kernels of a weight block read one group,
one kernel after another, 16 channels of all pixels per cycle. At the same time, the port of the data store loads the
next group. The buffer has two memories for each pixel: one for the even and one for the odd groups of channels.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.mac import product
from tilewright.hdl.parts import Part, after, clear, drive, flags
from tilewright.targets.zynq.config import DEEPEST, GROUP, LINE, Config
from tilewright.targets.zynq.gateware.loader import ADDRESS, DESCRIPTOR

#: The number of rows of the window.
ROWS = 3
#: The number of 16-channel groups in a line of data.
SLOTS = LINE["data"] // GROUP
#: The sides of the image. If a position is at a side, its taps beyond this side are masked.
SIDES = ("left", "right", "top", "bottom")


def columns(config: Config) -> int:
    return config.outputs + 2


class Groups(Part):
    """Steps through the position groups, and requests the data of each group, one line per cycle."""

    def __init__(self, config: Config) -> None:
        # `start` begins a layer with its first group. `next` moves to the next group, and requests its data if `more`
        # is 1. While `asks` is 1, line `offset` of block `block` is requested. The line's 16 words from `slot` on are
        # channel group `group` of pixel (`row`, `column`) of the window. With `pair`, the next 16 words are the next
        # channel group. `filled` marks the last request of a group. With `kept`, all blocks fit into the store.
        #
        # `count` is the number of positions in the group. For each position, `sides` has the sides of the image at
        # which the position is. `is_end` marks the last group of the image.
        self.config = config
        super().__init__(
            layer=In(DESCRIPTOR),
            **flags(In, "start", "moves", "next", "more"),
            **flags(Out, "asks", "pair", "filled", "kept", "is_end"),
            block=Out(config.block_bits),
            offset=Out(max(1, ceil_log2(config.lines("data")))),
            slot=Out(range(SLOTS)),
            row=Out(range(ROWS)),
            column=Out(range(columns(config))),
            group=Out(range(DEEPEST)),
            count=Out(range(config.outputs + 1)),
            sides=Out(len(SIDES) * config.outputs),
        )

    def define(self, m: Module) -> None:
        config = self.config
        # Sizes in groups of 16 channels. The sizes are valid a few cycles after the descriptor.
        depth = Signal(12)
        line = Signal(ADDRESS)
        image = Signal(ADDRESS)
        both = Signal(ADDRESS)
        words = config.block_words("data") // GROUP
        m.d.comb += depth.eq((self.layer.ic + (GROUP - 1)) >> ceil_log2(GROUP))
        m.d.sync += [
            line.eq(product(self.layer.cols, depth, config.logic)),
            image.eq(product(self.layer.rows, line, config.logic)),
            both.eq(product(((self.layer.rows + 1) >> 1) + 2, line, config.logic)),  # two blocks share two rows
        ]
        whole = Signal()
        m.d.comb += whole.eq(image <= words)
        m.d.comb += self.kept.eq(~whole & (both <= words) if config.resident else 0)
        place = self._positions(m, depth, line, whole, words)
        self._requests(m, depth, line, place)

    def _positions(self, m: Module, depth: Signal, line: Signal, whole: Signal, words: int) -> Value:
        """Add the registers of a group's first position. Return the address of the next group's first pixel."""
        outputs = self.config.outputs
        x = Signal(12)
        y = Signal(12)
        below = Signal(ADDRESS)
        corner = Signal(signed(ADDRESS))
        # For each `down`: whether the block serves the row that is `down` rows below the first position.
        serves: list[Value] = [Signal(name=f"serves{down}") for down in range(1, outputs + 1)]
        lines = _multiples(line, outputs)
        depths = _multiples(depth, outputs)
        for down, is_served in enumerate(serves, 1):
            m.d.comb += is_served.eq((whole | (below + lines[down] <= words)) & (y + down < self.layer.rows))
        # Derive each position, up to the first of the next group, from the position before it, without a division.
        across = [x]
        downward = [Signal(ceil_log2(outputs + 1), name="down0")]
        exists = [Signal(name="exists0", init=1)]
        m.d.comb += exists[0].eq(1)
        for number in range(1, outputs + 1):
            to_x, to_y = Signal(12, name=f"x{number}"), Signal.like(downward[0], name=f"down{number}")
            exist = Signal(name=f"exists{number}")
            is_row_end = across[-1] == self.layer.cols - 1
            m.d.comb += [
                to_x.eq(Mux(is_row_end, 0, across[-1] + 1)),
                to_y.eq(downward[-1] + is_row_end),
                exist.eq(Array([1, *serves])[to_y]),
            ]
            across = [*across, to_x]
            downward = [*downward, to_y]
            exists = [*exists, exist]
        count = Signal(range(outputs + 1))
        at = Signal.like(downward[0], name="at")
        goes_on = Signal()
        bottom = Signal(13)
        m.d.comb += count.eq(outputs)
        for number in reversed(range(1, outputs)):  # count the existing positions
            with m.If(~exists[number]):
                m.d.comb += count.eq(number)
        m.d.comb += [
            at.eq(Array(downward)[count]),
            goes_on.eq(Array(exists)[count]),
            bottom.eq(y + at),
            *drive(self, count=count, is_end=bottom == self.layer.rows),
        ]
        for number in range(outputs):
            row = y + downward[number]
            sides = (across[number] == 0, across[number] == self.layer.cols - 1, row == 0, row == self.layer.rows - 1)
            m.d.comb += self.sides[len(SIDES) * number :][: len(SIDES)].eq(Cat(*sides))
        place = Signal(signed(ADDRESS))
        top = Signal(signed(ADDRESS))
        m.d.comb += [top.eq(Mux(whole, -line - depth, -depth)), place.eq(top)]
        with m.If(~self.start & goes_on):
            m.d.comb += place.eq(corner + Array(depths)[count])
        with m.If(self.start | self.next):
            m.d.sync += [corner.eq(place), x.eq(Array(across)[count]), y.eq(bottom), below.eq(below + Array(lines)[at])]
            with m.If(self.start | ~goes_on):
                m.d.sync += [below.eq((line << 1) + line), self.block.eq(self.block + 1)]
            with m.If(self.start | self.is_end):
                m.d.sync += clear(x, y, self.block)
        return place

    def _requests(self, m: Module, depth: Signal, line: Signal, place: Value) -> None:
        """Add the requests of a group's data. The loops are, outermost first: runs, pixels, channel groups."""
        begin = Signal(signed(ADDRESS))
        address = Signal(signed(ADDRESS))
        step = Signal(2)
        is_pixel_end = Signal()
        is_run_end = Signal()
        is_over = Signal()
        m.d.comb += [
            *drive(self, pair=~depth[0], filled=~self.asks | is_over, offset=address >> ceil_log2(SLOTS), slot=address),
            step.eq(Mux(self.pair, 2, 1)),
            is_pixel_end.eq(self.group + step >= depth),
            is_run_end.eq(is_pixel_end & (self.column == columns(self.config) - 1)),
            is_over.eq(is_run_end & (self.row == ROWS - 1)),
        ]
        with m.If(self.start | self.next):
            m.d.sync += [self.asks.eq(self.start | self.more), begin.eq(place), address.eq(place)]
            m.d.sync += clear(self.group, self.column, self.row)
        with m.Elif(self.asks & self.moves):
            m.d.sync += [address.eq(address + step), self.group.eq(self.group + step)]
            with m.If(is_pixel_end):
                m.d.sync += [self.group.eq(0), self.column.eq(self.column + 1)]
            with m.If(is_run_end):
                m.d.sync += [begin.eq(begin + line), address.eq(begin + line)]
                m.d.sync += [self.column.eq(0), self.row.eq(self.row + 1)]
            with m.If(is_over):
                m.d.sync += self.asks.eq(0)


def _multiples(value: Value, last: int) -> list[Value]:
    """Return `value` times 0 to `last`, by additions: a multiplication could be mapped to a multiplier block."""
    multiples: list[Value] = [Const(0)]
    for _ in range(last):
        multiples.append(multiples[-1] + value)
    return multiples


#: The width of 16 channels of a pixel in bits.
PIXEL = 8 * GROUP


class WindowBuffer(Part):
    """A buffer for the data of two position groups, number 0 and number 1."""

    def __init__(self, config: Config) -> None:
        # `asks`, `pair`, `slot`, `row`, `column` and `asked` (the channel group) are a request of Groups, for position
        # group `fills`. One cycle later, `line` is the requested line. uint8 words are converted to int8 numbers.
        # `pixels` has channel group `group` of position group `uses`, without delay: row by row, 16 channels per pixel.
        self.columns = columns(config)
        super().__init__(
            **flags(In, "asks", "pair", "fills", "uses"),
            layer=In(DESCRIPTOR),
            slot=In(range(SLOTS)),
            row=In(range(ROWS)),
            column=In(range(self.columns)),
            asked=In(range(DEEPEST)),
            line=In(8 * LINE["data"]),
            group=In(range(DEEPEST)),
            pixels=Out(ROWS * self.columns * PIXEL),
        )

    def define(self, m: Module) -> None:
        request = (self.asks, self.pair, self.slot, self.row, self.column, Cat(self.asked, self.fills))
        arrives, pair, slot, row, column, place = (after(m, field, 1) for field in request)
        two = self.line.word_select(slot >> 1, 2 * PIXEL)
        single = two.word_select(slot[0], PIXEL)
        sign = Mux(self.layer.x_signed, 0, 128).replicate(GROUP)
        pixels = []
        for number in range(ROWS * self.columns):
            halves = []
            for half in range(2):
                m.submodules[f"pixel{number}_{half}"] = memory = Memory(shape=PIXEL, depth=DEEPEST, init=[])
                writes = memory.write_port()
                reads = memory.read_port(domain="comb")
                mine = (row == number // self.columns) & (column == number % self.columns)
                word = Mux(pair, two.word_select(half, PIXEL), single) ^ sign
                m.d.comb += drive(writes, en=arrives & mine & (pair | (place[0] == half)), addr=place >> 1, data=word)
                m.d.comb += reads.addr.eq(Cat(self.group[1:], self.uses))
                halves.append(reads.data)
            pixels.append(Mux(self.group[0], halves[1], halves[0]))
        m.d.comb += self.pixels.eq(Cat(pixels))
