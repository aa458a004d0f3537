"""The optional normaliser of a machine: layer normalisation, i-gelu and softmax of accumulator rows.

An mvout with a norm command updates statistics instead of writing. Later mvouts use these statistics in the
activation that config_st and config_norm select. `Normaliser` computes as libgemmini does (apply_norm,
apply_pre_activation_acc), and `RtlNormaliser` as the RTL does (Normalizer.scala, AccumulatorScale.scala).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import IntEnum

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.loops.matmul import STATISTICS

#: The number of rows whose statistics libgemmini keeps at once. The RTL keeps STATISTICS.
IDS = 256
LEAST = np.int32(-(1 << 31))


class Norm(IntEnum):
    """The normalisation command in a local address.

    RESET writes the row, and all other commands only update statistics.
    """

    RESET, SUM, MEAN, VARIANCE, INV_STDDEV, MAX, SUM_EXP, INV_SUM_EXP = range(8)


class Activation(IntEnum):
    """The activation that is applied to a row of the accumulator when it is stored."""

    NONE, RELU, LAYERNORM, IGELU, SOFTMAX = range(5)


#: A command that is applied to a whole row: {command of the last block: command of all blocks before it}.
PARTIAL = {Norm.MEAN: Norm.SUM, Norm.INV_STDDEV: Norm.VARIANCE, Norm.INV_SUM_EXP: Norm.SUM_EXP}


def rounded(values: Array, scale: Array) -> Array:
    """Multiply int32 by float32, round half to even, and saturate to the range of int8. The result is int32."""
    product = np.rint(values.astype(np.float32) * scale)
    return np.clip(product, -128, 127).astype(np.int32)


class Normaliser:
    """The registers and statistics of a normaliser for S samples. Each statistic has the shape (IDS, S, 1)."""

    def __init__(self, samples: int) -> None:
        self.activation: int = Activation.NONE
        self.stat = 0
        self.qb = self.qc = self.qln2 = self.qln2_inv = np.int32(0)
        shape = IDS, samples, 1
        self.sum, self.count, self.mean, self.most, self.running = (np.zeros(shape, np.int32) for _ in range(5))
        self.factor = np.zeros(shape, np.float32)
        self.share = np.zeros(shape, np.float32)
        self.fresh = np.ones(IDS, np.bool_)

    def copy(self) -> Normaliser:
        return deepcopy(self)

    def config_st(self, values: Mapping[str, int]) -> None:
        """Set the activation. The value NONE leaves SOFTMAX selected, because only config_norm selects SOFTMAX."""
        if values["activation"] or self.activation != Activation.SOFTMAX:
            self.activation = Activation(values["activation"])

    def config_norm(self, values: Mapping[str, int]) -> None:
        self.stat = values["stat"]
        if values["only_stat"]:
            return
        self.qb = np.int32(values["qb"])
        self.qc = np.int32(values["qc"])
        self.activation = Activation(min(values["high"] << 2 | self.activation, Activation.SOFTMAX))
        if values["inverse"]:
            self.qln2_inv = np.int32(values["qln2"])
        else:
            self.qln2 = np.int32(values["qln2"])

    def count_row(self, blocks: list[Array], command: int, scale: Array) -> bool:
        """Add a row to the statistics, as blocks of int32 (S, columns). Return whether the store writes the row."""
        for index, block in enumerate(blocks):
            last = index + 1 == len(blocks)
            self._count(block, Norm(command) if last else PARTIAL.get(Norm(command), Norm(command)), scale)
        return command == Norm.RESET

    def _count(self, block: Array, command: Norm, scale: Array) -> None:
        at = self.stat
        if self.fresh[at]:
            self.sum[at] = 0
            self.count[at] = 0
            self.running[at] = LEAST
        self.fresh[at] = command in (Norm.RESET, Norm.MEAN, Norm.INV_STDDEV)
        if command in (Norm.SUM, Norm.MEAN):
            self._add(block)
        elif command in (Norm.VARIANCE, Norm.INV_STDDEV):
            self._add((block - self.mean[at]) ** 2)
        elif command == Norm.MAX:
            self.running[at] = np.maximum(self.running[at], block.max(axis=1, keepdims=True))
        elif command in (Norm.SUM_EXP, Norm.INV_SUM_EXP):
            self.most[at] = self.running[at]
            self.sum[at] += self._exp(block).sum(axis=1, keepdims=True, dtype=np.int32)
        if command in (Norm.MEAN, Norm.INV_STDDEV):
            mean = np.trunc(self.sum[at] / self.count[at].astype(np.float64)).astype(np.int32)
            if command == Norm.MEAN:
                self.mean[at] = mean
            else:
                deviation = np.sqrt(np.where(mean == 0, 1, mean).astype(np.float64)).astype(np.int32)
                self.factor[at] = np.float32(1) / deviation.astype(np.float32)
        elif command == Norm.INV_SUM_EXP:
            self.running[at] = LEAST
            self.share[at] = np.float32(127) / self.sum[at].astype(np.float32)

    def _add(self, block: Array) -> None:
        self.sum[self.stat] += block.sum(axis=1, keepdims=True, dtype=np.int32)
        self.count[self.stat] += block.shape[1]

    def _exp(self, block: Array) -> Array:
        # exp(x) = 2**-power * exp(near), where `near` lies in a short interval, so a parabola is accurate enough
        # (I-BERT).
        below = block - self.most[self.stat]
        power = (-below * self.qln2_inv) >> 16
        near = below + power * self.qln2 + self.qb
        return (near * near + self.qc) >> (power & 31)

    def _gelu(self, values: Array) -> Array:
        near = np.minimum(np.abs(values), -self.qb) + self.qb
        erf = np.where(values < 0, -1, 1).astype(np.int32) * (near * near + self.qc)
        return values * (erf + self.qc)

    def activated(self, values: Array) -> Array:
        """Apply the activation to int32 values (S, columns). `Machine` applies ReLU."""
        if self.activation == Activation.IGELU:
            return self._gelu(values)
        if self.activation == Activation.LAYERNORM:
            return np.trunc((values - self.mean[self.stat]) * self.factor[self.stat]).astype(np.int32)
        if self.activation == Activation.SOFTMAX:
            return rounded(self._exp(values), self.share[self.stat])
        return values


class RtlNormaliser(Normaliser):
    """The normaliser of the RTL of a revision (config.py: rtl), which has statistics for STATISTICS rows."""

    def __init__(self, samples: int, rtl: int) -> None:
        super().__init__(samples)
        self.rtl = rtl
        self.running[:] = self.most[:] = LEAST

    def config_st(self, values: Mapping[str, int]) -> None:
        # Unlike libgemmini, the RTL also replaces the bit that config_norm sets.
        self.activation = values["activation"]

    def config_norm(self, values: Mapping[str, int]) -> None:
        low = self.activation & 3
        super().config_norm({**values, "stat": values["stat"] % STATISTICS, "high": 0})
        if not values["only_stat"]:
            self.activation = values["high"] << 2 | low  # values above SOFTMAX select no activation

    def _count(self, block: Array, command: Norm, scale: Array) -> None:
        at = self.stat
        self.count[at] += block.shape[1]
        if command in (Norm.SUM, Norm.MEAN):
            self.sum[at] += block.sum(axis=1, keepdims=True, dtype=np.int32)
        elif command in (Norm.VARIANCE, Norm.INV_STDDEV):
            self.sum[at] += ((block - self.mean[at]) ** 2).sum(axis=1, keepdims=True, dtype=np.int32)
        elif command in (Norm.SUM_EXP, Norm.INV_SUM_EXP):
            self.sum[at] += self._exp(block).sum(axis=1, keepdims=True, dtype=np.int32)
        elif command == Norm.MAX:
            self.running[at] = self.most[at] = np.maximum(self.running[at], block.max(axis=1, keepdims=True))
        if command in (Norm.MEAN, Norm.INV_STDDEV):
            mean = np.trunc(self.sum[at] / self.count[at].astype(np.float64)).astype(np.int32)
            if command == Norm.MEAN:
                self.mean[at] = mean
            else:
                deviation = np.maximum(np.sqrt(mean.view(np.uint32).astype(np.float64)).astype(np.int32), 1)
                self.factor[at] = np.float32(1) / deviation.astype(np.float32) * scale
        elif command == Norm.INV_SUM_EXP:
            with np.errstate(divide="ignore"):
                self.share[at] = np.float32(127) / self.sum[at].astype(np.float32) * scale
        if command in (Norm.RESET, Norm.MEAN, Norm.INV_STDDEV):
            self.sum[at] = 0
            self.count[at] = 0
            self.running[at] = LEAST

    def _exp(self, block: Array) -> Array:
        below = block - self.most[self.stat]
        if self.rtl == 2025:  # since 2916cde, the function iexp has the body of igelu
            return self._gelu(below)
        power = ((-below.astype(np.int64)) * self.qln2_inv >> 16).astype(np.int32)
        near = below + power * self.qln2 + self.qb
        shift = np.where((power & 0xFFE0) != 0, 32, power).astype(np.uint32)
        curve = (near * near + self.qc).view(np.uint32)
        return np.where(shift < 32, curve >> (shift & 31), 0).astype(np.uint32).view(np.int32)

    def stored(self, values: Array, scale: Array) -> Array:
        """Apply the activation to int32 values (S, columns), scale, and round to int8."""
        if self.activation == Activation.RELU:
            values = np.maximum(values, 0)
        elif self.activation == Activation.IGELU:
            values = self._gelu(values)
        elif self.activation == Activation.LAYERNORM:
            values, scale = values - self.mean[self.stat], self.factor[self.stat]
        elif self.activation == Activation.SOFTMAX:
            values, scale = self._exp(values), self.share[self.stat]
        return rounded(values, scale).astype(np.int8)
