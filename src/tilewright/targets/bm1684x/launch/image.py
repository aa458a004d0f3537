"""The parsed contents of a launch, and the footprints of its commands.

A launch may come from a file, so its whole contents are checked before any command runs.

A footprint is the list of contiguous byte runs that a command reads or writes. Tensors are spread across lanes, so
bytes are numbered across lanes: byte b of a lane has the number `b * lanes + lane`. A tensor in all lanes is then one
contiguous run, but a tensor in only some lanes is not. Local memory is therefore divided into ranges of lanes, with a
border at each lane where an operand begins or ends. Each operand then uses either all lanes of a range, or no lane of
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tilewright.array import Array
from tilewright.fields import Range, decode
from tilewright.program.launch_image import Contents
from tilewright.program.program import Launch
from tilewright.sim.steps import Space
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.layouts.samples import Phases, SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES

#: The largest size of a tensor in bytes, and the largest number in its description. Larger numbers mean a damaged file.
MOST = 1 << 28
_Size: TypeAlias = Annotated[int, Range(1, MOST)]
_Count: TypeAlias = Annotated[int, Range(0, MOST)]
#: The range of zero points of 8-bit codes, and of numbers added to codes.
_Code: TypeAlias = Annotated[int, Range(-255, 255)]
#: A tensor as JSON values: name, address, c, h, w, type, the number added to the graph's codes, and the zero point
#: after this addition. If the tensor is stored by phase, the fields of Phases follow: first _PHASES, then the offsets.
_ROW: Any = tuple[str, int, _Size, _Size, _Size, Literal[tuple(DTYPES)], _Code, _Code]  # type: ignore[misc]
_PHASES: Any = tuple[_Size, _Size, _Size, _Size, _Size, _Count, _Count, _Size, _Size]
#: The largest number of contiguous byte runs of one operand.
MOST_RUNS = 1 << 16
Rows = Iterator[tuple[int, int, int, int, int, int]]


@dataclass(frozen=True)
class MemoryTensor:
    """A tensor in DDR: `form` is the format of one sample. The samples of a batch are adjacent, without gaps."""

    name: str
    address: int
    form: SampleFormat

    @property
    def row(self) -> list[Any]:
        """The tensor as JSON values (_ROW)."""
        form = self.form
        row = [self.name, self.address, form.c, form.h, form.w, str(form.dtype), form.add, form.zero]
        if form.phases:
            *sizes, offsets = astuple(form.phases)
            row += [*sizes, *offsets]
        return row


class LocalResult(NamedTuple):
    """A layer's result in local memory (first sample), or some of its rows from `row` on (build._local_result)."""

    tensor: MemoryTensor
    row: int
    computed: int


@dataclass(frozen=True, eq=False)
class QueueImage:
    """The parsed contents of a launch.

    `queues` maps each engine to the bytes of its encoded commands. `constants` are the first bytes of DDR. In each
    lane, the bytes below `values_end` contain values of samples, and all other bytes contain constants. `layers` has a
    layer index (below `count`) for each command, first for all compute commands, then for all transfers.
    `local_results` are results of layers in local memory, for the debugger.
    """

    queues: dict[str, Array]
    constants: Array
    inputs: tuple[MemoryTensor, ...]
    outputs: tuple[MemoryTensor, ...]
    batch: int
    values_end: int
    layers: Array
    count: int
    local_results: tuple[LocalResult, ...] = ()

    @classmethod
    def of(cls, launch: Launch, config: Config) -> QueueImage:
        """Parse the contents of a launch. Raises ProgramError for a launch from a damaged file."""
        contents = Contents(launch)
        insns, constants = (contents.array(name, np.uint8, (None,)) for name in ("insns", "constants"))
        split = contents.number("tiu_bytes", 0, len(insns))
        layers = contents.array("layers", np.int32, (None,))
        batch = contents.number("batch", config.batch, config.batch)
        values_end = contents.number("values_end", 0, config.lane_bytes)
        if values_end % 64:
            contents.refuse(f"its values end at {values_end}, which is not a multiple of 64")
        inputs, outputs = (_tensors(contents, name) for name in ("inputs", "outputs"))
        # Tensors must not overlap each other, or the constants at the beginning of DDR.
        spans = sorted((item.address, item.address + item.form.nbytes * batch) for item in (*inputs, *outputs))
        spans = [(DDR_BASE, DDR_BASE + len(constants)), *spans]
        if any(end > begin for (_, end), (begin, _) in pairwise(spans)) or spans[-1][1] > ADDRESS_END:
            contents.refuse("its tensors overlap in DDR or lie outside of DDR")
        queues = {TIU: insns[:split], DMA: insns[split:]}
        count = len(launch.nodes)
        local_results = tuple(_local_result(contents, config)) if "held" in launch.meta else ()
        return cls(queues, constants, inputs, outputs, batch, values_end, layers, count, local_results)


