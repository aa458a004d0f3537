"""Address generators against their loop nests.

A property counts the iterations of the nest itself, and multiplies them by the steps; the blocks only add.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Mux, Value

from tests.hdl.formal.bench import Bench, Proof, implies
from tests.hdl.formal.engine import induction
from tests.hdl.formal.queues import stable
from tilewright.hdl.axi import RowBursts
from tilewright.hdl.memory import Tiles
from tilewright.hdl.transfers import TileSender
from tilewright.targets.cfu.gateware.convolution import PixelWalker
from tilewright.targets.cfu.gateware.pool_add import Addition
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.gateware.compute import Sequencer
from tilewright.targets.vta.gateware.units import OPERANDS
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.gateware.loader import FcLoader

BEAT_BYTES = 8
LONGEST = 16


def kept(b: Bench, name: str, value: Any, sets: Any) -> Any:
    """Return a register that takes `value` in a cycle with `sets`."""
    value = Value.cast(value)
    register = b.register(name, value.shape())
    with b.m.If(sets):
        b.m.d.sync += register.eq(value)
    return register


def row_bursts() -> Bench:
    """for each row: for each beat of the row, in bursts that end at multiples of the longest one."""
    dut = RowBursts(8 * BEAT_BYTES, LONGEST)
    b = Bench(dut)
    rows = dut.rows
    b.assume(implies(dut.start, ~dut.active & (rows.rows != 0) & (rows.row_bytes != 0) & (rows.row_bytes < 1 << 20)))
    stable(b, "bursts", dut.bursts.valid, dut.bursts.ready, Value.cast(dut.bursts.payload))
    count, stride, size = (kept(b, name, rows[name], dut.start) for name in ("rows", "stride", "row_bytes"))
    address = b.register("row_address", 32)  # of the current row
    row, beat = b.register("row", 16), b.register("beat", 30)
    beats = b.named("row_beats", ((address + size - 1)[:33] >> 3) - (address >> 3) + 1)
    burst = dut.bursts.payload
    length = b.named("length", burst.beats + 1)
    takes = dut.bursts.valid & dut.bursts.ready
    last_of_row = b.named("last_of_row", beat + length == beats)
    with b.m.If(dut.start):
        b.m.d.sync += [address.eq(rows.address), row.eq(0), beat.eq(0)]
    with b.m.Elif(takes):
        b.m.d.sync += beat.eq(beat + length)
        with b.m.If(last_of_row):
            b.m.d.sync += [address.eq(address + stride), row.eq(row + 1), beat.eq(0)]
    at = b.named("at", ((address >> 3) + beat)[:29])
    runs = dut.active
    b.claim("address", implies(runs, burst.address == at << 3))
    b.claim("in_row", implies(runs, (beat + length <= beats) & (row < count)))
    b.claim("one_page", implies(runs, at[:4] + length <= LONGEST))
    b.claim("longest", implies(runs, last_of_row | ((at + length)[:4] == 0)))
    b.claim("last", dut.last == (takes & last_of_row & (row == count - 1)))
    b.claim("ends", implies(b.past(dut.last), ~runs) & implies(b.past(runs & ~dut.last), runs))
    b.claim("starts", implies(b.past(dut.start), runs))
    registers = (b.inside("left") == beats - beat) & (b.inside("beat") == at) & (b.inside("rows") == count - row)
    steps = (b.inside("row") == address) & (b.inside("stride") == stride) & (b.inside("size") == size)
    b.claim("registers", implies(runs, registers & steps & (beats < 1 << 18) & (size < 1 << 20) & (size != 0)))
    return b


def sequencer(multiplies: bool) -> Bench:
    """for outer, inner, micro-op, cycle: index = begin + micro-op, offset = outer * out + inner * in."""
    small = {f"LOG_{name}_BUFF_SIZE": size for name, size in (("UOP", 7), ("INP", 9), ("WGT", 13), ("ACC", 11))}
    dut = Sequencer(PRESETS["pynq"].with_overrides(small if multiplies else {}))
    b = Bench(dut)
    nest = kept(b, "kept_nest", dut.nest.as_value(), dut.start)
    n = dut.nest.shape()(nest)
    legal = (dut.nest.factors == 0) & (dut.nest.end <= 1 << len(dut.index))
    b.assume(implies(dut.start, ~dut.valid & legal))
    widths = {"outer": 14, "inner": 14, "uop": 15, "cycle": 16}
    outer, inner, uop, phase = (b.register(name, bits) for name, bits in widths.items())
    runs = b.register("runs", 1)
    ends = (phase == n.cycles, n.begin + uop + 1 == n.end, inner == n.iter_in - 1, outer == n.iter_out - 1)
    with b.m.If(dut.start):
        new = dut.nest
        some = (new.begin < new.end) & (new.iter_out != 0) & (new.iter_in != 0)
        b.m.d.sync += [outer.eq(0), inner.eq(0), uop.eq(0), phase.eq(0), runs.eq(some)]
    with b.m.Elif(runs & dut.go):
        b.m.d.sync += phase.eq(phase + 1)
        with b.m.If(ends[0]):
            b.m.d.sync += [phase.eq(0), uop.eq(uop + 1)]
            with b.m.If(ends[1]):
                b.m.d.sync += [uop.eq(0), inner.eq(inner + 1)]
                with b.m.If(ends[2]):
                    b.m.d.sync += [inner.eq(0), outer.eq(outer + 1)]
                    with b.m.If(ends[3]):
                        b.m.d.sync += runs.eq(0)
    all_ends = ends[0] & ends[1] & ends[2] & ends[3]
    b.claim("valid", dut.valid == runs)
    b.claim("index", implies(runs, dut.index == (n.begin + uop)[: len(dut.index)]))
    b.claim("first", dut.first == (runs & (phase == 0)))
    b.claim("last", dut.last == (runs & ends[0]))
    b.claim("ends", dut.ends == (runs & dut.go & all_ends))
    for name in OPERANDS:
        bits = len(dut.offset[name])
        if multiplies:
            begin = b.named(f"begin_{name}", (outer * n.out[name])[:bits])
            expected = b.named(f"expected_{name}", (begin + inner * n["in"][name])[:bits])
        else:
            begin, expected = b.register(f"begin_{name}", bits), b.register(f"expected_{name}", bits)
            with b.m.If(dut.start):
                b.m.d.sync += [begin.eq(0), expected.eq(0)]
            with b.m.Elif(runs & dut.go & ends[0] & ends[1]):
                b.m.d.sync += expected.eq(expected + n["in"][name])
                with b.m.If(ends[2]):
                    b.m.d.sync += [begin.eq(begin + n.out[name]), expected.eq(begin + n.out[name])]
        b.claim(f"offset_{name}", implies(runs, dut.offset[name] == expected))
        b.claim(f"outer_{name}", implies(runs, dut.offset.shape()(b.inside("outer"))[name] == begin))
    counters = (b.inside("inner_left") == n.iter_in - inner) & (b.inside("outer_left") == n.iter_out - outer)
    inside = (phase <= n.cycles) & (n.begin + uop < n.end) & (inner < n.iter_in) & (outer < n.iter_out)
    b.claim("counters", implies(runs, counters & (b.inside("phase") == phase) & inside))
    b.claim("nest", implies(runs, Value.cast(b.inside("n")) == nest))
    b.claim("no_factors", (dut.factor == 0) & implies(runs, (n.factors == 0) & (n.end <= 1 << len(dut.index))))
    return b


def tile_sender() -> Bench:
    """for each row: for each beat of the row, its tiles, strobes and the last beats of bursts."""
    tiles = Tiles(16, 64, 64)
    dut = TileSender(tiles, 4)
    b = Bench(dut)
    packed = dut.packed
    b.assume(implies(dut.start, ~dut.active & (packed.rows != 0) & (packed.columns != 0) & (packed.address[0] == 0)))
    b.assume(implies(dut.start, packed.stride[0] == 0))
    stable(b, "beats", dut.beats.valid, dut.beats.ready, Value.cast(dut.beats.payload))
    rows, columns, stride = (kept(b, name, packed[name], dut.start) for name in ("rows", "columns", "stride"))
    address = b.register("row_address", 32)
    row, done, index = b.register("row", 16), b.register("done", 16), b.register("index", 16)
    # The beat that is read has the tiles from `done` on, from lane `lane` of a beat on.
    place = b.named("place", ((address >> 1) + done)[:31])
    lane = place[:2]
    left = b.named("tiles_left", (columns - done)[:16])
    many = b.named("many", Mux(left < 4 - lane, left, 4 - lane)[:3])
    reads = dut.read.en
    with b.m.If(dut.start):
        b.m.d.sync += [address.eq(packed.address), row.eq(0), done.eq(0), index.eq(packed.index)]
    with b.m.Elif(reads):
        b.m.d.sync += [done.eq(done + many), index.eq(index + many)]
        with b.m.If(many == left):
            b.m.d.sync += [address.eq(address + stride), row.eq(row + 1), done.eq(0)]
    runs = dut.active
    b.claim("index", implies(reads, dut.read.index == (index - lane)[:6]))
    b.claim("in_row", implies(runs, (done < columns) & (row < rows)))
    b.claim("ends", implies(b.past(reads & (many == left) & (row == rows - 1)), ~runs))
    b.claim("goes_on", implies(b.past(runs & ~(reads & (many == left) & (row == rows - 1))), runs))
    # Two cycles later, unless the bus stalls, its data, strobes and `last` are offered.
    go = ~dut.beats.valid | dut.beats.ready
    mask = b.named("expected_mask", (((1 << many) - 1) << lane)[:4])
    last = (many == left) | (place[2:4] == 3)
    stages: list[Any] = [reads, mask, last]
    for depth in range(2):
        following = [
            b.register(f"stage{depth}_{place_}", len(Value.cast(value))) for place_, value in enumerate(stages)
        ]
        with b.m.If(go):
            b.m.d.sync += [register.eq(value) for register, value in zip(following, stages, strict=True)]
        stages = following
        if depth == 0:
            first = stages
    beat = dut.beats.payload
    b.claim("valid", dut.beats.valid == stages[0])
    strobes = Value.cast(beat.strobes)
    expected = sum((stages[1][lane_].replicate(2) << 2 * lane_ for lane_ in range(4)), start=strobes & 0)
    b.claim("strobes", implies(stages[0], (strobes == expected) & (beat.last == stages[2])))
    held = (b.inside("mask") == first[1]) & (b.inside("last") == first[2])
    b.claim("part", (b.inside("part") == 0) & (b.inside("part_read") == 0))
    b.claim("stage", (b.inside("read") == first[0]) & implies(first[0], held))
    b.claim("data", implies(b.past(go & first[0]), beat.data == b.past(dut.read.data)))
    p = b.inside("p")
    shape = dut.packed.shape()(p)
    registers = (shape.index == index) & (b.inside("left") == left) & (shape.rows == rows - row)
    registers &= (shape.columns == columns) & (shape.stride == stride) & (stride[0] == 0) & (address[0] == 0)
    registers &= (b.inside("row") == address[:5]) & (b.inside("place") == place[2:4]) & (b.inside("offset") == lane)
    b.claim("registers", implies(runs, registers))
    return b


def pixel_walker() -> Bench:
    """for row, column of the output: the window's corner and address; tiles return to the marked pixel."""
    dut = PixelWalker()
    b = Bench(dut)
    layer = dut.layer
    names = ("out_w", "out_h", "pad_w", "pad_h", "stride_w", "stride_h", "step_x", "step_y", "origin")
    fields = {name: layer[name] for name in names}
    constants = {name: b.constant(name, value.shape()) for name, value in fields.items()}
    for name, value in fields.items():
        b.assume(value == constants[name])
    c = constants
    b.assume((c["out_w"] != 0) & (c["out_h"] != 0))
    counters = ("row", "column", "marked_row", "marked_column")
    row, column, marked_row, marked_column = (b.register(name, 10) for name in counters)  # rows after the last one wrap
    walks = b.register("walks", 1)
    last_column = column == c["out_w"] - 1
    with b.m.If(dut.launch):
        b.m.d.sync += [row.eq(0), column.eq(0), marked_row.eq(0), marked_column.eq(0), walks.eq(1)]
    with b.m.Else():
        with b.m.If(dut.again):
            b.m.d.sync += [row.eq(marked_row), column.eq(marked_column)]
        with b.m.Elif(dut.next):
            b.m.d.sync += [column.eq(Mux(last_column, 0, column + 1)), row.eq(row + last_column)]
        with b.m.If(dut.mark):
            b.m.d.sync += [marked_row.eq(row), marked_column.eq(column)]

    # x is a product of the counter; y and addresses are sums, because solvers find slowly that products distribute.
    line, place, marked_line, marked_place = (
        b.register(name, 16) for name in ("line", "place", "mark_line", "mark_place")
    )
    down, marked_down = b.register("down", 15), b.register("mark_down", 15)
    with b.m.If(dut.launch):
        b.m.d.sync += [register.eq(c["origin"]) for register in (line, place, marked_line, marked_place)]
        b.m.d.sync += [down.eq(-c["pad_h"]), marked_down.eq(-c["pad_h"])]
    with b.m.Else():
        with b.m.If(dut.again):
            b.m.d.sync += [line.eq(marked_line), place.eq(marked_place), down.eq(marked_down)]
        with b.m.Elif(dut.next):
            below = line + c["step_y"]
            b.m.d.sync += down.eq(Mux(last_column, down + c["stride_h"], down))
            b.m.d.sync += [
                line.eq(Mux(last_column, below, line)),
                place.eq(Mux(last_column, below, place + c["step_x"])),
            ]
        with b.m.If(dut.mark):
            b.m.d.sync += [marked_line.eq(line), marked_place.eq(place), marked_down.eq(down)]

    def at(counters: tuple[Any, Any], sums: tuple[Any, Any, Any], pixel: Any) -> Value:
        r, k = counters
        x = (k * c["stride_w"] - c["pad_w"])[:15]
        here = (pixel.line == sums[0]) & (pixel.address == sums[1]) & (pixel.y.as_unsigned() == sums[2])
        return here & (pixel.x.as_unsigned() == x) & (pixel.row == r) & (pixel.column == k) & (k < c["out_w"])

    b.claim("pixel", implies(walks, at((row, column), (line, place, down), dut.pixel)))
    marked_pixel = dut.pixel.shape()(b.inside("marked"))
    sums = (marked_line, marked_place, marked_down)
    b.claim("marked", implies(walks, at((marked_row, marked_column), sums, marked_pixel)))
    b.claim("last", implies(walks, dut.last == (last_column & (row == c["out_h"] - 1))))
    return b


