"""Draw where the elements of an operand lie in local memory or DDR: as text, and as an SVG picture.

A picture shows each element as a box with the element's name. A picture has horizontal bands. Each band shows 64 bytes
of every lane, with one row per lane, so elements at equal offsets of several lanes form a column. Bands without
elements are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.values.dtypes import DType

#: Limits of a text: the number of lines, the largest operand whose single elements are also listed, and the number of
#: elements per line.
MOST_LINES = 200
MOST_SHOWN = 256
SHOWN = 8
#: Short names of axes.
SHORT = {"row": "r", "column": "c"}
#: Limits of a picture: the number of elements, and the largest number of lanes for which empty lanes are shown.
MOST_CELLS = 4096
FEW_LANES = 8
#: Sizes in pixels: minimum width of a byte, width of a letter, height of a line, margin for lane names, gap between
#: bands, height of the title.
BYTE = 9
LETTER = 4.6
LINE = 9
MARGIN = 64
BETWEEN = 18
TITLE = 34
COLOURS = ("#cfe3f7", "#fbe3c0", "#d5eed0", "#f3d1dc", "#e2d8f2", "#f4efb9")


@dataclass(frozen=True)
class Run:
    """Adjacent bytes of a lane (or of DDR): `count` elements with the indices `first` to `last`, or a gap (count 0)."""

    lane: int
    offset: int
    size: int
    count: int
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


def runs(addresses: Array, size: int, config: Config) -> Iterator[Run]:
    """Yield the runs of adjacent elements in each lane, and the gaps between runs.

    Elements form a run if their addresses are adjacent, and their logical positions differ by a constant step. A
    repeated element (stride 0) counts once.
    """
    flat, lane_bytes = within(addresses, config)
    places, index = np.unique(flat, return_index=True)
    lanes, offsets = np.divmod(places, lane_bytes)
    step = np.diff(index, append=0)
    together = (np.diff(places) == size) & (np.diff(lanes) == 0)
    end = 0
    previous = -1
    start = 0
    for position in range(len(places)):
        goes_on = position + 1 < len(places) and together[position]
        # The first two elements of a run determine its step.
        if goes_on and (position == start or step[position] == step[start]):
            continue
        lane = int(lanes[start])
        offset = int(offsets[start])
        if lane == previous and offset > end:
            yield Run(lane, end, offset - end, 0)
        first, last = (np.unravel_index(index[at], addresses.shape) for at in (start, position))
        count = position - start + 1
        yield Run(lane, offset, count * size, count, tuple(map(int, first)), tuple(map(int, last)))
        previous = lane
        end = offset + count * size
        start = position + 1


def text(title: str, axes: Sequence[str], addresses: Array, dtype: DType, config: Config) -> str:
    """Draw an operand as text.

    Each run of adjacent elements is a line with lane, bank, byte offset and elements. For DDR, a line has no lane and
    no bank. For a small operand, a list of single elements follows. A list that is too long ends with the number of
    omitted lines. Raises InputError if an element lies neither in local memory nor in DDR.
    """
    is_ddr = in_ddr(addresses)
    lines = [title, "offset   elements" if is_ddr else "lane  bank  offset   elements"]
    remaining = runs(addresses, dtype.bytes, config)
    for run in remaining:
        if len(lines) > MOST_LINES:
            lines.append(f"... and {1 + sum(1 for _ in remaining)} more lines")
            break
        elements = f"{label(axes, run)} ({run.size} B)" if run.count else f"- free ({run.size} B)"
        lane = "" if is_ddr else f"{run.lane:4}  {run.offset // config.bank_bytes:4}  "
        lines.append(f"{lane}{run.offset:#07x}  {elements}")
    if addresses.size <= MOST_SHOWN:
        lines += ["", f"{'' if is_ddr else 'lane  '}offset   {SHOWN} elements per line; . is a free place"]
        lines += _elements(axes, addresses, dtype.bytes, config)
    return "\n".join(lines) + "\n"


def _elements(axes: Sequence[str], addresses: Array, size: int, config: Config) -> Iterator[str]:
    labels = {place: "".join(parts(axes, index)) for place, index in indexed(addresses, config).items()}
    is_ddr = in_ddr(addresses)
    width = max(map(len, labels.values()))
    lines: dict[tuple[int, int], list[str]] = {}
    for (lane, offset), name in labels.items():
        row, column = divmod(offset // size, SHOWN)
        lines.setdefault((lane, row), ["."] * SHOWN)[column] = name
    for (lane, row), names in sorted(lines.items()):
        shown = f"{row * SHOWN * size:#07x}  {' '.join(name.ljust(width) for name in names).rstrip()}"
        yield shown if is_ddr else f"{lane:4}  {shown}"


def indexed(addresses: Array, config: Config) -> dict[tuple[int, int], tuple[int, ...]]:
    """Map each used (lane, byte offset) to the index (on all axes) of the first element at this place."""
    flat, lane_bytes = within(addresses, config)
    places, first = np.unique(flat, return_index=True)
    indices = zip(*(axis.tolist() for axis in np.unravel_index(first, addresses.shape)), strict=True)
    lanes, offsets = np.divmod(places, lane_bytes)
    return dict(zip(zip(lanes.tolist(), offsets.tolist(), strict=True), indices, strict=True))


def parts(axes: Sequence[str], index: Sequence[int]) -> list[str]:
    """Return the name of an element in parts: n0, c2, h0, w4 for a tensor, or r0, c2 for a matrix."""
    return [f"{SHORT.get(axis, axis)}{number}" for axis, number in zip(axes, index, strict=True)]


def label(axes: Sequence[str], run: Run) -> str:
    """Return a run's elements as text: a box of indices such as `n0 c0 h0-3 w0-4`, or the first and last element."""
    sizes = [last - first + 1 for first, last in zip(run.first, run.last, strict=True)]
    if int(np.prod(sizes)) == run.count:
        pairs = zip(axes, run.first, run.last, strict=True)
        return " ".join(f"{axis}{first}" if first == last else f"{axis}{first}-{last}" for axis, first, last in pairs)
    return f"{_name(axes, run.first)} .. {_name(axes, run.last)}"


