"""What a layer takes at least, for every way of cutting it that fits the buffers: formulas over arrays of choices."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.schedule import combinations, extents
from tilewright.targets.vta.compiler.kernels import DISTANCE, OVERHEAD
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer
from tilewright.targets.vta.compiler.plan import accumulator_tiles, parameter_memory
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.timing import MODELS, Intervals

#: Slots tried, the most first: equal cuts differ in little else.
INP_SLOTS, WGT_SLOTS = (4, 3, 2, 1), (64, 32, 16, 8, 4, 2, 1)


def choices(layer: Layer, config: Config) -> dict[str, Array]:
    """Every combination that fits the buffers, one array a choice."""
    rows, columns = extents(layer.out[0]), extents(layer.out[1])
    outs = np.ones(1, np.int64) if layer.link == "banded" else extents(layer.out_tiles, config.acc.depth)
    sums = extents(layer.depth, config.inp.depth)
    tiles = combinations(rows=rows, columns=columns)
    if not layer.matrix:  # narrow tiles only where a full row is too much: they cost a transfer a channel and row
        wide = tiles["columns"] == columns[0]
        if (wide & _fits_image(layer, config, tiles, 1, 1)).any():
            tiles = {name: values[wide] for name, values in tiles.items()}
    chunks = 1 if layer.shared else -(-layer.out_tiles // outs.min()) * -(-layer.depth // sums.min())
    wgt = np.unique([min(slots, chunks, config.wgt.depth) for slots in WGT_SLOTS])[::-1]
    choices = combinations(
        tile=np.arange(len(tiles["rows"])),
        outs=outs,
        sums=sums,
        channels=np.array([0, 1]),
        inp=np.array([n for n in INP_SLOTS if n <= config.inp.depth]),
        wgt=wgt,
        acc=np.array([n for n in _acc_slots(config) if n <= config.acc.depth]),
    )
    grid = {name: values[choices["tile"]] for name, values in tiles.items()} | choices
    weights = grid["outs"] * grid["sums"] * layer.taps if not layer.shared else np.ones_like(grid["outs"])
    carried = grid["outs"] if layer.link == "diagonal" else grid["sums"]
    sets = 1 if layer.kind == "add" else grid["outs"]
    fits = _fits_image(layer, config, grid, carried, grid["outs"]) & (
        weights <= np.minimum(config.wgt.depth // grid["wgt"], LARGEST_SIZE)
    )
    fits &= layer.parameters * sets <= parameter_memory(config)[2]
    one_tile = (grid["rows"] == layer.out[0]) & (grid["columns"] == layer.out[1])
    fits &= (grid["channels"] == 0) | ~(one_tile | (grid["outs"] == layer.out_tiles))  # else the orders are the same
    fits &= grid["inp"] + grid["wgt"] <= max(2, config.token_depth)  # no queue fills: a load is a token at most
    fits &= grid["acc"] <= config.token_depth  # and so is a store
    return {name: values[fits] for name, values in grid.items()}


def _acc_slots(config: Config) -> tuple[int, ...]:
    """No two slots share a part of acc that one unit uses at a time, and no queue fills: a slot is a token."""
    counts = (3, 2, 1) if config.stages == 3 else tuple(n for n in (8, 4, 2, 1) if config.acc_banks % n == 0)
    return tuple(n for n in counts if n <= config.token_depth)


def _input(layer: Layer, grid: dict[str, Array]) -> tuple[Array, Array]:
    """Rows and columns of input that a tile reads, at most."""
    extents = []
    for axis, name in enumerate(("rows", "columns")):
        w = layer.window
        span = (grid[name] - 1) * w.stride[axis] + (w.kernel[axis] - 1) * w.dilation[axis] + 1
        span = (span + layer.repeat[axis] - 2) // layer.repeat[axis] + 1
        extents.append(np.minimum(layer.size[axis], span))
    return extents[0], extents[1]


def _fits_image(layer: Layer, config: Config, grid: dict[str, Array], carried: Array | int, outs: Array | int) -> Array:
    height, width = _input(layer, grid)
    pixels = grid["rows"] * grid["columns"]
    held = pixels * (1 if layer.shifts else layer.operands) + (height * width if layer.kind == "max" else 0)
    inp = config.inp.depth // grid.get("inp", np.ones(1, np.int64))
    acc = accumulator_tiles(config, layer) // grid.get("acc", np.ones(1, np.int64))
    fits: Array = (height * width * carried * layer.operands <= inp) & (held * outs <= acc)
    return fits


def bound(layer: Layer, config: Config, timing: str, grid: dict[str, Array]) -> Array:
    """Cycles of each candidate of a grid under a timing model, at the least, and OVERHEAD for each instruction.

    The longest of loads, sums and stores, with what stands alone before and behind it.
    """
    model = MODELS[timing]
    own = model.intervals(config)
    spatial, channel, groups, chunks = _counts(layer, grid)
    tiles = grid["rows"] * grid["columns"] * grid["outs"]
    inp, wgt, out = _transfers(layer, config, timing, grid)
    inp_loads, wgt_loads = _loads(layer, grid, spatial, channel, chunks)
    load, store = inp_loads * inp + wgt_loads * wgt, groups * layer.planes * out
    instructions = groups * (_instructions(layer, grid, spatial) * chunks + layer.planes)
    macs = layer.gemm_uops() if layer.kind in ("sum", "repeat") else layer.in_tiles * layer.size[0] * layer.size[1]
    outputs = layer.out_pixels * layer.out_tiles
    cleared = outputs * (1 if layer.shifts else layer.operands)
    gemm = (macs * layer.operands + cleared) * own.gemm
    alu = outputs * _alu_cycles(layer, own)
    compute = (gemm + alu if config.stages == 3 else max(gemm, alu)) + instructions * model.dispatch
    # What no other unit hides.
    port = model.channel(config)
    waiting = port.latency if port.burst else 0
    first = inp + wgt + waiting
    last = layer.planes * out + (layer.planes - 1) * own.alu_immediate * tiles + waiting
    # What is held for several groups is overwritten during the last of them: the next loads find no time but that.
    group, outside = compute / groups, grid["channels"] == 1
    exposed = np.where(
        outside,
        (channel - 1) * np.maximum(0, (2 * chunks - grid["wgt"]) * wgt - group) * (grid["wgt"] >= chunks),
        (spatial - 1) * np.maximum(0, (2 * chunks - grid["inp"]) * inp - group) * (grid["inp"] >= chunks),
    )
    total = np.maximum(load + compute / (groups * chunks) + last, compute + first + last + exposed)
    total = np.maximum(total, first + compute / groups + store)
    total = np.where((grid["inp"] == 1) & (inp_loads > 1), np.maximum(total, compute + inp_loads * inp + last), total)
    total = np.where(grid["acc"] == 1, np.maximum(total, first + compute + store), total)
    return np.asarray(total + OVERHEAD * instructions, np.float64)


def handovers(layer: Layer, grid: dict[str, Array]) -> Array:
    """How often one unit takes over from another: chunks that are loaded, and groups that are stored."""
    _, _, groups, chunks = _counts(layer, grid)
    return np.asarray(groups * (chunks + 1))


def _counts(layer: Layer, grid: dict[str, Array]) -> tuple[Array, Array, Array, Array]:
    """Tiles of the image, of channels, groups, and chunks of a group."""
    channel = -(-layer.out_tiles // grid["outs"])
    spatial = -(-layer.out[0] // grid["rows"]) * -(-layer.out[1] // grid["columns"])
    return spatial, channel, spatial * channel, -(-layer.depth // grid["sums"])


def _transfers(layer: Layer, config: Config, timing: str, grid: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Cycles of the DRAM port for one load of inputs, one of weights and one store of a byte plane."""
    port = MODELS[timing].channel(config)
    row = 0 if port.burst == 0 or port.in_flight else port.latency  # before each row of a transfer
    height, width = _input(layer, grid)
    box, pixels = height * width, grid["rows"] * grid["columns"]
    carried = grid["outs"] if layer.link == "diagonal" else grid["sums"]
    whole = (width == layer.size[1]) | (height == 1)
    rows = np.where(whole, np.where(box == layer.size[0] * layer.size[1], 1, carried), carried * height)
    inp = (rows * row + carried * box * config.inp.tile_bytes / port.beat_bytes) * layer.operands
    weights = 1 if layer.shared else layer.taps * grid["outs"] * grid["sums"]
    wgt = np.asarray(row + weights * config.wgt.tile_bytes / port.beat_bytes)
    full = (grid["columns"] == layer.out[1]) | (grid["rows"] == 1)
    rows = np.where(full, np.where(pixels == layer.out_pixels, 1, grid["outs"]), grid["outs"] * grid["rows"])
    return inp, wgt, rows * row + pixels * grid["outs"] * config.out.tile_bytes / port.beat_bytes


