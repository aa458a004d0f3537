"""Rewrites a network as onnxruntime does before it fuses quantised operators. Some steps change results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ort import ValueType
from tilewright.graph.rounding import round_half_away
from tilewright.graph.tensor import INT4
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import ACTIVATIONS, CODES, DEQUANTIZE, MAXPOOL_OPSET, QUANTIZE, OnnxNetwork

#: Operators across which a pair of quantise and dequantise nodes may move.
MOVED = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice")
#: Operators whose real biases are replaced by codes.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm")


def rewritten(network: OnnxNetwork) -> OnnxNetwork:
    # These three steps do not change values.
    network = _form_gemms(_transpose_constants(_without_identities(network)))
    # DoubleQDQPairsRemover: two consecutive pairs of quantise and dequantise become one pair, for the range of reals
    # that both can represent. This changes values, so the mode `ort` must reproduce it.
    network = merge(network)
    # QDQPropagation: quantise nodes move up and dequantise nodes move down across the operators in MOVED, so that more
    # operators fuse. This does not change values, because these operators neither compute nor round.
    network = _move_dequantise_down(_move_quantise_up(network))
    # WeightBiasQuantization: the real bias of a product of codes becomes dequantised codes if the result is quantised
    # (directly, or after Relu or Clip). This changes values. The product need not have an integer kernel.
    return quantise_biases(network)


def _without_identities(network: OnnxNetwork) -> OnnxNetwork:
    """Remove identities, and empty inputs of Concats (unless all inputs of the Concat are empty)."""
    source: dict[str, str] = {}
    nodes = []
    for original in network.nodes:
        node = replace(original, inputs=tuple(source.get(name, name) for name in original.inputs))
        if node.op_type == "Concat":
            full = tuple(name for name in node.inputs if 0 not in network.types[name].shape)
            node = replace(node, inputs=full or node.inputs)
        redundant = _is_identity(network, node)
        if redundant:
            source[node.outputs[0]] = node.inputs[0]
        # A result of the network keeps its name, so an identity that writes a result stays.
        if not redundant or node.outputs[0] in network.outputs:
            nodes.append(node)
    return replace(network, nodes=nodes)


def _is_identity(network: OnnxNetwork, node: RawNode) -> bool:
    if node.op_type == "Expand":
        return network.types[node.inputs[0]] == network.types[node.outputs[0]]
    return node.op_type in ("Identity", "Dropout") and len(node.outputs) == 1


def _transpose_constants(network: OnnxNetwork) -> OnnxNetwork:
    """Replace dequantise(constant) -> transpose by dequantise(transposed constant), with the channel axis permuted."""
    constants = dict(network.constants)
    writer: dict[str, RawNode] = {}
    nodes = []
    for original in network.nodes:
        node = original
        before = writer.get(node.inputs[0]) if node.op_type == "Transpose" else None
        if before is not None and before.op_type == DEQUANTIZE and before.inputs[0] in constants:
            replaced = _transposed_constant(network, node, before, constants[before.inputs[0]])
            if replaced is not None:
                node, constants[replaced[0].inputs[0]] = replaced
        writer |= dict.fromkeys(node.outputs, node)
        nodes.append(node)
    return network.with_nodes(nodes, constants)


def _transposed_constant(
    network: OnnxNetwork, node: RawNode, before: RawNode, data: Array
) -> tuple[RawNode, Array] | None:
    rank = data.ndim
    permutation = tuple(node.attributes.get("perm", range(rank)[::-1]))
    axis = int(before.attributes.get("axis", 1))
    if sorted(permutation) != list(range(rank)) or before.attributes.get("block_size") or not -rank <= axis < rank:
        return None
    attributes = {**before.attributes, "axis": permutation.index(axis % rank)}
    codes = network.fresh(f"{before.inputs[0]}:{node.name}")
    inputs = (codes, *before.inputs[1:])
    dequantise = replace(node, op_type=DEQUANTIZE, domain=before.domain, inputs=inputs, attributes=attributes)
    return dequantise, np.ascontiguousarray(data.transpose(permutation))


def _form_gemms(network: OnnxNetwork) -> OnnxNetwork:
    """Replace MatMul -> Add by Gemm if both matrices are dequantised and the addend is a row or a whole matrix."""
    gone: set[str] = set()
    nodes: dict[str, RawNode] = {}
    for node in network.nodes:
        product, addend = _product(network, node) if node.op_type == "Add" and not node.domain else (None, "")
        if product is None or network.only_reader(product.outputs[0]) is None:
            nodes[node.name] = node
            continue
        gone.add(product.name)
        nodes[node.name] = replace(node, op_type="Gemm", inputs=(*product.inputs, addend), attributes={})
    return replace(network, nodes=[node for name, node in nodes.items() if name not in gone])


def _product(network: OnnxNetwork, add: RawNode) -> tuple[RawNode | None, str]:
    """Return the MatMul before `add`, and the name of the other addend; (None, '') if the two cannot become a Gemm."""
    # The Add may have its operands in either order. As the bias of a Gemm, the addend is a row or a whole matrix.
    for name, addend_name in (add.inputs, add.inputs[::-1]):
        product = network.writer.get(name)
        if product is None or product.op_type != "MatMul":
            continue
        a, b, addend = (network.types[operand].shape for operand in (*product.inputs, addend_name))
        sources = [network.writer.get(operand) for operand in product.inputs]
        dequantised = all(source is not None and source.op_type == DEQUANTIZE for source in sources)
        if dequantised and len(a) == len(b) == 2 and addend in (b[1:], (1, *b[1:]), (a[0], *b[1:])):
            return product, addend_name
    return None, ""


def merge(network: OnnxNetwork) -> OnnxNetwork:
    """Merge quantise -> dequantise -> quantise -> dequantise to one pair if no other node reads the values between."""
    # A longer chain needs several passes. onnxruntime does the same, and the order affects the rounding.
    while (merged := _merge_once(network)) is not network:
        network = merged
    return network


def _merge_once(network: OnnxNetwork) -> OnnxNetwork:
    constants: dict[str, Array] = {}
    changed: dict[str, RawNode | None] = {}
    # `changed` has all nodes that this pass has merged, so that no node is merged twice. In a longer chain, one pass
    # merges the first and second pair, the third and fourth pair, and so on.
    for first in network.nodes:
        chain = _chain(network, first) if first.op_type == QUANTIZE and first.name not in changed else None
        pair = _common_range(network, first, chain[1]) if chain else None
        if chain is None or pair is None:
            continue
        back, second, ends = chain
        names = tuple(network.fresh(f"{second.name}:{part}") for part in ("scale", "zero"))
        constants |= zip(names, pair, strict=True)
        changed[first.name] = replace(first, inputs=(first.inputs[0], *names), outputs=second.outputs)
        changed |= {back.name: None, second.name: None}
        changed |= {end.name: replace(end, inputs=(end.inputs[0], *names)) for end in ends}
    if not changed:
        return network
    nodes = (changed.get(node.name, node) for node in network.nodes)
    return network.with_nodes(filter(None, nodes), constants)


def _chain(network: OnnxNetwork, first: RawNode) -> tuple[RawNode, RawNode, list[RawNode]] | None:
    """Return the dequantise and the quantise after `first`, and all dequantises after these; None: no such chain."""
    back = network.only_reader(first.outputs[0])
    second = network.only_reader(back.outputs[0]) if back and back.op_type == DEQUANTIZE else None
    if back is None or second is None or second.op_type != QUANTIZE or second.outputs[0] in network.outputs:
        return None
    ends = network.readers.get(second.outputs[0], [])
    return (back, second, ends) if ends and all(end.op_type == DEQUANTIZE for end in ends) else None


def _common_range(network: OnnxNetwork, first: RawNode, second: RawNode) -> tuple[Array, Array] | None:
    # The new pair has the range of reals that both nodes can represent. This needs one constant scale in each node, and
    # codes of the same type.
    dtype = network.dtype(second.outputs[0])
    if dtype not in CODES or dtype == INT4 or network.dtype(first.outputs[0]) != dtype:
        return None
    info = np.iinfo(dtype)
    pairs: list[tuple[np.float32, int]] = []
    for node in (first, second):
        scale, zero = (network.constants.get(name) for name in (*node.inputs[1:], "", "")[:2])
        if scale is None or zero is None or scale.dtype != np.float32 or scale.size != 1 or zero.size != 1:
            return None
        pairs.append((np.float32(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])))
    if pairs[0] == pairs[1]:
        return np.asarray(pairs[0][0]), np.array(pairs[0][1], dtype)
    # Compute in float32 and in onnxruntime's order: the result affects the rounding of every code of the network.
    low = max(np.float32(info.min - code) * step for step, code in pairs)
    high = min(np.float32(info.max - code) * step for step, code in pairs)
    scale = np.asarray((high - low) / np.float32(info.max - info.min))
    if not np.isfinite(scale) or scale <= 0:
        return None
    zero = round_half_away(np.asarray(np.float32(info.min) - low / scale))
    return scale, np.clip(zero, info.min, info.max).astype(dtype)


def _move_quantise_up(network: OnnxNetwork) -> OnnxNetwork:
    """Replace move -> quantise by quantise -> dequantise -> move -> quantise; a move is an operator in `MOVED`.

    Moves after a quantise or dequantise are not changed.
    """
    network = network.with_nodes(network.nodes, {})  # a copy, because `_pair` adds types
    # Go backwards, so that a quantise moves across a whole chain of moves, one after the other.
    quantiser_of: dict[str, RawNode] = {}  # by the name of the quantised value
    nodes: list[RawNode] = []
    for node in reversed(network.nodes):
        if node.op_type == QUANTIZE and _one_scale(network, node):
            quantiser_of[node.inputs[0]] = node
        quantiser = quantiser_of.get(node.outputs[0]) if network.only_reader(node.outputs[0]) else None
        real = node.input(0)
        before = network.writer.get(real)
        is_coded = before is None or before.op_type in (QUANTIZE, DEQUANTIZE)
        if quantiser is None or is_coded or not _moves(network, node):
            nodes.append(node)
            continue
        quantise, back = _pair(network, real, f"{node.name}:up", quantiser, quantiser.outputs[0])
        nodes += [replace(node, inputs=(back.outputs[0], *node.inputs[1:])), back, quantise]
        quantiser_of[real] = quantise
    return replace(network, nodes=nodes[::-1])


def _move_dequantise_down(network: OnnxNetwork) -> OnnxNetwork:
    """Replace dequantise -> move by dequantise -> move -> quantise -> dequantise; a move is an operator in `MOVED`.

    Moves before a quantise are not changed.
    """
    network = network.with_nodes(network.nodes, {})  # a copy, because `_pair` adds types
    dequantiser_of: dict[str, RawNode] = {}
    renamed: dict[str, str] = {}
    nodes: list[RawNode] = []
    for original in network.nodes:
        node = replace(original, inputs=tuple(renamed.get(name, name) for name in original.inputs))
        nodes.append(node)
        if node.op_type == DEQUANTIZE and _one_scale(network, node) and node.inputs[0] not in network.constants:
            dequantiser_of[node.outputs[0]] = node
        source = dequantiser_of.get(node.inputs[0]) if node.inputs else None
        value = node.outputs[0]
        if source is None or not _moves(network, node) or value in network.outputs:
            continue
        readers = network.readers.get(value, [])
        if readers and all(reader.op_type != QUANTIZE for reader in readers):
            quantise, back = _pair(network, value, f"{node.name}:down", source, source.inputs[0])
            nodes += [quantise, back]
            renamed[value] = back.outputs[0]
            dequantiser_of[back.outputs[0]] = back
    return replace(network, nodes=nodes)


def _moves(network: OnnxNetwork, node: RawNode) -> bool:
    old = node.op_type == "MaxPool" and network.opset < MAXPOOL_OPSET
    return node.op_type in MOVED and not old and network.are_constant(node.inputs[1:]) and len(node.outputs) == 1


def _one_scale(network: OnnxNetwork, node: RawNode) -> bool:
    return all(name in network.constants and network.constants[name].size == 1 for name in node.inputs[1:])


def _pair(network: OnnxNetwork, value: str, name: str, like: RawNode, codes: str) -> tuple[RawNode, RawNode]:
    """Return a new QuantizeLinear of `value` and its DequantizeLinear, with the scale and zero point of node `like`.

    The new codes have the type of the value `codes`.
    """
    shape = network.types[value].shape
    quantised, back = (network.fresh(f"{value}:{name}:{part}") for part in ("codes", "real"))
    network.types |= {quantised: ValueType(network.dtype(codes), shape), back: ValueType("float32", shape)}
    first = RawNode(f"{name}:{QUANTIZE}", QUANTIZE, "", (value, *like.inputs[1:]), (quantised,))
    return first, RawNode(f"{name}:{DEQUANTIZE}", DEQUANTIZE, "", (quantised, *like.inputs[1:]), (back,))


def quantise_biases(network: OnnxNetwork) -> OnnxNetwork:
    constants: dict[str, Array] = {}
    types: dict[str, ValueType] = {}
    nodes = []
    for node in network.nodes:
        bias = node.input(2)
        scale = _scale(network, node) if bias in network.constants and _is_quantised(network, node) else None
        codes = _codes(network.constants[bias], scale) if scale is not None else None
        if scale is None or codes is None:
            nodes.append(node)
            continue
        axis = {"axis": 0} if scale.ndim else {}
        names = tuple(network.fresh(f"{bias}:{node.name}:{part}") for part in ("codes", "scale"))
        real = network.fresh(f"{bias}:{node.name}:real")
        constants |= zip(names, (codes, scale), strict=True)
        types[real] = network.types[bias]
        back = RawNode(f"{node.name}:bias", DEQUANTIZE, "", names, (real,), axis)
        nodes += [back, replace(node, inputs=(*node.inputs[:2], real))]
    return network.with_nodes(nodes, constants, types)


def _is_quantised(network: OnnxNetwork, node: RawNode) -> bool:
    """Return whether a QuantizeLinear, directly or after Relu or Clip, is the only reader of a node in `PRODUCTS`."""
    if node.op_type not in PRODUCTS or node.domain:
        return False
    readers = network.readers.get(node.outputs[0], [])
    while len(readers) == 1 and readers[0].op_type in ACTIVATIONS:
        readers = network.readers.get(readers[0].outputs[0], [])
    return [reader.op_type for reader in readers] == [QUANTIZE]


def _scale(network: OnnxNetwork, node: RawNode) -> Array | None:
    """Return the float32 scale of the products that a node sums (one, or one per output); None if inputs are real."""
    quants = []
    for name in node.inputs[:2]:
        source = network.writer.get(name)
        if source is None or source.op_type != DEQUANTIZE:
            return None
        quants.append(network.quantisation(source))
    # If weights have a scale per channel, these must be output channels. Otherwise a sum would mix several scales.
    x, w = quants
    axis = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type, 0 if node.attributes.get("transB", 0) else 1)
    if x is None or w is None or x.per_channel or (w.per_channel and w.axis != axis):
        return None
    scales = np.array(w.scale if w.per_channel else w.scale[0], np.float32)
    return np.asarray(np.float32(x.scale[0]) * scales)


def _codes(bias: Array, scale: Array) -> Array | None:
    """Return the nearest int32 codes of `bias` at `scale`; None if the shapes do not match or a code does not fit."""
    if bias.dtype != np.float32 or bias.ndim != 1 or scale.size not in (1, bias.size):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        codes = np.rint(bias / scale)
    return codes.astype(np.int32) if (np.abs(codes) < 2.0**31).all() else None