def addition() -> Bench:
    """for each four elements of a tensor: the addresses of both operands and of the sum, and how many remain."""
    dut = Addition(four=True)
    b = Bench(dut)
    layer = dut.layer
    size = kept(b, "kept_size", dut.now.size, dut.start)
    b.assume(implies(dut.start, ~dut.busy & (dut.now.size != 0) & (dut.now.size <= 1 << 16)))
    index, runs = b.register("index", 17), b.register("runs", 1)
    valid = dut.place.valid
    with b.m.If(dut.start):
        b.m.d.sync += [index.eq(0), runs.eq(1)]
    with b.m.Elif(valid):
        b.m.d.sync += [index.eq(index + 4), runs.eq(index + 4 < size)]
    for name, address, base in (
        ("x", dut.address_x, layer.input),
        ("y", dut.address_y, layer.input2),
        ("sum", dut.place.address, layer.output),
    ):
        b.claim(name, implies(valid, address == (base + index)[:16]))
    b.claim("count", implies(valid, dut.place.count == Mux(size - index < 4, size - index, 4)))
    b.claim("valid", implies(valid, runs & ~dut.hold) & implies(runs, dut.busy))
    b.claim("no_needless_wait", implies(runs & ~dut.hold & ~b.inside("pause"), valid))
    registers = (b.inside("left") == size - index) & (b.inside("index") == index[:16])
    b.claim("registers", (b.inside("active") == runs) & implies(runs, registers & (index < size) & (size <= 1 << 16)))
    return b


