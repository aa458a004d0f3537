"""The block walk of a launch as text: the blocks that GEMM instructions multiply, and the LOADs of these blocks.

Blocks are tiles, numbered from 1 in the order of their DRAM buffer. `a x b + c` is input block a times weight block b,
added to block c of the bias, or of the output if no bias is loaded. `-` is no block: padding, or never loaded.

The outer walk has one line for each block c, also if virtual threads take turns with several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram
from tilewright.program.program import Launch
from tilewright.program.stages import Stage
from tilewright.sim.order import order
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.steps.elaborate import Elaborated, elaborate
from tilewright.targets.vta.steps.moves import Move

#: Maximum lines of a table, lines of a short table, and entries of a line. A longer list is cut in the middle.
LINES = 9
SHORT = 4
ENTRIES = 6
OPERANDS = (Memory.INP, Memory.WGT, Memory.ACC)
#: The number that means "no block".
NOWHERE = -1

#: The blocks of an entry: input, weight, bias or output. Blocks have numbers from 1; 0 means no block.
Entry = tuple[int, int, int]


class BlockWalk(NamedTuple):
    """The block walk of a launch: the blocks (see the module) that accumulating GEMM instructions multiply and add."""

    gemms: list[int]  # the indices of these instructions, in execution order
    first: int  # the number of instructions at the start that use the same LOADs
    blocks: Array  # int64 [micro-ops, 3]: the blocks of these first instructions
    outer: Array  # int64 [gemms, 3]: by operand, the LOAD (or STORE) of a GEMM's first micro-op, by DRAM address
    biased: bool  # whether some sums start from a loaded bias


def walk(launch: Launch, config: Config, short: bool = False, layer: int | None = None) -> list[Stage]:
    """Return the block walk of a launch (or of its layer number `layer`); [] if nothing is multiplied.

    The first two stages are the inner and the outer walk. The rows of the first transfer of each memory follow. With
    `short`, the tables have few lines and the rows are left out.
    """
    image = image_of(launch)
    dram = image.dram({}, 1)
    program = elaborate(decode(image.insns, config), config, dram, image.bases)
    relation = order(program.table)
    # A program that deadlocks is shown in stream order.
    steps = relation.sequence if relation.complete else np.arange(len(program.table))
    mine = np.ones(len(steps), np.bool_) if layer is None else launch.arrays["layer"] == layer
    traced = _trace(program, dram, steps.tolist(), mine.tolist())
    if not traced.gemms:
        return []
    most = SHORT if short else LINES
    first, last = traced.gemms[0], traced.gemms[traced.first - 1]
    which = f"#{first} {program.table.describe(first)}" if first == last else f"#{first}..#{last}, {traced.first} gemm"
    sums = "bias" if traced.biased else "output"
    transfers = f"{len(traced.gemms)} gemm: transfers of input x weight + {sums}, by dram_base"
    stages = [
        Stage(f"inner walk, {which}: input x weight + {sums} block", _table(_by_operand(traced.blocks), most)),
        Stage(f"outer walk, {transfers}", _table(_by_sum(traced.outer), most)),
    ]
    if short:
        return stages
    moves = [program.moves.as_list[step] for step in steps[mine[steps]]]
    firsts = {move.memory: move for move in reversed(moves) if move.row_bytes}
    shown = [firsts[memory] for memory in (*OPERANDS, Memory.OUT) if memory in firsts]
    return [*stages, *(_rows(move, config, dram) for move in shown)]


def memory_map(config: Config) -> Stage:
    """Return the shape of each on-chip memory in bus words (bits per word x tiles x words per tile)."""
    rows = []
    extensions = [config.sram(memory) for memory in (Memory.ALU_UOP, Memory.PAR) if memory in config.memories]
    for chip in (config.inp, config.wgt, config.acc, config.out, config.uop, *extensions):
        bits = chip.tile_bytes * 8
        width = min(bits, config.bus_bits)
        words = max(1, bits // config.bus_bits)  # a narrower tile is one word
        shape = f"{width} x {chip.depth}" + (f" x {words}" if words > 1 else "")
        rows.append(f"{chip.name}  {shape} bit")
    bus = f"on-chip memories in words of the {config.bus_bits}-bit bus"
    return Stage(f"{bus}: bits per word x tiles x words per tile", rows)


def _trace(program: Elaborated, dram: Dram, steps: list[int], mine: list[bool]) -> BlockWalk:
    """Return the block walk: find the LOAD or the STORE of each tile that a GEMM uses."""
    moves = program.moves.as_list
    kernel = program.kernel.tolist()
    stored_at = _stores(program, dram, steps)
    origin = {memory: np.full((program.config.sram(memory).depth, 2), NOWHERE) for memory in OPERANDS}
    biased = False
    gemms: list[int] = []
    blocks: list[Array] = []
    outer: list[list[int]] = []
    for step in steps:
        move = moves[step]
        if move.memory in origin and move.row_bytes:
            origin[Memory(move.memory)][move.base : move.end] = _tiles(move, program.config, dram, pads=True)
        if kernel[step] < 0 or (item := program.kernels[kernel[step]]).is_alu:
            continue
        if item.reset or not item.dst.size:  # no LOAD wrote the cleared sums: use their next STORE
            origin[Memory.ACC][item.written] = NOWHERE
            continue
        # Instructions of other layers only change the origins of tiles.
        if not mine[step]:
            continue
        loaded = origin[Memory.ACC]
        biased = biased or bool((loaded[item.dst, 0] != NOWHERE).any())
        sums = np.where(loaded[:, :1] == NOWHERE, stored_at[step], loaded)
        tables = (origin[Memory.INP], origin[Memory.WGT], sums)
        tiles = (item.src, item.wgt, item.dst)
        gemms.append(step)
        outer.append([int(table[tile[0], 1]) for table, tile in zip(tables, tiles, strict=True)])
        if len(blocks) == len(gemms) - 1 and outer[-1] == outer[0]:
            blocks.append(np.stack([table[tile, 0] for table, tile in zip(tables, tiles, strict=True)], axis=1) + 1)
    # The rank, from 1, of each DRAM base (a transfer's first block) among the distinct bases; 0 for NOWHERE.
    bases = [np.unique(column, return_inverse=True) for column in np.array(outer, np.int64).reshape(-1, 3).T]
    ranks = np.stack([rank.reshape(-1) + int(NOWHERE not in distinct) for distinct, rank in bases], axis=1)
    every = np.concatenate([np.zeros((0, 3), np.int64), *blocks])
    return BlockWalk(gemms, len(blocks), every, ranks, biased)


def _stores(program: Elaborated, dram: Dram, steps: Sequence[int]) -> dict[int, Array]:
    """Find, for each GEMM, the next STORE of each acc tile: its block, the STORE's first block (int64 [tiles, 2])."""
    moves = program.moves.as_list
    kernel = program.kernel.tolist()
    at = np.full((program.config.acc.depth, 2), NOWHERE)
    stored_at = {}
    # Backwards, the last STORE seen is the next STORE of a tile.
    for step in reversed(steps):
        move = moves[step]
        if move.memory == Memory.OUT and move.row_bytes:
            at = at.copy()
            at[move.base : move.end] = _tiles(move, program.config, dram, pads=False)
        elif kernel[step] >= 0:
            stored_at[step] = at
    return stored_at