def _name(axes: Sequence[str], index: Sequence[int]) -> str:
    return " ".join(f"{axis}{number}" for axis, number in zip(axes, index, strict=True))


def in_ddr(addresses: Array) -> bool:
    return int(addresses.min()) >= DDR_BASE


def within(addresses: Array, config: Config) -> tuple[Array, int]:
    """Return flat byte offsets in the operand's memory, and the memory's bytes per lane.

    DDR counts as one lane. Raises InputError if an address lies neither in local memory nor in DDR.
    """
    if in_ddr(addresses):
        return addresses.reshape(-1) - DDR_BASE, ADDRESS_END
    flat = addresses.reshape(-1) - LOCAL_BASE
    if flat.min() < 0 or flat.max() >= config.local_bytes:
        raise InputError("layout", "the operand is in neither local memory nor DDR", "draw an operand in one of these")
    return flat, config.lane_bytes


def svg(title: str, axes: Sequence[str], addresses: Array, dtype: DType, config: Config) -> str:
    """Draw an operand as SVG, coloured by the first index. Raises InputError if it cannot be drawn."""
    if addresses.size > MOST_CELLS:
        raise InputError("layout", f"a picture of {addresses.size} elements is too large", f"draw at most {MOST_CELLS}")
    elements = indexed(addresses, config)
    size = dtype.bytes
    line = config.eu_bytes
    longest = max(len(part) for index in elements.values() for part in parts(axes, index))
    cell = max(BYTE * size, LETTER * longest + 3)  # n0, c2 .. must each fit in a line
    lines = {key: _wrapped(parts(axes, index), int((cell - 3) / LETTER)) for key, index in elements.items()}
    height = LINE * max(map(len, lines.values())) + 5
    is_ddr = in_ddr(addresses)
    few = config.lanes <= FEW_LANES and not is_ddr
    lanes = list(range(config.lanes)) if few else sorted({lane for lane, _ in elements})
    bands = sorted({offset // line for _, offset in elements})
    row = {lane: number * (height + 2) for number, lane in enumerate(lanes)}
    band_height = len(lanes) * (height + 2) + BETWEEN
    tops = {band: TITLE + number * band_height + BETWEEN for number, band in enumerate(bands)}
    span = cell * line // size
    width = max(MARGIN + span + 10, 8 + 7 * len(title))
    whole = TITLE + len(bands) * band_height + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{whole:g}" font-family="sans-serif">',
        f'<rect width="{width:g}" height="{whole:g}" fill="white"/>',
        f'<text x="8" y="20" font-size="13">{escape(title)}</text>',
    ]
    for band, top in tops.items():
        begin = band * line
        names_bank = not is_ddr and (begin % config.bank_bytes == 0 or band == bands[0])
        bank = f"bank {begin // config.bank_bytes}, " if names_bank else ""
        out.append(f'<text x="{MARGIN}" y="{top - 4}" font-size="10" fill="#555">{bank}byte {begin:#x}</text>')
        for lane, down in row.items():
            out.append(f'<text x="8" y="{top + down + height / 2 + 3:g}" font-size="11">{_memory(is_ddr, lane)}</text>')
            out.append(
                f'<rect x="{MARGIN}" y="{top + down}" width="{span:g}" height="{height}" fill="#f4f4f4" stroke="#ddd"/>'
            )
    for (lane, offset), index in elements.items():
        band, inside = divmod(offset, line)
        x, y = MARGIN + inside // size * cell, tops[band] + row[lane]
        colour = COLOURS[index[0] % len(COLOURS)]
        out.append(
            f'<rect x="{x:g}" y="{y}" width="{cell:g}" height="{height}" fill="{colour}" stroke="#888" '
            f'stroke-width="0.5"><title>{_name(axes, index)}: {_memory(is_ddr, lane)}, byte {offset:#x}</title></rect>'
        )
        for number, part in enumerate(lines[lane, offset], 1):
            place = f'x="{x + cell / 2:g}" y="{y + number * LINE:g}"'
            out.append(f'<text {place} font-size="8" text-anchor="middle">{part}</text>')
    return "\n".join((*out, "</svg>")) + "\n"


def _memory(is_ddr: bool, lane: int) -> str:
    return "DDR" if is_ddr else f"lane {lane}"


def _wrapped(words: Sequence[str], letters: int) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > letters:
            lines.append("")
        lines[-1] += word
    return lines
