"""Decode the bytes of a command queue to commands with named fields, and encode such commands.

formats.txt has the bit fields of all formats. The compute engine (tiu) has one long format for all commands, and short
formats for most commands. The DMA engine has a long format per command type, and a few short formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Field, Layout
from tilewright.targets.bm1684x.isa.operation import DMA, TIU

#: The compute engine's formats by task type. Types 2 and 6 have two formats each, selected by the function.
TIU_TYPES = {0: "CONV", 1: "PorD", 2: "MM", 3: "AR", 4: "RQ&DQ", 5: "TRANS&BC", 6: "SG", 7: "LAR", 9: "SFU"}
TIU_TYPES |= {10: "LIN", 13: "CMP", 14: "VC", 15: "SYSID"}
MM2_FUNCTIONS = (4, 5, 6)
SGL_FUNCTIONS = (17, 18, 19)
DMA_TYPES = {0: "DMA_tensor", 1: "DMA_matrix", 2: "DMA_masked_select", 3: "DMA_general", 4: "DMA_cw_transpose"}
DMA_TYPES |= {5: "DMA_nonzero", 6: "DMA_sys", 7: "DMA_gather", 8: "DMA_scatter"}
_NUMBERS = {name: number for types in (TIU_TYPES, DMA_TYPES) for number, name in types.items()} | {"MM2": 2, "SGL": 6}
RESERVED = "-"
ALL_LANES = 0xFFFF_FFFF
#: Bit positions of the type and the function of a compute command, and the size of the shortest command in bytes.
TIU_TYPE = 41
TIU_FUNCTION = 45
TIU_BYTES = 16
#: Bit positions of a DMA command's `short` flag and type.
DMA_SHORT_BIT = 3
DMA_TYPE = 32
#: The end of a queue: the function number (compute engine), the formats, and the fields of the end command by engine.
TIU_END = 31
SYS = "SYSID"
DMA_SYS = "DMA_sys"
ENDS = {TIU: (SYS, {"tsk_typ": 15, "tsk_eu_typ": TIU_END}), DMA: (DMA_SYS, {"cmd_short": 1, "cmd_type": 6})}


@dataclass(frozen=True)
class Format:
    """One command format. `short` is the value of the field cmd_short. Reserved fields have the names -0, -1, .."""

    name: str
    short: bool
    layout: Layout

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.layout.fields if not field.name.startswith(RESERVED))


def heading(form: Format) -> dict[str, int]:
    """Return the fields that have the same value in all commands of a format, with their values."""
    if not form.name.startswith("DMA"):
        return {"cmd_short": int(form.short), "tsk_typ": _NUMBERS[form.name]}
    masks = dict.fromkeys(("localmem_mask_l32", "localmem_mask_h32"), ALL_LANES)
    return {"cmd_short": int(form.short), "cmd_type": _NUMBERS[form.name], "stride_enable": 1, **masks}


def _format(name: str, short: bool, text: str) -> Format:
    words = [word.partition(":") for word in text.split()]
    fields = [
        Field(f"{RESERVED}{number}" if word == RESERVED else word, int(width or 1))
        for number, (word, _, width) in enumerate(words)
    ]
    # Words have 32 bits if no field crosses a word boundary, else 64 bits.
    ends = accumulate(field.width for field in fields)
    fits = all((end - field.width) // 32 == (end - 1) // 32 for field, end in zip(fields, ends, strict=True))
    return Format(name, short, Layout(name, tuple(fields), 32 if fits else 64))


def _formats() -> dict[tuple[str, bool], Format]:
    parts: dict[str, str] = {}
    formats: dict[tuple[str, bool], Format] = {}
    text = Path(__file__).with_name("formats.txt").read_text(encoding="utf-8")
    for line in text.replace("\n    ", " ").splitlines():
        if not line or line.startswith("#"):
            continue
        kind, name, fields = line.split(maxsplit=2)
        fields = fields.format_map(parts)
        # A line `part` defines a list of fields that several formats share. A line `both` defines a format for both
        # values of cmd_short. Every compute command also has a long form, and all long forms have the same fields
        # (TIU_LONG).
        if kind == "part":
            parts[name] = fields
        elif kind == "both":
            formats |= dict.fromkeys(((name, False), (name, True)), _format(name, True, fields))
        else:
            formats[name, kind == "short"] = _format(name, kind == "short", fields)
            if not name.startswith("DMA"):
                formats[name, False] = _format(name, False, parts["TIU_LONG"])
    return formats


FORMATS = _formats()


@dataclass(frozen=True)
class EncodedCommand:
    """The fields of one command, without reserved fields. `number` is the command's position in its queue, from 0."""

    engine: str
    number: int
    format: Format
    fields: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def get(self, name: str) -> int:
        return self.fields.get(name, 0)

    @property
    def id(self) -> int:
        """The id of the command in its queue, from 1; 0 if the format has no id."""
        return self.get("cmd_id")

    @property
    def needs(self) -> int:
        """The id of the command of the other engine that this command waits for (0: no wait)."""
        return self.get("cmd_id_dep")

    @property
    def is_end(self) -> bool:
        return (self.format.name == SYS and self["tsk_eu_typ"] == TIU_END) or self.format.name == DMA_SYS

    def __str__(self) -> str:
        return f"{self.engine} command {self.number} ({self.format.name})"


