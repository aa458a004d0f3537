"""Finds the plan of a layer: every way of cutting it that fits, by a formula; the best few by their schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.compiler.costs import Cycles
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.regions import accumulators, parameters
from tilewright.targets.vta.compiler.schedule import Schedule, Stage, schedule
from tilewright.targets.vta.compiler.slots import NO_LIMIT
from tilewright.targets.vta.compiler.tile_kernels import OVERHEAD
from tilewright.targets.vta.compiler.transfers import LARGEST
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.timing import Intervals

#: Plans whose schedules are made; the formula ranks them all.
FINALISTS = 18
#: A plan this many times as slow as the best is given up.
HOPELESS = 1.1
#: The best of them, of which the first and last group are also tried in smaller pieces.
REFINED = 4
#: Numbers of parts that an extent is cut into, and slots tried (the most first: equal cuts differ in little else).
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
INP_SLOTS, WGT_SLOTS = (4, 3, 2, 1), (16, 8, 4, 2, 1)


@lru_cache(maxsize=1024)
def best(layer: Layer, config: Config) -> tuple[Plan, Schedule] | None:
    """The plan of the lowest score, and its schedule; None where no tile fits the buffers."""
    made: list[tuple[Plan, Schedule]] = []
    limit = NO_LIMIT
    for plan in candidates(layer, config):
        if found := schedule([Stage(plan)], config, limit):
            made.append((plan, found))
            limit = min(limit, int(HOPELESS * found.cycles))
    if not made:
        return None
    made.sort(key=lambda item: score(item[1]))
    winner = made[0]
    for plan, _ in made[:REFINED]:
        for variant in _variants(plan):
            if (found := schedule([Stage(variant)], config, limit)) and score(found) < score(winner[1]):
                winner = variant, found
    return winner


def score(made: Schedule) -> int:
    """Predicted cycles, and what each instruction costs besides: of equals the shorter program is better."""
    return made.cycles + OVERHEAD * len(made.items)


def _variants(plan: Plan) -> Iterator[Plan]:
    """The first and last group in smaller pieces."""
    for head, tail in ((False, True), (True, False), (True, True)) if plan.tapers else ():
        yield replace(plan, head=head, tail=tail)


def candidates(layer: Layer, config: Config) -> list[Plan]:
    """The most promising plans that fit, each cut once."""
    grid = _grid(layer, config)
    cost = _cost(layer, config, grid)
    plans: dict[tuple[int, ...], Plan] = {}
    for i in np.argsort(cost, kind="stable"):
        cut = tuple(int(grid[name][i]) for name in ("rows", "columns", "outs", "sums", "channels"))
        if cut in plans:
            continue
        rows, columns, outs, sums, outside = cut
        inp, wgt, acc = (int(grid[name][i]) for name in ("inp", "wgt", "acc"))
        plans[cut] = Plan(layer, rows, columns, outs, sums, "channels" if outside else "space", inp, wgt, acc)
        if len(plans) == FINALISTS:
            break
    return list(plans.values())


def _cuts(total: int, limit: int = 1 << 30) -> Array:
    """Extents of the parts, largest first."""
    sizes = {-(-total // parts) for parts in PARTS if parts <= total} | {1}
    return np.array(sorted((size for size in sizes if size <= limit), reverse=True))


def _grid(layer: Layer, config: Config) -> dict[str, Array]:
    """Every combination that fits the buffers, one array a choice."""
    rows, columns = _cuts(layer.out[0]), _cuts(layer.out[1])
    outs = np.ones(1, np.int64) if layer.link == "banded" else _cuts(layer.out_tiles, config.acc.depth)
    sums = _cuts(layer.depth, config.inp.depth)
    tiles = _product(rows=rows, columns=columns)
    if not layer.matrix:  # narrow tiles only where a full row is too much: they cost a transfer a channel and row
        wide = tiles["columns"] == columns[0]
        if (wide & _fits_image(layer, config, tiles, 1, 1)).any():
            tiles = {name: values[wide] for name, values in tiles.items()}
    chunks = 1 if layer.shared else -(-layer.out_tiles // outs.min()) * -(-layer.depth // sums.min())
    wgt = np.unique([min(slots, chunks, config.wgt.depth) for slots in WGT_SLOTS])[::-1]
    choices = _product(
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
        weights <= np.minimum(config.wgt.depth // grid["wgt"], LARGEST)
    )
    fits &= layer.parameters * sets <= parameters(config)[2]
    one_tile = (grid["rows"] == layer.out[0]) & (grid["columns"] == layer.out[1])
    fits &= (grid["channels"] == 0) | ~(one_tile | (grid["outs"] == layer.out_tiles))  # else the orders are the same
    fits &= grid["inp"] + grid["wgt"] <= max(2, config.token_depth)  # no queue fills: a load is a token at most
    fits &= grid["acc"] <= config.token_depth  # and so is a store
    return {name: values[fits] for name, values in grid.items()}


def _acc_slots(config: Config) -> tuple[int, ...]:
    """No two slots share a part of acc that one unit uses at a time, and no queue fills: a slot is a token."""
    counts = (3, 2, 1) if config.stages == 3 else tuple(n for n in (8, 4, 2, 1) if config.acc_banks % n == 0)
    return tuple(n for n in counts if n <= config.token_depth)


def _product(**axes: Array) -> dict[str, Array]:
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return {name: values.reshape(-1) for name, values in zip(axes, mesh, strict=True)}


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
    acc = accumulators(config, layer) // grid.get("acc", np.ones(1, np.int64))
    fits: Array = (height * width * carried * layer.operands <= inp) & (held * outs <= acc)
    return fits


def _cost(layer: Layer, config: Config, grid: dict[str, Array]) -> Array:
    """Predicted cycles of each candidate."""
    cycles = Cycles(config)
    timing, latency, bus = cycles.timing, config.dram_latency, config.bus_bits // 8
    own = cycles.intervals
    height, width = _input(layer, grid)
    spatial = -(-layer.out[0] // grid["rows"]) * -(-layer.out[1] // grid["columns"])
    channel = -(-layer.out_tiles // grid["outs"])
    chunks = -(-layer.depth // grid["sums"])
    groups, tiles = spatial * channel, grid["rows"] * grid["columns"] * grid["outs"]
    carried = grid["outs"] if layer.link == "diagonal" else grid["sums"]
    # Loads.
    box = height * width
    whole = (width == layer.size[1]) | (height == 1)
    rows = np.where(whole, np.where(box == layer.size[0] * layer.size[1], 1, carried), carried * height)
    inp_load = timing.dispatch + rows * latency + carried * box * config.inp.tile_bytes / bus
    inp_load = inp_load * layer.operands
    again = groups * chunks
    if layer.link == "dense":
        held = np.where(grid["channels"] == 0, grid["inp"] >= chunks, grid["inp"] >= spatial * chunks)
        kept = np.where(chunks == 1, 1.0, 0.0) * (grid["channels"] == 0)
        once = held | (kept > 0)
        inp_loads = np.where(once, spatial * chunks, np.maximum(again - groups * (chunks > 1), spatial * chunks))
    else:
        inp_loads = again
    one = 1 if layer.shared else layer.taps * grid["outs"] * grid["sums"]
    wgt_load = timing.dispatch + latency + one * config.wgt.tile_bytes / bus
    distinct = 1 if layer.shared else channel * chunks
    stays = np.where(grid["channels"] == 1, grid["wgt"] >= chunks, grid["wgt"] >= distinct)
    wgt_loads = np.where(stays, distinct, again)
    load = inp_loads * inp_load + wgt_loads * wgt_load
    # Compute.
    instructions = _instructions(layer, grid, spatial) * chunks
    macs = layer.gemm_uops() if layer.kind in ("sum", "repeat") else layer.in_tiles * layer.size[0] * layer.size[1]
    clears, operates = layer.operands, _alu_cycles(layer, own)
    outputs = layer.out_pixels * layer.out_tiles
    units = ((macs * layer.operands + outputs * clears) * own.gemm, outputs * operates)
    compute = sum(units) if config.stages == 3 else max(units)
    compute = compute + groups * (instructions + layer.planes) * OVERHEAD
    # Stores.
    full = (grid["columns"] == layer.out[1]) | (grid["rows"] == 1)
    pixels = grid["rows"] * grid["columns"]
    out_rows = np.where(full, np.where(pixels == layer.out_pixels, 1, grid["outs"]), grid["outs"] * grid["rows"])
    store_one = timing.dispatch + (out_rows + 1) * latency + tiles * config.out.tile_bytes / bus
    store = groups * layer.planes * store_one
    # Together: the longest of the three, with what stands alone before and behind it.
    first, chunk = inp_load + wgt_load, compute / (groups * chunks)
    shift = own.alu_immediate * tiles + timing.dispatch
    last = layer.planes * store_one + (layer.planes - 1) * shift
    load_bound = load + chunk + last
    compute_bound = compute + first + last
    store_bound = store + first + compute / groups + (layer.planes - 1) * shift
    total = np.maximum(np.maximum(load_bound, compute_bound), store_bound)
    alone = (grid["inp"] == 1) & (inp_loads > 1)
    total = np.where(alone, np.maximum(compute + inp_loads * inp_load + last, total), total)
    wait = np.where(grid["acc"] == 1, store_one, np.maximum(0, store_one - compute / groups / max(1, layer.planes)))
    total += np.where(grid["acc"] <= 2, (groups - 1) * layer.planes * wait * 0.5, 0.0)
    return np.asarray(total, np.float64)


def _alu_cycles(layer: Layer, own: Intervals) -> int:
    """Cycles of the ALU on one output tile."""
    cycles = (layer.planes - 1) * own.alu_immediate
    if layer.kind == "max":
        cycles += own.alu_immediate * (1 + 2 * bool(layer.clamp)) + own.alu * layer.taps
    if layer.shifts:
        return cycles + 3 * own.alu_immediate + own.alu
    if layer.codes:
        once = own.requantise
        if layer.codes.immediates:
            once = 3 * own.alu + 3 * own.alu_immediate
        cycles += 3 * once + own.alu if layer.kind == "add" else once
    return cycles


def _instructions(layer: Layer, grid: dict[str, Array], spatial: Array) -> Array:
    """Instructions that the sums of a chunk take, roughly: border tiles have more rectangles."""
    if layer.taps == 1:
        return np.ones_like(spatial, np.float64)
    rectangles = np.where(spatial == 1, 9.0, np.where(spatial == 2, 6.0, 4.0))
    return np.minimum(rectangles, layer.taps) * np.where(grid["outs"] < 3, 2.0, 1.0)
