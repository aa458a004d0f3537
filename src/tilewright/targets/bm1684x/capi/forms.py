"""How a C function is described: its parameters in the order of the prototype, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.errors import MachineError
from tilewright.sim.findings import PORTABILITY, Finding
from tilewright.targets.bm1684x.capi.names import ATTRIBUTES, dim2, dim4, padding_t
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import DType

Layout = Callable[[Shape, DType, int, Any], Stride]
Given = Mapping[str, Any]
#: What parameters are, by the end of their names; strides of tensors may be None.
KINDS: Mapping[str, type] = {"shape": dim4, "dtype": DType, "kernel": dim2, "dilation": dim2, "padding": padding_t}


class Issuer:
    """What functions need of the device: operands at C addresses, and commands issued."""

    def __init__(self, tpu: Tpu) -> None:
        self.tpu, self.config = tpu, tpu.config
        self.initialised = False

    def local(
        self, address: int, shape: Shape, stride: dim4 | None, dtype: DType, default: Layout = layout.aligned
    ) -> Tensor:
        """The tensor at a local address; without strides, in the `default` layout. Raises MachineError."""
        if not 0 <= address < self.config.local_bytes:
            reason = f"{address:#x} is no local address"
            raise MachineError("local memory", reason, f"give 0..{self.config.local_bytes - 1:#x}")
        lane = address // self.config.lane_bytes
        strides = stride.stride if stride else default(shape, dtype, lane, self.config)
        return Tensor(LOCAL_BASE + address, shape, strides, dtype, self.config)

    def system(self, address: int, shape: Shape, stride: dim4 | None, dtype: DType) -> Tensor:
        """The tensor at a bus address; without strides, without gaps."""
        return Tensor(address, shape, stride.stride if stride else layout.continuous(shape), dtype, self.config)

    def place(
        self,
        letter: str,
        address: int,
        shape: Shape,
        stride: dim4 | None,
        dtype: DType,
        default: Layout = layout.aligned,
    ) -> Tensor:
        """`letter` L: in local memory, S: outside."""
        if letter == "L":
            return self.local(address, shape, stride, dtype, default)
        return self.system(address, shape, stride, dtype)

    def warn_of_dma_default(self, name: str, shape: Shape, address: int) -> None:
        """A finding where the layout that a copy takes is not the one that the compute engine takes."""
        if layout.dma_default_differs(shape, address // self.config.lane_bytes, self.config):
            reason = "without local strides its n stride ignores the start lane, the compute engine's does not"
            self.tpu.findings.append(Finding(PORTABILITY, f"{name}, shape {list(shape)}: {reason}; give the strides"))

    def issue(
        self,
        operation: str,
        operands: Mapping[str, Operand | Constant],
        results: Mapping[str, Operand],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises MachineError for a refused command, and before tpu_initialize."""
        self.check(operation)
        self.tpu.issue(Command(OPERATIONS[operation], operands, results, attributes or {}))

    def check(self, operation: str) -> None:
        """Raises MachineError before tpu_initialize."""
        if not self.initialised:
            raise MachineError(operation, "tpu_initialize was not called", "call it first")


def attributes(given: Given) -> dict[str, Any]:
    """The attributes of a command among the parameters of its call."""
    return {own: given[name] for name, own in ATTRIBUTES.items() if name in given}


class Function(NamedTuple):
    """`parameters`: names, separated by blanks; `run` has them by name."""

    parameters: str
    run: Callable[[Issuer, Given], None]

    def call(self, name: str, api: Issuer, arguments: tuple[Any, ...]) -> None:
        """Raises MachineError for another number of arguments."""
        names = self.parameters.split()
        if len(arguments) != len(names):
            raise MachineError(name, f"{len(arguments)} arguments are given", f"it has {', '.join(names)}")
        for parameter, value in zip(names, arguments, strict=True):
            kind = _kind(parameter)
            if kind and not isinstance(value, kind) and not (value is None and parameter.endswith("_stride")):
                raise MachineError(name, f"{parameter} is {value!r}", f"give a {kind.__name__}")
        self.run(api, {**dict(zip(names, arguments, strict=True)), "name": name})


def _kind(parameter: str) -> type | None:
    """What an argument must be, where its name says it."""
    if parameter.endswith("_stride"):
        return None if parameter == "row_stride" else dim4
    if parameter == "stride":
        return dim2
    return next((kind for end, kind in KINDS.items() if parameter == end or parameter.endswith(f"_{end}")), None)
