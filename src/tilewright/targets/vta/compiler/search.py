"""Find the plan of a layer: rank all plans by a lower bound, then time the best few with the simulator's time pass.

The lower bound of the cycles is a formula over arrays, which have an entry for each candidate plan that fits the
buffers. A large layer has tens of thousands of candidates, so no Python loop runs over candidates. The simulator needs
milliseconds for a plan. Candidates are timed by ascending bound, until no bound is below the best time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array, ascending
from tilewright.schedule import combinations, extents, finalists
from tilewright.targets.vta.compiler.epilogue import residual_steps
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, NARROW, Layer
from tilewright.targets.vta.compiler.plan import Plan, accumulator_tiles, parameter_room
from tilewright.targets.vta.compiler.scores import fine, kept_on_disk, overhead, score
from tilewright.targets.vta.compiler.work import Costs, costs_of
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import WRITE_BACK
from tilewright.targets.vta.schedule import Halvings, Slots, Tile
from tilewright.targets.vta.timing import Intervals

CUT = ("rows", "columns", "outs", "sums")
CHOICES = (*CUT, "channels", "inp", "wgt", "acc")
#: Budgets of instructions to time: for plans, and for variants of the best plans with a halved first or last group.
EFFORT = 1000
REFINING = 600
#: EFFORT, REFINING and REFINED for small layers with several byte planes (scores.fine).
FINE_EFFORT = 4000
FINE_REFINING = 3000
FINE_REFINED = 6
#: Bounds of layers stored by group are multiplied by this: they assume whole groups, and pieces are stored earlier.
SLACK = 0.75
#: Plans that are timed even if they exceed the budget.
LEAST = 4
#: Assumed cycles per chunk and group in which units wait for each other. They only affect the order of timing plans.
HANDOVER = 40
FINE_HANDOVER = 10
#: Number of best plans whose variants are timed.
REFINED = 2
#: How often variants halve the first and the last group. The store of the last group's byte planes takes many cycles.
CUTS = ((0, 2), (2, 0), (2, 2))
FINE_CUTS = ((0, 2), (0, 3), (2, 0), (2, 2), (2, 3), (3, 3))
#: A plan is only timed if its bound is below the best score by at least this fraction.
WORTH = 0.001
#: Numbers of slots to try. The largest comes first, because the first of several candidates with equal bounds is used.
INP_SLOTS = (4, 3, 2, 1)
WGT_SLOTS = (64, 32, 16, 8, 4, 2, 1)
ACC_BANKED_SLOTS = (8, 4, 2, 1)
#: Only small layers with several byte planes try ACC_SLOTS[0].
ACC_SLOTS: tuple[int, ...] = (4, 3, 2, 1)
#: More slots of inp for small layers with several byte planes, so that all inputs of small groups are on chip.
MORE_SLOTS = (16, 8)


def best_plan(layer: Layer, config: Config, timing: str) -> Plan | None:
    """Return the plan of a layer with the lowest score under a timing model; None if no tile fits the buffers."""
    return next(iter(ranked_plans(layer, config, timing)), None)


def least(layer: Layer, config: Config, timing: str) -> float:
    """Return the lowest bound of the scores of a layer's plans under a timing model; infinity if no tile fits."""
    return _least(layer.canonical, config, timing)


@lru_cache(maxsize=1024)
@kept_on_disk
def _least(layer: Layer, config: Config, timing: str) -> float:
    return float(_bounded(layer, config, timing)[1].min(initial=np.inf))


def ranked_plans(layer: Layer, config: Config, timing: str) -> tuple[Plan, ...]:
    return tuple(Plan.of(layer, saved) for saved in _ranked(layer.canonical, config, timing))


@lru_cache(maxsize=1024)
@kept_on_disk
def _ranked(layer: Layer, config: Config, timing: str) -> list[list[Any]]:
    """Time the best plans of a layer, and variants of these. Return plans as Plan.to_json, lowest score first."""
    longer = FINE_EFFORT, FINE_REFINING, FINE_REFINED
    effort, refining, refined = longer if fine(layer) else (EFFORT, REFINING, REFINED)
    timed = finalists(
        _candidates(layer, config, timing), lambda plan: score(plan, config, timing), effort, WORTH, LEAST
    )
    cuts = FINE_CUTS if fine(layer) else CUTS
    # Halved first and last groups shorten the time in which only one unit works. Only the best plans are worth the try.
    tapering = [plan for _, plan in timed[:refined] if plan.tapers]
    variants = [(0.0, replace(plan, halvings=Halvings(*often))) for plan in tapering for often in cuts]
    timed += finalists(variants, lambda plan: score(plan, config, timing), refining)
    return [plan.to_json() for _, plan in sorted(timed, key=lambda item: item[0])]


