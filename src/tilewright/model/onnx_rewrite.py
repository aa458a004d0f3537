"""Rewrites a network as onnxruntime does before it fuses quantised operators. `rewritten` runs these steps in order:

- `_without_identities`, `_constants` and `_gemms` remove identities, replace a transpose of dequantised constants by
  dequantised transposed constants, and MatMul and Add of dequantised matrices by Gemm. Values stay the same.
- `merge` (DoubleQDQPairsRemover) replaces two consecutive pairs of quantise and dequantise by one pair, for the range
  of reals that both can represent. This changes values, so the rounding mode `ort` must reproduce it.
- `_up` and `_down` (QDQPropagation) move a QuantizeLinear up and a DequantizeLinear down past the operators in `MOVED`,
  so that more operators fuse. Values stay the same, because these operators neither compute nor round.
- `quantise_biases` (WeightBiasQuantization) replaces real biases of products of codes by dequantised codes if the
  result is quantised next, or after Relu or Clip, even if the product then has no integer kernel. This changes values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ort import ValueType
from tilewright.graph.rounding import round_half_away
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import ACTIVATIONS, CODES, DEQUANTIZE, MAXPOOL_OPSET, QUANTIZE, Known

#: Operators that a pair of quantise and dequantise may move past.
MOVED = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice")
#: Operators whose real biases become codes.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm")


def rewritten(known: Known) -> Known:
    """Return the network in the form in which onnxruntime looks for quantised operators."""
    return quantise_biases(_down(_up(merge(_gemms(_constants(_without_identities(known)))))))


def _without_identities(known: Known) -> Known:
    """Return the network with readers of identities reading the identities' inputs, and without unused identities.

    Each Concat loses its empty inputs, unless all of them are empty.
    """
    source: dict[str, str] = {}
    nodes = []
    for given in known.nodes:
        node = replace(given, inputs=tuple(source.get(name, name) for name in given.inputs))
        if node.op_type == "Concat":
            full = tuple(name for name in node.inputs if 0 not in known.types[name].shape)
            node = replace(node, inputs=full or node.inputs)
        same = _is_identity(known, node)
        if same:
            source[node.outputs[0]] = node.inputs[0]
        if not same or node.outputs[0] in known.outputs:
            nodes.append(node)
    return replace(known, nodes=nodes)


def _is_identity(known: Known, node: RawNode) -> bool:
    """Return whether a node is an Identity, a Dropout without mask output, or an Expand to the shape of its input."""
    if node.op_type == "Expand":
        return known.types[node.inputs[0]] == known.types[node.outputs[0]]
    return node.op_type in ("Identity", "Dropout") and len(node.outputs) == 1


def _constants(known: Known) -> Known:
    """Replace dequantise(constant) -> transpose by dequantise(transposed constant), with the channel axis permuted."""
    constants = dict(known.constants)
    writer: dict[str, RawNode] = {}
    nodes = []
    for given in known.nodes:
        node = given
        before = writer.get(node.inputs[0]) if node.op_type == "Transpose" else None
        if before is not None and before.op_type == DEQUANTIZE and before.inputs[0] in constants:
            made = _transposed(known, node, before, constants[before.inputs[0]])
            if made is not None:
                node, constants[made[0].inputs[0]] = made
        writer |= dict.fromkeys(node.outputs, node)
        nodes.append(node)
    return known.having(nodes, constants)


def _transposed(known: Known, node: RawNode, before: RawNode, data: Array) -> tuple[RawNode, Array] | None:
    rank = data.ndim
    permutation = tuple(node.attributes.get("perm", range(rank)[::-1]))
    axis = int(before.attributes.get("axis", 1))
    if sorted(permutation) != list(range(rank)) or before.attributes.get("block_size") or not -rank <= axis < rank:
        return None
    attributes = {**before.attributes, "axis": permutation.index(axis % rank)}
    codes = known.fresh(f"{before.inputs[0]}:{node.name}")
    inputs = (codes, *before.inputs[1:])
    made = replace(node, op_type=DEQUANTIZE, domain=before.domain, inputs=inputs, attributes=attributes)
    return made, np.ascontiguousarray(data.transpose(permutation))


def _gemms(known: Known) -> Known:
    """Replace MatMul -> Add by Gemm if both matrices are dequantised and the addend is a row or a whole matrix."""
    gone: set[str] = set()
    nodes: dict[str, RawNode] = {}
    for node in known.nodes:
        product, addend = _product(known, node) if node.op_type == "Add" and not node.domain else (None, "")
        if product is None or known.only_reader(product.outputs[0]) is None:
            nodes[node.name] = node
            continue
        gone.add(product.name)
        nodes[node.name] = replace(node, op_type="Gemm", inputs=(*product.inputs, addend), attributes={})
    return replace(known, nodes=[node for name, node in nodes.items() if name not in gone])


def _product(known: Known, add: RawNode) -> tuple[RawNode | None, str]:
    """Return the MatMul whose result `add` reads, and the other operand's name; (None, '') if they form no Gemm."""
    for name, other in (add.inputs, add.inputs[::-1]):
        product = known.writer.get(name)
        if product is None or product.op_type != "MatMul":
            continue
        a, b, addend = (known.types[operand].shape for operand in (*product.inputs, other))
        sources = [known.writer.get(operand) for operand in product.inputs]
        dequantised = all(source is not None and source.op_type == DEQUANTIZE for source in sources)
        if dequantised and len(a) == len(b) == 2 and addend in (b[1:], (1, *b[1:]), (a[0], *b[1:])):
            return product, other
    return None, ""