def _loads(layer: Layer, grid: dict[str, Array], spatial: Array, channel: Array, chunks: Array) -> tuple[Array, Array]:
    """How many loads of inputs and of weights there are: fewer where slots keep what is used again."""
    again = spatial * channel * chunks
    inputs = again
    if layer.link == "dense":
        outside = grid["channels"] == 1
        held = grid["inp"] >= np.where(outside, spatial * chunks, chunks)
        once = held | ((chunks == 1) & ~outside)
        inputs = np.where(
            once, spatial * chunks, np.maximum(again - spatial * channel * (chunks > 1), spatial * chunks)
        )
    distinct = 1 if layer.shared else channel * chunks
    stays = grid["wgt"] >= np.where(grid["channels"] == 1, chunks, distinct)
    return inputs, np.where(stays, distinct, again)


def _alu_cycles(layer: Layer, own: Intervals) -> int:
    """Cycles of the ALU on one output tile."""
    cycles = (layer.planes - 1) * own.alu_immediate
    if layer.kind == "max":
        cycles += own.alu_immediate * (1 + 2 * bool(layer.clamp)) + own.alu * layer.taps
    if layer.shifts:
        return cycles + 3 * own.alu_immediate + (own.alu_immediate if layer.kind == "add" else own.alu)
    if layer.codes:
        once = own.requantise
        if layer.codes.immediates:
            once = 3 * own.alu + 3 * own.alu_immediate
        cycles += 3 * once + own.alu if layer.kind == "add" else once
    return cycles


def _instructions(layer: Layer, grid: dict[str, Array], spatial: Array) -> Array:
    """Instructions that the sums of a chunk take, roughly: border tiles have more rectangles.

    Where a chunk has fewer outputs than a sum may be written again after, each sum is one of its own.
    """
    if layer.taps == 1:
        few = grid["rows"] * grid["columns"] * grid["outs"] < DISTANCE
        return np.where(few & (layer.kind == "sum"), grid["sums"], 1).astype(np.float64)
    rectangles = np.where(spatial == 1, 9.0, np.where(spatial == 2, 6.0, 4.0))
    return np.minimum(rectangles, layer.taps) * np.where(grid["outs"] < 3, 2.0, 1.0)
