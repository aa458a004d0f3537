"""The description of a C function: its parameters in the order of the prototype, and the command that it issues."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.errors import MachineError
from tilewright.sim.findings import PORTABILITY, Finding
from tilewright.targets.bm1684x.capi.names import (
    ATTRIBUTES,
    SCALAR,
    VECTOR,
    constant,
    dim2,
    dim4,
    padding_t,
    variable_t,
)
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Flat, Matrix, Tensor
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, DType
from tilewright.targets.bm1684x.values.window import Window

Layout = Callable[[Shape, DType, int, Any], Stride]
Given = Mapping[str, Any]
#: The Python type of an argument, by the end of the parameter's name. Strides of tensors may be None.
KINDS: Mapping[str, type] = {
    "shape": dim4,
    "dtype": DType,
    "kernel": dim2,
    "dilation": dim2,
    "insert": dim2,
    "padding": padding_t,
}

#: The parameters of a window.
WINDOW = "kernel padding stride dilation"
#: The syntax of an operand, which `operand` describes.
PLACE = re.compile(r"([-\w.]+)(?:\+(\d+))?(?:/(\w+))?(?:@(\w+))?(?::(\w+))?")
#: The letters for operands in local memory, with the layout of each if no strides are given. The other letters are for
#: tensors outside of local memory (S), flat operands there (F), and rows of which each lane has a copy (R).
LAYOUTS = {"L": layout.aligned, "C": layout.compact, "D": layout.dma_default, "T": layout.line}
ELSEWHERE = ("S", "F", "R")


class Issuer:
    """Makes operands from the addresses in C calls, and issues commands to the machine."""

    def __init__(self, tpu: Tpu) -> None:
        self.tpu, self.config = tpu, tpu.config
        self.initialised = False
        self.function = ""  # the C function that runs

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
            self.begins(address, next((name for name, own in layout.LAYOUTS.items() if own is default), "aligned"))
        return Tensor(LOCAL_BASE + address, shape, strides, dtype, self.config)

    def begins(self, address: int, kind: str) -> None:
        """Check that an operand in a layout begins where the layout begins.

        The vendor's model refuses other places to the compute engine, but in the layout compact; to the DMA engine it
        refuses none. These become findings. Raises MachineError for a place that is refused.
        """
        if not (reason := layout.off_grid(kind, address, self.config)):
            return
        if self.function.startswith("tpu_gdma_") or kind == "compact":
            found = f"{self.function}, operand at {address:#x}: {reason}; give such an address, or strides"
            self.tpu.findings.append(Finding(PORTABILITY, found))
        else:
            where = f"{self.function}, operand at {address:#x}"
            raise MachineError(where, reason, "give such an address, or strides")

    def system(self, address: int, shape: Shape, stride: dim4 | None, dtype: DType) -> Tensor:
        """Return the tensor at a bus address outside of local memory. Without a stride, its elements have no gaps."""
        return Tensor(address, shape, stride.stride if stride else layout.continuous(shape), dtype, self.config)

    def row(self, address: int, channels: int, length: int, dtype: DType) -> Tensor:
        """Return a tensor whose channels all read one row of `length` elements. Each lane has a copy of the row."""
        own = self.local(address, Shape(1, min(channels, self.config.lanes), 1, length), None, dtype, layout.compact)
        return Tensor(own.address, Shape(1, channels, 1, length), Stride(0, 0, length, 1), dtype, self.config)

    def matrix(self, address: int, rows: int, columns: int, width: int, dtype: DType) -> Matrix:
        """Return the matrix at `address` in local memory, with `width` columns per channel."""
        return Matrix(self.local(address, Shape(rows, -(-columns // width), 1, width), None, dtype), columns)

    def issue(
        self,
        operation: str,
        operands: Mapping[str, Operand | Constant],
        results: Mapping[str, Operand],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Issue a command. Raises MachineError if the machine refuses it, or if tpu_initialize was not called."""
        self.check(operation)
        self.tpu.issue(Command(OPERATIONS[operation], operands, results, attributes or {}))

    def check(self, operation: str) -> None:
        """Check that tpu_initialize was called. Raises MachineError if it was not."""
        if not self.initialised:
            raise MachineError(operation, "tpu_initialize was not called", "call it before the first command")


def attributes(given: Given) -> dict[str, Any]:
    """Return the attributes of the command that a C call issues, taken from the call's arguments by name (`given`)."""
    found = {own: given[name] for name, own in ATTRIBUTES.items() if name in given}
    if "kernel" in given:
        found["window"] = _window(given)
    return found


def _window(given: Given) -> Window:
    kernel, pads, dilation = (given[name] for name in ("kernel", "padding", "dilation"))
    stride, between = given.get("stride", dim2(1, 1)), given.get("insert", dim2(0, 0))
    around = (pads.top, pads.bottom, pads.left, pads.right)
    sizes = ((kernel.h, kernel.w), around, (stride.h, stride.w), (dilation.h, dilation.w), (between.h, between.w))
    return Window(*sizes)


class Function(NamedTuple):
    """A C function: the names of its parameters, separated by blanks, and `run`, which gets the arguments by name."""

    parameters: str
    run: Callable[[Issuer, Given], None]

    def call(self, name: str, api: Issuer, arguments: tuple[Any, ...]) -> None:
        """Run the function. Raises MachineError if the number or a type of the arguments is wrong."""
        names = self.parameters.split()
        if len(arguments) != len(names):
            raise MachineError(name, f"{len(arguments)} arguments are given", f"give {', '.join(names)}")
        for parameter, value in zip(names, arguments, strict=True):
            kind = _kind(parameter)
            if kind and not isinstance(value, kind) and not (value is None and parameter.endswith("_stride")):
                raise MachineError(name, f"{parameter} is {value!r}", f"give a {kind.__name__}")
        api.function = name
        self.run(api, {**dict(zip(names, arguments, strict=True)), "name": name})


