"""The calls: addresses, shapes, strides and types in the order of the C prototypes.

    @function(Param)
    def add_one(tpu, param):
        c = DeviceApi(tpu)
        c.tpu_initialize()
        shape = dim4(1, 64, 20, 20)
        c.tpu_gdma_cpy_S2L(0, param.x, shape, None, None, DT_FP32)
        c.tpu_bdc_fp_add_C(0x4000, 0, 1.0, shape, None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(param.y, 0x4000, shape, None, None, DT_FP32)
        c.tpu_poll()

NULL is None, a pointer the object, a scalar_t a number (or a Constant, for a bit pattern). Local addresses are relative
to local memory. A call that is not here is an AttributeError that lists those that are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.errors import MachineError
from tilewright.sim.findings import PORTABILITY, Finding
from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.calls import call_of
from tilewright.targets.bm1684x.capi import elementwise
from tilewright.targets.bm1684x.capi.moves import MOVES
from tilewright.targets.bm1684x.capi.names import constant, dim4
from tilewright.targets.bm1684x.capi.neural import NEURAL
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.dtypes import F32, I8, I16, I32, DType
from tilewright.targets.bm1684x.flat import Flat
from tilewright.targets.bm1684x.kernel import Tpu
from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.operations import OPERATIONS, OPTIONAL
from tilewright.targets.bm1684x.tensor import Operand, Tensor

Layout = Callable[[Shape, DType, int, Any], Stride]


class DeviceApi:
    """The device API of one launch."""

    def __init__(self, tpu: Tpu) -> None:
        self.tpu, self.config = tpu, tpu.config
        self._initialised = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        short = name.removeprefix("tpu_bdc_")
        if short != name and short in elementwise.FORMS:
            return partial(self._elementwise, name, short)
        if short != name and short in NEURAL:
            return partial(NEURAL[short], self)
        short = name.removeprefix("tpu_gdma_")
        if short != name and short in MOVES:
            return partial(MOVES[short], self, name)
        raise AttributeError(f"there is no {name} here; choose one of {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        own = [name for name in vars(type(self)) if name.startswith("tpu_")]
        bdc = [f"tpu_bdc_{name}" for name in (*elementwise.FORMS, *NEURAL)]
        return sorted({*own, *bdc, *(f"tpu_gdma_{name}" for name in MOVES)})

    def tpu_initialize(self) -> None:
        """Must come before any command."""
        self._initialised = True

    def tpu_poll(self) -> None:
        self.tpu.poll()

    tpu_hau_poll = tpu_poll

    def tpu_parallel_start(self) -> None:
        self.tpu.parallel_start()

    def tpu_parallel_end(self) -> None:
        self.tpu.parallel_end()

    def tpu_npu_num(self) -> int:
        return self.config.lanes

    def tpu_bank_num(self) -> int:
        return self.config.banks

    def tpu_local_mem_size_per_npu(self) -> int:
        return self.config.lane_bytes

    def tpu_eu_num(self, dtype: DType) -> int:
        return self.config.eu_bytes // dtype.bytes

    def tpu_data_type_size(self, dtype: DType) -> int:
        return dtype.bytes

    def tpu_aligned_stride(self, stride: dim4, start: int, shape: dim4, dtype: DType) -> None:
        stride.set(layout.aligned(shape.shape, dtype, start, self.config))

    def tpu_line_aligned_stride(self, stride: dim4, start: int, shape: dim4, dtype: DType) -> None:
        stride.set(layout.line(shape.shape, dtype, start, self.config))

    def tpu_compact_stride(self, stride: dim4, start: int, shape: dim4) -> None:
        stride.set(layout.compact(shape.shape, F32, start, self.config))

    def tpu_continuous_stride(self, stride: dim4, shape: dim4) -> None:
        stride.set(layout.continuous(shape.shape))

    def tpu_bdc_set_C(self, dst: int, C: Any, shape: dim4, dst_stride: dim4 | None, dtype: DType) -> None:
        y = self.local(dst, shape.shape, dst_stride, dtype)
        self.issue("copy", {"a": constant(C, dtype)}, {"y": y})

    def tpu_hau_sort(self, output: int, x: int, length: int, k: int, descended: bool, dtype: DType) -> None:
        self._sort({"x": (x, length, dtype)}, {"y": (output, k, dtype)}, descended)

    def tpu_hau_sort_natural_index(
        self, output: int, index: int, x: int, length: int, k: int, descended: bool, dtype: DType
    ) -> None:
        self._sort({"x": (x, length, dtype)}, {"y": (output, k, dtype), "index": (index, k, I32)}, descended)

    def tpu_hau_sort_specific_index(
        self, output: int, index: int, x: int, numbers: int, length: int, k: int, descended: bool, dtype: DType
    ) -> None:
        operands = {"x": (x, length, dtype), "numbers": (numbers, length, I32)}
        self._sort(operands, {"y": (output, k, dtype), "index": (index, k, I32)}, descended)

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
        if not self._initialised:
            raise MachineError(operation, "tpu_initialize was not called", "call it first")
        self.tpu.issue(Command(OPERATIONS[operation], operands, results, attributes or {}))

    def _elementwise(self, name: str, short: str, *arguments: Any) -> None:
        form = elementwise.FORMS[short].split()
        if len(arguments) != len(form):
            raise MachineError(name, f"{len(arguments)} arguments are given", f"it has {', '.join(form)}")
        given = dict(zip(form, arguments, strict=True))
        call = call_of(elementwise.RENAMED.get(short, short))
        operation = call.described

        def tensor(place: str, shape: Shape, default: Layout = layout.aligned) -> Tensor:
            dtype = given.get(f"{place}_dtype", given.get("dtype", I16 if short == "int8_mac" else F32))
            return self.local(given[place], shape, given.get(f"{place}_stride"), dtype, default)

        shape = given["shape"].shape
        n, c, h, w = shape
        source = {"npu_bcast": Shape(n, 1, h, w), "cw_trans": Shape(n, w, h, c), "wc_trans": Shape(n, w, h, c)}
        y = tensor("dst", shape, layout.line if short == "cw_trans" else layout.aligned)
        sources = [
            tensor(place, source.get(short, shape)) for place in form if place.startswith("src") and "_" not in place
        ]
        operands: dict[str, Operand | Constant] = {}
        for operand in operation.inputs:
            if operand == "shift":
                operands[operand] = constant(given["shift"], I8)
            elif operand in call.constants:
                bits = call.constants_of({**given, "dtype": y.dtype.name})[operand]  # of a fixed one
                operands[operand] = constant(given["C"], y.dtype) if "C" in given else Constant(bits, y.dtype)
            elif operand not in OPTIONAL:
                operands[operand] = sources.pop(0)
            elif operand == "acc":
                operands[operand] = y
        attributes: dict[str, Any] = {
            key: given[key] for key in ("mode", "saturate", "steps", "left", "right") if key in given
        }
        self.issue(operation.name, operands, {"y": y}, {**attributes, **call.attributes})

    def _sort(
        self, operands: Mapping[str, tuple[int, int, DType]], results: Mapping[str, tuple[int, int, DType]], down: bool
    ) -> None:
        def flat(address: int, length: int, dtype: DType) -> Flat:
            return Flat(self.system(address, Shape(1, 1, 1, length), None, dtype))

        found = {name: flat(*place) for name, place in results.items()}
        self.issue("hau_sort", {name: flat(*place) for name, place in operands.items()}, found, {"descending": down})
