"""What a launch holds, checked before anything runs: it may come from a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Contents
from tilewright.program.program import Launch
from tilewright.program.serial import decode
from tilewright.targets.bm1684x.compiler.phases import Phases
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, Config
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.values.dtypes import DTYPES

#: Bytes of a tensor, and the largest of the numbers that describe it.
MOST = 1 << 28
#: Codes of 8 bits, signed or not, lie between -CODES and CODES.
CODES = 1 << 8
#: A tensor as JSON values: name, address, c, h, w, type, what is added to codes of the graph, their zero point then.
#: The numbers of Phases follow for an input that lies by phase.
ROW = tuple[str, int, int, int, int, str, int, int]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in DDR, one sample of the batch behind the other."""

    name: str
    address: int
    stored: Stored


@dataclass(frozen=True, eq=False)
class QueueImage:
    """`queues` of bytes by engine; `constants` begin at the beginning of DDR; what lies below `values_end` in each
    lane differs from sample to sample, what lies above is constant. `layers`: of each command, those of the compute
    engine first.
    """

    queues: dict[str, Array]
    constants: Array
    inputs: tuple[StoredTensor, ...]
    outputs: tuple[StoredTensor, ...]
    batch: int
    values_end: int
    layers: Array

    @classmethod
    def of(cls, launch: Launch, config: Config) -> QueueImage:
        """The image of a launch, which may come from a file. Raises ProgramError."""
        contents = Contents(launch)
        insns, constants = (contents.array(name, np.uint8, (None,)) for name in ("insns", "constants"))
        split, layers = contents.number("tiu_bytes", 0, len(insns)), contents.array("layers", np.int32, (None,))
        batch = contents.number("batch", config.batch, config.batch)
        values_end = contents.number("values_end", 0, config.lane_bytes)
        if values_end % 64:
            contents.refuse(f"its values end at {values_end}, which is not a multiple of 64")
        inputs, outputs = (_tensors(contents, name) for name in ("inputs", "outputs"))
        spans = sorted((one.address, one.address + one.stored.nbytes * batch) for one in (*inputs, *outputs))
        spans = [(DDR_BASE, DDR_BASE + len(constants)), *spans]
        if any(one[1] > other[0] for one, other in pairwise(spans)) or spans[-1][1] > ADDRESS_END:
            contents.refuse("its tensors overlap in DDR or lie outside")
        return cls({TIU: insns[:split], DMA: insns[split:]}, constants, inputs, outputs, batch, values_end, layers)


def _tensors(contents: Contents, name: str) -> tuple[StoredTensor, ...]:
    where, found = f"{contents.where}: {name}", []
    for item in contents.value(list, name):
        row = decode(list, item, where)
        found.append(_tensor(contents, *decode(ROW, row[:8], where), *decode(tuple[int, ...], row[8:], where)))
    return tuple(found)


def _tensor(
    contents: Contents, name: str, address: int, c: int, h: int, w: int, dtype: str, add: int, zero: int, *more: int
) -> StoredTensor:
    sizes, phases = [c, h, w], None
    if more:
        if len(more) < 10 or min(more) < 0 or max(more) > MOST:
            contents.refuse(f"'{name}' has impossible phases")
        gc, gh, gw, sh, sw, top, left, rows, columns, *offsets = more
        phases = Phases(gc, gh, gw, sh, sw, top, left, rows, columns, tuple(offsets))
        sizes += [gc, gh, gw, sh, sw, rows, columns]
    if dtype not in DTYPES or not all(1 <= size <= MOST for size in sizes):
        contents.refuse(f"'{name}' has an impossible shape or type")
    if not all(-CODES < code < CODES for code in (add, zero)):
        contents.refuse(f"'{name}' has codes of more than 8 bits")
    stored = Stored(c, h, w, DTYPES[dtype], add, zero, phases)
    if stored.nbytes > MOST:
        contents.refuse(f"'{name}' has {stored.nbytes} bytes")
    return StoredTensor(name, address, stored)
