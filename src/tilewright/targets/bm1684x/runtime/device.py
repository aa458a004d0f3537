"""A device with its memory: put tensors into DDR, launch kernels on them, and read tensors back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.layouts.tensor import Tensor, packed
from tilewright.targets.bm1684x.runtime.kernel import Kernel, Launched
from tilewright.targets.bm1684x.runtime.recording import Recording
from tilewright.targets.bm1684x.values.dtypes import DType
from tilewright.targets.bm1684x.values.memory import Knobs, Memories

if TYPE_CHECKING:
    from tilewright.debug.session import Session

#: Alignment of tensors in DDR, in bytes.
PAGE = 4096


class Device:
    """A simulated BM1684X with its memories."""

    def __init__(self, config: Config | None = None, knobs: Knobs | None = None) -> None:
        self.config = config or Config()
        self.memories = Memories(self.config, knobs or Knobs())
        self._end = DDR_BASE

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Allocate an uninitialised tensor in DDR, without gaps. Raises InputError for an illegal shape."""
        tensor = Tensor.ddr(self._end, shape, dtype, self.config)
        size = tensor.shape.elements * dtype.bytes
        self.memories.new_ddr(self._end, size)
        self._end += -(-size // PAGE) * PAGE
        return tensor

    def put(self, values: Array, dtype: DType) -> Tensor:
        """Allocate a tensor in DDR with `values`, which must have the storage type of `dtype` (for bf16: its bits).

        Raises MachineError for values of another type.
        """
        if values.dtype != dtype.storage:
            remedy = f"{dtype} is stored as {dtype.storage}"
            if values.dtype == np.float32 and dtype.is_float:
                remedy += "; values.floats.narrow converts float32 to it"
            raise MachineError("put", f"the values are {values.dtype}", remedy)
        n, c, h, w = (1,) * (4 - values.ndim) + values.shape
        tensor = self.empty((n, c, h, w), dtype)
        self.memories.fill(tensor.addresses, values.reshape(tensor.shape))
        return tensor

    def put_weights(self, values: Array, dtype: DType) -> Tensor:
        """Allocate a tensor in DDR with convolution weights (oc, ic, kh, kw), reordered for the cube (matrix unit).

        A kernel can copy the tensor to `tpu.weights(..).storage`.
        """
        return self.put(packed(values, dtype, self.config), dtype)

    def get(self, tensor: Tensor) -> Array:
        """Return the values of a tensor in their storage type (for bf16: its bits)."""
        return self.memories.read(tensor.addresses, tensor.dtype.storage)

    def launch(self, kernel: Kernel, *arguments: Any) -> Launched:
        """Run a kernel to its end, and return the outcome. Raises MachineError if the machine refuses a command."""
        return kernel.launch(self.memories, *arguments)

    def debug(self, kernel: Kernel, *arguments: Any) -> Session:
        """Run a kernel to its end, and return a debugging session of the launch (docs/debug.md).

        If the machine refuses a command, the session ends at this command. Raises MachineError if the kernel fails
        otherwise.
        """
        from tilewright.targets.bm1684x.debug.kernels import debug

        return debug(kernel, self.memories, *arguments)

    def record(self, launched: Launched) -> Recording:
        """Return the recording of a launch. Raises ProgramError for a command without a known encoding."""
        return Recording.of(launched.program, self.config)

    def replay(self, recording: Recording) -> Launched:
        """Run a recording on tensors at the recorded addresses, and return the outcome.

        Raises ProgramError if the recording is damaged or made for another configuration.
        """
        return recording.launch(self.memories)