def _tensors(contents: Contents, name: str) -> tuple[MemoryTensor, ...]:
    where = f"{contents.where}: {name}"
    return tuple(_tensor(contents, decode(list, row, where), where) for row in contents.value(list, name))


def _local_result(contents: Contents, config: Config) -> Iterator[LocalResult]:
    where = f"{contents.where}: held"
    end = LOCAL_BASE + config.lane_bytes
    for item in contents.value(list, "held"):
        values = decode(list, item, where)
        row, computed = decode(tuple[_Count, _Count], values[:2], where)
        tensor = _tensor(contents, values[2:], where)
        if tensor.address < LOCAL_BASE or tensor.address + tensor.form.lane_bytes(config) > end:
            contents.refuse(f"the tensor '{tensor.name}' is not in local memory")
        yield LocalResult(tensor, row, computed)


def _tensor(contents: Contents, row: Sequence[Any], where: str) -> MemoryTensor:
    name, address, c, h, w, dtype, add, zero = decode(_ROW, row[:8], where)
    phases = None
    if row[8:]:
        offsets = decode(tuple[_Count, ...], row[17:] or [None], where)  # at least one offset is required
        numbers = *decode(_PHASES, row[8:17], where), offsets
        phases = Phases(*numbers)
    form = SampleFormat(c, h, w, DTYPES[dtype], add, zero, phases)
    if form.nbytes > MOST:
        contents.refuse(f"the tensor '{name}' has {form.nbytes} bytes; the limit is {MOST}")
    return MemoryTensor(name, address, form)


def unsupported(command: Command, config: Config) -> str:
    """Return the reason why a command cannot be part of a compiled network, or "".

    The command may come from a file, where a short command could describe a huge operand with strides of 0. The check
    therefore also limits the memory that the simulator needs.
    """
    for _, _, operand in command.in_memory:
        if not isinstance(operand, ConvWeights | Tensor):
            return f"{command.operation.name} is not an operation of compiled networks"
        tensor = operand.storage
        if prod(tensor.shape) > config.local_bytes:
            return f"its operand of {prod(tensor.shape)} elements is larger than local memory"
        if tensor.shape.n * tensor.runs[0] * (1 if tensor.is_local else tensor.shape.c) > MOST_RUNS:
            return f"its operand is scattered over more than {MOST_RUNS} runs of bytes"
    return ""


def footprints(commands: Sequence[Command], ddr: Space, config: Config) -> tuple[tuple[Space, ...], list[Array]]:
    """Return the memories (DDR, then ranges of lanes), and each command's footprint as in sim.steps.Footprints."""
    touched = [[(mode, operand.storage) for mode, _, operand in command.in_memory] for command in commands]
    cuts = {0, config.lanes}
    for operands in touched:
        for _, tensor in operands:
            if tensor.is_local:
                # each lane where an operand begins or ends is a border between two ranges
                cuts |= {edge for _, low, high in tensor.spans for edge in (low, high)}
    edges = sorted(cuts)
    parts = [
        Space(
            f"local memory of lanes {low}..{high - 1} (byte * {high - low} + lane)",
            (high - low) * config.lane_bytes,
            scratchpad="local memory",
        )
        for low, high in pairwise(edges)
    ]
    rows = [[row for mode, tensor in operands for row in _rows(mode, tensor, edges)] for operands in touched]
    return (ddr, *parts), [np.array(footprint, np.int64).reshape(-1, 6) for footprint in rows]


def _rows(mode: int, tensor: Tensor, edges: Sequence[int]) -> Rows:
    size = tensor.dtype.bytes
    n, c, _, _ = tensor.shape
    stride = tensor.stride
    lines, length = tensor.runs
    samples = range(n if stride.n else 1)
    # In the numbering, byte b of a lane is adjacent to byte b of the next lane, so equal runs in adjacent lanes form
    # one run.
    for first in [(sample * stride.n + line * stride.h) * size for sample in samples for line in range(lines)]:
        if not tensor.is_local:
            for index in range(c):
                yield 0, mode, tensor.address - DDR_BASE + first + index * stride.c * size, length * size, 1, 0
            continue
        for slot, (_, low, high) in enumerate(tensor.spans):
            byte = tensor.lane_offset + first + slot * stride.c * size
            for part, (begin, end) in enumerate(pairwise(edges), 1):
                if low <= begin and end <= high:
                    yield part, mode, byte * (end - begin), length * size * (end - begin), 1, 0
