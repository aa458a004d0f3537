"""The parts that commands are made of, and an instruction, each described once for reading and for writing.

A part is an operand, a result or an attribute; an instruction is an operation and its parts in the fields of a format.
A field that a format does not have is read as 0 and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, Operation
from tilewright.targets.bm1684x.isa.operations.base import attribute
from tilewright.targets.bm1684x.isa.stream import FORMATS, Encoded, Format, heading
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES, DType, from_fields

Fields = dict[str, int]
Layout = Callable[[Shape, DType, int, Config], Stride]
T = TypeVar("T")
FLOAT, INTEGER = "float", "integer"
FLOAT_CODES = frozenset(dtype.precision for dtype in DTYPES.values() if dtype.is_float)


class Part(Protocol):
    """An operand, a result or an attribute."""

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        """Its value by its name in the command; empty where the command has none. Raises TilewrightError."""

    def write(self, command: Command) -> Fields:
        """The fields that say it. Raises ProgramError where none can."""


def refused(command: Command, reason: str, remedy: str = "") -> ProgramError:
    """The error for a command that no known format can say."""
    return ProgramError(f"encoding {command.operation.name}", reason, remedy)


@dataclass(frozen=True)
class Type:
    """An element type. `precision`: the field of its code, or the code.

    `sign`: its own field, a fixed sign, or the fields of operands of which one at least must be signed.
    `always`: the one type that there is, whatever the fields say. `of_floats`: the sign field of a float.
    `noted`: a second field that the code is written to.
    """

    precision: str | int
    sign: str | int | tuple[str, ...] | Callable[[Encoded], int] = 0
    always: DType | None = None
    of_floats: int = 0
    noted: str = ""

    def read(self, encoded: Encoded) -> DType:
        if self.always:
            return self.always
        precision = encoded.get(self.precision) if isinstance(self.precision, str) else self.precision
        if isinstance(self.sign, str):
            sign = encoded.get(self.sign)
        elif isinstance(self.sign, tuple):
            sign = any(encoded.get(name) for name in self.sign)
        else:
            sign = self.sign if isinstance(self.sign, int) else self.sign(encoded)
        return from_fields(precision, sign)

    def write(self, dtype: DType) -> Fields:
        fields = {name: dtype.precision for name in (self.precision, self.noted) if isinstance(name, str)}
        if isinstance(self.sign, str):
            fields[self.sign] = self.of_floats if dtype.is_float else int(dtype.signed)
        return fields

    @property
    def keeps_bits(self) -> bool:
        """Whether the fields only say how many bits an element has."""
        return self.sign == 0 and not self.always


@dataclass(frozen=True)
class Sizes:
    """The four sizes of an operand: names of fields, numbers, and `-` for a size that is not written."""

    text: str

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        return tuple(int(term) if term.isdigit() else term for term in self.text.split())

    def read(self, encoded: Encoded) -> Shape:
        return Shape(*(term if isinstance(term, int) else encoded[term] for term in self.terms))

    def write(self, shape: tuple[int, ...]) -> Fields:
        return {term: size for term, size in zip(self.terms, shape, strict=True) if isinstance(term, str)}


#: The result's own shape, which most operands share; one value a channel.
RESULT, CHANNEL = Sizes("res0_n res0_c res0_h res0_w"), Sizes("1 res0_c 1 1")
#: Codes of `*_str` fields: the layouts that a shape determines, and strides in the command.
LAYOUTS: tuple[Layout, ...] = (layout.aligned, layout.compact, lambda shape, dtype, start, config: Stride(0, 1, 0, 0))
ALIGNED, STRIDED = 0, 3


def located(
    address: int, shape: Shape, dtype: DType, config: Config, strides: Layout | Stride = layout.aligned
) -> Tensor:
    """A tensor of local memory; `address` counts from its beginning."""
    if not isinstance(strides, Stride):
        strides = strides(shape, dtype, address // config.lane_bytes, config)
    return Tensor(address + LOCAL_BASE, shape, strides, dtype, config)


def of_kind(command: Command, own: str, kind: type[T], reason: str, remedy: str = "") -> T:
    """An operand that must be of one class. Raises ProgramError."""
    operand = command[own]
    if not isinstance(operand, kind):
        raise refused(command, reason, remedy)
    return operand


def local_tensor(command: Command, own: str) -> Tensor:
    """An operand that must be a tensor in local memory. Raises ProgramError."""
    operand = command[own]
    if not isinstance(operand, Tensor) or not operand.is_local:
        raise refused(command, f"{own} is no tensor in local memory", "move it there first")
    return operand


@dataclass(frozen=True)
class Local:
    """A tensor of local memory, called `name` by the format; or a constant, where the format has a flag for it.

    `layout`: the one that it has; else the field of its layout says. `by_rows`: as a matrix of its channels.
    `has_strides`: whether the format has fields for them.
    `noted`: sizes that are written for the machine, and not needed to read it.
    """

    own: str
    name: str
    type: Type
    sizes: Sizes = RESULT
    layout: Layout | None = None
    noted: Sizes | None = None
    by_rows: bool = False
    has_strides: bool = True

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        dtype, address = self.type.read(encoded), encoded[f"{self.name}_addr"]
        if encoded.get(f"{self.name}_const"):
            return {self.own: Constant(address & ((1 << dtype.bits) - 1), dtype)}
        tensor = located(address, self.sizes.read(encoded), dtype, config, self.layout or self.strides(encoded))
        return {self.own: Rows(tensor) if self.by_rows else tensor}

    def strides(self, encoded: Encoded) -> Layout | Stride:
        """As the field of the layout says."""
        code = encoded.get(f"{self.name}_str")
        if code < len(LAYOUTS):
            return LAYOUTS[code]
        if code != STRIDED:
            raise ProgramError("command", f"layout code {code} is not known", "give 0 to 3")
        return Stride(*(encoded.get(f"{self.name}_{axis}_str") for axis in "nchw"))

    def write(self, command: Command) -> Fields:
        operand = command[self.own]
        if isinstance(operand, Constant):
            fields = {f"{self.name}_const": 1, f"{self.name}_addr": operand.bits}
            return fields | self.type.write(operand.dtype)
        if self.by_rows:
            tensor = of_kind(command, self.own, Rows, f"{self.own} is no matrix by rows", "give rows()").storage
        else:
            tensor = local_tensor(command, self.own)
        fields = {f"{self.name}_addr": tensor.address - LOCAL_BASE} | self.type.write(tensor.dtype)
        fields |= self.sizes.write(tensor.shape) | (self.noted.write(tensor.shape) if self.noted else {})
        return fields if self.layout else fields | self.codes(command, tensor)

    def codes(self, command: Command, tensor: Tensor) -> Fields:
        """The layout code and strides; axes of size 1 repeat over the result's shape.

        An operand among the attribute `strided` has strides even if a layout has them.
        """
        shape = Shape(*command.results["y"].shape) if self.sizes == RESULT else tensor.shape
        sizes = zip(tensor.shape, shape, tensor.stride, strict=True)
        stride = Stride(*(0 if size != wanted else step for size, wanted, step in sizes))
        named = [make(shape, tensor.dtype, tensor.start_lane, tensor.config) for make in LAYOUTS]
        if not self.has_strides:
            codes = [*named, Stride(0, 0, 0, 0)]
            return {f"{self.name}_str": codes.index(stride) if stride in codes else ALIGNED}
        if stride == named[ALIGNED] and self.own not in command.attributes.get("strided", ()):
            return {f"{self.name}_str": ALIGNED}
        steps = {f"{self.name}_{axis}_str": step for axis, step in zip("nchw", stride, strict=True)}
        return {f"{self.name}_str": STRIDED, **steps}


@dataclass(frozen=True)
class Number:
    """An operand that is always a constant, in a field `bits`; `flag`: the field that says that it is there."""

    own: str
    bits: str
    flag: str
    type: Type

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        dtype = self.type.read(encoded)
        return {self.own: Constant(encoded[self.bits] & ((1 << dtype.bits) - 1), dtype)}

    def write(self, command: Command) -> Fields:
        number = of_kind(command, self.own, Constant, f"{self.own} is no number", "give a constant")
        return {self.flag: 1, self.bits: number.bits}


@dataclass(frozen=True)
class Again:
    """An operand that lies where another part does, such as a result that is added to; `flag`: whether there is one."""

    own: str
    part: Any
    flag: str = ""

    @property
    def type(self) -> Any:
        return self.part.type

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        there = not self.flag or encoded[self.flag]
        return {self.own: self.part.read(encoded, config)[self.part.own]} if there else {}

    def write(self, command: Command) -> Fields:
        return {self.flag: int(self.own in command.operands)} if self.flag else {}


@dataclass(frozen=True)
class Optional:
    """A part that a command may do without: then it is written as `absent`. `there`: whether fields have it."""

    part: Any
    absent: Mapping[str, int]
    present: Mapping[str, int] = field(default_factory=dict)
    there: Callable[[Encoded], bool] = lambda encoded: True

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        return self.part.read(encoded, config) if self.there(encoded) else {}

    def write(self, command: Command) -> Fields:
        given = self.part.own in command.operands
        return {**self.part.write(command), **self.present} if given else dict(self.absent)


@dataclass(frozen=True)
class Computed:
    """A part of several fields, by two functions. Without `fields` the function of the command implies it."""

    own: str
    value: Callable[[Encoded], Any]
    fields: Callable[[Command], Fields] = lambda command: {}

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        return {self.own: self.value(encoded)}

    def write(self, command: Command) -> Fields:
        return self.fields(command)


def one_field(own: str, name: str, value: Callable[[int], Any] = int, code: Callable[[Any], int] = int) -> Computed:
    """An attribute that is one field: `value` of the field, and `code` of the attribute."""
    return Computed(own, lambda c: value(c[name]), lambda command: {name: code(attribute(command.attributes, own))})


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
        types = {getattr(part, "own", ""): getattr(part, "type", None) for part in self.parts}
        return frozenset(own for own, of in types.items() if of and of.keeps_bits)
