"""Where the elements of an operand lie in local memory, as an SVG picture: a box an element, with its name.

Memory is cut into bands of one line of a lane (64 bytes); a band has a row for each lane, so that what lies at the same
offset of several lanes stands one below the other. Bands without elements are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.drawing import named, parts
from tilewright.targets.bm1684x.values.dtypes import DType

#: Elements of a picture; lanes up to which empty ones are shown.
MOST_CELLS, FEW_LANES = 4096, 8
#: Pixels: of a byte at least, of a letter, a line of a name, the margin that names lanes, between bands, of the title.
BYTE, LETTER, LINE, MARGIN, BETWEEN, TITLE = 9, 4.6, 9, 64, 18, 34
COLOURS = ("#cfe3f7", "#fbe3c0", "#d5eed0", "#f3d1dc", "#e2d8f2", "#f4efb9")


def svg(title: str, axes: Sequence[str], addresses: Array, dtype: DType, config: Config) -> str:
    """The picture; colours by the first index. Raises InputError for too many elements, and outside local memory."""
    if addresses.size > MOST_CELLS:
        raise InputError("layout", f"a picture of {addresses.size} elements", f"draw {MOST_CELLS} at most")
    found = named(axes, addresses, config)
    size, line = dtype.bytes, config.eu_bytes
    longest = max(len(part) for _, index in found.values() for part in parts(axes, index))
    cell = max(BYTE * size, LETTER * longest + 3)  # every part of a name fits
    lines = {key: _wrapped(parts(axes, index), int((cell - 3) / LETTER)) for key, (_, index) in found.items()}
    height = LINE * max(map(len, lines.values())) + 5
    lanes = list(range(config.lanes)) if config.lanes <= FEW_LANES else sorted({lane for lane, _ in found})
    bands = sorted({offset // line for _, offset in found})
    row = {lane: number * (height + 2) for number, lane in enumerate(lanes)}
    band_height = len(lanes) * (height + 2) + BETWEEN
    tops = {band: TITLE + number * band_height + BETWEEN for number, band in enumerate(bands)}
    span = cell * line // size
    width, whole = max(MARGIN + span + 10, 8 + 7 * len(title)), TITLE + len(bands) * band_height + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{whole:g}" font-family="sans-serif">',
        f'<rect width="{width:g}" height="{whole:g}" fill="white"/>',
        f'<text x="8" y="20" font-size="13">{escape(title)}</text>',
    ]
    for band, top in tops.items():
        begin = band * line
        bank = f"bank {begin // config.bank_bytes}, " if begin % config.bank_bytes == 0 or band == bands[0] else ""
        out.append(f'<text x="{MARGIN}" y="{top - 4}" font-size="10" fill="#555">{bank}byte {begin:#x}</text>')
        for lane, down in row.items():
            out.append(f'<text x="8" y="{top + down + height / 2 + 3:g}" font-size="11">lane {lane}</text>')
            out.append(
                f'<rect x="{MARGIN}" y="{top + down}" width="{span:g}" height="{height}" fill="#f4f4f4" stroke="#ddd"/>'
            )
    for (lane, offset), (_, index) in found.items():
        band, inside = divmod(offset, line)
        x, y = MARGIN + inside // size * cell, tops[band] + row[lane]
        name = " ".join(f"{axis}{number}" for axis, number in zip(axes, index, strict=True))
        colour = COLOURS[index[0] % len(COLOURS)]
        out.append(
            f'<rect x="{x:g}" y="{y}" width="{cell:g}" height="{height}" fill="{colour}" stroke="#888" '
            f'stroke-width="0.5"><title>{name}: lane {lane}, byte {offset:#x}</title></rect>'
        )
        out += _text(lines[lane, offset], x + cell / 2, y + LINE)
    return "\n".join((*out, "</svg>")) + "\n"


def _wrapped(words: Sequence[str], letters: int) -> list[str]:
    """The parts of a name on lines of so many letters."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > letters:
            lines.append("")
        lines[-1] += word
    return lines


def _text(lines: Sequence[str], x: float, y: float) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f'<text x="{x:g}" y="{y + number * LINE:g}" font-size="8" text-anchor="middle">{line}</text>'
