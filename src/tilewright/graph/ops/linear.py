"""Convolutions (also depthwise and transposed) and matrix products: exact sums, then one requantisation.

`SumOfProducts` has one method for the sums and one for requantisation, because a machine without a requantising
multiplier only computes the sums. An optional residual is added to the sums before rounding. Sums of int16 inputs have
64 bits.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tilewright.array import Array, exact_matmul, wide_matmul
from tilewright.graph.ir import Shape, Site
from tilewright.graph.ops.base import Evaluation, Single, Window, four
from tilewright.graph.rounding import Activation, Requant, RequantRule, Rounding, Shift, power_of_two, wrap_int32
from tilewright.graph.takes import Takes
from tilewright.graph.tensor import Tensor

#: The weights of a fully connected layer are converted to floats in blocks of this size, because all weights of VGG16
#: as floats would need gigabytes.
FLOATS_AT_ONCE = 1 << 24
#: A residual (an 8-bit code minus a zero point) still fits int32 after a left shift by this number of bits.
MAX_LIFT = 23
#: The reason of a machine that cannot add a residual to the sums.
NO_RESIDUAL = "a residual in its sums is not supported; `tilewright quantize --residuals rounded` keeps them apart"


def centre(values: Array, tensor: Tensor) -> Array:
    """Return `values - zero_point` as float32, which is exact. A constant may have a zero point for each channel."""
    zero = np.array(tensor.quant.zero_point if tensor.quant else (0,), np.float32)
    return values.astype(np.float32) - (zero[0] if (zero == zero[0]).all() else tensor.spread(zero))


def magnitude(tensor: Tensor) -> int:
    """Return an upper bound of the magnitudes in the result of `centre` for an 8-bit tensor."""
    return 255 if tensor.dtype == "uint8" or (tensor.quant and any(tensor.quant.zero_point)) else 128


def wide(x: Tensor) -> bool:
    """Return whether products of the tensor are summed in 64 bits."""
    return x.dtype == "int16"


def product(x: Tensor, w: Tensor, rows: Array, columns: Array) -> Array:
    """Return the exact matrix product of centred values, as int64 if `x` is `wide`, else as int32."""
    return wide_matmul(rows, columns) if wide(x) else exact_matmul(rows, columns, 255, magnitude(w))


def merge_samples(x: Array) -> Array:
    """Join samples and batch: reshape x (S, N, H, W, C) to (S * N, H, W, C)."""
    return x.reshape(-1, *x.shape[2:])


@dataclass(frozen=True)
class SumOfProducts(Single):
    """Base class of `out = requantise(bias + sum(x * w) + (residual << lift))`.

    Zero points are first subtracted from x, w and the residual. The inputs are x, w, an optional bias (int32; also
    int64 if x is int16) and an optional residual, a tensor of codes in the shape of the output. The scale of the
    residual is the scale of the sums times 2**lift, lift >= 0. With `shift`, there is no residual: inputs 3 and 4 are
    the multiplier and addend of each output channel, int64, which replace the scales.
    """

    activation: Activation = "none"
    shift: Shift | None = field(default=None, kw_only=True)

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        residual = self.residual(site)
        return (site.input(0), site.input(1), site.output, *([residual] if residual else []))

    def refusal(self, site: Site, takes: Takes) -> str:
        w = site.input(1)
        bias = site.optional(2)
        if self.residual(site) and not takes.residual:
            return NO_RESIDUAL
        if w.data is None or w.dtype not in takes.weights:
            what = f"the {'computed' if w.data is None else 'constant'} weights '{w.name}' of {w.dtype}"
            return f"{what} are not supported; constant weights of {' and '.join(takes.weights)} are"
        if bias is not None and bias.data is None:
            return f"the bias '{bias.name}' is computed; it must be constant"
        return takes.zero_points(w) or super().refusal(site, takes)

    def residual(self, site: Site) -> Tensor | None:
        """Return the tensor that is added to the sums, or None if the node has no residual."""
        return None if self.shift is not None else site.optional(3)

    def lift(self, site: Site) -> int:
        """Return the left shift of the residual. Raises ModelError unless all channels have one of 0..MAX_LIFT."""
        scales = site.input(1).scales * site.input(0).scale
        lifts = set(power_of_two(site.input(3).scale / scales, site.where).tolist())
        wrong = len(lifts) > 1 or not 0 <= min(lifts) <= MAX_LIFT
        reason = f"its residual would be shifted left by {sorted(lifts)} bits; one shift of 0..{MAX_LIFT} is needed"
        site.fail_if(wrong, reason)
        return int(min(lifts))

    @abstractmethod
    def accumulate(self, site: Site, x: Array, w: Array) -> Array:
        """Return the sums before the bias, int32 or int64 (S, *out_shape). x has a sample axis, w has none."""

    def finish(self, site: Site, acc: Array, rounding: Rounding, residual: Array | None = None) -> Array:
        """Add bias and residual to the accumulators `acc` (S, *out_shape). Return requantised and clamped codes."""
        # Bias and residual are at the scale of the sums, so the only rounding is the requantisation.
        if site.optional(2) is not None:
            acc = acc + site.constant(2)  # int32 sums wrap, as in the kernels
        if residual is not None:
            centred = residual.astype(np.int32) - np.int32(site.input(3).zero_point)
            acc = acc + (centred << np.int32(self.lift(site)))
        if self.shift is not None:
            return self.shift.apply(acc, site.constant(3), site.constant(4), site.output.dtype)
        x = site.input(0)
        bias = site.optional(2)
        requant = Requant.of_product(x, site.input(1), site.output, self.activation, rounding.delegated and not wide(x))
        if wide(x):
            narrow = bias is not None and bias.dtype == "int32"
            return requant.apply(wrap_int32(acc) if narrow else acc, self.wide_rule(rounding, narrow))
        return requant.apply(acc, self.rule(rounding))

    def wide_rule(self, rounding: Rounding, narrow: bool) -> RequantRule:
        """Return the rule for int16 inputs. If `narrow`, the bias has 32 bits, and the sums wrap at 32 bits."""
        return "double" if narrow else "reduced"

    def rule(self, rounding: Rounding) -> RequantRule:
        return "shift" if self.shift is not None else rounding.convolution

    def compute(self, at: Evaluation) -> Array:
        residual = at.value(3) if self.residual(at) else None
        return self.finish(at, self.accumulate(at, at.value(), at.value(1)[0]), at.rounding, residual)

    def macs(self, site: Site) -> int:
        return site.output.size * (site.input(1).size // site.output.shape[-1])  # outputs * weights per output channel

    def _check_added(self, site: Site, channels: int, shape: Shape) -> None:
        residual = self.residual(site)
        bias = site.optional(2)
        if residual is not None:
            reason = f"its residual has the shape {list(residual.shape)}; its result has {list(shape)}"
            site.fail_if(residual.shape != shape, reason)
            self.lift(site)
        if self.shift is not None:
            self.shift.check(site.where, site.output.dtype)
            for index in (3, 4):
                wrong = site.constant(index).shape not in ((1,), (channels,)) or site.input(index).dtype != "int64"
                site.fail_if(wrong, f"has a multiplier or addend that is not int64 of shape [{channels}]")
        kinds = ("int32", "int64") if wide(site.input(0)) else ("int32",)
        if bias is not None:
            reason = f"has a {bias.dtype} bias of shape {list(bias.shape)}"
            wrong = bias.shape != (channels,) or bias.dtype not in kinds
            site.refuse_if(wrong, f"{reason}; {' or '.join(kinds)} of shape [{channels}] is supported")


@dataclass(frozen=True)
class Linear(SumOfProducts):
    """Base class of the operators that the multiply-accumulate arrays of machines compute."""


@dataclass(frozen=True)
class Convolution(Linear):
    """Base class of linear operators with a sliding window over x (N, H, W, C)."""

    images = True
    window: Window = Window()

    def _shape(self, site: Site, fits: bool, out_channels: int) -> Shape:
        """Return the output shape. Raises ModelError if `fits` is false or the weights do not fit the window."""
        batch, height, width, channels = four(site, 0)
        weights = four(site, 1)
        wrong = not fits or weights[1:3] != self.window.kernel
        site.fail_if(wrong, f"weights of shape {list(weights)} do not fit {channels} input channels")
        shape = (batch, *self.window.output_size(site.node.name, height, width), out_channels)
        self._check_added(site, out_channels, shape)
        return shape


@dataclass(frozen=True)
class Conv2D(Convolution):
    """2-D convolution: x (N, H, W, C), weights (O, KH, KW, C / groups), out (N, OH, OW, O)."""

    kind = "conv2d"

    def refusal(self, site: Site, takes: Takes) -> str:
        groups = site.input(0).shape[3] // site.input(1).shape[3]
        if groups > 1 and not takes.groups:
            return f"group={groups} is not supported; group=1 is"
        return super().refusal(site, takes)

    def shape_of(self, site: Site) -> Shape:
        channels = four(site, 0)[3]
        outputs, _, _, depth = four(site, 1)
        return self._shape(site, not (channels % depth or outputs % (channels // depth)), outputs)

    def accumulate(self, site: Site, x: Array, w: Array) -> Array:
        # As matrix products (im2col): the row of an output pixel has all inputs in its window. A group multiplies its
        # own slice of the input channels.
        patches = self.window.windows(merge_samples(centre(x, site.input(0))))  # (B, OH, OW, KH, KW, C)
        batch, oh, ow, kh, kw, channels = patches.shape
        depth = w.shape[3]
        groups = channels // w.shape[3]
        out_group = w.shape[0] // groups
        acc = np.empty((batch, oh, ow, w.shape[0]), np.int64 if wide(site.input(0)) else np.int32)
        for group in range(groups):
            rows = patches[..., group * depth : (group + 1) * depth].reshape(batch * oh * ow, kh * kw * depth)
            columns = centre(w, site.input(1))[group * out_group : (group + 1) * out_group].reshape(out_group, -1).T
            sums = product(site.input(0), site.input(1), rows, columns)
            acc[..., group * out_group : (group + 1) * out_group] = sums.reshape(batch, oh, ow, out_group)
        return acc.reshape(x.shape[0], *site.output.shape)


@dataclass(frozen=True)
class DepthwiseConv2D(Convolution):
    """Depthwise convolution: x (N, H, W, C), weights (1, KH, KW, C * m). Output channel o reads channel o // m of x."""

    kind = "depthwise_conv2d"

    def shape_of(self, site: Site) -> Shape:
        filters, _, _, outputs = four(site, 1)
        return self._shape(site, filters == 1 and outputs % four(site, 0)[3] == 0, outputs)

    def accumulate(self, site: Site, x: Array, w: Array) -> Array:
        kind = np.int64 if wide(site.input(0)) else np.int32
        patches = self.window.windows(merge_samples(centre(x, site.input(0))).astype(kind))
        weights = centre(w, site.input(1))[0].astype(kind)
        multiplier = w.shape[3] // x.shape[-1]
        # One tap after the other: `patches` is only a view, and the products of all taps would need much more memory.
        acc = np.zeros((patches.shape[0], *site.output.shape[1:]), kind)
        for row, column in np.ndindex(*self.window.kernel):
            taps = patches[:, :, :, row, column]
            acc += (np.repeat(taps, multiplier, axis=-1) if multiplier > 1 else taps) * weights[row, column]
        return acc.reshape(x.shape[0], *site.output.shape)


