"""A device with its memory: tensors put into DDR and taken out, kernels launched on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.layouts.tensor import Tensor, packed
from tilewright.targets.bm1684x.runtime.kernel import Kernel, Launched
from tilewright.targets.bm1684x.runtime.recording import Recording
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.memory import Knobs, Memories

#: Tensors begin at multiples of so many bytes.
PAGE = 4096


class Device:
    """One machine."""

    def __init__(self, config: Config | None = None, knobs: Knobs | None = None) -> None:
        self.config = config or Config()
        self.memories = Memories(self.config, knobs or Knobs())
        self._end = DDR_BASE

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """A new tensor in DDR, without gaps; its values are undefined. Raises InputError for an impossible shape."""
        tensor = Tensor.ddr(self._end, shape, dtype, self.config)
        size = tensor.shape.elements * dtype.bytes
        self.memories.new_ddr(self._end, size)
        self._end += -(-size // PAGE) * PAGE
        return tensor

    def put(self, values: Array, dtype: DType) -> Tensor:
        """A new tensor of these values, stored as `dtype` is (bf16: its bits). Raises MachineError for another type."""
        if values.dtype != dtype.storage:
            remedy = f"{dtype} is stored as {dtype.storage}"
            if values.dtype == np.float32 and dtype.is_float:
                remedy += "; values.floats.narrow makes it of float32"
            raise MachineError("put", f"values are {values.dtype}", remedy)
        n, c, h, w = (1,) * (4 - values.ndim) + values.shape
        tensor = self.empty((n, c, h, w), dtype)
        self.memories.fill(tensor.addresses, values.reshape(tensor.shape))
        return tensor

    def put_weights(self, values: Array, dtype: DType) -> Tensor:
        """Convolution weights (oc, ic, kh, kw) as kernels copy them to the `storage` of `tpu.weights`."""
        return self.put(packed(values, dtype, self.config), dtype)

    def get(self, tensor: Tensor) -> Array:
        """The values of a tensor, as they are stored."""
        return self.memories.read(tensor.addresses, tensor.dtype.storage)

    def launch(self, kernel: Kernel, *arguments: Any) -> Launched:
        """Run a kernel to its end. Raises MachineError where it cannot go on."""
        return kernel.launch(self.memories, *arguments)

    def record(self, launched: Launched) -> Recording:
        """What was launched, as the machine's own queues. Raises ProgramError for what no known format says."""
        return Recording.of(launched.program, self.config)

    def replay(self, recording: Recording) -> Launched:
        """Run a recording; its tensors lie where they lay. Raises ProgramError."""
        return recording.launch(self.memories)
