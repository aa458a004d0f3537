"""An instruction, described once: the operation that it is, and its parts in the fields of a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.formats import FORMATS, Format, heading
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, Operation
from tilewright.targets.bm1684x.isa.operations.base import attribute
from tilewright.targets.bm1684x.isa.parts import Fields, Part, Typed, refused
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.values.dtypes import DTYPES

FLOAT, INTEGER = "float", "integer"
FLOAT_CODES = frozenset(dtype.precision for dtype in DTYPES.values() if dtype.is_float)


@dataclass(frozen=True, eq=False)
class Instruction:
    """One function of a format.

    `chosen`: fields that tell it from the format's other functions; `of`: whether its first operand is a float or an
    integer, if that tells them apart; `same_type`: whether the result has the type of the first operand, likewise.
    `fixed`: attributes that it implies. `written`: fields that the machine wants, and that mean nothing here.
    `takes`: whether the instruction can say a command, where operands and attributes do not show it.
    Later parts win where two write one field: the result comes last, as operands may be repeated over its shape.
    """

    format_name: str
    operation_name: str
    parts: tuple[Part, ...]
    chosen: Mapping[str, int]
    of: str = ""
    same_type: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, int | Callable[[Command], int]] = field(default_factory=dict)
    takes: Callable[[Command], bool] | None = None

    def only(self, takes: Callable[[Command], bool]) -> Instruction:
        """The same, for some commands only."""
        return replace(self, takes=takes)

    @cached_property
    def operation(self) -> Operation:
        return OPERATIONS[self.operation_name]

    @cached_property
    def format(self) -> Format:
        return FORMATS[self.format_name, self.operation.engine != DMA]

    @cached_property
    def head(self) -> Fields:
        """The fields that every command of this instruction has."""
        return {**heading(self.format), **self.chosen}

    def means(self, encoded: Encoded) -> bool:
        """Whether an encoded command of the format is this instruction."""
        if any(encoded[name] != value for name, value in self.chosen.items()):
            return False
        if self.of and (encoded["opd0_prec"] in FLOAT_CODES) != (self.of == FLOAT):
            return False
        return not self.same_type or encoded["opd0_prec"] == encoded["res0_prec"]

    def read(self, encoded: Encoded, config: Config) -> Command:
        """The command that the fields say. Raises TilewrightError for parts that cannot be."""
        found = dict(self.fixed)
        for part in self.parts:
            found |= part.read(encoded, config)
        operation = self.operation
        operands = {name: found.pop(name) for name in operation.inputs if name in found}
        results = {name: found.pop(name) for name in operation.outputs if name in found}
        return Command(operation, operands, results, found)

    def write(self, command: Command) -> Fields:
        """The fields that say a command, without its ids. Raises ProgramError where the format cannot say it."""
        if wrong := [name for name, value in self.fixed.items() if attribute(command.attributes, name) != value]:
            given = ", ".join(f"{name} {attribute(command.attributes, name)}" for name in wrong)
            raise refused(command, f"{self.format_name} does not have it with {given}")
        fields: Fields = {}
        for part in self.parts:
            fields |= part.write(command)
        fields |= {name: int(value(command) if callable(value) else value) for name, value in self.written.items()}
        fields |= self.head
        return {name: fields.get(name, 0) for name in self.format.names}

    @cached_property
    def bits_only(self) -> frozenset[str]:
        """Operands and results of which the fields say only how many bits an element has."""
        typed = [part for part in self.parts if isinstance(part, Typed)]
        return frozenset(part.own for part in typed if part.type.keeps_bits)
