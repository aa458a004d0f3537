"""The tensors that a machine's compiler accepts. All compilers state the reasons for a refusal in the same words."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.tensor import Tensor


@dataclass(frozen=True)
class Takes:
    """The tensors that a machine's compiler accepts.

    `dtypes` lists the types of codes, `weights` the types of weights. `stores`: the machine writes codes of the output,
    whose type must be in `dtypes` too. `weight_zero_point`: weights may have a zero point other than 0, the same for
    all channels. `residual`: a residual can be added to the sums. `groups`: convolutions may have groups of channels.
    `batch`: an operator on images may have a batch of several images.
    """

    dtypes: tuple[str, ...] = ("int8",)
    weights: tuple[str, ...] = ("int8",)
    stores: bool = True
    weight_zero_point: bool = False
    residual: bool = False
    groups: bool = False
    batch: bool = False

    def zero_points(self, weights: Tensor) -> str:
        """Return why the zero points of weights are not supported; "" if the zero points are supported."""
        zeros = set(weights.quant.zero_point) if weights.quant else {0}
        if self.weight_zero_point:
            return f"the weights '{weights.name}' must have one zero point" if len(zeros) > 1 else ""
        return f"the weights '{weights.name}' must have the zero point 0" if zeros != {0} else ""