def merge(known: Known) -> Known:
    """Replace quantise -> dequantise -> quantise -> dequantise, without other readers in between, by one pair.

    A longer chain is merged in passes: the first two pairs, the next two, and so on, then again from the start. The
    order affects rounding.
    """
    while (merged := _merge_once(known)) is not known:
        known = merged
    return known


def _merge_once(known: Known) -> Known:
    constants: dict[str, Array] = {}
    changed: dict[str, RawNode | None] = {}
    for first in known.nodes:
        chain = _chain(known, first) if first.op_type == QUANTIZE and first.name not in changed else None
        pair = _spanned(known, first, chain[1]) if chain else None
        if chain is None or pair is None:
            continue
        back, second, ends = chain
        names = tuple(known.fresh(f"{second.name}:{part}") for part in ("scale", "zero"))
        constants |= zip(names, pair, strict=True)
        changed[first.name] = replace(first, inputs=(first.inputs[0], *names), outputs=second.outputs)
        changed |= {back.name: None, second.name: None}
        changed |= {end.name: replace(end, inputs=(end.inputs[0], *names)) for end in ends}
    if not changed:
        return known
    nodes = (changed.get(node.name, node) for node in known.nodes)
    return known.having(filter(None, nodes), constants)


def _chain(known: Known, first: RawNode) -> tuple[RawNode, RawNode, list[RawNode]] | None:
    """Return what follows `first`, a quantise, in a chain: dequantise, quantise, dequantises; None if no chain."""
    back = known.only_reader(first.outputs[0])
    second = known.only_reader(back.outputs[0]) if back and back.op_type == DEQUANTIZE else None
    if back is None or second is None or second.op_type != QUANTIZE or second.outputs[0] in known.outputs:
        return None
    ends = known.readers.get(second.outputs[0], [])
    return (back, second, ends) if ends and all(end.op_type == DEQUANTIZE for end in ends) else None


def _spanned(known: Known, first: RawNode, second: RawNode) -> tuple[Array, Array] | None:
    """Return the scale (float32) and zero point for the reals that both nodes can represent; None if unmergeable."""
    dtype = known.dtype(second.outputs[0])
    if dtype not in CODES or known.dtype(first.outputs[0]) != dtype:
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


def _up(known: Known) -> Known:
    """Replace move -> quantise by quantise -> dequantise -> move -> quantise; a move is an operator in `MOVED`.

    Moves whose input is already dequantised (or quantised) stay as they are.
    """
    known = known.having(known.nodes, {})
    wanted: dict[str, RawNode] = {}  # value -> the node that quantises it
    made: list[RawNode] = []
    for node in reversed(known.nodes):
        if node.op_type == QUANTIZE and _one_scale(known, node):
            wanted[node.inputs[0]] = node
        asked = wanted.get(node.outputs[0]) if known.only_reader(node.outputs[0]) else None
        real = node.input(0)
        before = known.writer.get(real)
        coded = before is None or before.op_type in (QUANTIZE, DEQUANTIZE)
        if asked is None or coded or not _moves(known, node):
            made.append(node)
            continue
        quantise, back = _pair(known, real, f"{node.name}:up", asked, asked.outputs[0])
        made += [replace(node, inputs=(back.outputs[0], *node.inputs[1:])), back, quantise]
        wanted[real] = quantise
    return replace(known, nodes=made[::-1])


