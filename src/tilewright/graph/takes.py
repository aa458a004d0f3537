"""The tensors that a machine's compiler accepts, and the reasons for a refusal in the words of all compilers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.tensor import Tensor


@dataclass(frozen=True)
class Takes:
    """The types that a machine's compiler accepts for activations (`dtypes`) and for weights."""

    dtypes: tuple[str, ...] = ("int8",)
    weights: tuple[str, ...] = ("int8",)
    stores: bool = True  # the machine stores codes (not sums), so the type of the output must be in `dtypes`, too
    weight_zero_point: bool = False  # weights may have a zero point other than 0, the same for all channels
    residual: bool = False  # the machine can add a residual to the sums
    groups: bool = False  # convolutions may have groups of channels
    batch: bool = False  # operators on images may have a batch of several images

    def zero_points(self, weights: Tensor) -> str:
        """Return why the zero points of weights are not supported, or "" if they are."""
        zeros = set(weights.quant.zero_point) if weights.quant else {0}
        if self.weight_zero_point:
            return f"the weights '{weights.name}' must have one zero point" if len(zeros) > 1 else ""
        return f"the weights '{weights.name}' must have the zero point 0" if zeros != {0} else ""
