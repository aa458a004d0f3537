"""What a launch holds, checked before anything runs: it may come from a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.program import Launch
from tilewright.targets.bm1684x.compiler.phases import Phases
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, Config
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.values.dtypes import dtype_of

#: Bytes of a tensor, and the largest of the numbers that describe it.
MOST = 1 << 28


@dataclass(frozen=True)
class Segment:
    """A tensor in DDR, one sample of the batch behind the other."""

    name: str
    address: int
    stored: Stored


@dataclass(frozen=True, eq=False)
class Image:
    """`queues` of bytes by engine; `constants` begin at the beginning of DDR; what lies below `values_end` in each
    lane differs from sample to sample, what lies above is constant. `layers`: of each command, those of the compute
    engine first.
    """

    queues: dict[str, Array]
    constants: Array
    inputs: tuple[Segment, ...]
    outputs: tuple[Segment, ...]
    batch: int
    values_end: int
    layers: Array

    @classmethod
    def of(cls, launch: Launch, config: Config) -> Image:
        """Raises ProgramError."""
        where = f"launch '{launch.name}'"
        try:
            meta, arrays = launch.meta, launch.arrays
            insns, split = arrays["insns"], int(meta["tiu_bytes"])
            inputs, outputs = (tuple(_segment(row) for row in meta[key]) for key in ("inputs", "outputs"))
            image = cls(
                {TIU: insns[:split], DMA: insns[split:]},
                arrays["constants"],
                inputs,
                outputs,
                int(meta["batch"]),
                int(meta["values_end"]),
                arrays["layers"],
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ProgramError(where, f"is damaged: {error}", "compile it again") from None
        right = insns.dtype == image.constants.dtype == "uint8" and insns.ndim == image.constants.ndim == 1
        right = right and image.layers.ndim == 1 and image.layers.dtype == "int32"
        right = right and 0 <= split <= len(insns) and image.batch == config.batch
        right = right and 0 <= image.values_end <= config.lane_bytes and image.values_end % 64 == 0
        spans = sorted((s.address, s.address + s.stored.nbytes * image.batch) for s in (*inputs, *outputs))
        spans = [(DDR_BASE, DDR_BASE + len(image.constants)), *spans]
        right = right and all(a[1] <= b[0] for a, b in pairwise(spans))
        if not right or spans[-1][1] > ADDRESS_END:
            raise ProgramError(where, "its parts do not fit together", "compile it again")
        return image


def _segment(row: Any) -> Segment:
    name, address, c, h, w, dtype, add, zero, *more = row
    sizes = [int(size) for size in (c, h, w)]
    phases = None
    if more:
        own = [int(size) for size in more]
        gc, gh, gw, sh, sw, top, left, rows, columns, *offsets = own
        phases = Phases(gc, gh, gw, sh, sw, top, left, rows, columns, tuple(offsets))
        if not own[9:] or min(own) < 0 or max(own) > MOST:
            raise ValueError(f"{name} has impossible phases")
        sizes += [*own[:5], *own[7:9]]
    if not all(1 <= size <= MOST for size in sizes):
        raise ValueError(f"{name} has an impossible shape")
    stored = Stored(sizes[0], sizes[1], sizes[2], dtype_of(dtype), int(add), int(zero), phases)
    if stored.nbytes > MOST:
        raise ValueError(f"{name} has {stored.nbytes} bytes")
    return Segment(str(name), int(address), stored)
