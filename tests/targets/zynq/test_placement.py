"""Where operands lie, byte by byte, against loops that say it as the document and docs/zynq.md do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.targets.zynq.cases import Case, case
from tilewright.array import Array
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.layer import Kind, Layer

SMALL: dict[str, Any] = {"data_bits": 9, "weight_bits": 9, "result_bits": 8, "bias_bits": 3}
WINDOW: dict[str, Any] = {**PRESETS["fast"], "data_bits": 10, "weight_bits": 10, "result_bits": 8, "bias_bits": 6}
CONFIGS = {
    "rows": Config(**SMALL),
    "chw": Config(layout="chw", **SMALL),
    "hwc": Config(layout="hwc", **SMALL),
    "blocking": Config(**{**SMALL, "oc_blocking": 1, "bias_bits": 6, "frames": 2}),
    "window": Config(**WINDOW),
}
LAYERS = {
    "conv of one block": {"kind": int(Kind.CONV_1_1), "ic": 3, "oc": 5, "rows": 4, "cols": 6},
    "conv of many blocks": {"kind": int(Kind.CONV_OTHER), "ic": 16, "oc": 9, "rows": 11, "cols": 5},
    "conv of groups": {"kind": int(Kind.CONV_OTHER), "ic": 32, "oc": 3, "rows": 4, "cols": 3},
    "fc": {"kind": int(Kind.FC), "r": 700, "l": 5},
    "fc of a line": {"kind": int(Kind.FC), "r": 144, "l": 12},
    "pool": {"kind": int(Kind.POOL), "ic": 5, "rows": 6, "cols": 14},
}


@pytest.fixture(params=[(name, layer) for name in CONFIGS for layer in LAYERS], ids=" ".join)
def given(request: pytest.FixtureRequest) -> Case:
    name, layer = request.param
    return case(7, CONFIGS[name], **LAYERS[layer])


def joined(parts: list[list[int]]) -> list[int]:
    return [word for part in parts for word in part]


def filled(parts: list[list[int]], words: int) -> list[list[int]]:
    """Each part in a block of its own."""
    assert all(len(part) <= words for part in parts)
    return [part + [0] * (words - len(part)) for part in parts]


def cut(words: list[int], size: int) -> list[list[int]]:
    return filled([words[at : at + size] for at in range(0, len(words), size)], size)


def data(layer: Layer, codes: Array) -> list[list[int]]:
    config, size, zero = layer.config, layer.config.block_words("data"), layer["zx"] & 255
    x = codes.view(np.uint8)
    if layer.kind == Kind.FC:
        flat = x.reshape(-1).tolist()
        if not config.window:
            return cut(flat, size)
        lanes = [flat[at : at + 144] for at in range(0, len(flat), 144)]
        lines = [line + [zero] * (144 - len(line)) + [0] * (256 - 144) for line in lanes]
        return cut(joined(lines), size)
    rows, cols, channels = x.shape
    if layer.kind == Kind.POOL or config.layout == "chw":
        return cut([int(x[i, j, c]) for c in range(channels) for i in range(rows) for j in range(cols)], size)
    spare = [zero] * max(0, 16 - channels) if config.window else []
    lines = [[word for j in range(cols) for word in [*x[i, j].tolist(), *spare]] for i in range(rows)]
    if config.layout == "hwc" or sum(map(len, lines)) <= size:
        return cut(joined(lines), size)
    fit = size // len(lines[0])
    parts = []
    for first in range(-1, rows - 1, fit - 2):
        held = range(first, first + fit)
        parts.append([word for i in held for word in (lines[i] if 0 <= i < rows else [0] * len(lines[0]))])
    return filled(parts, size)


def weights(layer: Layer, codes: Array) -> list[list[int]]:
    config, size = layer.config, layer.config.block_words("weight")
    w = codes.view(np.uint8)
    if layer.kind == Kind.FC:
        kernels = w.tolist()
        if not config.window:
            return cut(joined(kernels), size)
        lines = []
        for kernel in kernels:
            padded = kernel + [0] * (-len(kernel) % 144)
            lines += [padded[at : at + 144] for at in range(0, len(padded), 144)]
        kernel_size = size // 144
        return filled([joined(lines[at : at + kernel_size]) for at in range(0, len(lines), kernel_size)], size)
    outputs, taps, channels = w.shape
    if config.layout == "chw":
        order = [(o, t, c) for o in range(outputs) for c in range(channels) for t in range(taps)]
        return cut([int(w[at]) for at in order], size)
    width = 16 if config.window else min(16, channels)
    kernels = [
        [
            int(w[o, t, c]) if c < channels else 0
            for group in range(0, channels, width)
            for t in range(taps)
            for c in range(group, group + width)
        ]
        for o in range(outputs)
    ]
    if config.layout == "hwc":
        return cut(joined(kernels), size)
    kernel_size = size // len(kernels[0])
    return filled([joined(kernels[at : at + kernel_size]) for at in range(0, outputs, kernel_size)], size)


def test_data_and_weights_lie_where_the_engine_reads_them(given: Case) -> None:
    layer = given.layer
    content = placement.blocks(placement.data(layer), given.data)
    assert content.tolist() == data(layer, given.data)
    assert len(content) == placement.data_blocks(layer)
    if layer.channels:
        content = placement.blocks(placement.weight(layer), given.weights)
        assert content.tolist() == weights(layer, given.weights)
        assert len(content) == placement.weight_blocks(layer)
        bias = placement.blocks(placement.bias(layer), given.bias)
        assert bias.tolist() == cut(given.bias.tolist(), layer.config.block_words("bias"))


def test_sums_of_a_window_begin_with_the_terms_of_the_zero_points(given: Case) -> None:
    """With the biases, sums of the unit's int8 numbers less the zero point of w times the sum of x are right."""
    if not given.layer.config.window or not given.layer.channels:
        return
    for signs in range(4):
        signed = {"x_signed": signs & 1, "w_signed": signs >> 1}
        zeros = {"zx": 100 if signs & 1 else 200, "zw": -50 if signs >> 1 else 90}
        check_sums(given, replace(given.layer, fields={**given.layer.fields, **signed, **zeros}))


