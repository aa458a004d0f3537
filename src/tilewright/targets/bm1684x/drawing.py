"""Where the elements of an operand lie in local memory, for people: as text, and as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.dtypes import DType

#: Lines of a text, elements of a picture.
MOST_LINES, MOST_CELLS = 200, 4096
#: Pixels of a byte, a lane and the margin that names lanes; the narrowest cell that has a label.
BYTE, LANE, MARGIN, LABELLED = 6, 26, 64, 40
COLOURS = ("#cfe3f7", "#fbe3c0", "#d5eed0", "#f3d1dc", "#e2d8f2", "#f4efb9")


@dataclass(frozen=True)
class Run:
    """Neighbouring bytes of one lane: elements `first` to `last` (indices), `count` of them, or none."""

    lane: int
    offset: int
    size: int
    count: int
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


def runs(addresses: Array, size: int, config: Config) -> Iterator[Run]:
    """The bytes of each lane from the first element to the last, gaps as runs without elements.

    Elements form a run while both their addresses and their positions go on evenly. Repeated ones count once.
    """
    flat = _within(addresses, config)
    places, index = np.unique(flat, return_index=True)
    lanes, offsets = np.divmod(places, config.lane_bytes)
    step = np.diff(index, append=0)
    together = (np.diff(places) == size) & (np.diff(lanes) == 0)
    end = 0
    previous = -1
    start = 0
    for position in range(len(places)):
        goes_on = position + 1 < len(places) and together[position]
        if goes_on and (position == start or step[position] == step[start]):
            continue
        lane, offset = int(lanes[start]), int(offsets[start])
        if lane == previous and offset > end:
            yield Run(lane, end, offset - end, 0)
        first, last = (np.unravel_index(index[at], addresses.shape) for at in (start, position))
        count = position - start + 1
        yield Run(lane, offset, count * size, count, tuple(map(int, first)), tuple(map(int, last)))
        previous, end, start = lane, offset + count * size, position + 1


def text(title: str, axes: Sequence[str], addresses: Array, dtype: DType, config: Config) -> str:
    """One line a run: lane, bank, byte offset, elements. Long drawings end with what was left out."""
    lines = [title, "lane  bank  offset   elements"]
    found = runs(addresses, dtype.bytes, config)
    for run in found:
        if len(lines) > MOST_LINES:
            lines.append(f"... and {1 + sum(1 for _ in found)} more lines")
            break
        what = f"{label(axes, run)} ({run.size} B)" if run.count else f"- free ({run.size} B)"
        lines.append(f"{run.lane:4}  {run.offset // config.bank_bytes:4}  {run.offset:#07x}  {what}")
    return "\n".join(lines) + "\n"


def label(axes: Sequence[str], run: Run) -> str:
    """`n0 c0 h0-3 w0-4` where the run is such a box, else its first and last element."""
    sizes = [last - first + 1 for first, last in zip(run.first, run.last, strict=True)]
    if int(np.prod(sizes)) == run.count:
        pairs = zip(axes, run.first, run.last, strict=True)
        return " ".join(f"{axis}{first}" if first == last else f"{axis}{first}-{last}" for axis, first, last in pairs)
    return f"{_name(axes, run.first)} .. {_name(axes, run.last)}"


def svg(title: str, axes: Sequence[str], addresses: Array, dtype: DType, config: Config) -> str:
    """A row for each lane, a box for each element, coloured by its first index. Raises InputError for too many."""
    if addresses.size > MOST_CELLS:
        raise InputError("layout", f"a picture of {addresses.size} elements", f"draw {MOST_CELLS} at most")
    lanes, offsets = np.divmod(_within(addresses, config), config.lane_bytes)
    low, end = int(offsets.min()), int(offsets.max()) + dtype.bytes
    shown = range(config.lanes) if config.lanes <= 8 else sorted(set(lanes.tolist()))
    row = {lane: 40 + number * LANE for number, lane in enumerate(shown)}
    width, height = MARGIN + (end - low) * BYTE + 10, 40 + len(row) * LANE + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="13">{escape(title)}</text>',
    ]
    for lane, top in row.items():
        parts.append(f'<text x="8" y="{top + 16}" font-size="11">lane {lane}</text>')
        parts.append(f'<rect x="{MARGIN}" y="{top}" width="{(end - low) * BYTE}" height="{LANE - 4}" fill="#f4f4f4"/>')
    for number, (lane, offset) in enumerate(zip(lanes.tolist(), offsets.tolist(), strict=True)):
        index = tuple(map(int, np.unravel_index(number, addresses.shape)))
        x, top, wide = MARGIN + (offset - low) * BYTE, row[lane], dtype.bytes * BYTE
        name = _name(axes, index)
        parts.append(
            f'<rect x="{x}" y="{top}" width="{wide}" height="{LANE - 4}" fill="{COLOURS[index[0] % len(COLOURS)]}" '
            f'stroke="#888" stroke-width="0.5"><title>{name}: lane {lane}, byte {offset:#x}</title></rect>'
        )
        short = "".join(map(str, index)) if max(index) < 10 else ""
        if (short and wide >= 6 * len(short)) or wide >= LABELLED:
            parts.append(f'<text x="{x + 2}" y="{top + 14}" font-size="8">{short or name}</text>')
    for edge in range(-(-low // 64) * 64, end + 1, 64):
        x, colour = MARGIN + (edge - low) * BYTE, "#c33" if edge % config.bank_bytes == 0 else "#555"
        parts.append(f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 20}" stroke="{colour}" stroke-width="0.7"/>')
        parts.append(f'<text x="{x + 2}" y="{height - 8}" font-size="9">{edge:#x}</text>')
    return "\n".join((*parts, "</svg>")) + "\n"


def _name(axes: Sequence[str], index: Sequence[int]) -> str:
    return " ".join(f"{axis}{number}" for axis, number in zip(axes, index, strict=True))


def _within(addresses: Array, config: Config) -> Array:
    """Addresses within local memory, flat. Raises InputError for others."""
    flat = addresses.reshape(-1) - LOCAL_BASE
    if flat.min() < 0 or flat.max() >= config.local_bytes:
        raise InputError("layout", "a drawing of what lies outside local memory", "draw what lies in lanes")
    return flat