def _down(known: Known) -> Known:
    """Replace dequantise -> move by dequantise -> move -> quantise -> dequantise; a move is an operator in `MOVED`.

    Moves whose result a QuantizeLinear reads stay as they are.
    """
    known = known.having(known.nodes, {})
    coded: dict[str, RawNode] = {}
    renamed: dict[str, str] = {}
    made: list[RawNode] = []
    for given in known.nodes:
        node = replace(given, inputs=tuple(renamed.get(name, name) for name in given.inputs))
        made.append(node)
        if node.op_type == DEQUANTIZE and _one_scale(known, node) and node.inputs[0] not in known.constants:
            coded[node.outputs[0]] = node
        source = coded.get(node.inputs[0]) if node.inputs else None
        value = node.outputs[0]
        if source is None or not _moves(known, node) or value in known.outputs:
            continue
        readers = known.readers.get(value, [])
        if readers and all(reader.op_type != QUANTIZE for reader in readers):
            quantise, back = _pair(known, value, f"{node.name}:down", source, source.inputs[0])
            made += [quantise, back]
            renamed[value] = back.outputs[0]
            coded[back.outputs[0]] = back
    return replace(known, nodes=made)


def _moves(known: Known, node: RawNode) -> bool:
    """Return whether a quantise and dequantise may move past a node: it is in `MOVED`, other inputs are constant."""
    old = node.op_type == "MaxPool" and known.opset < MAXPOOL_OPSET
    return node.op_type in MOVED and not old and known.are_constant(node.inputs[1:]) and len(node.outputs) == 1


def _one_scale(known: Known, node: RawNode) -> bool:
    return all(name in known.constants and known.constants[name].size == 1 for name in node.inputs[1:])


def _pair(known: Known, value: str, name: str, like: RawNode, codes: str) -> tuple[RawNode, RawNode]:
    """Return new QuantizeLinear and DequantizeLinear nodes for `value`, with scale and zero point of node `like`.

    The new codes have the type of the value `codes`.
    """
    shape = known.types[value].shape
    quantised, back = (known.fresh(f"{value}:{name}:{part}") for part in ("codes", "real"))
    known.types |= {quantised: ValueType(known.dtype(codes), shape), back: ValueType("float32", shape)}
    first = RawNode(f"{name}:{QUANTIZE}", QUANTIZE, "", (value, *like.inputs[1:]), (quantised,))
    return first, RawNode(f"{name}:{DEQUANTIZE}", DEQUANTIZE, "", (quantised, *like.inputs[1:]), (back,))


def quantise_biases(known: Known) -> Known:
    """Return the network with real constant biases of `PRODUCTS` replaced by DequantizeLinear of int32 codes."""
    constants: dict[str, Array] = {}
    types: dict[str, ValueType] = {}
    nodes = []
    for node in known.nodes:
        bias = node.input(2)
        scale = _scale(known, node) if bias in known.constants and _is_quantised(known, node) else None
        codes = _codes(known.constants[bias], scale) if scale is not None else None
        if scale is None or codes is None:
            nodes.append(node)
            continue
        axis = {"axis": 0} if scale.ndim else {}
        held = tuple(known.fresh(f"{bias}:{node.name}:{part}") for part in ("codes", "scale"))
        real = known.fresh(f"{bias}:{node.name}:real")
        constants |= zip(held, (codes, scale), strict=True)
        types[real] = known.types[bias]
        back = RawNode(f"{node.name}:bias", DEQUANTIZE, "", held, (real,), axis)
        nodes += [back, replace(node, inputs=(*node.inputs[:2], real))]
    return known.having(nodes, constants, types)


def _is_quantised(known: Known, node: RawNode) -> bool:
    """Return whether the only reader of a node in `PRODUCTS` is QuantizeLinear, directly or after Relu or Clip."""
    if node.op_type not in PRODUCTS or node.domain:
        return False
    readers = known.readers.get(node.outputs[0], [])
    while len(readers) == 1 and readers[0].op_type in ACTIVATIONS:
        readers = known.readers.get(readers[0].outputs[0], [])
    return [reader.op_type for reader in readers] == [QUANTIZE]


def _scale(known: Known, node: RawNode) -> Array | None:
    """Return the float32 scale of the products that a node sums (one, or one per output); None if inputs are real."""
    quants = []
    for name in node.inputs[:2]:
        source = known.writer.get(name)
        if source is None or source.op_type != DEQUANTIZE:
            return None
        quants.append(known.quantisation(source))
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
