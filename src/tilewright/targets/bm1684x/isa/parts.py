"""The encoding of commands.

Each class describes a part of a command, with a decoder (`read`) and an encoder (`write`). A part is an operand, a
result or an attribute of a command. An instruction describes how the fields of one format encode one operation and its
parts. Fields that the format does not have are read as 0, and are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import DMA, OPERATIONS, Operation, attribute
from tilewright.targets.bm1684x.isa.stream import FORMATS, EncodedCommand, Format, heading
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES, DType, from_fields

Fields = dict[str, int]
Layout = Callable[[Shape, DType, int, Config], Stride]
T = TypeVar("T")
FLOAT = "float"
INTEGER = "integer"
FLOAT_CODES = frozenset(dtype.precision for dtype in DTYPES.values() if dtype.is_float)


class Part(Protocol):
    """An operand, a result or attributes of a command, and their encoding in fields."""

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        """Return {operand: value}, or {} if the command lacks the part. Raises TilewrightError for bad fields."""

    def write(self, command: Command) -> Fields:
        """Return the fields that encode the part. Raises ProgramError if the format cannot encode the part."""


class TooFar(ProgramError):
    """Raised if a stride between elements of an operand is too long for its field in the command."""


def refused(command: Command, reason: str, remedy: str = "") -> ProgramError:
    return ProgramError(f"encoding {command.operation.name}", reason, remedy)


@dataclass(frozen=True)
class Type:
    """The encoding of an element type. `precision` names the field with the type code, or is the code itself.

    `sign` decides whether the type is signed: it is the name of a field, a fixed 0 or 1, a function of the command, or
    a tuple of fields, of which one set field is enough. If `always` is given, it is the type, and the fields are
    ignored. `of_floats` is the value of the sign field for a float. `noted` is the name of a second field, to which the
    type code is also written. `loose` means that the sign may be lost.
    """

    precision: str | int
    sign: str | int | tuple[str, ...] | Callable[[EncodedCommand], int] = 0
    always: DType | None = None
    of_floats: int = 0
    noted: str = ""
    loose: bool = False

    def read(self, encoded: EncodedCommand) -> DType:
        if self.always:
            return self.always
        precision = encoded.get(self.precision) if isinstance(self.precision, str) else self.precision
        # Few results have a sign field, because the machine derives the sign from the operands.
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
        return self.loose or (self.sign == 0 and not self.always)


@dataclass(frozen=True)
class Sizes:
    """The four sizes of an operand in the order n, c, h, w.

    A term in `text` is the name of a field, a number that is always the size, or `-` for a size that has no field.
    """

    text: str

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        return tuple(int(term) if term.isdigit() else term for term in self.text.split())

    def read(self, encoded: EncodedCommand) -> Shape:
        return Shape(*(term if isinstance(term, int) else encoded[term] for term in self.terms))

    def write(self, shape: tuple[int, ...]) -> Fields:
        return {term: size for term, size in zip(self.terms, shape, strict=True) if isinstance(term, str)}


#: The sizes of an operand with the result's shape, and of an operand with one value per channel.
RESULT = Sizes("res0_n res0_c res0_h res0_w")
CHANNEL = Sizes("1 res0_c 1 1")
#: The largest stride along n and c, in elements. Fields for these strides have 16 bits in all formats.
LONGEST = (1 << 16) - 1
#: Layouts by their code 0, 1 or 2 in `*_str` fields. With the code STRIDED, the strides have fields of their own.
LAYOUTS: tuple[Layout, ...] = (layout.aligned, layout.compact, lambda shape, dtype, start, config: Stride(0, 1, 0, 0))
ALIGNED = 0
STRIDED = 3


def located(
    address: int, shape: Shape, dtype: DType, config: Config, strides: Layout | Stride = layout.aligned
) -> Tensor:
    """Return a tensor in local memory. `address` is a byte offset from the start of local memory."""
    if not isinstance(strides, Stride):
        strides = strides(shape, dtype, address // config.lane_bytes, config)
    return Tensor(address + LOCAL_BASE, shape, strides, dtype, config)


def of_kind(command: Command, name: str, kind: type[T], reason: str, remedy: str = "") -> T:
    """Return the operand `name`. Raises ProgramError with `reason` if the operand is not an instance of `kind`."""
    operand = command[name]
    if not isinstance(operand, kind):
        raise refused(command, reason, remedy)
    return operand


def local_tensor(command: Command, name: str) -> Tensor:
    """Return the operand `name`. Raises ProgramError if the operand is not a tensor in local memory."""
    operand = command[name]
    if not isinstance(operand, Tensor) or not operand.is_local:
        raise refused(command, f"{name} is not a tensor in local memory", "copy it to local memory first")
    return operand


@dataclass(frozen=True)
class Local:
    """A part that is a tensor in local memory, or a constant if the format has a constant flag and the flag is set.

    The names of the part's fields begin with `prefix`. `layout` is a fixed layout (None: the layout field decides).
    With `by_rows`, the tensor is read as a matrix with one row per channel. `has_strides` is true if the format has
    stride fields. `noted` gives size fields that the machine needs, and that the decoder ignores.
    """

    operand: str
    prefix: str
    type: Type
    sizes: Sizes = RESULT
    layout: Layout | None = None
    noted: Sizes | None = None
    by_rows: bool = False
    has_strides: bool = True

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        dtype = self.type.read(encoded)
        address = encoded[f"{self.prefix}_addr"]
        if encoded.get(f"{self.prefix}_const"):
            return {self.operand: Constant(address & ((1 << dtype.bits) - 1), dtype)}
        tensor = located(address, self.sizes.read(encoded), dtype, config, self.layout or self.strides(encoded))
        return {self.operand: Rows(tensor) if self.by_rows else tensor}

    def strides(self, encoded: EncodedCommand) -> Layout | Stride:
        """Return the layout or strides that the layout field selects. Raises ProgramError for an unknown code."""
        code = encoded.get(f"{self.prefix}_str")
        if code < len(LAYOUTS):
            return LAYOUTS[code]
        if code != STRIDED:
            raise ProgramError(str(encoded), f"the layout code {self.prefix}_str is {code}", "give 0 to 3")
        return Stride(*(encoded.get(f"{self.prefix}_{axis}_str") for axis in "nchw"))

    def write(self, command: Command) -> Fields:
        operand = command[self.operand]
        if isinstance(operand, Constant):
            # a constant takes the place of the address
            fields = {f"{self.prefix}_const": 1, f"{self.prefix}_addr": operand.bits}
            return fields | self.type.write(operand.dtype)
        if self.by_rows:
            tensor = of_kind(
                command, self.operand, Rows, f"{self.operand} is not a matrix by rows", "give its rows()"
            ).storage
        else:
            tensor = local_tensor(command, self.operand)
        fields = {f"{self.prefix}_addr": tensor.address - LOCAL_BASE} | self.type.write(tensor.dtype)
        fields |= self.sizes.write(tensor.shape) | (self.noted.write(tensor.shape) if self.noted else {})
        return fields if self.layout else fields | self.codes(command, tensor)

    def codes(self, command: Command, tensor: Tensor) -> Fields:
        """Return the fields for the tensor's layout: a code, or strides.

        An axis broadcast from size 1 has stride 0. An operand in the attribute `strided` has strides even if a layout
        code could express it.
        """
        shape = Shape(*command.results["y"].shape) if self.sizes == RESULT else tensor.shape
        sizes = zip(tensor.shape, shape, tensor.stride, strict=True)
        # The format has no size fields for a broadcast operand, so this operand has the sizes of the result and strides
        # of 0.
        stride = Stride(*(0 if size != result_size else step for size, result_size, step in sizes))
        named = [make(shape, tensor.dtype, tensor.start_lane, tensor.config) for make in LAYOUTS]
        # Without stride fields, only layout codes can express the strides. All other strides are written as ALIGNED;
        # `meaning.checked` then finds that the decoded command differs.
        if not self.has_strides:  # strides along axes of size 1 are ignored
            codes = [_without_ones(code_stride, shape) for code_stride in (*named, Stride(0, 0, 0, 0))]
            significant = _without_ones(stride, shape)
            return {f"{self.prefix}_str": codes.index(significant) if significant in codes else ALIGNED}
        # A code is faster than strides: two strided operands double the passes of a command (timing/estimate.py).
        begins = tensor.lane_offset % tensor.config.eu_bytes == 0
        if begins and stride == named[ALIGNED] and self.operand not in command.attributes.get("strided", ()):
            return {f"{self.prefix}_str": ALIGNED}
        fitting = self._fitting(command, shape, tensor, stride)
        steps = {f"{self.prefix}_{axis}_str": step for axis, step in zip("nchw", fitting, strict=True)}
        return {f"{self.prefix}_str": STRIDED, **steps}

    def _fitting(self, command: Command, shape: Shape, tensor: Tensor, stride: Stride) -> Stride:
        # The stride along n is used only with several samples, and the stride along c only with several channels in one
        # lane.
        used = shape.n > 1, layout.slots(tensor.start_lane, shape.c, tensor.config) > 1
        between = "samples", "channels of a lane"
        for needed, axis, step in zip(used, between, stride, strict=False):
            if needed and step > LONGEST:
                reason = f"the {axis} of {self.operand} lie {step} elements apart; a command takes up to {LONGEST}"
                raise TooFar(f"encoding {command.operation.name}", reason, "use a smaller image or batch")
        # An unused stride may be too long for its field, and is written as 0.
        n, c = (step if step <= LONGEST else 0 for step in stride[:2])
        return Stride(n, c, stride.h, stride.w)


def _without_ones(stride: Stride, shape: Shape) -> Stride:
    return Stride(*(0 if size == 1 else step for size, step in zip(shape, stride, strict=True)))


@dataclass(frozen=True)
class Number:
    """A part that is always a constant. The field `bits` has its bit pattern, and the field `flag` (if any) is 1."""

    operand: str
    bits: str
    flag: str
    type: Type

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        dtype = self.type.read(encoded)
        return {self.operand: Constant(encoded[self.bits] & ((1 << dtype.bits) - 1), dtype)}

    def write(self, command: Command) -> Fields:
        number = of_kind(command, self.operand, Constant, f"{self.operand} is not a constant", "give a number")
        return {self.bits: number.bits} | self.type.write(number.dtype) | ({self.flag: 1} if self.flag else {})


@dataclass(frozen=True)
class SharedOperand:
    """An operand at the address of another part. The field `flag` tells whether the command has this operand."""

    operand: str
    part: Any
    flag: str = ""

    @property
    def type(self) -> Any:
        return self.part.type

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        is_present = not self.flag or encoded[self.flag]
        return {self.operand: self.part.read(encoded, config)[self.part.operand]} if is_present else {}

    def write(self, command: Command) -> Fields:
        return {self.flag: int(self.operand in command.operands)} if self.flag else {}


@dataclass(frozen=True)
class OptionalPart:
    """A part that a command may omit.

    `is_present` returns whether encoded fields have the part. `absent` has the fields of an omitted part, and `present`
    has additional fields of a part that is not omitted.
    """

    part: Any
    absent: Mapping[str, int]
    present: Mapping[str, int] = field(default_factory=dict)
    is_present: Callable[[EncodedCommand], bool] = lambda encoded: True

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        return self.part.read(encoded, config) if self.is_present(encoded) else {}

    def write(self, command: Command) -> Fields:
        is_given = self.part.operand in command.operands
        return {**self.part.write(command), **self.present} if is_given else dict(self.absent)


@dataclass(frozen=True)
class ComputedPart:
    """Attributes or an operand that `values` computes from the fields. `fields` returns the fields of a command."""

    values: Callable[[EncodedCommand], Mapping[str, Any]]
    fields: Callable[[Command], Fields] = lambda command: {}

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        return self.values(encoded)

    def write(self, command: Command) -> Fields:
        return self.fields(command)


def one_field(
    name: str, field_name: str, value: Callable[[int], Any] = int, code: Callable[[Any], int] = int
) -> ComputedPart:
    """Return the part for an attribute in a field of its own. `value` decodes the field, and `code` encodes it."""
    return ComputedPart(
        lambda encoded: {name: value(encoded[field_name])},
        lambda command: {field_name: code(attribute(command.attributes, name))},
    )


def one_byte(name: str, field_name: str, byte: int) -> ComputedPart:
    return one_field(name, field_name, lambda bits: bits >> 8 * byte & 0xFF, lambda number: number << 8 * byte)


@dataclass(frozen=True, eq=False)
class Instruction:
    """One function of a command format, which encodes one operation.

    An encoded command matches this instruction if three conditions hold. Its fields equal `chosen`. Its first operand
    is of the kind `of` (FLOAT, INTEGER, or "" for both). With `same_type`, the result has the type code of the first
    operand. `long` is set for a long format of the compute engine. `fixed` are attributes that the instruction implies.
    `written` are fields that the machine needs and this model ignores. `takes` returns whether the instruction can
    encode a command (None: any command). If two parts write the same field, the later part overwrites it. The result is
    the last part, so that its sizes remain.
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
    long: bool = False

    @cached_property
    def operation(self) -> Operation:
        return OPERATIONS[self.operation_name]

    @cached_property
    def format(self) -> Format:
        return FORMATS[self.format_name, self.operation.engine != DMA and not self.long]

    @cached_property
    def head(self) -> Fields:
        """The fields that have the same value in all commands of this instruction."""
        return {**heading(self.format), **self.chosen}

    def matches(self, encoded: EncodedCommand) -> bool:
        """Return whether an encoded command, which must have this instruction's format, matches this instruction."""
        # `chosen` is tested first, because it distinguishes most instructions of a format. The types then distinguish
        # the integer and float forms of a function.
        if any(encoded[name] != value for name, value in self.chosen.items()):
            return False
        if self.of and (encoded["opd0_prec"] in FLOAT_CODES) != (self.of == FLOAT):
            return False
        return not self.same_type or encoded["opd0_prec"] == encoded["res0_prec"]

    def read(self, encoded: EncodedCommand, config: Config) -> Command:
        """Decode a command from its fields. Raises TilewrightError if a part is illegal."""
        values = dict(self.fixed)
        for part in self.parts:
            values |= part.read(encoded, config)
        operation = self.operation
        # Values that are neither operands nor results are attributes.
        operands = {name: values.pop(name) for name in operation.inputs if name in values}
        results = {name: values.pop(name) for name in operation.outputs if name in values}
        return Command(operation, operands, results, values)

    def write(self, command: Command) -> Fields:
        """Return the fields of a command except its ids. Raises ProgramError if they cannot encode the command."""
        if wrong := [name for name, value in self.fixed.items() if attribute(command.attributes, name) != value]:
            text = ", ".join(f"{name} {attribute(command.attributes, name)}" for name in wrong)
            raise refused(command, f"the format {self.format_name} cannot encode {text}")
        fields: Fields = {}
        for part in self.parts:
            fields |= part.write(command)
        fields |= {name: int(value(command) if callable(value) else value) for name, value in self.written.items()}
        # The heading comes last, so that no part can overwrite the function number.
        fields |= self.head
        return {name: fields.get(name, 0) for name in self.format.names}

    @cached_property
    def bits_only(self) -> frozenset[str]:
        """The operands and results of which the fields express only the element width, not the type."""
        types = {getattr(part, "operand", ""): getattr(part, "type", None) for part in self.parts}
        return frozenset(name for name, of in types.items() if of and of.keeps_bits)
