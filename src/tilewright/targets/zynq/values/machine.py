"""The results of a layer: requantised sums, computed by matrix products, or maxima of four codes for pools.

Values do not depend on the arrival times of blocks, but they depend on `lat_use`. With lat_use=0, the accumulator does
not wait for the multipliers, and adds the products of the previous iteration.

onnxruntime's integer kernels are several times as fast as BLAS. The kernels are exact only on CPUs with VNNI: other
CPUs add pairs of products in 16 bits and saturate (docs/arithmetic.md). So these kernels are used only if the CPU's
flags include VNNI and if a test product of extreme codes is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.graph.ops import Window
from tilewright.graph.rounding import Requant
from tilewright.sim.jit import compiled
from tilewright.targets.zynq.config import GROUP, TAPS
from tilewright.targets.zynq.isa.layer import RULES, Kind, Layer

#: The size of a strip of window rows in bytes. A strip is small enough to stay in the cache up to requantisation.
STRIP_BYTES = 1 << 21
#: Up to this number of samples, FC weights are read as 8-bit codes: BLAS would need floats, with four times the bytes.
FEW = 4
#: The padding of an image (H, W, C), and the windows of the padded image.
BORDER = ((1, 1), (1, 1), (0, 0))
_INSIDE = Window((3, 3), (1, 1), (0, 0, 0, 0))
Product = Callable[[Array], Array]
VNNI_FLAGS = frozenset(("avx512_vnni", "avx_vnni"))


def run(layer: Layer, data: Array, weights: Array, bias: Array, factor: Array) -> Array:
    """Return the codes (samples, results) that a layer computes. Results are (rows, cols, channels) or (l), flattened.

    `data` is (S, rows, cols, ic) or (S, r), `weights` (oc, 9, ic) or (l, r), `bias` int32 [channels], `factor` float64
    [1 or channels].
    """
    if layer.kind == Kind.POOL:
        return np.clip(_pool(data), layer["low"], layer["high"]).astype(data.dtype).reshape(len(data), -1)
    strips = _sums(layer, data, weights)
    return np.concatenate([_finish(layer, sums, bias, factor) for sums in strips]).reshape(len(data), layer.outputs)


def _sums(layer: Layer, data: Array, weights: Array) -> Iterator[Array]:
    """Yield sums without biases, int32 (n, channels), by sample and then by position."""
    if layer.kind == Kind.FC:
        yield _fc(layer, data, weights) if layer.config.lat_use else _stale(layer, data, weights)
        return
    for image in data:
        if layer.config.lat_use:
            yield from _conv(layer, image, weights)
        else:
            yield _stale(layer, image[None], weights)


def _fc(layer: Layer, data: Array, weights: Array) -> Array:
    # For few samples, the compiled loop multiplies weight codes, and their zero point is subtracted afterwards.
    centred = data.astype(np.int32) - layer["zx"]
    if len(data) > FEW:
        bounds = max(1, int(np.abs(centred).max())), 255
        return exact_matmul(centred, weights.astype(np.int32).T - layer["zw"], *bounds)
    sums = np.zeros((len(data), len(weights)), np.int32)
    _products.interruptible(weights, centred, sums)
    return sums - np.int32(layer["zw"]) * centred.sum(axis=1, dtype=np.int32, keepdims=True)


@compiled
def _products(weights: Array, data: Array, sums: Array) -> None:
    for sample in range(data.shape[0]):
        for column in range(weights.shape[0]):
            total = np.int32(0)
            for k in range(weights.shape[1]):
                total += np.int32(weights[column, k]) * data[sample, k]
            sums[sample, column] = total


def _conv(layer: Layer, image: Array, weights: Array) -> Iterator[Array]:
    zero = layer["zx"] + 128 * layer["x_signed"]
    by_codes = vnni_available() and 0 <= zero <= 255
    padded, product = (_codes if by_codes else _floats)(layer, image, weights)
    rows, cols, channels = image.shape
    windows = _INSIDE.windows(padded[None])[0]
    height = max(1, STRIP_BYTES // (padded.itemsize * cols * TAPS * channels))
    for top in range(0, rows, height):
        yield product(windows[top : top + height].reshape(-1, TAPS * channels))


def _floats(layer: Layer, image: Array, weights: Array) -> tuple[Array, Product]:
    """Return the padded image minus its zero point, and a function that multiplies windows by the kernels."""
    padded = np.pad(image.astype(np.float32) - np.float32(layer["zx"]), BORDER)
    kernel = (weights.astype(np.float32) - np.float32(layer["zw"])).reshape(len(weights), -1).T
    bounds = max(1, int(np.abs(padded).max())), max(1, int(np.abs(kernel).max()))
    return padded, lambda strip: exact_matmul(strip, kernel, *bounds)


def _codes(layer: Layer, image: Array, weights: Array) -> tuple[Array, Product]:
    """Return the padded image as uint8, and a function that multiplies windows by int8 kernels."""
    # onnxruntime multiplies uint8 by int8. Codes of other types, and their zero points, are shifted by 128. Then
    # sum((x - zero) * (w - zw)) = sum(x * w) - zero * sum(w) - zw * (sum(x) - n * zero).
    zero = layer["zx"] + 128 * layer["x_signed"]
    zw = layer["zw"] - 128 * (1 - layer["w_signed"])
    padded = np.pad(_shifted(image) if layer["x_signed"] else image, BORDER, constant_values=zero)
    signed = weights if layer["w_signed"] else _shifted(weights)
    kernel = np.ascontiguousarray(signed.view(np.int8).reshape(len(weights), -1).T)
    offset = np.int32(zero) * kernel.sum(axis=0, dtype=np.int32)

    def product(strip: Array) -> Array:
        sums = vnni_product(strip, kernel)
        sums -= offset
        if zw:
            sums -= np.int32(zw) * (strip.sum(axis=1, dtype=np.int32, keepdims=True) - np.int32(strip.shape[1] * zero))
        return sums

    return padded, product


def _shifted(codes: Array) -> Array:
    """Convert int8 to uint8 (+ 128), or uint8 to the bits of int8 (- 128)."""
    return codes.view(np.uint8) ^ np.uint8(128)


def _stale(layer: Layer, data: Array, weights: Array) -> Array:
    """Return the sums with lat_use=0: each iteration adds the products of the previous iteration."""
    # Instead of the products of its own last iteration, a sum contains those of the previous sum's last iteration.
    # Nothing comes before the first sum.
    right = replace(layer, config=replace(layer.config, lat_use=1))
    sums = np.concatenate([*_sums(right, data, weights)])
    if layer.kind == Kind.FC:
        first = (layer.depth - 1) * layer.config.fc_lanes
        short = replace(right, fields={**layer.fields, "r": layer["r"] - first})
        last = np.concatenate([*_sums(short, data[:, first:], weights[:, first:])])
        before = np.concatenate([np.zeros((len(last), 1), np.int32), last[:, :-1]], axis=1)
    else:
        first = (layer.depth - 1) * GROUP
        # Compute only the products of the last iteration. Each sum gets the products of the sum before it.
        last = np.concatenate([*_sums(right, data[..., first:], weights[..., first:])])
        order = last.T.ravel()  # the order of computation: by channel, then by position
        before = np.concatenate([np.zeros(1, np.int32), order[:-1]]).reshape(last.T.shape).T
    return sums - last + before


def _finish(layer: Layer, sums: Array, bias: Array, factor: Array) -> Array:
    total = sums + bias  # int32: wraps as the accumulator does
    if layer["relu"]:
        np.maximum(total, 0, out=total)
    dtype = "int8" if layer["y_signed"] else "uint8"
    requant = Requant(factor, factor.astype(np.float32), layer["zy"], layer["low"], layer["high"], dtype)
    return requant.apply(total, RULES[layer["rule"]])


def _pool(data: Array) -> Array:
    samples, rows, cols, channels = data.shape
    pairs = data.reshape(samples, rows // 2, 2, cols // 2, 2, channels)
    return np.maximum(
        np.maximum(pairs[:, :, 0, :, 0], pairs[:, :, 0, :, 1]), np.maximum(pairs[:, :, 1, :, 0], pairs[:, :, 1, :, 1])
    )


@cache
def vnni_available() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").split()
        if VNNI_FLAGS.isdisjoint(flags):
            return False
        # Extreme codes give a wrong result if pairs of products saturate in 16 bits.
        codes = np.array([0, 1, 127, 128, 254, 255], np.uint8)[np.arange(64 * 300).reshape(64, 300) % 6]
        weights = np.array([-128, 127, -128, -1, 127], np.int8)[np.arange(300 * 48).reshape(300, 48) % 5]
        return bool((vnni_product(codes, weights) == codes.astype(np.int32) @ weights.astype(np.int32)).all())
    except (ImportError, OSError):
        return False


def vnni_product(a: Array, b: Array) -> Array:
    """Return ``a @ b`` as int32, for uint8 (M, K) and int8 (K, N)."""
    (product,) = _session().run(None, {"a": a, "b": b})
    return product


@cache
def _session() -> Any:
    import onnxruntime
    from onnx import TensorProto, helper

    ends = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (("a", TensorProto.UINT8), ("b", TensorProto.INT8))
    ]
    out = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", ends, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
