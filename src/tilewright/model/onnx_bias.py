"""Real biases of products of codes become dequantised codes: onnxruntime's WeightBiasQuantization.

It does so where the result is quantised next, at most a Relu or Clip between, whether or not it then has an integer
kernel. This changes values, and so belongs to what `ort` reproduces.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.model.onnx_codes import operand, quantisation
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import DEQUANTIZE, QUANTIZE, Known, type_of

PRODUCTS = ("Conv", "ConvTranspose", "Gemm")


def quantise_biases(known: Known) -> Known:
    """The same network, real constant biases as DequantizeLinear of int32 codes."""
    constants, types, nodes = dict(known.constants), dict(known.types), []
    for node in known.nodes:
        bias = operand(node, 2)
        scale = _scale(known, node) if bias in constants and _is_quantised(known, node) else None
        codes = _codes(constants[bias], scale) if scale is not None else None
        if scale is None or codes is None:
            nodes.append(node)
            continue
        axis = {"axis": 0} if scale.ndim else {}
        names = [f"{bias}:{node.name}:{part}" for part in ("codes", "scale", "real")]
        constants |= zip(names[:2], (codes, scale), strict=True)
        types |= zip(names, (type_of(codes), type_of(scale), types[bias]), strict=True)
        back = RawNode(f"{node.name}:bias", DEQUANTIZE, "", tuple(names[:2]), (names[2],), axis, {})
        inputs = (*node.inputs[:2], names[2])
        nodes += [back, replace(node, inputs=inputs)]
    return replace(known, nodes=tuple(nodes), types=types, constants=constants)


def _is_quantised(known: Known, node: RawNode) -> bool:
    """Whether the only reader of a product quantises it; that it may be an output as well does not matter."""
    if node.op_type not in PRODUCTS or node.domain:
        return False
    while True:
        found = known.readers.get(node.outputs[0], [])
        if len(found) != 1:
            return False
        (node,) = found
        if node.op_type not in ("Relu", "Clip"):
            return node.op_type == QUANTIZE


def _scale(known: Known, node: RawNode) -> Array | None:
    """The scale of the sums of products, float32 of one value or one an output; None where an operand is real."""
    quants = []
    for name in node.inputs[:2]:
        source = known.writer.get(name)
        if source is None or source.op_type != DEQUANTIZE:
            return None
        quants.append(quantisation(known, source, len(known.types[name].shape)))
    x, w = quants
    axis = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type, 0 if node.attributes.get("transB", 0) else 1)
    if x is None or w is None or x.per_channel or (w.per_channel and w.axis != axis):
        return None
    scales = np.array(w.scale if w.per_channel else w.scale[0], np.float32)
    return np.asarray(np.float32(x.scale[0]) * scales)


def _codes(bias: Array, scale: Array) -> Array | None:
    """The nearest codes; None where the shapes or sizes do not allow any."""
    if bias.dtype != np.float32 or bias.ndim != 1 or scale.size not in (1, bias.size):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        codes = np.rint(bias / scale)
    return codes.astype(np.int32) if (np.abs(codes) < 2.0**31).all() else None
