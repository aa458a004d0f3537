"""The chart of a launch: how many lanes each compute command uses, and which banks of local memory each command uses.

Every lane has its own banks. Two commands conflict if they use the same bank of the same lane at the same time. The
chart shows conflicts, but the times of a launch include them only with `Knobs.bank_conflicts` (see estimate.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.sim.chart import ALARM, HATCHED, LIGHT, SOLID, START, Chart, Kind, Row
from tilewright.sim.steps import READ, WRITE, Trace
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.layouts.tensor import Tensor

TITLE = "Lanes and banks"
#: For each access mode: the word and the drawing style for a command that uses a bank in this mode.
MODES = {READ: ("reads", LIGHT), WRITE: ("writes", SOLID), READ | WRITE: ("reads and writes", HATCHED)}
#: Numbers of the first three kinds of boxes. There is a further kind for each pair of a unit and an access mode.
LANES, BOTH, SHARED = range(3)
Box = tuple[int, int, int, int, int, int]  # see sim.chart.Chart


def chart(commands: Sequence[Command], trace: Trace, config: Config) -> Chart:
    """Return the chart of a launch: a row for the lanes, and a row for each bank.

    The row for the lanes shows how many lanes contain the results of each compute command. A command uses a bank in
    each lane in which one of its operands or results extends into the bank. In the row of a bank, each engine has its
    own part, and conflicts are drawn between and above these parts.
    """
    units = trace.table.units
    rows = (Row("lanes", config.lanes), *(Row(f"bank {bank}") for bank in range(config.banks)))
    kinds = [
        Kind(f"# of {config.lanes} lanes compute", TIU),
        Kind(f"{TIU} and {DMA} use the bank in # of {config.lanes} lanes", "", ALARM, 42, 58),
        Kind("# operands of one command share the bank", "", ALARM, 0, 12),
    ]
    for index, unit in enumerate(units):
        top, bottom = 100 * index // len(units), 100 * (index + 1) // len(units)
        where = f"in # of {config.lanes} lanes"
        kinds += [Kind(f"{unit} {word} {where}", unit, style, top, bottom) for word, style in MODES.values()]
    uses = [_uses(command, config) for command in commands]
    boxes = [*_used(uses, trace), *_within(commands, trace, config), *_between(uses, trace)]
    array = np.array(boxes, np.int64).reshape(-1, 6).T
    return Chart(TITLE, rows, tuple(kinds), array[:, np.argsort(array[START], kind="stable")])


def _uses(command: Command, config: Config) -> Array:
    used = np.zeros((2, config.lanes, config.banks), np.bool_)
    for mode, _, place in command.in_memory:
        if place.storage.is_local:
            used[int(mode == WRITE)] |= reach(place.storage, config)
    return used


def reach(tensor: Tensor, config: Config) -> Array:
    """Return which banks a tensor in local memory occupies in each lane: bool [lanes, banks].

    All bytes from a channel's first element to its last element count as occupied.
    """
    n, _, h, w = tensor.shape
    stride = tensor.stride
    size = tensor.dtype.bytes
    slot = np.arange(tensor.slots)
    sample = np.arange(n if stride.n else 1)
    low = tensor.lane_offset + (sample[:, None] * stride.n + slot * stride.c) * size
    last = low + ((h - 1) * stride.h + (w - 1) * stride.w + 1) * size - 1
    # A channel may extend over several banks. With +1 at its first bank and -1 after its last bank, the cumulative sum
    # is positive in all banks of the channel.
    edges = np.zeros((len(slot), config.banks + 1), np.int64)
    np.add.at(edges, (np.broadcast_to(slot, low.shape), low // config.bank_bytes), 1)
    np.add.at(edges, (np.broadcast_to(slot, low.shape), last // config.bank_bytes + 1), -1)
    banks = np.cumsum(edges, 1)[:, :-1] > 0
    reached = np.zeros((config.lanes, config.banks), np.bool_)
    for used, (_, lane, end) in zip(banks, tensor.spans, strict=True):
        reached[lane:end] |= used
    return reached


def _used(uses: Sequence[Array], trace: Trace) -> Iterator[Box]:
    units = trace.table.units
    columns = (trace.table.unit, trace.start, trace.end)
    for step, (banks, unit, start, end) in enumerate(zip(uses, *(column.tolist() for column in columns), strict=True)):
        if units[unit] == TIU and (lanes := int(banks[1].any(1).sum())):
            yield 0, LANES, lanes, start, end, step
        mode = banks[0].any(0) * READ + banks[1].any(0) * WRITE
        number = banks.any(0).sum(0)
        for bank in np.flatnonzero(mode).tolist():
            # the kinds are sorted by unit, then by access mode
            kind = SHARED + 1 + len(MODES) * unit + list(MODES).index(int(mode[bank]))
            yield bank + 1, kind, int(number[bank]), start, end, step


def _within(commands: Sequence[Command], trace: Trace, config: Config) -> Iterator[Box]:
    compute = trace.table.unit == trace.table.units.index(TIU)
    shared = bank_uses(commands, config) * compute[:, None]
    for step, bank in np.argwhere(shared > 1).tolist():
        yield bank + 1, SHARED, int(shared[step, bank]), int(trace.start[step]), int(trace.end[step]), step


def _between(uses: Sequence[Array], trace: Trace) -> Iterator[Box]:
    for step, compute_steps in meetings(trace):
        for compute_step in compute_steps.tolist():
            number = (uses[step].any(0) & uses[compute_step].any(0)).sum(0)
            low = max(int(trace.start[step]), int(trace.start[compute_step]))
            high = min(int(trace.end[step]), int(trace.end[compute_step]))
            for bank in np.flatnonzero(number).tolist() if low < high else ():
                yield bank + 1, BOTH, int(number[bank]), low, high, step


def meetings(trace: Trace) -> Iterator[tuple[int, Array]]:
    """For each transfer, yield its step, and the steps of the compute commands that may run at the same time."""
    compute, transfers = (np.flatnonzero(trace.table.unit == trace.table.units.index(unit)) for unit in (TIU, DMA))
    begins, ends = trace.start[compute], trace.end[compute]  # both ascending
    for step in transfers.tolist():
        first = int(np.searchsorted(ends, trace.start[step], "right"))
        last = int(np.searchsorted(begins, trace.end[step], "left"))
        yield step, compute[first:last]


def bank_uses(commands: Sequence[Command], config: Config) -> Array:
    """Return, for each command and bank, how many operands and results occupy the bank: int64 [commands, banks].

    A tensor that is both an operand and a result is counted once. The estimate already doubles the passes of a command
    with such a tensor.
    """
    uses = np.zeros((len(commands), config.banks), np.int64)
    for row, command in enumerate(commands):
        for tensor in (place.storage for place in {place for _, _, place in command.in_memory}):
            if tensor.is_local:
                first, last = tensor.lane_offset // config.bank_bytes, (tensor.lane_end - 1) // config.bank_bytes
                uses[row, first : last + 1] += 1
    return uses