@dataclass(frozen=True)
class TransposeConv2D(SumOfProducts):
    """Transposed convolution: x (N, H, W, C), weights (O, KH, KW, C), out (N, *size, O).

    Each input pixel adds its products with all taps to a window of positions. The windows of neighbouring pixels are
    shifted by the stride. The output begins at the position (top, left) of `window.padding`.
    """

    kind = "transpose_conv2d"
    window: Window = Window()
    size: tuple[int, int] = (1, 1)

    def shape_of(self, site: Site) -> Shape:
        batch, _, _, channels = four(site, 0)
        outputs, height, width, depth = four(site, 1)
        wrong = depth != channels or (height, width) != self.window.kernel
        reason = f"weights of shape {[outputs, height, width, depth]} do not fit {channels} input channels"
        site.fail_if(wrong or min(*self.window.stride, *self.size) < 1, reason)
        shape = (batch, *self.size, outputs)
        self._check_added(site, outputs, shape)
        return shape

    def accumulate(self, site: Site, x: Array, w: Array) -> Array:
        centred = merge_samples(centre(x, site.input(0)))
        kh, kw = self.window.kernel
        down, right = self.window.stride
        batch, height, width, channels = centred.shape
        taps = centre(w, site.input(1)).transpose(3, 1, 2, 0).reshape(channels, -1)
        products = product(site.input(0), site.input(1), centred.reshape(-1, channels), taps)
        products = products.reshape(batch, height, width, kh, kw, w.shape[0])
        top, _, left, _ = self.window.padding
        rows, columns = self.size
        # `total` has all positions of products and of outputs. Outputs without a product stay 0.
        extent = (max((height - 1) * down + kh, top + rows), max((width - 1) * right + kw, left + columns))
        total = np.zeros((batch, *extent, w.shape[0]), products.dtype)
        for row, column in np.ndindex(kh, kw):
            ends = row + (height - 1) * down + 1, column + (width - 1) * right + 1
            total[:, row : ends[0] : down, column : ends[1] : right] += products[:, :, :, row, column]
        return total[:, top : top + rows, left : left + columns].reshape(x.shape[0], *site.output.shape)

    def macs(self, site: Site) -> int:
        # Each input pixel is multiplied with every tap of every output channel.
        return site.input(0).size * (site.input(1).size // site.input(1).shape[3])


@dataclass(frozen=True)
class FullyConnected(Linear):
    """The matrix product of x, as rows of K elements, and weights (O, K). `keep_dims` keeps the leading axes of x."""

    kind = "fully_connected"
    keep_dims: bool = False

    def shape_of(self, site: Site) -> Shape:
        x = site.input(0)
        w = site.input(1)
        wrong = len(w.shape) != 2 or not x.shape or x.size % w.shape[1]
        wrong = wrong or (self.keep_dims and x.shape[-1] != w.shape[1])
        site.fail_if(wrong, f"weights of shape {list(w.shape)} do not fit the input {list(x.shape)}")
        shape = (*x.shape[:-1], w.shape[0]) if self.keep_dims else (x.size // w.shape[1], w.shape[0])
        self._check_added(site, w.shape[0], shape)
        return shape

    def accumulate(self, site: Site, x: Array, w: Array) -> Array:
        rows = centre(x, site.input(0)).reshape(-1, w.shape[1])
        # The sums of blocks of columns may be added in any order, because int32 addition wraps.
        step = max(1, FLOATS_AT_ONCE // len(w))
        acc = np.zeros((), np.int32)
        for start in range(0, w.shape[1], step):
            block = slice(start, start + step)
            columns = centre(w[:, block], site.input(1)).T
            acc = acc + product(site.input(0), site.input(1), rows[:, block], columns)
        return acc.reshape(x.shape[0], *site.output.shape)

    def rule(self, rounding: Rounding) -> RequantRule:
        return "shift" if self.shift is not None else rounding.fully_connected

    def wide_rule(self, rounding: Rounding, narrow: bool) -> RequantRule:
        return super().wide_rule(rounding, narrow) if rounding.name == "tflm" else "away"


@dataclass(frozen=True)
class MatMul(Single):
    """Requantised matrix products of two computed tensors, a (..., M, K) and b (..., K, N), with equal leading axes."""

    kind = "matmul"

    def shape_of(self, site: Site) -> Shape:
        a, b = site.input(0).shape, site.input(1).shape
        wrong = len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2] or a[-1] != b[-2]
        site.fail_if(wrong, f"inputs of shapes {list(a)} and {list(b)} cannot be multiplied as matrices")
        return (*a[:-1], b[-1])

    def compute(self, at: Evaluation) -> Array:
        left, right = (centre(values, at.input(index)) for index, values in enumerate(at.broadcast()))
        samples = len(left)
        acc = exact_matmul(left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:]), 255, 255)
        return self.finish(at, acc.reshape(samples, *at.output.shape), at.rounding)

    def finish(self, site: Site, acc: Array, rounding: Rounding) -> Array:
        """Requantise accumulators (S, *out_shape) to codes."""
        requant = Requant.of_product(site.input(0), site.input(1), site.output, "none", rounding.delegated)
        return requant.apply(acc, rounding.fully_connected)

    def macs(self, site: Site) -> int:
        return site.output.size * site.input(0).shape[-1]


def matrices(site: Site) -> tuple[int, int, int, int]:
    """Return the number of matrix products of a MatMul, and M, K and N of each: (M, K) times (K, N)."""
    *leading, rows, depth = site.input(0).shape
    return prod(leading), rows, depth, site.output.shape[-1]