def _tiles(move: Move, config: Config, dram: Dram, pads: bool) -> Array:
    """Return, for each on-chip tile, its DRAM block (from 0) and the transfer's first block: int64 [tiles, 2]."""
    size = config.dram_tile_bytes(Memory(move.memory))
    first = (move.address - _start(move, dram)) // size
    shape = (move.height, move.width) if pads else (move.rows, move.columns)
    table = np.full((*shape, 2), NOWHERE)
    inside = table[move.top : move.top + move.rows, move.left : move.left + move.columns]
    inside[..., 0] = first + np.arange(move.rows)[:, None] * (move.stride // size) + np.arange(move.columns)
    inside[..., 1] = first
    return table.reshape(-1, 2)


def _start(move: Move, dram: Dram) -> int:
    return max((segment.address for segment in dram.segments if segment.address <= move.address), default=0)


def _by_operand(blocks: Array) -> list[list[Entry]]:
    """Group entries into lines. A line has consecutive entries that share an input block or a weight block."""
    lines: list[list[Entry]] = []
    shared = -1
    for entry in _entries(blocks):
        line = lines[-1] if lines else []
        if line and entry == line[-1]:
            continue
        # The first two entries of a line decide whether its entries share an input block or a weight block.
        same = [key for key in ((0, 1) if len(line) < 2 else (shared,)) if line and entry[key] == line[-1][key]]
        if same:
            shared = same[0]
            line.append(entry)
        else:
            lines.append([entry])
    return lines


def _by_sum(blocks: Array) -> list[list[Entry]]:
    """Group entries into lines by their bias or output block, in the order in which these blocks occur first.

    Equal entries that follow each other in a line are shown once, because several instructions can add to the same sum.
    """
    lines: dict[int, list[Entry]] = {}
    for entry in _entries(blocks):
        line = lines.setdefault(entry[2], [])
        if not line or entry != line[-1]:
            line.append(entry)
    return list(lines.values())


def _entries(blocks: Array) -> list[Entry]:
    return [tuple(row) for row in blocks.tolist()]


def _table(lines: list[list[Entry]], most: int) -> list[str]:
    shown = []
    for line in lines:
        texts = ["{}x{}+{}".format(*(number or "-" for number in entry)) for entry in line]
        shown.append(" ".join(texts if len(texts) <= ENTRIES else [*texts[:3], "...", texts[-1]]))
    return shown if len(shown) <= most else [*shown[: most - 2], "...", shown[-1]]


def _rows(move: Move, config: Config, dram: Dram) -> Stage:
    """Return a line for a transfer, and a line for each row: DRAM offset in bus words, blocks and tiles."""
    memory = Memory(move.memory)
    chip = config.sram(memory)
    size = config.dram_tile_bytes(memory)
    at = move.address - _start(move, dram)
    bus = config.bus_bits // 8
    name = "store" if memory == Memory.OUT else "load"
    stride = move.stride // size
    shown = []
    for row in range(move.rows):
        block = at // size + row * stride
        tile = move.base + (move.top + row) * move.width + move.left
        blocks = _range(block + 1, move.columns)
        on_chip = _range(tile, move.columns)
        shown.append(f"row {row + 1}: dram {(at + row * move.stride) // bus}, block {blocks}, {chip.name}[{on_chip}]")
    return Stage(
        f"first {name} {chip.name}: y_size={move.rows} x_size={move.columns} x_stride={stride}, "
        f"{move.row_bytes} bytes per row; dram offsets in bus words",
        shown if len(shown) <= 4 else [*shown[:2], "...", shown[-1]],
    )


def _range(first: int, count: int) -> str:
    return f"{first}..{first + count - 1}" if count > 1 else str(first)