def decode(engine: str, raw: Array) -> list[EncodedCommand]:
    """Return the commands in a queue (uint8), including the end command. All bytes after the end command are padding.

    Raises ProgramError if the queue is cut short, has no end command, or has a command of an unknown format.
    """
    commands: list[tuple[Format, int]] = []
    position = 0
    ended = False
    while position < len(raw) and not ended:
        where = f"{engine} command {len(commands)}"
        form, ended = _format_of(engine, raw[position : position + TIU_BYTES], where)
        size = form.layout.nbytes
        if position + size > len(raw):
            left = len(raw) - position
            reason = f"the {form.name} command at byte {position} has {size} bytes; only {left} are left"
            raise ProgramError(f"{engine} queue", reason)
        commands.append((form, position))
        position += size
    if not ended:
        raise ProgramError(f"{engine} queue", "it has no end command", f"end it with {SYS} (tiu) or {DMA_SYS} (dma)")
    # All commands of a format are decoded together, because a network has thousands of commands in only a few formats.
    decoded: dict[int, EncodedCommand] = {}
    for form, numbers in _by_format(form for form, _ in commands):
        starts = np.array([commands[number][1] for number in numbers])
        columns = form.layout.decode(raw[starts[:, None] + np.arange(form.layout.nbytes)])
        values = zip(*(columns[name].tolist() for name in form.names), strict=True)
        for number, row in zip(numbers, values, strict=True):
            decoded[number] = EncodedCommand(engine, number, form, dict(zip(form.names, row, strict=True)))
    return [decoded[number] for number in range(len(commands))]


def encode(commands: Iterable[EncodedCommand]) -> Array:
    """Encode commands to bytes (uint8), without padding. Raises ProgramError if a field is unknown or too large."""
    listed = list(commands)
    parts: dict[int, Array] = {}
    for form, places in _by_format(command.format for command in listed):
        members = [listed[place] for place in places]
        for command in members:
            if unknown := sorted(command.fields.keys() - form.layout.by_name.keys()):
                raise ProgramError(str(command), f"the format {form.name} has no field {unknown[0]}")
        rows = [command.fields for command in members]
        numbers = np.array([command.number for command in members])
        # as in `decode`, all commands of a format together
        raw = form.layout.encode_rows(rows, numbers)
        parts.update(zip(places, raw, strict=True))
    return np.concatenate([parts[place] for place in range(len(listed))]) if listed else np.empty(0, np.uint8)


def queue(engine: str, commands: Sequence[EncodedCommand]) -> Array:
    """Encode `commands` and an end command to bytes (uint8). Raises ProgramError for an unknown or too large field."""
    name, fields = ENDS[engine]
    count = len(commands)
    return encode([*commands, new_command(engine, count, name, True, {**fields, "cmd_id": count + 1})])


def _by_format(formats: Iterable[Format]) -> list[tuple[Format, list[int]]]:
    groups: dict[int, tuple[Format, list[int]]] = {}
    for place, form in enumerate(formats):
        groups.setdefault(id(form), (form, []))[1].append(place)
    return list(groups.values())


def new_command(engine: str, number: int, name: str, short: bool, fields: Mapping[str, int]) -> EncodedCommand:
    """Return a command with the given fields; all others are 0. Raises ProgramError for an unknown format."""
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(f"{engine} command {number}", f"there is no {'short ' if short else ''}format {name}")
    return EncodedCommand(engine, number, form, {field: fields.get(field, 0) for field in form.names} | dict(fields))


def _format_of(engine: str, raw: Array, where: str) -> tuple[Format, bool]:
    if len(raw) < TIU_BYTES:
        raise ProgramError(where, f"only {len(raw)} bytes are left; a command has at least {TIU_BYTES}")
    # The first 16 bytes identify the format, which gives the size of the command.
    head = int.from_bytes(raw[:TIU_BYTES].tobytes(), "little")
    if engine == TIU:
        kind = head >> TIU_TYPE & 15
        function = head >> TIU_FUNCTION & 31
        name = TIU_TYPES.get(kind, "")
        short = bool(head & 1)
        if name == "MM" and function in MM2_FUNCTIONS:
            name = "MM2"
        elif name == "SG" and function in SGL_FUNCTIONS:
            name = "SGL"
    elif engine == DMA:
        kind = head >> DMA_TYPE & 15
        name = DMA_TYPES.get(kind, "")
        short = bool(head >> DMA_SHORT_BIT & 1)
    else:
        raise ProgramError(where, f"no command format of the engine {engine} is known", f"give {TIU} or {DMA}")
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(where, f"command type {kind}{' (short)' if short else ''} has no known format")
    return form, name == DMA_SYS or (name == SYS and engine == TIU and (head >> TIU_FUNCTION & 31) == TIU_END)