def check_sums(given: Case, layer: Layer) -> None:
    zx, zw = placement.centred(layer, "x"), placement.centred(layer, "w")
    assert (zx - layer["zx"], zw - layer["zw"]) == (128 * layer["x_signed"] - 128, 128 * layer["w_signed"] - 128)
    rng, lanes = np.random.default_rng(3), layer.stored_kernel
    kernels = given.weights.view(np.int8 if layer["w_signed"] else np.uint8)
    words = kernels.reshape(layer.channels, -1).astype(np.int64)
    x = rng.integers(0, 256, words.shape[1]) - 128 * layer["x_signed"]
    expected = (words - layer["zw"]) @ (x - layer["zx"]) + given.bias
    spare = lanes - words.shape[1]
    numbers = np.append(x - 128 * (1 - layer["x_signed"]), np.full(spare, zx))
    codes = np.pad(words - 128 * (1 - layer["w_signed"]), ((0, 0), (0, spare)))
    codes[:, words.shape[1] :] = -128 * (1 - layer["w_signed"])  # lanes without a weight hold the code 0
    sums = codes @ numbers - zw * numbers.sum() + placement.biases(layer, kernels, given.bias)
    np.testing.assert_array_equal(sums, expected)


def test_results_are_written_channel_by_channel_of_what_a_weight_block_serves(given: Case) -> None:
    layer = given.layer
    channels = layer["l"] if layer.kind == Kind.FC else layer["oc"] or layer["ic"]
    positions = layer.outputs // channels
    together, groups = 1, [(0, positions)]
    if layer.conv and layer.config.oc_blocking:
        together, rows = placement.kernels_per_block(layer), placement.row_blocks(layer)
        step = rows.step * layer["cols"]
        groups = []
        for top in range(0, positions, step):
            end = min(top + step, positions)
            groups += [(at, min(at + layer.config.outputs, end)) for at in range(top, end, layer.config.outputs)]
    order = [
        position * channels + channel
        for first in range(0, channels, together)
        for low, high in groups
        for channel in range(first, min(first + together, channels))
        for position in range(low, high)
    ]
    assert placement.writing_order(layer).tolist() == order
    where = placement.result(layer).where[..., 0]
    assert where[order].tolist() == list(range(layer.outputs))