def _candidates(layer: Layer, config: Config, timing: str) -> Iterator[tuple[float, Plan]]:
    """Yield (lower bound, plan) for each cut that fits, lowest bound first, with the best loop order and slots."""
    grid, bounds = _bounded(layer, config, timing)
    if not len(bounds):
        return
    _, _, groups, chunks = _counts(layer, grid)
    # If plans only differ in slots (or, for most layers, in loop order), only the plan with the lowest bound is timed,
    # because the bound orders such plans well enough.
    waiting = (FINE_HANDOVER if fine(layer) else HANDOVER) * groups * (chunks + 1)
    turn = np.argsort(bounds + waiting, kind="stable")
    # Give each cut one number, so that np.unique finds the first (best) candidate of each cut.
    cuts = np.ravel_multi_index(
        [grid[name][turn] for name in CUT] + [grid["channels"][turn] * fine(layer)],
        [int(grid[name].max()) + 1 for name in CUT] + [2],
    )
    for i in turn[np.sort(np.unique(cuts, return_index=True)[1])].tolist():
        rows, columns, outs, sums, outside, inp, wgt, acc = (int(grid[name][i]) for name in CHOICES)
        tile = Tile(rows, columns, outs, sums)
        bound = float(bounds[i]) * (SLACK if layer.by_group else 1)
        yield bound, Plan(layer, tile, "channels" if outside else "space", Slots(inp, wgt, acc))


@lru_cache(maxsize=16)
def _bounded(layer: Layer, config: Config, timing: str) -> tuple[dict[str, Array], Array]:
    """Return all candidate plans that fit the buffers (see _choices), and the lower bounds of their scores."""
    grid = _choices(layer, config)
    return grid, _bounds(layer, config, timing, grid)


