"""Random layers on engines with small blocks, and what the PS lays out for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.layer import LAYOUT, RULES, Kind, Layer
from tilewright.targets.zynq.runtime import driver

#: Blocks of 512 words and of 4 biases; a page service takes 128 + 7 cycles.
SMALL = {"data_bits": 9, "weight_bits": 9, "result_bits": 9, "bias_bits": 2, "handshake": 7}
#: Two frames per store, and layers that take several blocks.
FAST = {**SMALL, "frames": 2, "weight_bits": 10, "banked": 1, "control": "pipelined", "ports": 2, "axi_bytes": 4}
#: The preset `fast` with small blocks: of 4 lines of data, and of 14 lines of weights.
WINDOW = {**SMALL, **PRESETS["fast"], "data_bits": 10, "weight_bits": 11, "result_bits": 9, "bias_bits": 4}
WINDOW |= {"dsp_budget": 1000, "handshake": 30}
CONV = {"kind": int(Kind.CONV_OTHER), "ic": 16, "oc": 9, "rows": 9, "cols": 5}
LAYERS = {
    "conv": CONV,
    "conv_1_1": {"kind": int(Kind.CONV_1_1), "ic": 3, "oc": 7, "rows": 16, "cols": 14},
    "deep conv": {**CONV, "ic": 32, "rows": 8, "cols": 4, "oc": 5},
    "pool": {"kind": int(Kind.POOL), "ic": 9, "rows": 14, "cols": 14},
    "fc": {"kind": int(Kind.FC), "r": 700, "l": 11},
    "wide fc": {"kind": int(Kind.FC), "r": 1500, "l": 7},
}
NARROW = {"kind": int(Kind.CONV_OTHER), "ic": 16, "oc": 3, "rows": 6, "cols": 5}
#: Layers whose sizes meet the ends of blocks, of iterations and of an image.
SHAPES: dict[str, dict[str, int]] = {
    "conv_1_1": {"kind": int(Kind.CONV_1_1), "ic": 3, "oc": 5, "rows": 7, "cols": 4},
    "conv_1_1 in many blocks": {"kind": int(Kind.CONV_1_1), "ic": 3, "oc": 2, "rows": 16, "cols": 16},
    "conv": NARROW,
    "conv of two groups": {**NARROW, "ic": 32, "oc": 2, "rows": 4, "cols": 5},
    "conv of one row": {**NARROW, "rows": 1, "cols": 9},
    "conv with many results": {**NARROW, "ic": 1, "kind": int(Kind.CONV_1_1), "oc": 6, "rows": 10, "cols": 10},
    "pool": {"kind": int(Kind.POOL), "ic": 5, "rows": 14, "cols": 14},
    "pool 28": {"kind": int(Kind.POOL), "ic": 2, "rows": 28, "cols": 28},
    **{f"fc remainder {r % 144}": {"kind": int(Kind.FC), "r": r, "l": 5} for r in (144, 176, 208, 287)},
    "pool of whole blocks": {"kind": int(Kind.POOL), "ic": 8, "rows": 16, "cols": 16},  # of results
    "conv of whole blocks": {"kind": int(Kind.CONV_1_1), "ic": 2, "oc": 8, "rows": 8, "cols": 8},
    "fc beyond a block": {"kind": int(Kind.FC), "r": 700, "l": 3},
}


def hash_of(name: str) -> int:
    """A seed that does not change from run to run."""
    return sum(index * ord(letter) for index, letter in enumerate(name, 1))


@dataclass(frozen=True, eq=False)
class Case:
    """A layer with its operands: data (rows, cols, ic) or (1, r), weights (oc, 9, ic) or (l, r)."""

    layer: Layer
    data: Array
    weights: Array
    bias: Array
    factor: Array

    @property
    def blocks(self) -> dict[str, Array]:
        """What the PS has in DDR."""
        content = {"data": placement.blocks(placement.data(self.layer), self.data)}
        if self.layer.channels:
            content["weight"] = placement.blocks(placement.weight(self.layer), self.weights)
            content["bias"] = driver.bias_blocks(self.layer, self.bias, self.weights)
        return content


def case(seed: int, config: Config, **fields: int) -> Case:
    """Random operands for a layer of these fields (kind, sizes); zero points and signs are random too."""
    rng = np.random.default_rng(seed)
    signed = {f"{name}_signed": int(rng.integers(2)) for name in ("x", "w", "y")}
    low, high = (-128, 127) if signed["y_signed"] else (0, 255)
    kind = Kind(fields["kind"])
    if kind == Kind.POOL:
        signed = {"x_signed": signed["y_signed"], "y_signed": signed["y_signed"]}
        extra = {"low": low, "high": high}
    else:
        extra = {"low": low, "high": high, "zy": int(rng.integers(low, high)), "rule": RULES.index("float")}
        extra["zx"] = int(rng.integers(-128, 128)) if signed["x_signed"] else int(rng.integers(256))
        extra["relu"] = int(rng.integers(2))
    layer = Layer(config, {**dict.fromkeys(LAYOUT.by_name, 0), **signed, **extra, **fields})
    assert not layer.refusal(), layer.refusal()

    def codes(shape: tuple[int, ...], is_signed: int) -> Array:
        return rng.integers(0, 256, shape).astype(np.uint8).view(np.int8 if is_signed else np.uint8)

    image = (layer["rows"], layer["cols"], layer["ic"])
    data = codes((layer.samples, layer["r"]) if kind == Kind.FC else image, layer["x_signed"])
    shape = (layer["l"], layer["r"]) if kind == Kind.FC else (layer["oc"], 9, layer["ic"])
    weights = codes(shape, layer["w_signed"])
    bias = rng.integers(-3000, 3000, layer.channels).astype(np.int32)
    factor = rng.uniform(0.0005, 0.01, layer.channels).astype(np.float32).astype(np.float64)
    return Case(layer, data, weights, bias, factor)
