"""The store of a layer's results: int8 codes from the scale unit of the accumulator, or int32 sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear
from tilewright.graph.rounding import Requant, Rounding
from tilewright.targets.gemmini.config import ACC_BYTES, INPUT_BYTES
from tilewright.targets.gemmini.isa.macros import Commands

RELU = 1


@dataclass(frozen=True)
class RequantisingStore:
    """A store of int32 sums or, with a float32 `scale`, of int8 codes: scaled, rounded half to even, clipped."""

    scale: float | None = None
    relu: bool = False

    @property
    def nbytes(self) -> int:
        return ACC_BYTES if self.scale is None else INPUT_BYTES

    def configure(self, out: Commands, outputs: int) -> None:
        scale = 1.0 if self.scale is None else self.scale
        out.gemmini_extended_config_st(outputs * self.nbytes, self.activation, scale)

    @property
    def activation(self) -> int:
        return RELU if self.relu else 0

    def __str__(self) -> str:
        return "sums" if self.scale is None else f"codes, scale {self.scale:.6g}{', ReLU' if self.relu else ''}"


#: The reason why a machine cannot run hardware loops.
NO_LOOPS = "dataflow=os: the hardware loops need a machine with dataflow ws or both"
#: The store of int32 sums, which the host requantises.
SUMS = RequantisingStore()


def requantising_store(site: Site, rounding: Rounding) -> RequantisingStore | str:
    """Return the store that computes the codes of a layer, or the reason why the scale unit cannot compute them."""
    # The scale unit multiplies by one float32 and rounds half to even. onnxruntime and XNNPACK do the same (rule
    # `float`) if codes are symmetric and all weights have one scale.
    op = site.node.op
    out = site.output
    assert isinstance(op, Linear)
    if op.rule(rounding) != "float":
        return f"rounding '{rounding.name}' does not round as the accumulator's scale unit does; the mode 'ort' does"
    if out.dtype != "int8" or out.zero_point:
        return "codes of the output are not int8 with the zero point 0"
    requant = Requant.of_product(site.input(0), site.input(1), out, op.activation, rounding.delegated)
    factors = np.unique(requant.real32)
    if len(factors) > 1:
        return "weights have a scale per channel; `tilewright quantize --scheme symmetric` gives them one"
    if requant.high != np.iinfo(np.int8).max or requant.low not in (np.iinfo(np.int8).min, 0):
        return f"results are clipped to {requant.low}..{requant.high}; a store clips to -128..127 or 0..127"
    return RequantisingStore(float(factors[0]), requant.low == 0)
