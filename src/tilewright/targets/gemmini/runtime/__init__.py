"""Programs by hand, with the names of gemmini.h.

with Gemmini() as g:
    a, b = g.to_device(left), g.to_device(right)  # int8 matrices
    c = g.empty((16, 16), "int8")
    g.gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0)
    g.gemmini_config_ld(16)
    g.gemmini_config_st(16)
    g.gemmini_mvin(a.address, spad(0))
    g.gemmini_mvin(b.address, spad(16))
    g.gemmini_preload(spad(16), acc(0))
    g.gemmini_compute_preloaded(spad(0), GARBAGE_ADDR)
    g.gemmini_mvout(c.address, acc(0))
    g.gemmini_fence()
    print(g.run().cycles, c.data)
"""

from tilewright.targets.gemmini.isa.macros import (
    GARBAGE_ADDR,
    IGELU,
    LAYERNORM,
    NO_ACTIVATION,
    OUTPUT_STATIONARY,
    RELU,
    SOFTMAX,
    WEIGHT_STATIONARY,
    Commands,
    acc,
    spad,
)
from tilewright.targets.gemmini.runtime.session import Buffer, Gemmini, RunResult

__all__ = [
    "GARBAGE_ADDR",
    "IGELU",
    "LAYERNORM",
    "NO_ACTIVATION",
    "OUTPUT_STATIONARY",
    "RELU",
    "SOFTMAX",
    "WEIGHT_STATIONARY",
    "Buffer",
    "Commands",
    "Gemmini",
    "RunResult",
    "acc",
    "spad",
]
