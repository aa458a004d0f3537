"""A runtime for VTA, modelled on TVM's (vta/runtime/runtime.cc). Section "Runtime" of docs/vta.md maps the names.

with Runtime("pynq") as rt:
    x = rt.to_device(matrix, Memory.INP)
    ...
    rt.load_buffer_2d(x, 0, 4, 64, 16, 0, Memory.INP)
    rt.dep_push("load", "compute")
    ...
    print(rt.synchronize().cycles)

The runtime and the compiler build instruction streams with the same module `instructions`.
"""

from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.runtime.memory import Buffer
from tilewright.targets.vta.runtime.session import Debug, RunResult, Runtime
from tilewright.targets.vta.runtime.uop_kernels import UopRecorder

__all__ = ["AluOp", "Buffer", "Debug", "Memory", "RunResult", "Runtime", "UopRecorder"]
