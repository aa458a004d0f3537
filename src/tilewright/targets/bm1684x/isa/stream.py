"""A queue's bytes as commands with named fields, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.isa.formats import (
    DMA_TYPES,
    FORMATS,
    MM2_FUNCTIONS,
    RESERVED,
    SGL_FUNCTIONS,
    TIU_TYPES,
    Format,
)
from tilewright.targets.bm1684x.isa.operations import DMA, TIU

#: A command of the compute engine begins with bit `short`, ids, then its type and function.
TIU_TYPE, TIU_FUNCTION, TIU_BYTES = 41, 45, 16
#: A command of the DMA engine has its type behind 32 bits, `short` in bit 3.
DMA_SHORT, DMA_TYPE, DMA_BYTES = 3, 32, 16
#: Where a queue ends.
TIU_END, SYS, DMA_SYS = 31, "SYSID", "DMA_sys"
ENDS = {TIU: (SYS, {"tsk_typ": 15, "tsk_eu_typ": TIU_END}), DMA: (DMA_SYS, {"cmd_short": 1, "cmd_type": 6})}


@dataclass(frozen=True)
class Encoded:
    """One command as its fields (without reserved ones); `number` counts from 0 in its queue."""

    engine: str
    number: int
    format: Format
    fields: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def get(self, name: str) -> int:
        """A field, 0 where the format does not have it."""
        return self.fields.get(name, 0)

    @property
    def id(self) -> int:
        """The command's number in its engine: the first has 1; 0 where its format has none."""
        return self.get("cmd_id")

    @property
    def needs(self) -> int:
        """The number of the other engine's command that must have ended before this one starts; 0: none."""
        return self.get("cmd_id_dep")

    @property
    def is_end(self) -> bool:
        """Whether it closes its queue."""
        return (self.format.name == SYS and self["tsk_eu_typ"] == TIU_END) or self.format.name == DMA_SYS

    def __str__(self) -> str:
        return f"{self.engine} command {self.number} ({self.format.name})"


def decode(engine: str, raw: Array) -> list[Encoded]:
    """The commands of one queue (uint8) up to its end. Raises ProgramError for what is no queue.

    Bytes behind the end are padding.
    """
    found: list[tuple[Format, int]] = []
    position, ended = 0, False
    while position < len(raw) and not ended:
        where = f"{engine} command {len(found)}"
        form, ended = _format(engine, raw[position : position + TIU_BYTES], where)
        size = form.layout.nbytes
        if position + size > len(raw):
            reason = f"its {form.name} command at byte {position} has {size} bytes, {len(raw) - position} are there"
            raise ProgramError(f"{engine} queue", reason)
        found.append((form, position))
        position += size
    if not ended:
        raise ProgramError(f"{engine} queue", "it has no end", "close it with sys.end")
    decoded: dict[int, Encoded] = {}
    for form, numbers in _by_format(form for form, _ in found):
        starts = np.array([found[number][1] for number in numbers])
        columns = form.layout.decode(raw[starts[:, None] + np.arange(form.layout.nbytes)])
        values = zip(*(columns[name].tolist() for name in form.names), strict=True)
        for number, row in zip(numbers, values, strict=True):
            decoded[number] = Encoded(engine, number, form, dict(zip(form.names, row, strict=True)))
    return [decoded[number] for number in range(len(found))]


def encode(commands: Iterable[Encoded]) -> Array:
    """The bytes (uint8) of a queue, without padding. Raises ProgramError for a value that does not fit."""
    given = list(commands)
    parts: dict[int, Array] = {}
    for form, places in _by_format(command.format for command in given):
        own = [given[place] for place in places]
        names = [field.name for field in form.layout.fields]
        for command in own:
            if unknown := sorted(set(command.fields) - set(names)):
                raise ProgramError(str(command), f"{form.name} has no field {unknown[0]}")
        columns = {name: [command.fields.get(name, 0) for command in own] for name in names}
        raw = form.layout.encode(columns, np.array([command.number for command in own]))
        parts.update(zip(places, raw, strict=True))
    return np.concatenate([parts[place] for place in range(len(given))]) if given else np.empty(0, np.uint8)


def queue(engine: str, commands: Sequence[Encoded]) -> Array:
    """The bytes (uint8) of a queue with what ends it."""
    name, fields = ENDS[engine]
    count = len(commands)
    return encode([*commands, fresh(engine, count, name, True, {**fields, "cmd_id": count + 1})])


def _by_format(formats: Iterable[Format]) -> list[tuple[Format, list[int]]]:
    """The places of each format in a queue: all commands of one are decoded at once."""
    found: dict[int, tuple[Format, list[int]]] = {}
    for place, form in enumerate(formats):
        found.setdefault(id(form), (form, []))[1].append(place)
    return list(found.values())


def fresh(engine: str, number: int, name: str, short: bool, fields: Mapping[str, int]) -> Encoded:
    """A command from some of its fields; the others are 0. Raises ProgramError for an unknown format."""
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(f"{engine} command {number}", f"there is no {'short ' if short else ''}format {name}")
    return Encoded(engine, number, form, {field: fields.get(field, 0) for field in form.names} | dict(fields))


def _format(engine: str, raw: Array, where: str) -> tuple[Format, bool]:
    """The format of the command that begins here, and whether it ends its queue."""
    if len(raw) < TIU_BYTES:
        raise ProgramError(where, f"{len(raw)} bytes are left, a command has {TIU_BYTES} at least")
    head = int.from_bytes(raw[:TIU_BYTES].tobytes(), "little")
    if engine == TIU:
        kind, function = head >> TIU_TYPE & 15, head >> TIU_FUNCTION & 31
        name, short = TIU_TYPES.get(kind, ""), bool(head & 1)
        if name == "MM" and function in MM2_FUNCTIONS:
            name = "MM2"
        elif name == "SG" and function in SGL_FUNCTIONS:
            name = "SGL"
    elif engine == DMA:
        kind = head >> DMA_TYPE & 15
        name, short = DMA_TYPES.get(kind, ""), bool(head >> DMA_SHORT & 1)
    else:
        raise ProgramError(where, f"no format is known for the engine {engine}", f"give {TIU} or {DMA}")
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(where, f"its type {kind}{' (short)' if short else ''} has no known format")
    return form, name == DMA_SYS or (name == SYS and engine == TIU and (head >> TIU_FUNCTION & 31) == TIU_END)


__all__ = ["RESERVED", "Encoded", "decode", "encode", "fresh", "queue"]
