"""The text form of launches: the DRAM segments, then one command per line. Reading the text back is exact.

    .launch product
    .segment a address=0x1000 size=0x100 kind=input
    .segment c address=0x2000 size=0x100 kind=output
    .code
    config_ld pixels=1 block_stride=16 scale=1.0 stride=0x10
    mvin dram=0x1000 local=spad[0] cols=16 rows=16
    config_ex dataflow=ws a_stride=1 scale=1.0 c_stride=1
    preload bd=spad[16] bd_cols=16 bd_rows=16 c=acc+[0] c_cols=16 c_rows=16
    compute_preloaded a=spad[0] a_cols=16 a_rows=16 bd=none bd_cols=16 bd_rows=16
    fence

A local address is `spad[ROW]` or `acc[ROW]`. A `+` stands for accumulation, `.full` for rows of int32, `.normN` for a
norm command, and `none` for an absent operand. A scale is a float32, or the bits of a NaN as 0x... Fields that are 0
are omitted, except for addresses and sizes. program/listing.py defines the text of segments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Form, Names, Notation, rows
from tilewright.program.listing import image_text
from tilewright.program.words import Word, integer
from tilewright.targets.gemmini.isa.fields import FORMATS, LAYOUTS, NBYTES, codes, commands, fields, raw
from tilewright.targets.gemmini.isa.work import ACC, ACCUMULATE, FULL, NORM

#: The local address of an absent operand (all bits are 1).
ABSENT = 0xFFFF_FFFF
_LOCAL = re.compile(r"(spad|acc)(\+?)(\.full)?(?:\.norm([1-7]))?\[(\d+)\]")


class LocalText(Names):
    """The text of local addresses."""

    def show(self, value: int) -> str:
        if value == ABSENT:
            return "none"
        norm = value >> NORM & 7
        flags = ("+" if value >> ACCUMULATE & 1 else "") + (".full" if value >> FULL & 1 else "")
        return f"{'acc' if value >> ACC else 'spad'}{flags}{f'.norm{norm}' if norm else ''}[{value & (1 << NORM) - 1}]"

    def read(self, word: Word, high: int) -> int:
        if word.text == "none":
            return ABSENT
        match = _LOCAL.fullmatch(word.text)
        if not match or int(match[5]) >= 1 << NORM:
            word.refuse(self.expected)
        flags = (match[1] == "acc") << ACC | bool(match[2]) << ACCUMULATE | bool(match[3]) << FULL
        return flags | int(match[4] or 0) << NORM | int(match[5])

    @property
    def expected(self) -> str:
        return "spad[ROW], acc[ROW], acc+[ROW], acc.full[ROW] or none"


class Float(Names):
    """The text of float32 fields."""

    def show(self, value: int) -> str:
        number = np.array(value, np.uint32).view(np.float32)
        return str(number[()]) if np.isfinite(number) else f"{value:#x}"

    def read(self, word: Word, high: int) -> int:
        if word.text.startswith("0x"):
            return integer(word, 0, high)
        try:
            number = np.array(float(word.text)).astype(np.float32)
        except ValueError:
            word.refuse("a number, or the bits 0x.. of a float32")
        return int(number.view(np.uint32))


class Hex(Names):
    """The text of DRAM addresses and strides."""

    def show(self, value: int) -> str:
        return f"{value:#x}"

    def read(self, word: Word, high: int) -> int:
        return integer(word, -high - 1, high)


#: The text always contains these fields.
_OPERANDS = "a", "bd", "c"
_WRITTEN = {"dram", "local", "cols", "rows", "state", *_OPERANDS} | {
    f"{operand}_{n}" for operand in _OPERANDS for n in ("cols", "rows")
}
_ACTIVATIONS = Names(("none", "relu", "layernorm", "igelu", "softmax"), "act")
_NAMES: dict[str, Names] = {
    **dict.fromkeys(("local", *_OPERANDS), LocalText(())),
    **{"scale": Float(()), "activation": _ACTIVATIONS, "dataflow": Names(("os", "ws"))},
    **dict.fromkeys(("dram", "stride"), Hex(())),
}


@cache
def _notation() -> Notation:
    """Return the text syntax of commands. A command's code is the index of its mnemonic."""
    forms = {}
    flags = {}
    for code, (form, layout) in enumerate(zip(FORMATS, LAYOUTS, strict=True)):
        names = {place.name: _NAMES[place.name] for place in form.places if place.name in _NAMES}
        names |= {place.name: Hex(()) for place in form.places if place.width == 64}
        declared = {place.name for place in form.places}
        # A one-bit field of a format appears as its bare name if it is 1. A field for unused bits appears as a number.
        bits = {place.name: place.name for place in form.places if place.width == 1 and place.name not in names}
        places = [name for name in layout.by_name if name not in (*bits, "funct", "kind")]
        optional = {name for name in places if name not in declared or name not in _WRITTEN}
        forms[code] = Form(layout, tuple(places), (), optional, names)
        flags[code] = bits
    mnemonics = Names(tuple(form.name for form in FORMATS))
    return Notation("code", mnemonics, forms, lambda values: flags[values["code"]])


def lines(cmds: Array) -> list[str]:
    """Return a line of text for each command of uint64 [n, 3]. Raises ProgramError for an unknown funct."""
    code = codes(cmds)
    show = _notation().show
    texts = [""] * len(cmds)
    for present in np.flatnonzero(np.bincount(code, minlength=1)).tolist():
        mine = np.flatnonzero(code == present)
        for row, values in zip(mine.tolist(), rows(fields(cmds[mine], present)), strict=True):
            texts[row] = show({**values, "code": present})
    return texts


def line(cmds: Array, row: int) -> str:
    return lines(cmds[row : row + 1])[0]


def assembled(read: Sequence[Mapping[str, int]]) -> Array:
    """Encode commands, uint64 [n, 3], from their fields and codes. Raises ProgramError for an invalid value."""
    cmds = np.zeros((len(read), 3), np.uint64)
    for row, values in enumerate(read):
        form = FORMATS[values["code"]]
        layout = LAYOUTS[values["code"]]
        row_fields = {name: value for name, value in values.items() if name != "code"} | form.fixed
        cmds[row] = commands(layout.encode_rows([row_fields], np.array([row])))[0]
    return cmds


#: The text form of launches.
TEXT = image_text(NBYTES, _notation().read, lambda read: raw(assembled(read)), lambda insns: lines(commands(insns)))
