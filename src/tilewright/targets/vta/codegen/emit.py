"""A schedule as instructions: addresses, slots and the micro-op cache filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.targets.vta.codegen.builder import StreamBuilder
from tilewright.targets.vta.codegen.clock import Compute, LoadInputs, LoadWeights
from tilewright.targets.vta.codegen.kernels import Kernel
from tilewright.targets.vta.codegen.plan import Plan
from tilewright.targets.vta.codegen.schedule import Schedule
from tilewright.targets.vta.codegen.transfers import transfers
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.runtime.uops import UopCache, UopLists, ahead

#: Segments start at multiples of a page, the largest tile that is legal; the first page stays empty.
PAGE = 4096


@dataclass(frozen=True)
class Segments:
    """Byte addresses and sizes in DRAM; control registers hold 0, so a DRAM index is address / tile bytes."""

    sizes: dict[str, int]

    @property
    def addresses(self) -> dict[str, int]:
        found, at = {}, PAGE
        for name, size in self.sizes.items():
            found[name] = at
            at += -(-size // PAGE) * PAGE
        return found

    def tile(self, name: str, tile_bytes: int) -> int:
        return self.addresses[name] // tile_bytes


@dataclass(frozen=True, eq=False)
class Code:
    """A layer's instructions uint8 [n, 16], micro-ops uint8 [m, 4] and DRAM segments (wgt, x, acc, uop)."""

    insns: Raw
    uops: Raw
    segments: Segments


def emit(plan: Plan, schedule: Schedule, config: Config) -> Code:
    """The code of a scheduled layer. Raises ProgramError where a value does not fit its field."""
    layer = plan.layer
    weights = [outs.size * sums.size for outs, sums in plan.weight_chunks]
    first = np.concatenate([[0], np.cumsum(weights)]) * (1 if layer.shared else layer.taps)
    first = first.tolist()
    plane = layer.out_tiles * layer.out_pixels
    segments = Segments(
        {
            "wgt": first[-1] * config.wgt.tile_bytes,
            "x": layer.in_tiles * layer.size[0] * layer.size[1] * config.inp.tile_bytes,
            "acc": layer.planes * plane * config.out.tile_bytes,
        }
    )
    x, wgt = segments.tile("x", config.inp.tile_bytes), segments.tile("wgt", config.wgt.tile_bytes)
    out = segments.tile("acc", config.out.tile_bytes)
    inp_tiles, wgt_tiles, acc_tiles = plan.slot_tiles(config)
    lists = Lists(plan, config)
    wanted = [lists.of(item) if isinstance(item, Compute) else -1 for item in schedule.items]
    offsets = lists.uops.offsets
    segments = replace(segments, sizes={**segments.sizes, "uop": offsets[-1] * config.uop.tile_bytes})
    uop = segments.tile("uop", config.uop.tile_bytes)
    builder = StreamBuilder(config)
    cache = UopCache(offsets, config.uop.depth, lambda base, at, count: builder.load_uops(base, uop + at, count), ahead)
    for item, wants in zip(schedule.items, wanted, strict=True):
        if isinstance(item, Compute):
            reads = [(Memory.INP, item.inp), (Memory.WGT, item.wgt)] if item.inp >= 0 else []
            acc, kernel, step = (Memory.ACC, item.acc), item.step.kernel, item.step
            uops = cache.find(wants)
            if step.op is None:
                builder.gemm(uops, kernel.outer, kernel.inner, reads, acc, step.reset)
            else:
                builder.alu(step.op, uops, kernel.outer, kernel.inner, step.imm, acc)
        elif isinstance(item, LoadInputs):
            rows, columns = item.group.rows, item.group.columns
            for part in transfers(layer.size, *item.chunk.inputs, rows.first, rows.size, columns.first, columns.size):
                at = item.slot * inp_tiles + part.at
                shape = (part.rows, part.length)
                builder.load(Memory.INP, at, x + part.offset, shape, part.stride, (Memory.INP, item.slot))
        elif isinstance(item, LoadWeights):
            begin, end = first[item.chunk], first[item.chunk + 1]
            count, slot = end - begin, (Memory.WGT, item.slot)
            builder.load(Memory.WGT, item.slot * wgt_tiles, wgt + begin, (1, count), count, slot)
        else:
            rows, columns = item.group.rows, item.group.columns
            for part in transfers(layer.out, *item.group.outs, rows.start, rows.extent, columns.start, columns.extent):
                at, address = item.acc * acc_tiles + part.at, out + item.plane * plane + part.offset
                builder.store(at, address, (part.rows, part.length), part.stride, (Memory.ACC, item.acc))
    builder.finish()
    return Code(builder.encode(), lists.uops.encode(config), segments)


class Lists:
    """The micro-op list that each instruction of a layer runs."""

    def __init__(self, plan: Plan, config: Config) -> None:
        self.uops = UopLists()
        self._slots = plan.slot_tiles(config)
        self._seen: dict[tuple[Kernel, int, int, int], int] = {}

    def of(self, item: Compute) -> int:
        """The number of the instruction's list in `uops`."""
        kernel, step = item.step.kernel, item.step
        known = (kernel, item.acc, item.inp, item.wgt)
        if known in self._seen:
            return self._seen[known]
        inp, wgt, acc = self._slots
        dst = kernel.dst + item.acc * acc
        if step.op is not None:
            src, weights = kernel.src + item.acc * acc, kernel.wgt
        else:
            src, weights = kernel.src + max(item.inp, 0) * inp, kernel.wgt + max(item.wgt, 0) * wgt
        self._seen[known] = self.uops.add(dst, src, weights)
        return self._seen[known]


def weight_image(plan: Plan, tiles: Array) -> Array:
    """Weight tiles [out tile, k, tap, block, block] in the order of the plan's chunks: uint8, flat."""
    parts: Sequence[Array] = [
        tiles[outs.first : outs.first + outs.size, sums.first : sums.first + sums.size].reshape(-1)
        for outs, sums in plan.weight_chunks
    ]
    return np.concatenate(parts).view(np.uint8)
