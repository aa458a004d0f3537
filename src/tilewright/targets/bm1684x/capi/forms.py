"""Classes that describe how a function of the device API turns its arguments into operands and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tilewright.errors import MachineError
from tilewright.sim.findings import PORTABILITY, Finding
from tilewright.targets.bm1684x.capi.names import (
    PROTOTYPES,
    SCALAR,
    TYPES,
    VECTOR,
    CType,
    constant,
    dim2,
    dim4,
    padding_t,
    variable_t,
)
from tilewright.targets.bm1684x.config import LOCAL_BASE, STATIC_BASE
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Flat, Matrix, Operand, Tensor
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import F32, DType
from tilewright.targets.bm1684x.values.window import Window

Layout = Callable[[Shape, DType, int, Any], Stride]
#: The arguments of a call by parameter name, and the name of the function under the key `name`.
Args = Mapping[str, Any]
#: A number, the name of a parameter whose argument is the number, or a function of the arguments.
Size = int | str | Callable[[Args], int]
Operands = dict[str, Operand | Constant]
#: For each of these parameters, the attribute of the command that has the argument as its value.
ATTRIBUTES = {
    "mode": "mode",
    "src_mode": "source_mode",
    "saturation": "saturate",
    "num_iter": "steps",
    "lshift": "left",
    "rshift": "right",
    "result_relu": "relu",
    "descended": "descending",
    "base": "base",
    "threshold": "threshold",
}


class Issuer:
    """Makes operands from the addresses in C calls, and issues commands to the machine."""

    def __init__(self, tpu: Tpu) -> None:
        self.tpu = tpu
        self.config = tpu.config
        self.initialised = False
        self.function = ""  # name of the running C function

    def local(
        self, address: int, shape: Shape, stride: dim4 | None, dtype: DType, default: Layout = layout.aligned
    ) -> Tensor:
        """Return the tensor at `address` in local memory. Without a stride, the tensor has the layout `default`.

        Raises MachineError if the address is outside of local memory, or if the layout cannot begin there.
        """
        if not 0 <= address < self.config.local_bytes:
            reason = f"{address:#x} is not a local address"
            raise MachineError("local memory", reason, f"give 0..{self.config.local_bytes - 1:#x}")
        lane = address // self.config.lane_bytes
        strides = stride.stride if stride else default(shape, dtype, lane, self.config)
        if not stride:
            self.begins(address, next((name for name, make in layout.LAYOUTS.items() if make is default), "aligned"))
        return Tensor(LOCAL_BASE + address, shape, strides, dtype, self.config)

    def begins(self, address: int, kind: str) -> None:
        """Check that the layout of an operand may begin at the operand's address.

        The vendor's model stops at a misaligned operand of the compute engine, so this method raises MachineError. But
        the vendor's model accepts misaligned operands of the DMA engine and compact operands: these only add a finding.
        """
        if not (reason := layout.off_grid(kind, address, self.config)):
            return
        if self.function.startswith("tpu_gdma_") or kind == "compact":
            message = f"{self.function}, operand at {address:#x}: {reason}; give such an address, or strides"
            self.tpu.findings.append(Finding(PORTABILITY, message))
        else:
            where = f"{self.function}, operand at {address:#x}"
            raise MachineError(where, reason, "give such an address, or strides")

    def system(self, address: int, shape: Shape, stride: dim4 | None, dtype: DType) -> Tensor:
        """Return the tensor at a bus address outside of local memory; without `stride`, a tensor without gaps."""
        return Tensor(address, shape, stride.stride if stride else layout.continuous(shape), dtype, self.config)

    def row(self, address: int, channels: int, length: int, dtype: DType) -> Tensor:
        """Return a tensor whose channels all read one row of `length` elements. Each lane has a copy of the row."""
        copies = self.local(address, Shape(1, min(channels, self.config.lanes), 1, length), None, dtype, layout.compact)
        return Tensor(copies.address, Shape(1, channels, 1, length), Stride(0, 0, length, 1), dtype, self.config)

    def matrix(self, address: int, rows: int, columns: int, width: int, dtype: DType) -> Matrix:
        """Return the matrix at `address` in local memory, with `width` columns per channel."""
        return Matrix(self.local(address, Shape(rows, -(-columns // width), 1, width), None, dtype), columns)

    def issue(
        self,
        operation: str,
        operands: Mapping[str, Operand | Constant],
        results: Mapping[str, Operand],
        attributes: Mapping[str, Any] | None = None,
    ) -> Command:
        """Issue and return a command. Raises MachineError if it is refused, or before tpu_initialize."""
        if not self.initialised:
            raise MachineError(operation, "tpu_initialize was not called", "call it before the first command")
        command = Command(OPERATIONS[operation], operands, results, attributes or {})
        self.tpu.issue(command)
        return command


#: The implementation of a C function. An implementation receives the arguments of a call by name, and issues commands.
Run = Callable[[Issuer, Args], object]
#: The implementations of functions, by their names without a prefix.
Functions = dict[str, Run]


class DeviceFunction(NamedTuple):
    """A function of the device API: its C name and its implementation."""

    name: str
    run: Run

    def call(self, api: Issuer, arguments: tuple[Any, ...]) -> None:
        """Run the function. Raises MachineError if the number or a type of the arguments is wrong."""
        parameters = PROTOTYPES[self.name].parameters
        if len(arguments) != len(parameters):
            names = ", ".join(parameter.name for parameter in parameters)
            raise MachineError(self.name, f"{len(arguments)} arguments are given", f"give {names}")
        call: dict[str, Any] = {"name": self.name}
        for parameter, value in zip(parameters, arguments, strict=True):
            parameter.check(self.name, value)
            call[parameter.name] = value
        api.function = self.name
        self.run(api, call)


@dataclass(frozen=True)
class Place:
    """Describes how the argument of the parameter NAME becomes an operand.

    By default, an address becomes a tensor of the call's shape, and any other number becomes a constant. The fields:
    - `dtype`: the type, or the name of a type parameter (None: the argument NAME_dtype, else the type of the call).
    - `shape`: a function that returns the shape, given the call's shape and arguments.
    - `layout`: the layout in local memory if the argument NAME_stride is absent or NULL.
    - `beside`: the number of bytes to add to the address, to select a word of each table entry.
    - `is_local`: the name of a parameter that is true if the address is local.
    - `flat`: whether the operand has one axis.
    - `row`: the length of a row that all channels read, or 0. Each lane has its own copy of the row.
    """

    parameter: str
    dtype: DType | str | None = None
    shape: Callable[[Shape, Args], Shape] | None = None
    layout: Layout = layout.aligned
    beside: int = 0
    is_local: str | None = None
    flat: bool = False
    row: Size = 0

    def operand(self, api: Issuer, call: Args) -> Operand | Constant:
        """Return the operand for a call. Raises MachineError for a vector if the function does not accept vectors."""
        dtype = self._type(call)
        value = call[self.parameter]
        if isinstance(value, variable_t):
            return self._variable(api, call, value, dtype)
        if self.row:
            api.begins(value, "aligned")
            return api.row(value, call["shape"].c, _size(self.row, call), dtype)
        kind = TYPES[call["name"]][self.parameter]
        if kind is CType.STATIC:
            kind = CType.SYSTEM  # static addresses are relative to static memory
            value = STATIC_BASE + value
        elif kind is CType.EITHER and self.is_local is not None:
            kind = CType.LOCAL if call[self.is_local] else CType.SYSTEM
        if kind not in (CType.LOCAL, CType.SYSTEM):
            return constant(value, dtype)
        shape, stride = self._shape(call), call.get(f"{self.parameter}_stride")
        if kind is CType.SYSTEM:
            tensor = api.system(value, shape, stride, dtype)
            return Flat(tensor) if self.flat else tensor
        return self._local(api, value, shape, stride, dtype)

    def _local(self, api: Issuer, address: int, shape: Shape, stride: dim4 | None, dtype: DType) -> Tensor:
        lane = address // api.config.lane_bytes
        ignores_lane = self.layout is layout.dma_default and stride is None
        if ignores_lane and layout.dma_default_differs(shape, lane, api.config):
            reason = "without local strides its n stride ignores the start lane, the compute engine's does not"
            finding = f"{api.function}, shape {list(shape)}: {reason}; give the strides"
            api.tpu.findings.append(Finding(PORTABILITY, finding))
        # The distance between two channels is a whole table entry. Therefore, compute the strides for the address of
        # the entry, before `beside` is added.
        if self.beside:
            stride = dim4(*self.layout(shape, dtype, lane, api.config))
        return api.local(address + self.beside, shape, stride, dtype, self.layout)

    def _variable(self, api: Issuer, call: Args, value: variable_t, dtype: DType) -> Operand | Constant:
        if value.type == SCALAR:
            return constant(value.context, dtype)
        if value.type != VECTOR:
            return api.local(value.context, self._shape(call), None, dtype)
        if self.parameter in ("src2", "src3"):
            raise MachineError(call["name"], f"{self.parameter} is a VECTOR", "give a TENSOR or a SCALAR")
        # all channels of a lane read the lane's first slot
        return api.local(value.context, channel(self._shape(call), call), dim4(0, 0, 1, 1), dtype)

    def _shape(self, call: Args) -> Shape:
        whole = call.get(f"{self.parameter}_shape", call.get("shape"))
        shape = whole.shape if whole else Shape(1, 1, 1, 1)
        return self.shape(shape, call) if self.shape else shape

    def _type(self, call: Args) -> DType:
        if isinstance(self.dtype, str):
            return call[self.dtype]
        if self.dtype is not None:
            return self.dtype
        name = self.parameter
        common = ("dtype",) if name.startswith("dst") else ("src_dtype", "dtype")
        return next((call[key] for key in (f"{name}_dtype", *common) if key in call), F32)


@dataclass(frozen=True)
class MatrixPlace(Place):
    """Describes a matrix operand whose columns are spread over lanes, with `width` columns per channel.

    Each of `rows`, `columns` and `width` is a number, the name of a parameter, or a function of the arguments.
    """

    rows: Size = 1
    columns: Size = 1
    width: Size = 1

    def operand(self, api: Issuer, call: Args) -> Operand | Constant:
        rows, columns, width = (_size(size, call) for size in (self.rows, self.columns, self.width))
        return api.matrix(call[self.parameter], rows, columns, width, self._type(call))


def _size(size: Size, call: Args) -> int:
    if isinstance(size, str):
        return int(call[size])
    return size if isinstance(size, int) else size(call)


class Described(Protocol):
    """A description that creates an operand from the arguments of a call."""

    def operand(self, api: Issuer, call: Args) -> Operand | Constant: ...


#: The source of an operand: the name of a parameter, a description, a constant, or a fixed number of the call's type. A
#: fixed integer is a bit pattern; a fixed float is a value.
Source = str | Described | Constant | int | float


def channel(shape: Shape, call: Args) -> Shape:
    return Shape(1, shape.c, 1, 1)


def per_channel(parameter: str, dtype: DType | None = None) -> Place:
    return Place(parameter, dtype, channel, layout.compact)


def row_of(length: str) -> Callable[[Shape, Args], Shape]:
    return lambda shape, call: Shape(1, 1, 1, call[length])


def transposed_nc(shape: Shape, call: Args) -> Shape:
    return Shape(shape.c, shape.n, shape.h, shape.w)


def transposed_cw(shape: Shape, call: Args) -> Shape:
    return Shape(shape.n, shape.w, shape.h, shape.c)


def one_channel(shape: Shape, call: Args) -> Shape:
    return shape._replace(c=1)


@dataclass(frozen=True)
class Issue:
    """Describes a command that a function issues: the sources of its operands and results by name, and its attributes.

    A FromCall attribute has the value of a parameter. With `inherits`, the parameters in ATTRIBUTES also become
    attributes.
    """

    operation: str
    places: Mapping[str, Source]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inherits: bool = True

    def __call__(self, api: Issuer, call: Args) -> Command:
        places = {name: _operand(api, call, source) for name, source in self.places.items()}
        outputs = OPERATIONS[self.operation].outputs
        results: dict[str, Any] = {name: places.pop(name) for name in outputs if name in places}
        fixed = {
            key: call[value.name] if isinstance(value, FromCall) else value for key, value in self.attributes.items()
        }
        return api.issue(self.operation, places, results, {**attributes(call), **fixed} if self.inherits else fixed)


class FromCall(NamedTuple):
    """A placeholder that each call replaces by its argument `name`."""

    name: str


def issue(operation: str, **sources: Any) -> Issue:
    """Describe a command. Keywords are the operands and results of `operation`, and attributes."""
    described = OPERATIONS[operation]
    named = (*described.inputs, *described.outputs)
    places = {name: source for name, source in sources.items() if name in named}
    return Issue(operation, places, {key: value for key, value in sources.items() if key not in named})


def sequence(*runs: Run) -> Run:
    def run(api: Issuer, call: Args) -> None:
        for part in runs:
            part(api, call)

    return run


def either(when: Callable[[Args], bool], first: Run, second: Run) -> Run:
    return lambda api, call: (first if when(call) else second)(api, call)


def _operand(api: Issuer, call: Args, source: Source) -> Operand | Constant:
    if isinstance(source, Constant):
        return source
    if isinstance(source, str):
        return Place(source).operand(api, call)
    if not isinstance(source, int | float):
        return source.operand(api, call)
    # An integer is a bit pattern: -1 sets all bits of any type.
    dtype = call.get("src_dtype", call.get("dtype", F32))
    return Constant.of(source, dtype) if isinstance(source, float) else Constant(source & (1 << dtype.bits) - 1, dtype)


def attributes(call: Args) -> dict[str, Any]:
    """Return the attributes of a command (see ATTRIBUTES), given the arguments of its call."""
    named = {attribute: call[name] for name, attribute in ATTRIBUTES.items() if name in call}
    if "kernel" in call:
        named["window"] = window(call)
    return named


def window(call: Args) -> Window:
    kernel = call["kernel"]
    pads = call.get("padding", padding_t(0, 0, 0, 0))
    stride, dilation = (call.get(name, dim2(1, 1)) for name in ("stride", "dilation"))
    between = call.get("insert", dim2(0, 0))
    around = (pads.top, pads.bottom, pads.left, pads.right)
    sizes = ((kernel.h, kernel.w), around, (stride.h, stride.w), (dilation.h, dilation.w), (between.h, between.w))
    return Window(*sizes)
