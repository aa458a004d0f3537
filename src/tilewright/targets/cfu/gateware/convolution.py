"""The sequencer of a convolution, and the lanes that read values of A. Each lane reads its own window byte by byte."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, add, clear, drive, flags, step_loops
from tilewright.targets.cfu.config import Config

from .array import LEFT_BITS
from .image import ADDRESS, IN_PAIR, LAYER, PAIR

#: The bits of a coordinate (signed, because an element of a window may lie outside of the image).
COORDINATE = 15
#: A pixel of the output: its `column` and `row`; the coordinates `x`, `y` and the byte `address` of the first element
#: in its window; and in `line` the address of the first window in this row of the output.
PIXEL = data.StructLayout(
    {"column": 10, "row": 10, "x": signed(COORDINATE), "y": signed(COORDINATE), "address": ADDRESS, "line": ADDRESS}
)
#: The work of a lane in one cycle. The next lane does the same work a cycle later. If `active` is 1, the lane reads an
#: element of a window. `first` marks the first element of the window, `last_c` marks the last element of a pixel, and
#: `last_x` marks all elements of the last pixel in a row.
STEP = data.StructLayout({"active": 1, "first": 1, "last_c": 1, "last_x": 1})


class WindowLane(Part):
    """A lane of the array. It reads the elements of one window, one per cycle, controlled by `step`.

    If `step.first` is high, the window begins at `pixel`. `address` is the address of an element. In the next cycle,
    the element is in `pair`, and `value` is the element plus its offset, or 0 outside of the image. `next_step` is
    `step`, delayed by a cycle for the next lane.
    """

    def __init__(self) -> None:
        super().__init__(
            step=In(STEP),
            next_step=Out(STEP),
            pixel=In(PIXEL),
            layer=In(LAYER),
            address=Out(ADDRESS),
            pair=In(PAIR),
            value=Out(signed(LEFT_BITS)),
        )

    def define(self, m: Module) -> None:
        step = self.step
        layer = self.layer
        address = Signal(ADDRESS)
        x, y = (Signal(signed(COORDINATE), name=name) for name in "xy")
        here_x, here_y = (Signal(signed(COORDINATE), name=f"here_{name}") for name in "xy")
        m.d.comb += [
            self.address.eq(Mux(step.first, self.pixel.address, address)),
            here_x.eq(Mux(step.first, self.pixel.x, x)),
            here_y.eq(Mux(step.first, self.pixel.y, y)),
        ]
        # At the end of a row of the window, go to its next row. Otherwise, the next element is the next byte.
        below = step.last_c & step.last_x
        m.d.sync += [
            self.next_step.eq(step),
            address.eq(self.address + Mux(below, layer.row_jump, 1)),
            x.eq(Mux(below, here_x - layer.kernel_w + 1, here_x + step.last_c)),
            y.eq(here_y + below),
        ]
        inside = Signal(name="inside")
        place = Signal(IN_PAIR)
        in_x, in_y = (here_x >= 0) & (here_x < layer.in_w), (here_y >= 0) & (here_y < layer.in_h)
        m.d.sync += [inside.eq(step.active & in_x & in_y), place.eq(self.address)]
        value = (self.pair.word_select(place, 8).as_signed() + layer.input_offset)[:LEFT_BITS]
        m.d.comb += self.value.eq(Mux(inside, value, 0).as_signed())


class PixelWalker(Part):
    """Steps through the pixels of the output, row by row. `last` is high if `pixel`, the current pixel, is the last.

    There are four commands. `launch`: go to the first pixel. `next`: go to the next pixel. `mark`: begin a tile at the
    current pixel. `again`: return to the first pixel of the tile.
    """

    def __init__(self) -> None:
        commands = flags(In, "launch", "next", "again", "mark")
        super().__init__(**commands, layer=In(LAYER), pixel=Out(PIXEL), last=Out(1))

    def define(self, m: Module) -> None:
        layer = self.layer
        pixel = self.pixel
        marked = Signal(PIXEL)
        first = Signal(PIXEL)
        last_column = pixel.column == layer.out_w - 1
        m.d.comb += [
            self.last.eq(last_column & (pixel.row == layer.out_h - 1)),
            *drive(first, x=-layer.pad_w, y=-layer.pad_h, address=layer.origin, line=layer.origin),
        ]
        # The last assignment wins: `launch` has priority over `again`, and `again` over `next`.
        with m.If(self.next):
            m.d.sync += drive(
                pixel, column=pixel.column + 1, x=pixel.x + layer.stride_w, address=pixel.address + layer.step_x
            )
            with m.If(last_column):
                below = (pixel.line + layer.step_y)[:ADDRESS]
                m.d.sync += drive(pixel, row=pixel.row + 1, x=first.x, column=0)
                m.d.sync += drive(pixel, y=pixel.y + layer.stride_h, address=below, line=below)
        with m.If(self.again):
            m.d.sync += pixel.eq(marked)
        with m.If(self.mark):
            m.d.sync += marked.eq(pixel)
        with m.If(self.launch):
            m.d.sync += [pixel.eq(first), marked.eq(first)]


class Phase(enum.Enum, shape=3):  # type: ignore[call-arg]
    """The phase of a convolution: idle, wait for fetches, read elements, let sums settle, write sums, store."""

    IDLE = 0
    LAUNCH = 1
    FEED = 2
    SETTLE = 3
    DRAIN = 4
    STORE = 5


class Convolution(Part):
    """Convolves within the image memory. A tile is up to n pixels of n channels.

    A tile takes a cycle for each element of a window, n cycles until its first row of sums is complete, and a cycle per
    row. Lane r of the array runs r cycles behind lane 0, so one PixelWalker can find the windows of all lanes, one per
    cycle.

    `start` is high in the cycle of the command. `launch` is high in the first cycle after `start` without `hold`, and
    the first tile begins in the next cycle. `layer` must not change. `computed` is high after the last tile, until a
    cycle with `finished`. `tile_done` is high in the last cycle of a tile.

    `address_r` is the byte address for lane r. In the next cycle, `pair_r` has the data, and lane r of `left` has the
    value. `b_row` is the row of B for lane 0. `clear` and `row` control the array. While `write` is high, row `row` of
    the sums is written to row `c_row` of C.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        rows = ceil_log2(config.buffer_rows)
        lanes = config.array
        ports: dict[str, Any] = flags(In, "start", "hold", "finished")
        ports |= flags(Out, "busy", "launch", "computed", "tile_done", "clear", "write", "gather")
        ports |= {"layer": In(LAYER), "b_row": Out(rows), "c_row": Out(rows), "row": Out(ceil_log2(lanes))}
        ports |= {f"address_{lane}": Out(ADDRESS) for lane in range(lanes)}
        ports |= {f"pair_{lane}": In(PAIR) for lane in range(lanes)}
        super().__init__(**ports, left=Out(lanes * LEFT_BITS))
        self._pixel = Signal(PIXEL)

    def define(self, m: Module) -> None:
        lanes = self.config.array
        layer = self.layer
        state = Signal(Phase)
        walker = add(m, "walker", PixelWalker(), layer=layer, launch=self.launch)
        began = Signal(name="began")  # the first cycle of a tile
        height = Signal(range(lanes))  # the number of rows in the tile, minus 1
        last_tile = Signal(name="last_tile")  # the tile has the last pixel
        column = Signal(16, name="column")  # the first channel of the tile
        count = Signal(range(lanes))  # the cycle of SETTLE, or the row in DRAIN
        m.d.comb += drive(
            self,
            busy=state != Phase.IDLE,
            launch=(state == Phase.LAUNCH) & ~self.hold,
            computed=state == Phase.STORE,
            gather=(state == Phase.FEED) | (state == Phase.SETTLE),
            clear=began,
            row=count,
            write=state == Phase.DRAIN,
            tile_done=(state == Phase.DRAIN) & (count == height),
        )
        m.d.sync += began.eq(self.launch | (self.tile_done & ~(last_tile & (column + lanes >= layer.out_c))))
        ended = self._elements(m, state, began)
        self._walk(m, walker, began, height, last_tile)
        with m.Switch(state):
            with m.Case(Phase.IDLE), m.If(self.start):
                m.d.sync += state.eq(Phase.LAUNCH)
            with m.Case(Phase.LAUNCH), m.If(~self.hold):
                m.d.sync += [state.eq(Phase.FEED), *clear(column, self.c_row), self.b_row.eq(layer.row)]
            with m.Case(Phase.FEED):
                m.d.sync += [self.b_row.eq(self.b_row + 1), count.eq(0)]
                with m.If(ended):
                    m.d.sync += state.eq(Phase.SETTLE)
            with m.Case(Phase.SETTLE):
                m.d.sync += count.eq(count + 1)
                with m.If(count == lanes - 1):
                    m.d.sync += [state.eq(Phase.DRAIN), count.eq(0)]
            with m.Case(Phase.DRAIN):
                m.d.sync += [count.eq(count + 1), self.c_row.eq(self.c_row + 1)]
                with m.If(self.tile_done):
                    m.d.sync += state.eq(Phase.FEED)
                    with m.If(column + lanes < layer.out_c):
                        m.d.sync += column.eq(column + lanes)
                        m.d.comb += walker.again.eq(1)
                    with m.Elif(~last_tile):
                        m.d.sync += [column.eq(0), self.b_row.eq(layer.row)]
                        m.d.comb += walker.mark.eq(1)
                    with m.Else():
                        m.d.sync += state.eq(Phase.STORE)
            with m.Case(Phase.STORE), m.If(self.finished):
                m.d.sync += state.eq(Phase.IDLE)

    def _elements(self, m: Module, state: Signal, began: Signal) -> Value:
        """Add the lanes, and counters for the element of lane 0. Return whether lane 0 reads the last of a window."""
        layer = self.layer
        c, x, y = (Signal(bits, name=name) for name, bits in (("c", 16), ("x", 10), ("y", 10)))
        step = Signal(STEP)
        last_y = y == layer.kernel_h - 1
        m.d.comb += drive(
            step, active=state == Phase.FEED, first=began, last_c=c == layer.in_c - 1, last_x=x == layer.kernel_w - 1
        )
        with m.If(step.active):
            step_loops(m, (c, step.last_c), (x, step.last_x), (y, last_y))
        values = list[Value]()
        now = step  # the step of this lane
        for number in range(self.config.array):
            pair = getattr(self, f"pair_{number}")
            lane = add(m, f"lane_{number}", WindowLane(), step=now, pixel=self._pixel, layer=layer, pair=pair)
            m.d.comb += getattr(self, f"address_{number}").eq(lane.address)
            values.append(lane.value)
            now = lane.next_step
        m.d.comb += self.left.eq(Cat(values))
        return step.last_c & step.last_x & last_y

    def _walk(self, m: Module, walker: PixelWalker, began: Signal, height: Signal, last_tile: Signal) -> None:
        # In the first `lanes` cycles of a tile, the walker moves to the next pixel, so that lane r starts with pixel r.
        lanes = self.config.array
        number = Signal(range(lanes), name="number")
        walks = Signal(name="walks")
        m.d.comb += [self._pixel.eq(walker.pixel), walker.next.eq(began | walks)]
        with m.If(began):
            m.d.sync += [walks.eq(1), number.eq(1), last_tile.eq(walker.last)]
            m.d.sync += height.eq(Mux(walker.last, 0, lanes - 1))
        with m.Elif(walks):
            m.d.sync += [walks.eq(number != lanes - 1), number.eq(number + 1)]
            with m.If(walker.last & ~last_tile):
                m.d.sync += [last_tile.eq(1), height.eq(number)]
