"""What a layer computes: sums as matrix products, then requantisation; pools as the largest of four.

Values do not depend on when blocks come. They do depend on `lat_use`: a consumer that does not wait for the unit adds
the sum of the iteration before.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.graph.ops import Window
from tilewright.graph.requant import Requant
from tilewright.sim.jit import compiled
from tilewright.targets.zynq.config import GROUP
from tilewright.targets.zynq.isa import RULES, Kind
from tilewright.targets.zynq.layer import Layer

#: Bytes of a strip of window rows: it stays in the cache between its making and its product.
STRIP_BYTES = 1 << 22
#: Up to so many samples FC weights are read once as they are; as floats for BLAS they would take four times the bytes.
FEW = 4
_SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))


def run(layer: Layer, data: Array, weights: Array, bias: Array, factor: Array) -> Array:
    """Codes (S, results) of data (S, rows, cols, ic) or (S, r); weights (oc, 9, ic) or (l, r).

    bias int32 [channels], factor float64 [1 or channels]. Results are (rows, cols, channels) or (l), flat.
    """
    if layer.kind == Kind.POOL:
        return _clip(layer, _pool(data))
    codes = [_finish(layer, _sums(layer, sample, weights), bias, factor) for sample in _together(layer, data)]
    return np.concatenate(codes)


def _together(layer: Layer, data: Array) -> list[Array]:
    """FC takes all samples at once, a convolution one."""
    return [data] if layer.kind == Kind.FC else [data[index : index + 1] for index in range(len(data))]


def _sums(layer: Layer, data: Array, weights: Array) -> Array:
    """int32 (S * positions, channels) without bias."""
    if layer.config.lat_use == 0:
        return _stale(layer, data, weights)
    return _fc(layer, data, weights) if layer.kind == Kind.FC else _conv(layer, data[0], weights)


def _fc(layer: Layer, data: Array, weights: Array) -> Array:
    centred = data.astype(np.int32) - layer["zx"]
    if len(data) > FEW:
        bounds = max(1, int(np.abs(centred).max())), 255
        return exact_matmul(centred, weights.astype(np.int32).T - layer["zw"], *bounds)
    sums = np.zeros((len(data), len(weights)), np.int32)
    _products(weights, centred, sums)
    return sums - np.int32(layer["zw"]) * centred.sum(axis=1, dtype=np.int32, keepdims=True)


@compiled
def _products(weights: Array, data: Array, sums: Array) -> None:
    for sample in range(data.shape[0]):
        for column in range(weights.shape[0]):
            total = np.int32(0)
            for k in range(weights.shape[1]):
                total += np.int32(weights[column, k]) * data[sample, k]
            sums[sample, column] = total


def _conv(layer: Layer, image: Array, weights: Array) -> Array:
    """Strip by strip of output rows, each one matrix of windows."""
    rows, cols, channels = image.shape
    padded = _SAME.pad(image[None].astype(np.float32) - np.float32(layer["zx"]))
    kernel = (weights.astype(np.float32) - np.float32(layer["zw"])).reshape(len(weights), -1).T
    bounds = max(1, int(np.abs(padded).max())), max(1, int(np.abs(kernel).max()))
    windows = _SAME.view(padded)[0]
    sums = np.empty((rows * cols, len(weights)), np.int32)
    height = max(1, STRIP_BYTES // (4 * cols * 9 * channels))
    for top in range(0, rows, height):
        strip = windows[top : top + height].reshape(-1, 9 * channels)
        sums[top * cols : top * cols + len(strip)] = exact_matmul(strip, kernel, *bounds)
    return sums


def _stale(layer: Layer, data: Array, weights: Array) -> Array:
    """What ACC adds if it does not wait: of every iteration the sum of the one before it, of the first one's, 0.

    A sum then lacks its own last product and has that of the sum computed before.
    """
    proper = layer.config.with_changes(lat_use=1)
    right = Layer(layer.kind, proper, layer.fields)
    sums = _sums(right, data, weights)
    if layer.kind == Kind.FC:
        first = (layer.depth - 1) * layer.config.fc_lanes
        last = _sums(
            Layer(layer.kind, proper, {**layer.fields, "r": layer["r"] - first}), data[:, first:], weights[:, first:]
        )
        before = np.concatenate([np.zeros((len(last), 1), np.int32), last[:, :-1]], axis=1)
    else:
        first = (layer.depth - 1) * GROUP
        last = _sums(right, data[..., first:], weights[..., first:])
        order = last.T.ravel()  # channel after channel, position after position
        before = np.concatenate([np.zeros(1, np.int32), order[:-1]]).reshape(last.T.shape).T
    return sums - last + before


def _finish(layer: Layer, sums: Array, bias: Array, factor: Array) -> Array:
    """Bias, ReLU in place, requantisation: codes (S, results)."""
    total = sums + bias  # int32: wraps as the accumulator does
    if layer["relu"]:
        np.maximum(total, 0, out=total)
    dtype = "int8" if layer["y_signed"] else "uint8"
    requant = Requant(factor, factor.astype(np.float32), layer["zy"], layer["low"], layer["high"], dtype)
    codes = requant.apply(total, RULES[layer["rule"]])
    return codes.reshape(-1, layer.outputs)


def _pool(data: Array) -> Array:
    samples, rows, cols, channels = data.shape
    pairs = data.reshape(samples, rows // 2, 2, cols // 2, 2, channels)
    return np.maximum(
        np.maximum(pairs[:, :, 0, :, 0], pairs[:, :, 0, :, 1]), np.maximum(pairs[:, :, 1, :, 0], pairs[:, :, 1, :, 1])
    )


def _clip(layer: Layer, codes: Array) -> Array:
    return np.clip(codes, layer["low"], layer["high"]).astype(codes.dtype).reshape(len(codes), -1)