def _kind(parameter: str) -> type | None:
    """Return the Python type that an argument must have, or None if the parameter's name implies no type."""
    if parameter.endswith("_stride"):
        return None if parameter == "row_stride" else dim4
    if parameter == "stride":
        return dim2
    return next((kind for end, kind in KINDS.items() if parameter == end or parameter.endswith(f"_{end}")), None)


def function(parameters: str, operation: str, operands: str, fixed: Mapping[str, Any] | None = None) -> Function:
    """Return a C function that issues one operation. `operands` lists NAME=PLACE; `operand` describes a PLACE."""
    places = [(name, PLACE.fullmatch(place)) for name, _, place in (word.partition("=") for word in operands.split())]
    outputs = OPERATIONS[operation].outputs

    def run(api: Issuer, given: Given) -> None:
        found = {name: operand(api, given, *place.groups()) for name, place in places if place}
        results = {name: place for name, place in found.items() if name in outputs}
        sources = {name: place for name, place in found.items() if name not in outputs}
        api.issue(operation, sources, results, {**attributes(given), **(fixed or {})})  # type: ignore[arg-type]

    return Function(parameters, run)


def operand(
    api: Issuer, given: Given, name: str, skipped: str | None, kind: str | None, where: str | None, fixed: str | None
) -> Operand | Constant:
    """Return one operand or result of a call, described as PARAMETER[+BYTES][/SHAPE][@WHERE][:TYPE].

    The arguments from `name` on are these five terms. WHERE is a letter of LAYOUTS or ELSEWHERE, or the parameter that
    says whether the operand is local. Without WHERE, a parameter `dst..`, `src..` or `shift_tensor` is the local
    address of a tensor of the call's shape, a parameter `.._addr` is the local address of one value per channel, and
    any other parameter is a constant. TYPE is a type, or the parameter that gives the type. The stride, and without
    TYPE the type, come from the operand's own parameters (`src0_stride`, `src0_dtype`), else from common ones.
    `_shape` describes SHAPE. BYTES are added to the address. Raises MachineError if src2 or src3 is a VECTOR.
    """
    dtype = (DTYPES.get(fixed) or given[fixed]) if fixed else _type(given, name)
    value, stride = given.get(name, name), given.get(f"{name}_stride")
    if isinstance(value, variable_t):
        if value.type == SCALAR:
            return constant(value.context, dtype)
        value, stride, where = value.context, None, "L"
        if given[name].type == VECTOR:
            if name in ("src2", "src3"):
                raise MachineError(given["name"], f"{name} is a VECTOR", "give a TENSOR or a SCALAR")
            # the machine takes the first slot of each lane for all channels of the lane
            kind, stride = "channel", dim4(0, 0, 1, 1)
    elif not where and name.endswith("_addr"):  # parameters of a channel: side by side, or compact
        kind, where = "channel", "L" if name == "quant_addr" else "C"
    elif not where and name.startswith(("dst", "src", "shift_tensor")):
        where = "L"
    if where:
        if where not in (*LAYOUTS, *ELSEWHERE):
            where = "L" if given[where] else "S"
        shape = _shape(given, name, kind)
        if where == "R":
            api.begins(value, "aligned")
            return api.row(value, given["shape"].c, shape.w, dtype)
        if where in ELSEWHERE:
            tensor = api.system(value, shape, stride, dtype)
            return Flat(tensor) if where == "F" else tensor
        lane = value // api.config.lane_bytes
        if where == "D" and stride is None and layout.dma_default_differs(shape, lane, api.config):
            reason = "without local strides its n stride ignores the start lane, the compute engine's does not"
            found = f"{given['name']}, shape {list(shape)}: {reason}; give the strides"
            api.tpu.findings.append(Finding(PORTABILITY, found))
        if beside := int(skipped or 0):  # one of several parameters side by side
            stride = dim4(*LAYOUTS[where](shape, dtype, lane, api.config))
        return api.local(value + beside, shape, stride, dtype, LAYOUTS[where])
    if isinstance(value, str):  # a number that the call implies; an integer is a bit pattern
        bits = (1 << dtype.bits) - 1
        return Constant.of(float(value), dtype) if "." in value else Constant(int(value) & bits, dtype)
    return constant(value, dtype)


def _shape(given: Given, name: str, kind: str | None) -> Shape:
    """Return the shape of the operand `name`: its own shape parameter or else that of the call, transformed by `kind`.

    If `kind` names a parameter of the call, the operand is one row, and that parameter gives its length.
    """
    if kind and kind in given:
        return Shape(1, 1, 1, given[kind])
    if kind == "window":
        source = given["shape"]
        return Shape(source.n, source.c, *_window(given).out(source.h, source.w))
    if kind == "square":
        return Shape(1, 1, 1, given["boxes"] ** 2)
    shape: Shape = given.get(f"{name}_shape", given.get("shape")).shape
    (n, c, h, w), rows = shape, given.get("param_h", 0)
    made = {
        "c1": Shape(n, 1, h, w),
        "nc": Shape(c, n, h, w),
        "cw": Shape(n, w, h, c),
        "channel": Shape(1, c, 1, 1),
        "rows": Shape(n, c, rows, w),
        "gathers": Shape(1, c, h, 1),
        "scatters": Shape(1, c, rows, 1),
    }
    return made[kind] if kind else shape


def _type(given: Given, name: str) -> DType:
    own = "dst" if name == "true_val" else name  # true_val is written to dst
    shared = () if own.startswith("dst") else ("src_dtype",)
    return next((given[key] for key in (f"{own}_dtype", *shared, "dtype") if key in given), F32)
