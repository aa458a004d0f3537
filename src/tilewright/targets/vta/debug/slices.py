"""One step of a backward slice: from elements that a VTA instruction wrote to the elements that it read, tile by tile.

A tile depends on all tiles that its micro-ops read. Each element has a uint64 with a bit for each slice, so that one
backward walk follows up to 64 slices.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.walk import SliceBits
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import (
    ACC,
    DRAM,
    FACTOR_TILES,
    INP,
    OUT,
    PAR,
    SPACE_OF,
    WGT,
    Kernel,
)
from tilewright.targets.vta.steps.moves import NOTHING, Move, granule
from tilewright.targets.vta.steps.pattern import Tiles, shifted


def backward(program: Elaborated, step: int, wanted: SliceBits) -> int:
    """Go back over one instruction (see sim.walk.Walk.backward)."""
    index = int(program.kernel[step])
    if index < 0:
        (move,) = program.moves.of(np.array([step]))
        return 0 if move.memory == NOTHING else _move(program, move, wanted)
    kernel = program.kernels[index]
    if not kernel.size:
        return 0
    spaces = [space for space, _, _ in kernel.accesses(program.config)]
    # An instruction belongs to a slice if the slice wants any tile that the instruction wrote.
    given_out = wanted[OUT][kernel.written].copy() if OUT in spaces else np.zeros(0, np.uint64)
    bits = _bits(wanted[ACC][kernel.written]) | _bits(given_out)
    if not bits:
        return 0
    if kernel.reset:
        _reset(kernel, wanted, OUT in spaces)
        return bits
    if OUT in spaces:  # both memories get the same values
        wanted[ACC][kernel.written] |= given_out
        wanted[OUT][kernel.written] = 0
    bits_by_uop = wanted[ACC][kernel.dst]
    _add(wanted[kernel.uop_space(program.config)], np.resize(kernel.uops, kernel.size), bits_by_uop)
    if kernel.is_alu:
        _alu(kernel, wanted)
    else:
        _add(wanted[INP], kernel.src, bits_by_uop)
        _add(wanted[WGT], kernel.wgt, bits_by_uop)
    return bits


def _move(program: Elaborated, move: Move, wanted: SliceBits) -> int:
    """Go back over a LOAD or a STORE, which moves on-chip tiles and equally many bytes of DRAM."""
    memory = Memory(move.memory)
    store = move.memory == Memory.OUT
    space = ACC if store and not program.config.rules.out_memory else SPACE_OF[memory]
    tiles = np.arange(move.base, move.end).reshape(move.height, move.width)
    rows, columns = np.arange(move.rows), np.arange(move.columns if move.row_bytes else 0)
    size = program.config.dram_tile_bytes(memory)
    unit = granule(program.config)
    address = move.address + rows[:, None] * move.stride + columns * size
    # The DRAM space has elements of the smallest tile's size, so other tiles may cover several elements.
    spans = [address // unit + more for more in range(-(-size // unit))]
    chip = tiles[move.top : move.top + move.rows, move.left : move.left + len(columns)]
    if store:
        bits = 0
        for span in spans:
            moved = wanted[DRAM][span]
            bits |= _bits(moved)
            _add(wanted[space], chip, moved)
        for span in spans:
            wanted[DRAM][span] = 0
        return bits
    moved = wanted[space][chip]
    bits = _bits(wanted[space][tiles])
    wanted[space][tiles] = 0
    for span in spans:
        _add(wanted[DRAM], span, moved)
    return bits


def _reset(kernel: Kernel, wanted: SliceBits, writes_out: bool) -> None:
    """Go back over a reset: acc becomes 0; the out memory gets the sums, or keeps its tiles if not `writes_out`."""
    wanted[ACC][kernel.written] = 0
    if not writes_out:
        return
    last, _ = kernel.last_writes
    bits = wanted[OUT][last.dst]
    wanted[OUT][kernel.written] = 0
    # A wanted tile of out needs the operands of its sum.
    for space, tiles in ((ACC, last.dst), (INP, last.src), (WGT, last.wgt)):
        _add(wanted[space], tiles, bits)


def _alu(kernel: Kernel, wanted: SliceBits) -> None:
    acc = wanted[ACC]
    if kernel.factors is not None:
        # The loop goes backwards through the waves, because a later wave may read the result of an earlier wave.
        for dst, bias, factors in reversed(kernel.requantised):
            for tiles in (bias, *(shifted(factors, by) for by in range(FACTOR_TILES))):
                _add(wanted[PAR], tiles, acc[dst])
        return
    if not kernel.reads_source:
        return
    for dst, src in reversed(kernel.waves):
        bits = acc[dst].copy()
        if kernel.first_is_src:
            acc[dst] = 0
        _add(acc, src, bits)


def _add(to: Array, tiles: Tiles, bits: Array) -> None:
    """Add the slices `bits` to the elements `tiles`, which may have duplicates."""
    if isinstance(tiles, slice):
        to[tiles] |= bits
    else:
        np.bitwise_or.at(to, tiles, bits)


def _bits(wanted: Array) -> int:
    return int(np.bitwise_or.reduce(wanted.reshape(-1), initial=np.uint64(0)))
