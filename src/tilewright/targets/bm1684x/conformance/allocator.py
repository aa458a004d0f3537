"""Where a vector's operands lie: lane 0 of local memory, one behind the other; DDR for what DMA and HAU move there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.operations import TIU, Operation
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.spread import ConvWeights, Matrix
from tilewright.targets.bm1684x.layouts.tensor import Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.memory import Memories

DDR_BYTES = 1 << 20


@dataclass
class Allocator:
    """Hands out memory for one command."""

    config: Config
    memories: Memories
    operation: Operation
    case: Mapping[str, Any]
    offset: int = field(default=0)

    def operand(self, name: str, values: Array, dtype: DType) -> Operand:
        """An operand, its values written."""
        placed = self.result(name, values.shape, dtype)
        self.memories.fill(placed.addresses, np.ascontiguousarray(values).view(dtype.storage))
        return placed

    def result(self, name: str, shape: tuple[int, ...], dtype: DType) -> Operand:
        """Room for an operand or result of a logical shape. Raises MachineError where local memory is full."""
        placed = self._placed(name, shape, dtype)
        self.offset = self._end(placed, dtype)
        return placed

    def _placed(self, name: str, shape: tuple[int, ...], dtype: DType) -> Operand:
        if self.operation.engine != TIU:
            if not any(region.base == DDR_BASE for region in self.memories.regions):
                self.memories.new_ddr(DDR_BASE, DDR_BYTES)
            return Linear(DDR_BASE + self.offset, shape, dtype)
        if name == "w" and "conv2d" in self.operation.name:
            oc, ic, kh, kw = shape
            return ConvWeights(LOCAL_BASE + self.offset, (oc, ic, kh, kw), dtype, self.config)
        if len(shape) == 2:
            rows, columns = shape
            width = {"L": self.case.get("lw"), "R": self.case.get("rw"), "y": self.case.get("rw")}.get(name)
            if width is None and "rw" in self.case:
                width = self.case["rw"]
            if width is not None:
                return Matrix.local(0, self.offset, (rows, columns), min(width, columns), dtype, self.config)
            return Rows(Tensor.local(0, self.offset, (1, rows, 1, columns), dtype, self.config))
        if len(shape) == 1:
            return Linear(LOCAL_BASE + self.offset, shape, dtype)
        compact = name == "bias" or (name == "w" and "depthwise" in self.operation.name)
        kind = "compact" if compact else "line" if name == "y" and self.operation.name == "cw_trans" else "aligned"
        return Tensor.local(0, self.offset, shape, dtype, self.config, kind)

    def _end(self, placed: Operand, dtype: DType) -> int:
        last = int(placed.addresses.max()) + dtype.bytes
        if self.operation.engine != TIU:
            return -(-(last - DDR_BASE) // 64) * 64
        end = int(((placed.addresses - LOCAL_BASE) % self.config.lane_bytes).max()) + dtype.bytes
        if end > self.config.lane_bytes:
            raise MachineError(self.operation.name, "its operands do not fit in local memory")
        return -(-end // 64) * 64


@dataclass(frozen=True)
class Linear:
    """Elements one behind the other."""

    address: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def addresses(self) -> Array:
        count = int(np.prod(self.shape))
        return (self.address + np.arange(count, dtype=np.int64) * self.dtype.bytes).reshape(self.shape)