def _choices(layer: Layer, config: Config) -> dict[str, Array]:
    """Return all candidate plans that fit the buffers: an array for each name in CHOICES, an entry per candidate."""
    rows, columns = extents(layer.out[0]), extents(layer.out[1])
    outs = np.ones(1, np.int64) if layer.link == "banded" else extents(layer.out_tiles, config.acc.depth)
    sums = extents(layer.depth, config.inp.depth)
    tiles = combinations(rows=rows, columns=columns)
    # If tiles with full rows fit, narrower tiles are not tried: they need a transfer for each channel tile and row.
    if not layer.matrix:
        wide = tiles["columns"] == columns[0]
        if (wide & _fits_image(layer, config, tiles, 1, 1)).any():
            tiles = {name: values[wide] for name, values in tiles.items()}
    chunks = 1 if layer.shared else -(-layer.out_tiles // outs.min()) * -(-layer.depth // sums.min())
    wgt = ascending(np.array([min(slots, chunks, config.wgt.depth) for slots in WGT_SLOTS]))[::-1]
    cuts = combinations(tile=np.arange(len(tiles["rows"])), outs=outs, sums=sums)
    cuts = {name: values[cuts["tile"]] for name, values in tiles.items()} | {name: cuts[name] for name in CUT[2:]}
    acc_slots = ACC_SLOTS if fine(layer) else ACC_SLOTS[1:]
    if config.stages == 4:  # no two slots share a bank
        acc_slots = tuple(n for n in ACC_BANKED_SLOTS if config.acc_banks % n == 0)
    fits = _fits(layer, config, cuts)  # with one slot in each memory
    # First drop tiles that do not even fit with one slot in each memory, because there are many combinations of slots.
    every = combinations(
        cut=np.flatnonzero(fits),
        channels=np.array([0, 1]),
        inp=np.array([n for n in MORE_SLOTS * fine(layer) + INP_SLOTS if n <= config.inp.depth]),
        wgt=wgt,
        acc=np.array([n for n in acc_slots if n <= config.acc.depth]),
    )
    grid = {name: values[every["cut"]] for name, values in cuts.items()} | {name: every[name] for name in CHOICES[4:]}
    fits = _fits(layer, config, grid)
    single_tile = (grid["rows"] == layer.out[0]) & (grid["columns"] == layer.out[1])
    # With one image tile or one range of channels, both loop orders are the same.
    fits &= (grid["channels"] == 0) | ~(single_tile | (grid["outs"] == layer.out_tiles))
    fits &= grid["inp"] + grid["wgt"] <= max(2, config.token_depth)  # no queue fills: a load pushes at most one token
    fits &= grid["acc"] <= config.token_depth  # a store pushes at most one token, too
    return {name: values[fits] for name, values in grid.items()}


def _fits(layer: Layer, config: Config, grid: dict[str, Array]) -> Array:
    """Return whether the slots of each candidate fit the memories: bool, an entry per candidate.

    The formulas are the rules of legal.py. A memory whose number of slots is not in `grid` has one slot.
    """
    outs = grid["outs"]
    sums = grid["sums"]
    weights = outs * sums * layer.taps if not layer.shared else np.ones_like(outs)
    sets = 1 if layer.kind == "add" else outs
    room = (config.wgt.depth - layer.more_weights) // grid.get("wgt", np.ones(1, np.int64))
    fits: Array = _fits_image(layer, config, grid, outs if layer.link == "diagonal" else sums, outs)
    return (
        fits & (weights <= np.minimum(room, LARGEST_SIZE)) & (layer.parameters * sets <= parameter_room(config).tiles)
    )


def _input(layer: Layer, grid: dict[str, Array]) -> tuple[Array, Array]:
    """Return, for each candidate in `grid`, the maximum rows and columns of inputs that a tile reads."""
    extents = []
    for axis, sums in enumerate(_sums(layer, grid)):
        w = layer.window
        span = (sums - 1) * w.stride[axis] + (w.kernel[axis] - 1) * w.dilation[axis] + 1
        span = (span + layer.repeat[axis] - 2) // layer.repeat[axis] + 1
        extents.append(np.minimum(layer.size[axis], span))
    return extents[0], extents[1]


def _sums(layer: Layer, grid: dict[str, Array]) -> tuple[Array, Array]:
    """Return, for each candidate in `grid`, the maximum rows and columns of sums in a tile."""
    if layer.pool is None:
        return grid["rows"], grid["columns"]
    kernel = layer.pool.kernel
    stride = layer.pool.stride
    both = [(grid[name] - 1) * stride[axis] + kernel[axis] for axis, name in enumerate(("rows", "columns"))]
    keeps = _keeps(layer, grid)
    rows = np.where(keeps & (grid["rows"] < layer.out[0]), both[0] - max(0, kernel[0] - stride[0]), both[0])
    if layer.pool.padding[0] == 0:  # the first tile has no tile above, so it computes all its rows
        rows = np.where(keeps, both[0], rows)
    return np.minimum(layer.grid[0], rows), np.minimum(layer.grid[1], both[1])


def _keeps(layer: Layer, grid: dict[str, Array]) -> Array:
    """Return Plan.keeps for each candidate; if slots are not chosen yet, whether Plan.keeps is possible."""
    assert layer.pool
    shares = layer.pool.kernel[0] > layer.pool.stride[0]
    if "acc" not in grid:
        return np.full(len(grid["rows"]), shares)
    kept: Array = shares & (grid["acc"] > 1) & ((grid["channels"] == 1) | (grid["outs"] >= layer.out_tiles))
    return kept


def _repetition(layer: Layer, grid: dict[str, Array]) -> Array | float:
    """Return how often each candidate computes a sum on average: above 1 if tiles of a pool share sums."""
    if layer.pool is None:
        return 1.0
    # Tiles side by side both compute the sums that their windows share, unless rows of sums are kept.
    shared = [max(0, kernel - stride) for kernel, stride in zip(layer.pool.kernel, layer.pool.stride, strict=True)]
    rows, columns = (-(-layer.out[axis] // grid[name]) - 1 for axis, name in enumerate(("rows", "columns")))
    down = np.where(_keeps(layer, grid), 0, rows) * shared[0] / layer.grid[0]
    repetition: Array = (1 + down) * (1 + columns * shared[1] / layer.grid[1])
    return repetition


def _fits_image(layer: Layer, config: Config, grid: dict[str, Array], carried: Array | int, outs: Array | int) -> Array:
    height, width = _input(layer, grid)
    rows, columns = _sums(layer, grid)
    pixels = rows * columns
    # Accumulators: the results, both operands of an addition that multiplies, and the codes of a maximum pool.
    held = pixels * (1 if layer.shifts else layer.operands) + (height * width if layer.kind == "max" else 0)
    added = pixels * outs if layer.residual is not None else int(layer.narrow > 0)
    inp = (config.inp.depth - added) // grid.get("inp", np.ones(1, np.int64))
    acc = accumulator_tiles(config, layer) // grid.get("acc", np.ones(1, np.int64))
    acc = acc - (layer.parameters * outs if parameter_room(config).in_slots else 0)
    fits: Array = (height * width * carried * layer.operands <= inp) & (held * outs <= acc)
    return fits


def _bounds(layer: Layer, config: Config, timing: str, grid: dict[str, Array]) -> Array:
    """Return a lower bound of each candidate's score: cycles under a timing model, plus OVERHEAD per instruction.

    Loads, sums and stores overlap. So the bound is the largest of the three times, plus the time at the start and at
    the end in which only one of the three runs.
    """
    costs = costs_of(config, timing)
    intervals = costs.intervals
    spatial, channel, groups, chunks = _counts(layer, grid)
    tiles = grid["rows"] * grid["columns"] * grid["outs"]
    inp, wgt, out, residual = _transfers(layer, config, costs, grid)
    inp_loads, wgt_loads = _loads(layer, grid, spatial, channel, chunks)
    load = inp_loads * inp + wgt_loads * wgt
    narrow = layer.narrow / layer.out_tiles
    store = groups * layer.stored_planes * out
    if layer.residual is not None:
        load = load + groups * residual
    added = residual_steps(layer.residual, 1) if layer.residual else ()
    instructions = groups * (_instructions(layer, grid, spatial) * chunks + layer.planes + len(added))
    # Additions and maximum pools copy each input tile with one micro-op.
    macs = layer.gemm_uops() if layer.kind in ("sum", "repeat") else layer.in_tiles * layer.size[0] * layer.size[1]
    outputs = layer.out_pixels * layer.out_tiles
    repetition = _repetition(layer, grid)
    cleared = (
        outputs * (1 if layer.shifts else layer.operands) if layer.pool is None else prod(layer.sums) * layer.out_tiles
    )
    cleared = cleared * (layer.start == "zero" and not layer.carries) + outputs * bool(added)
    gemm = (macs * layer.operands + cleared + outputs * narrow) * intervals.gemm * repetition
    alu = outputs * (_alu_cycles(layer, intervals) + len(added[1:]) * intervals.alu_immediate)
    alone = config.stages == 3  # one unit runs GEMM and ALU alternately
    if layer.pool:  # the next group reads shared sums before the slot is free
        alone = alone | (_keeps(layer, grid) & (grid["acc"] == 2))
    compute = np.where(alone, gemm + alu, np.maximum(gemm, alu)) + instructions * costs.instruction
    # The first loads and the last stores overlap with no other work.
    first = inp + wgt + costs.latency
    last = layer.planes * out + (layer.planes - 1) * intervals.alu_immediate * tiles + costs.latency
    # If several groups use the same data, only the last of these groups can hide the loads of new data.
    group = compute / groups
    outside = grid["channels"] == 1
    exposed = np.where(
        outside,
        (channel - 1) * np.maximum(0, (2 * chunks - grid["wgt"]) * wgt - group) * (grid["wgt"] >= chunks),
        (spatial - 1) * np.maximum(0, (2 * chunks - grid["inp"]) * inp - group) * (grid["inp"] >= chunks),
    )
    # One bound for each resource: DRAM port, compute units, stores, and memories with one slot (without overlap).
    total = np.maximum(load + compute / (groups * chunks) + last, compute + first + last + exposed)
    total = np.maximum(total, first + compute / groups + store)
    total = np.where((grid["inp"] == 1) & (inp_loads > 1), np.maximum(total, compute + inp_loads * inp + last), total)
    total = np.where(grid["acc"] == 1, np.maximum(total, first + compute + store), total)
    return np.asarray(total + overhead(layer) * instructions, np.float64)


def _counts(layer: Layer, grid: dict[str, Array]) -> tuple[Array, Array, Array, Array]:
    """Return four counts per candidate: image tiles, output channel ranges, groups, and chunks per group."""
    channel = -(-layer.out_tiles // grid["outs"])
    spatial = -(-layer.out[0] // grid["rows"]) * -(-layer.out[1] // grid["columns"])
    return spatial, channel, spatial * channel, -(-layer.depth // grid["sums"])


def _transfers(layer: Layer, config: Config, costs: Costs, grid: dict[str, Array]) -> tuple[Array, ...]:
    """Return each candidate's DRAM port cycles for loads of inputs and of weights, a store, and a load of a residual.

    A store writes a byte plane. A residual has the layout of a result.
    """
    row = costs.row
    load = costs.handover.load
    beat = costs.beat
    height, width = _input(layer, grid)
    box = height * width
    pixels = grid["rows"] * grid["columns"]
    carried = grid["outs"] if layer.link == "diagonal" else grid["sums"]
    # A transfer has one row if its pixels are consecutive in DRAM: a box of whole image rows, or a single row.
    whole = (width == layer.size[1]) | (height == 1)
    rows = np.where(whole, np.where(box == layer.size[0] * layer.size[1], 1, carried), carried * height)
    inp = (load + rows * row + carried * box * config.inp.tile_bytes / beat) * layer.operands
    weights = 1 if layer.shared else layer.taps * grid["outs"] * grid["sums"]
    wgt = np.asarray(load + row + weights * config.wgt.tile_bytes / beat)
    full = (grid["columns"] == layer.out[1]) | (grid["rows"] == 1)
    rows = np.where(full, np.where(pixels == layer.out_pixels, 1, grid["outs"]), grid["outs"] * grid["rows"])
    rows = np.ones_like(rows) if layer.by_group else rows
    results = pixels * grid["outs"] * config.out.tile_bytes
    return inp, wgt, rows * costs.store_row + results * costs.store_byte, load + rows * row + results / beat


def _loads(layer: Layer, grid: dict[str, Array], spatial: Array, channel: Array, chunks: Array) -> tuple[Array, Array]:
    """Return each candidate's input loads and weight loads. Data that stay in a slot are not loaded again."""
    most = spatial * channel * chunks
    inputs = most
    if layer.link == "dense":
        outside = grid["channels"] == 1
        held = grid["inp"] >= np.where(outside, spatial * chunks, chunks)
        once = held | ((chunks == 1) & ~outside)
        inputs = np.where(once, spatial * chunks, np.maximum(most - spatial * channel * (chunks > 1), spatial * chunks))
    # Weights stay in their slots if the slots can hold all chunks that are used until the same chunk is used again.
    distinct = 1 if layer.shared else channel * chunks
    stays = grid["wgt"] >= np.where(grid["channels"] == 1, chunks, distinct)
    return inputs, np.where(stays, distinct, most)


def _alu_cycles(layer: Layer, intervals: Intervals) -> int:
    # The number of steps of epilogue.py for each kind of second operand.
    cycles = (layer.planes - 1) * intervals.alu_immediate
    more = layer.narrow * (2 + NARROW - layer.planes)  # two steps clamp, and shifts are missing
    cycles += int(more * intervals.alu_immediate / layer.out_tiles)
    cycles += int(layer.paired * intervals.alu * (1 - layer.narrow / layer.out_tiles) / 2)
    if layer.kind == "max":
        cycles += intervals.alu_immediate * (1 + 2 * bool(layer.clamp)) + intervals.alu * layer.taps
    if layer.pool:
        tall, wide = layer.pool.kernel
        columns = layer.grid[1] / layer.out[1]
        cycles += int(intervals.alu * ((tall - 1) * columns + wide - 1))
        if layer.start != "zero":
            sums = prod(layer.grid) / layer.out_pixels
            once = intervals.alu_immediate if layer.start == "constant" else intervals.alu
            cycles += int(sums * (intervals.alu_immediate + once) - once)
    if layer.shifts:
        cycles += intervals.alu_immediate * (layer.start == "constant")
        return (
            cycles + 3 * intervals.alu_immediate + (intervals.alu_immediate if layer.kind == "add" else intervals.alu)
        )
    if layer.start == "constant":
        cycles += intervals.alu_immediate
    if layer.requantisation:
        once = intervals.requantise
        if layer.requantisation.immediates:
            once = 3 * intervals.alu + 3 * intervals.alu_immediate
        cycles += 3 * once + intervals.alu if layer.kind == "add" else once
    return cycles


def _instructions(layer: Layer, grid: dict[str, Array], spatial: Array) -> Array:
    """Estimate each candidate's number of GEMM instructions per chunk; tiles at the image border need more."""
    if layer.taps == 1:
        # With too few outputs between two writes of a tile, each input channel tile needs a separate instruction.
        few = grid["rows"] * grid["columns"] * grid["outs"] < WRITE_BACK
        return np.where(few & (layer.kind == "sum"), grid["sums"], 1).astype(np.float64)
    # Taps that are valid for different outputs need separate instructions: a 3x3 window on a whole image has 9 sets.
    rectangles = np.where(spatial == 1, 9.0, np.where(spatial == 2, 6.0, 4.0))
    return np.minimum(rectangles, layer.taps) * np.where(grid["outs"] < 3, 2.0, 1.0)
