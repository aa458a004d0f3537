"""Two pairs of quantise and dequantise in a row as one pair of another scale: onnxruntime's DoubleQDQPairsRemover.

The new pair spans the reals that both spanned. This changes values, and so belongs to what `ort` reproduces.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.arithmetic import round_half_away
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import DEQUANTIZE, QUANTIZE, Known, type_of

_CODES = ("int8", "uint8")


def merge(known: Known) -> Known:
    """quantise -> dequantise -> quantise -> dequantise, read by nothing else in between, as one pair.

    Of several in a row the first two become one, the next two, and so on, then again: the order decides on rounding.
    """
    while (merged := _merge_once(known)) is not known:
        known = merged
    return known


def _merge_once(known: Known) -> Known:
    constants, types = dict(known.constants), dict(known.types)
    changed: dict[str, RawNode | None] = {}
    for first in known.nodes:
        chain = _chain(known, first) if first.op_type == QUANTIZE and first.name not in changed else None
        pair = _spanned(known, first, chain[1]) if chain else None
        if chain is None or pair is None:
            continue
        back, second, ends = chain
        names = tuple(f"{second.name}:{part}" for part in ("scale", "zero"))
        constants |= zip(names, pair, strict=True)
        types |= zip(names, map(type_of, pair), strict=True)
        changed[first.name] = replace(first, inputs=(first.inputs[0], *names), outputs=second.outputs)
        changed |= {back.name: None, second.name: None}
        changed |= {end.name: replace(end, inputs=(end.inputs[0], *names)) for end in ends}
    if not changed:
        return known
    nodes = (changed.get(node.name, node) for node in known.nodes)
    return replace(known, nodes=tuple(node for node in nodes if node), constants=constants, types=types)


def _chain(known: Known, first: RawNode) -> tuple[RawNode, RawNode, list[RawNode]] | None:
    """The dequantise and quantise between, and the dequantises at the end."""
    names = first.outputs
    between = []
    for kind in (DEQUANTIZE, QUANTIZE):
        found = known.readers.get(names[0], [])
        if len(found) != 1 or found[0].op_type != kind or names[0] in known.outputs:
            return None
        between.append(found[0])
        names = found[0].outputs
    ends = known.readers.get(names[0], [])
    if not ends or names[0] in known.outputs or any(end.op_type != DEQUANTIZE for end in ends):
        return None
    return between[0], between[1], ends


def _spanned(known: Known, first: RawNode, second: RawNode) -> tuple[Array, Array] | None:
    """Scale and zero point of the reals that both spans have in common, in float32; None where they are not single."""
    dtype = known.types[second.outputs[0]].dtype
    if dtype not in _CODES or known.types[first.outputs[0]].dtype != dtype:
        return None
    info = np.iinfo(dtype)
    pairs: list[tuple[np.float32, int]] = []
    for node in (first, second):
        scale, zero = (known.constants.get(name) for name in (*node.inputs[1:], "", "")[:2])
        if scale is None or zero is None or scale.dtype != np.float32 or scale.size != 1 or zero.size != 1:
            return None
        pairs.append((np.float32(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])))
    if pairs[0] == pairs[1]:
        return np.asarray(pairs[0][0]), np.array(pairs[0][1], dtype)
    low = max(np.float32(info.min - code) * step for step, code in pairs)
    high = min(np.float32(info.max - code) * step for step, code in pairs)
    scale = np.asarray((high - low) / np.float32(info.max - info.min))
    if not np.isfinite(scale) or scale <= 0:
        return None
    zero = round_half_away(np.asarray(np.float32(info.min) - low / scale))
    return scale, np.clip(zero, info.min, info.max).astype(dtype)
