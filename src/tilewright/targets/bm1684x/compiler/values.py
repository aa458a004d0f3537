"""Values: commands run on all samples of several launches at once, as views into local memory.

Local memory is split: what lies below `values_end` in a lane each launch has its own of, what lies above is constant.
An operand is read as (L * n, c, h, w), L launches, so that the meaning of an operation sees one larger batch.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.compiler.image import QueueImage
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import Values
from tilewright.targets.bm1684x.layouts.layout import Operand, slots
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor


class Machine:
    """The memories of L launches of one program, which run in lock step."""

    def __init__(self, image: QueueImage, config: Config, launches: int) -> None:
        self.config, self.launches = config, launches
        self._split = image.values_end
        lanes = config.lanes
        self._own = np.zeros((launches, lanes, image.values_end), np.uint8)
        self._constant = np.zeros((1, lanes, config.lane_bytes - image.values_end), np.uint8)
        self._segments = [(DDR_BASE, image.constants[None])]  # and tensors
        for segment in (*image.inputs, *image.outputs):
            data = np.zeros((launches, segment.stored.nbytes * image.batch), np.uint8)
            self._segments.append((segment.address, data))
        self._kernels: dict[tuple[int, tuple[int, ...]], Array] = {}

    def segment(self, address: int) -> Array:
        """The DDR from an address on: uint8 (L, bytes)."""
        return next(data for base, data in self._segments[1:] if base == address)

    def run(self, command: Command) -> None:
        """One command. Raises MachineError."""
        operation = command.operation
        if reason := command.refusal():
            raise MachineError(operation.name, reason)
        data = {name: self._read(operand) for name, operand in command.operands.items()}
        (name, place), *others = command.results.items()
        if others or operation.by_data:
            raise MachineError(operation.name, "is no operation of compiled networks")
        result = place.storage
        n, c, h, w = result.shape
        shapes = {name: (self.launches * n if self._differs(result) else n, c, h, w)}
        try:
            found = operation.results(Values(data, command.types, shapes, command.attributes))
            self._write(result, np.broadcast_to(found[name], shapes[name]))
        except ValueError as error:  # NumPy's word for shapes that do not go together
            raise MachineError(operation.name, f"its operands do not fit: {error}") from None

    def _read(self, operand: Operand | Constant) -> Array:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, ConvWeights):
            return self._kernel(operand)
        tensor = operand.storage
        values = self._view(tensor)
        merged = values.reshape(len(values) * tensor.shape.n, -1, *values.shape[4:])  # (L, n, slots, lanes, h, w)
        return merged[:, tensor.start_lane : tensor.start_lane + tensor.shape.c] if tensor.is_local else merged

    def _kernel(self, kernel: ConvWeights) -> Array:
        """Weights (oc, ic, kh, kw), kept until something is written where constants are."""
        key = (kernel.address, kernel.shape)
        if key not in self._kernels:
            oc, ic, kh, kw = kernel.shape
            rows = self._read(kernel.storage)[0, :oc]
            taps = rows.reshape(oc, -1, kh * kw, kernel.group).transpose(0, 1, 3, 2)
            self._kernels[key] = np.ascontiguousarray(taps.reshape(oc, -1, kh, kw)[:, :ic])
        return self._kernels[key]

    def _write(self, result: Tensor, values: Array) -> None:
        if result.is_local and not self._differs(result):
            self._kernels.clear()
        view = self._view(result)
        launches, n, (_, c, h, w) = view.shape[0], result.shape.n, result.shape
        given = np.broadcast_to(values, (launches * n, c, h, w)).reshape(launches, n, c, h, w)
        given = given.astype(result.dtype.storage, copy=False)
        if not result.is_local:
            view[:, :, :, 0] = given.reshape(view[:, :, :, 0].shape)
            return
        lanes, channel, lane = self.config.lanes, 0, result.start_lane
        for slot in range(view.shape[2]):
            count = min(lanes - lane, c - channel)
            view[:, :, slot, lane : lane + count] = given[:, :, channel : channel + count]
            channel, lane = channel + count, 0

    def _differs(self, operand: Tensor) -> bool:
        """Whether each launch has its own. Raises MachineError for what is partly so."""
        if not operand.is_local:
            return self._home(operand)[1].shape[0] > 1 or self.launches == 1
        low, high = operand.lane_offset, operand.lane_end
        if low < self._split < high:
            raise MachineError("local memory", f"bytes {low}..{high} of a lane hold values and constants")
        return high <= self._split

    def _home(self, tensor: Tensor) -> tuple[int, Array]:
        """The segment of DDR that holds a tensor: its address and bytes. Raises MachineError."""
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
        end = tensor.address + (last + 1) * tensor.dtype.bytes
        for base, data in self._segments:
            if base <= tensor.address and end <= base + data.shape[1]:
                return base, data
        raise MachineError("DDR", f"{tensor.address:#x}..{end:#x} lies in no tensor of the program")

    def _view(self, tensor: Tensor) -> Array:
        """A view (L or 1, n, slots, lanes, h, w); in DDR channels are slots of one lane."""
        size, (n, c, h, w), stride = tensor.dtype.bytes, tensor.shape, tensor.stride
        steps = [step * size for step in stride]
        if tensor.is_local:
            data, base = (self._own, 0) if self._differs(tensor) else (self._constant, self._split)
            start, count = tensor.lane_offset - base, slots(tensor.start_lane, c, self.config)
            first = data[:, :, start:]
            extent = (len(data), n, count, data.shape[1], h, w)
            strides = (data.strides[0], steps[0], steps[1], data.strides[1], steps[2], steps[3])
        else:
            base, data = self._home(tensor)
            first = data[:, tensor.address - base :]
            extent = (len(data), n, c, 1, h, w)
            strides = (data.strides[0], steps[0], steps[1], 0, steps[2], steps[3])
        if (first.ctypes.data % size) or any(step % size for step in strides):
            raise MachineError("memory", f"address {tensor.address:#x} is no multiple of {size}")
        element = as_strided(first, (size,), (1,)).view(tensor.dtype.storage)
        return as_strided(element, extent, strides)
