"""Finds the plan of a layer: every way of cutting it by a bound, the best few by the machine's own time pass.

The bound, what a layer takes at least, is a formula over arrays of choices: all cuts that fit the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.array import Array
from tilewright.schedule import combinations, extents, finalists
from tilewright.sim.order import order
from tilewright.sim.steps import Footprints, StepTable, Trace
from tilewright.targets.vta.compiler.emit import Draft, alone
from tilewright.targets.vta.compiler.kernels import DISTANCE, OVERHEAD, Step
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer
from tilewright.targets.vta.compiler.plan import Plan, accumulator_tiles, parameter_memory
from tilewright.targets.vta.compiler.sequence import sampled
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import SEMANTICS, AluOp
from tilewright.targets.vta.isa.fields import REGIONS
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FIELDS, Kernels
from tilewright.targets.vta.steps.moves import moves
from tilewright.targets.vta.timing import MODELS, Intervals

CHOICES = ("rows", "columns", "outs", "sums", "channels", "inp", "wgt", "acc")
#: Instructions of the plans that are timed, and of the best of them with its first and last group in smaller pieces.
EFFORT, REFINING = 1000, 600
#: Plans that are timed, however long.
LEAST = 7
#: Cycles that a chunk and a group are taken to cost besides, to say which plans are timed first: units wait for units.
HANDOVER = 40
#: The best plans that are so refined.
REFINED = 2
#: What another plan must be able to gain, as a part of the best.
WORTH = 0.001
#: Groups that are timed at the end of a layer, and twice as many at its beginning.
FEW = 3
#: Slots tried, the most first: equal cuts differ in little else.
INP_SLOTS, WGT_SLOTS = (4, 3, 2, 1), (64, 32, 16, 8, 4, 2, 1)
#: Footprints say where data are, which times do not depend on.
NOWHERE = Footprints.of(())


def best(layer: Layer, config: Config, timing: str) -> Plan | None:
    """The plan of the lowest score under a timing model; None where no tile fits the buffers."""
    return next(iter(ranked(layer, config, timing)), None)


def ranked(layer: Layer, config: Config, timing: str) -> tuple[Plan, ...]:
    """The plans that were timed, the lowest score first."""
    return tuple(replace(plan, layer=layer) for plan in _ranked(layer.canonical, config, timing))


@lru_cache(maxsize=1024)
def _ranked(layer: Layer, config: Config, timing: str) -> tuple[Plan, ...]:
    made = finalists(_candidates(layer, config, timing), lambda plan: score(plan, config, timing), EFFORT, WORTH, LEAST)
    variants = [(0.0, variant) for _, plan in made[:REFINED] for variant in _variants(plan)]
    made += finalists(variants, lambda plan: score(plan, config, timing), REFINING)
    return tuple(plan for _, plan in sorted(made, key=lambda item: item[0]))


def score(plan: Plan, config: Config, timing: str) -> tuple[float, int]:
    """Cycles, with what each instruction costs besides (of equals the shorter program is better), and instructions.

    Of many equal groups only the first and the last are timed.
    """
    groups = tuple(plan.groups())
    first, last = (plan.period * max(least, -(-FEW * least // plan.period)) for least in (2, 1))
    left_out = max(0, len(groups) - first - last)
    if left_out < first + last:
        first, last, left_out = len(groups), 0, 0
    walk = sampled(plan, groups[:first] + groups[len(groups) - last :], config, timing)
    made = alone(plan, walk, config)
    known = trace_of(made, config, timing)
    ends = np.cumsum(made.instructions)  # of items
    cycles = known.cycles + OVERHEAD * int(ends[-1])
    if left_out:  # each like the last of the first ones
        turn = first // plan.period // 2 * plan.period
        begin, end = (made.listing.work.index(walk.stores[group]) for group in (first - 1 - turn, first - 1))
        spent = known.end[np.searchsorted(made.item, end)] - known.end[np.searchsorted(made.item, begin)]
        cycles += left_out * (spent + OVERHEAD * (ends[end] - ends[begin])) / turn
    return cycles, len(made.item)


def _variants(plan: Plan) -> Iterator[Plan]:
    """The first and last group in smaller pieces."""
    for head, tail in ((False, True), (True, False), (True, True)) if plan.tapers else ():
        yield replace(plan, head=head, tail=tail)


def _candidates(layer: Layer, config: Config, timing: str) -> Iterator[tuple[float, Plan]]:
    """Plans that fit and their bounds, the most promising first; each cut once, with its best order and slots."""
    grid = _choices(layer, config)
    bounds = _bounds(layer, config, timing, grid)
    seen: set[tuple[int, ...]] = set()
    for i in np.argsort(bounds + HANDOVER * _handovers(layer, grid), kind="stable").tolist():
        rows, columns, outs, sums, outside, inp, wgt, acc = (int(grid[name][i]) for name in CHOICES)
        if (cut := (rows, columns, outs, sums)) not in seen:
            seen.add(cut)
            plan = Plan(layer, rows, columns, outs, sums, "channels" if outside else "space", inp, wgt, acc)
            yield float(bounds[i]), plan


def _choices(layer: Layer, config: Config) -> dict[str, Array]:
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
    every = combinations(
        tile=np.arange(len(tiles["rows"])),
        outs=outs,
        sums=sums,
        channels=np.array([0, 1]),
        inp=np.array([n for n in INP_SLOTS if n <= config.inp.depth]),
        wgt=wgt,
        acc=np.array([n for n in _acc_slots(config) if n <= config.acc.depth]),
    )
    grid = {name: values[every["tile"]] for name, values in tiles.items()} | every
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


def _bounds(layer: Layer, config: Config, timing: str, grid: dict[str, Array]) -> Array:
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


def _handovers(layer: Layer, grid: dict[str, Array]) -> Array:
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


def trace_of(draft: Draft, config: Config, model: str) -> Trace:
    """The trace of a draft under timing model `model`. Raises HazardError where a queue fills for good."""
    stream, line = decode(draft.built.code, config), config.pipeline
    pops, pushes = line.tokens(stream)
    kernel, kernels = draft.step, _kernels(draft.steps, config)
    table = StepTable(
        units=line.units,
        queues=line.queues(config.token_depth),
        spaces=(),
        unit=draft.built.unit,
        pops=pops,
        pushes=pushes,
        footprint=np.zeros(len(stream), np.int64),
        footprints=NOWHERE,
    )
    moved = moves(stream, config, dict.fromkeys(REGIONS, 0))
    micro_ops = np.append(kernels.micro_ops, 0)[kernel]
    program = Elaborated(config, stream, table, kernel, kernels, micro_ops, moved, ())
    return MODELS[model].trace(program, order(table))


def _kernels(steps: Sequence[Step], config: Config) -> Kernels:
    """Steps as the machine knows them, relative to their slots."""
    fields = np.array(list(map(_fields, steps)), np.int64).reshape(-1, len(FIELDS))
    lists = [np.stack([step.kernel.dst, step.kernel.src, step.kernel.wgt], axis=1) for step in steps]
    return Kernels(fields, lists, SEMANTICS[config.semantics])


def _fields(step: Step) -> tuple[int, ...]:
    """FIELDS of a step."""
    outer, inner = step.kernel.outer, step.kernel.inner
    if step.kernel.joined:
        return (
            int(step.op is not None),
            0,
            1,
            step.kernel.joined,
            1,
            *[0] * 6,
            int(step.op or 0),
            int(step.imm is not None),
            0,
            0,
        )
    loops = (outer.extent, inner.extent, outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
    imm = step.factor if step.op == AluOp.REQ else step.imm
    code = int(step.reset) if step.op is None else int(step.op)
    operand = (int(step.imm is not None), imm or 0, int((imm or 0) < 0))
    return (int(step.op is not None), 0, len(step.kernel.dst), *loops, code, *operand)