def fc_loader() -> Bench:
    """for each column: for each product: word k of the data, and of the weights, column after column."""
    dut = FcLoader(Config())
    b = Bench(dut)
    config, products = dut.config, b.constant("r", dut.layer.r.shape())
    b.assume((dut.layer.r == products) & (products != 0))
    step = dut.next_iteration | dut.next_sum
    b.assume(~(dut.next_iteration & dut.next_sum) & implies(dut.next_sum, dut.complete))
    b.assume(implies(dut.start, ~step & ~dut.next_lane))
    k, lane, column, begin = (
        b.register(name, bits) for name, bits in (("k", 25), ("lane", 9), ("column", 16), ("begin", 29))
    )
    runs = b.register("runs", 1)
    used = (k < products) & (lane < config.fc_lanes)
    following = b.named("following", (k + (used & dut.next_lane))[:25])
    b.assume(implies(dut.next_lane, lane < config.fc_lanes))
    with b.m.If(dut.start):
        b.m.d.sync += [k.eq(0), lane.eq(0), column.eq(0), begin.eq(0), runs.eq(1)]
    with b.m.Else():
        b.m.d.sync += [k.eq(following), lane.eq(Mux(step, 0, lane + dut.next_lane))]
        with b.m.If(dut.next_sum):
            b.m.d.sync += [k.eq(0), column.eq(column + 1), begin.eq(begin + products)]
    weight = (begin + k)[:29]
    for name, place, word, bits in (
        ("data", dut.data, k, config.data_bits),
        ("weight", dut.weight, weight, config.weight_bits),
    ):
        here = (place.block == (word >> bits)[: len(place.block)]) & (place.offset == word[:bits])
        b.claim(name, implies(runs & used, here & place.used & place.needed))
        b.claim(f"{name}_used", implies(runs, place.used == used))
    b.claim("complete", implies(runs, dut.complete == (following == products)))
    b.claim("column", implies(runs, (dut.column == column) & (dut.last == (column == dut.layer.l - 1))))
    registers = (b.inside("k") == k) & (b.inside("lane") == lane) & (b.inside("weight#2") == weight)
    b.claim("registers", implies(runs, registers & (k <= products) & (lane <= config.fc_lanes)))
    return b


PROOFS = [
    Proof("RowBursts", "rows and beats; no burst crosses 16 beats; stable", row_bursts, induction, 1),
    Proof("vta Sequencer", "outer, inner, micro-op, cycle; offsets as sums", partial(sequencer, False), induction, 1),
    Proof("vta Sequencer of small buffers", "offsets as products", partial(sequencer, True), induction, 1),
    Proof("TileSender", "rows and tiles; strobes, last beats, data; stable", tile_sender, induction, 1),
    Proof("cfu Addition", "groups of four elements; counts", addition, induction, 1),
    Proof("zynq FcLoader", "columns and products; words and weights", fc_loader, induction, 1),
    Proof("cfu PixelWalker", "rows and columns; marked tiles", pixel_walker, induction, 1),
]
