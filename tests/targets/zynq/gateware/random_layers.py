"""Random layers for engines with small blocks: every kind, sizes at the ends of blocks, extreme biases and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.targets.zynq.cases import Case, case
from tilewright.array import Array
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.layer import RULES, Kind, Layer
from tilewright.targets.zynq.timing import walk


def random_case(seed: int, config: Config) -> Case:
    """A layer that the engine can run, with its operands."""
    rng = np.random.default_rng(seed)
    while True:
        fields = _fields(rng)
        if not walk.refusal(Layer(config, {**dict.fromkeys(("r", "l", "ic", "oc", "rows", "cols"), 0), **fields})):
            break
    if fields["kind"] != Kind.POOL:
        fields["rule"] = int(rng.integers(len(RULES)))
    layer_case = case(seed, config, **fields)
    changes: dict[str, Any] = {}
    if rng.random() < 0.3:
        changes["bias"] = rng.integers(-(2**31), 2**31, len(layer_case.bias)).astype(np.int32)
    if rng.random() < 0.2:
        changes["weights"] = np.full_like(layer_case.weights, layer_case.weights.max(initial=0))
    if layer_case.layer.channels and rng.random() < 0.4:
        low = -128 if layer_case.layer["w_signed"] else 0
        zeros = {"zw": int(rng.integers(low, low + 256))}
        changes["layer"] = replace(layer_case.layer, fields={**layer_case.layer.fields, **zeros})
    factor: Array = layer_case.factor * 2.0 ** rng.integers(-9, 3)
    if layer_case.layer.channels and layer_case.layer.rule == "pow2":
        factor = 2.0 ** np.round(np.log2(factor))
    return replace(layer_case, factor=factor, **changes)


def _fields(rng: np.random.Generator) -> dict[str, int]:
    kind = Kind(int(rng.integers(4)))
    if kind == Kind.FC:
        return {"kind": int(kind), "r": int(rng.integers(1, 900)), "l": int(rng.integers(1, 14))}
    rows, cols = (int(rng.integers(1, 12)) for _ in range(2))
    if kind == Kind.POOL:
        return {"kind": int(kind), "ic": int(rng.integers(1, 9)), "rows": 2 * rows, "cols": 2 * cols}
    channels = int(rng.integers(1, 16)) if kind == Kind.CONV_1_1 else int(rng.choice([16, 32, 48]))
    return {"kind": int(kind), "ic": channels, "oc": int(rng.integers(1, 10)), "rows": rows, "cols": cols}
