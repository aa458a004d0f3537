"""Fuses quantised operators of an ONNX graph: dequantise -> operator -> quantise, or a QLinear node, becomes a `Fused`.

The rules are those of onnxruntime 1.31's QDQ transformers (`session.qdqisint8allowed` = 1). An operator becomes an
integer operator if its data inputs come from DequantizeLinear, its only reader is QuantizeLinear, and input and output
have the same type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops.linear import MAX_LIFT
from tilewright.graph.rounding import Activation
from tilewright.graph.tensor import code_limits
from tilewright.model.onnx_build import MOVES, Coded, Fused, has_kernel, is_unscaled, one_scale
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import ACTIVATIONS, DEQUANTIZE, JOINED, QUANTIZE, OnnxNetwork

#: For each QLinear node: the operator, the positions of its data inputs, the position of the output's scale, and the
#: position of the bias. Each data input is followed by its scale and its zero point.
QOPERATORS: dict[str, tuple[str, tuple[int, ...], int, int | None]] = {
    "QLinearConv": ("Conv", (0, 3), 6, 8),
    "QLinearMatMul": ("MatMul", (0, 3), 6, None),
    "QGemm": ("Gemm", (0, 3), 7, 6),
    "QLinearAdd": ("Add", (0, 3), 6, None),
    "QLinearMul": ("Mul", (0, 3), 6, None),
    "QLinearConcat": ("Concat", (), 0, None),  # the data inputs begin after the output's zero point, at position 2
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,), 3, None),
    "QLinearAveragePool": ("AveragePool", (0,), 3, None),
    "QLinearLeakyRelu": ("LeakyRelu", (0,), 3, None),
    "QLinearSigmoid": ("Sigmoid", (0,), 3, None),
    "QLinearSoftmax": ("Softmax", (0,), 3, None),
}
#: Operators with an integer kernel, and the number of inputs that must be codes (0: all).
COMPUTES = {"Conv": 2, "Gemm": 2, "MatMul": 2, "Add": 2, "Mul": 2, "Concat": 0} | dict.fromkeys(
    ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), 1
)
#: Operators that fuse with a Relu or Clip after them in the mode `pow2`. The fused operator clamps before it rounds.
CLAMPED = ("Conv", "Gemm", "MatMul", "Add", "AveragePool", "GlobalAveragePool", "ReduceMean")
#: Operators that fuse with a Relu or Clip between codes if this only makes the range of codes smaller.
CLIPPED = ("Conv", "Gemm", "Add")
#: A tolerance in real numbers: the limits of a Clip may be inside the range of codes by this much.
SLACK = float(np.finfo(np.float32).eps)
#: Tolerances for the scale of a convolution's bias, in numpy.isclose's form (measured).
BIAS_SCALE_ABSOLUTE = 1e-6
BIAS_SCALE_RELATIVE = 1e-2
Step = Fused | RawNode


def fuse(network: OnnxNetwork, real: frozenset[str] = frozenset()) -> list[Step]:
    """Return the operators that the outputs need, in order: quantised operators as `Fused`, all others as nodes.

    The nodes named in `real` are not fused: they compute real numbers between dequantise and quantise.
    """
    patterns = _Patterns(network, real)
    steps: list[Step] = [(None if node.name in real else patterns.fused(node)) or node for node in network.nodes]
    written = {name for step in steps if isinstance(step, Fused) for name in step.writes}
    needed = set(network.outputs)
    kept = list[Step]()
    # Go backwards from the outputs, and keep the operators that are needed. If a `Fused` writes a value, the node that
    # writes this value in the file is not needed.
    for step in reversed(steps):
        if isinstance(step, Fused):
            reads = step.reads
            wanted = needed.intersection(step.writes)
        else:
            reads = step.inputs
            wanted = needed.intersection(step.outputs) - written
        if wanted:
            needed.update(reads)
            kept.append(step)
    return kept[::-1]


class _Patterns:
    """Matches the patterns of quantised operators, using the writer and the readers of each value."""

    def __init__(self, network: OnnxNetwork, real: frozenset[str]) -> None:
        self.network = network
        self.real = real

    def fused(self, node: RawNode) -> Fused | None:
        """Return the operator on codes that computes the result of `node`; None if it computes real numbers."""
        if node.op_type in QOPERATORS:
            return _qlinear(self.network, node)
        if node.op_type == QUANTIZE:
            return self._conversion(node)
        # In the mode `pow2`, the Add of a residual fuses with the Conv or Gemm before it (see `_fuse_add`).
        adds = node.op_type == "Add" and not node.domain and self.network.rounding == "pow2"
        if adds and (with_residual := self._fuse_add(node)):
            return with_residual
        outputs = [self._quantised(name) for name in node.outputs]
        activation = self._clamp(node.outputs[0])
        # A Relu or Clip between codes of the same scale becomes a part of the operator before it.
        if node.op_type in CLIPPED and activation == "none" and (clipped := self._clipped(outputs[0])):
            return self._operator(node, [clipped], "relu")
        if node.op_type == "Softmax" and outputs[0] and self._may_wrap(node, outputs[0]):
            return None
        return self._operator(node, outputs, activation)

    def _may_wrap(self, node: RawNode, codes: Coded) -> bool:
        # The uint8 kernel of onnxruntime's softmax wraps a code above 255 around to 0. In real arithmetic, such a code
        # is 255.
        # The code of the probability 1 exceeds 255 if the scale is below 1/256. A single value has the probability 1.
        kind = self.network.types[codes.tensor]
        scale = codes.quant.scale[0] if codes.quant else 1.0
        single = bool(kind.shape) and kind.shape[int(node.attributes.get("axis", -1))] == 1
        return kind.dtype == "uint8" and (scale < 1 / 256 or single)

    def _clipped(self, codes: Coded | None) -> Coded | None:
        """Return the output of a Relu, or a Clip with minimum 0, whose input is `codes`.

        The result is None if there is no such node, if other nodes read `codes`, if the scale or zero point changes, or
        if the Clip has an effect on positive values.
        """
        chain: list[RawNode] = []
        name = codes.tensor if codes else ""
        for kinds in ((DEQUANTIZE,), ACTIVATIONS, (QUANTIZE,)):
            node = self.network.only_reader(name) if name else None
            if node is None or node.op_type not in kinds:
                return None
            chain.append(node)
            name = node.outputs[0]
        after = self._coded(chain[2], QUANTIZE)
        if after is None or after.quant is None or self.network.quantisation(chain[0]) != after.quant:
            return None
        if not one_scale(self.network, after):
            return None
        # The codes above the zero point are real numbers up to `largest`. A Clip must not clamp any of these.
        largest = (code_limits(self.network.dtype(after.tensor))[1] - after.quant.zero_point[0]) * after.quant.scale[0]
        low, high = self._bounds(chain[1]) if chain[1].op_type == "Clip" else (0, np.inf)
        return after if low == 0 and high >= largest - SLACK else None

    def _fuse_add(self, add: RawNode) -> Fused | None:
        """Fuse an Add of dequantised codes with the Conv or Gemm that computes its other operand; None: impossible."""
        # Either operand may be the product. The Add must be its only reader, because the unrounded sums exist only
        # inside the fused operator. Operands that broadcast are not supported.
        for product, addend in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
            node = self.network.writer.get(product)
            residual = self.dequantised(addend)
            out = self._quantised(add.outputs[0])
            shapes = {self.network.types[name].shape for name in (product, addend, add.outputs[0])}
            if node is None or node.name in self.real or residual is None or out is None or len(shapes) > 1:
                continue
            if JOINED.get(node.op_type) != self.network.rank(product) or self.network.only_reader(product) is None:
                continue
            fused = self._operator(node, [out], self._clamp(add.outputs[0]))
            if fused is not None and self._can_add(fused, residual):
                return replace(fused, residual=residual)
        return None

    def _can_add(self, fused: Fused, residual: Coded) -> bool:
        # The kernel shifts the residual left by 0..MAX_LIFT bits and then adds it to the sums. So the sums must have
        # one scale, and the scale of the residual must be this scale times a power of two.
        if not one_scale(self.network, residual) or residual.quant is None or any(residual.quant.zero_point):
            return False
        if self.network.dtype(residual.tensor) != self.network.dtype(fused.inputs[0].tensor):
            return False
        ratio = residual.quant.scale[0] / _product_scale(fused.inputs)
        return ratio.size == 1 and ratio.item() in [2.0**lift for lift in range(MAX_LIFT + 1)]

    def _operator(self, node: RawNode, outputs: list[Coded | None], activation: Activation) -> Fused | None:
        computes = node.op_type in COMPUTES or self._averages(node)
        if node.domain or not (computes or node.op_type in MOVES) or not node.inputs:
            return None
        # The first `count` inputs must be codes. The others are a bias, or settings such as the shape of a Reshape.
        count = COMPUTES.get(node.op_type, 1) or len(node.inputs)
        inputs = [self.dequantised(name) for name in node.inputs[:count]]
        readers = [reader.op_type for reader in self.network.readers.get(node.outputs[0], ())]
        if outputs == [None] and node.op_type in ("Gemm", "MatMul") and QUANTIZE not in readers:
            outputs = [Coded(node.outputs[0], None)]  # onnxruntime has integer kernels with real results for both
        if len(inputs) < count or None in inputs or None in outputs:
            return None
        coded = tuple(filter(None, inputs))
        results = tuple(filter(None, outputs))
        rest = node.inputs[count:]
        fused = Fused(node.name, node.op_type, node.attributes, coded, "", rest, results, activation)
        if not has_kernel(self.network, fused):
            return None
        if node.op_type not in ("Conv", "Gemm") or not any(rest):
            return fused
        # The bias must be int32 codes with the scale of the products. Otherwise onnxruntime has no integer kernel.
        bias = self._bias(rest[0], fused) if is_unscaled(node) else ""
        return replace(fused, bias=bias, other_inputs=()) if bias else None

    def _averages(self, node: RawNode) -> bool:
        to_all = node.attributes.get("noop_with_empty_axes", 0)
        return self.network.rounding == "pow2" and node.op_type == "ReduceMean" and not to_all

    def dequantised(self, name: str) -> Coded | None:
        return self._coded(self.network.writer.get(name), DEQUANTIZE)

    def _coded(self, node: RawNode | None, kind: str) -> Coded | None:
        """Return the codes of a quantise or dequantise node (`kind`) of float32; None if it is another node."""
        if node is None or node.op_type != kind:
            return None
        codes, real = (node.outputs[0], node.inputs[0])[:: 1 if kind == QUANTIZE else -1]
        quant = self.network.quantisation(node) if self.network.dtype(real) == "float32" else None
        return Coded(codes, quant) if quant else None

    def _quantised(self, name: str) -> Coded | None:
        """Return the codes to which a value is quantised; None unless a QuantizeLinear is its only reader."""
        # There may be a Relu or Clip before the QuantizeLinear. It is dropped if the range of codes has the same effect
        # (`_implied`), or if it becomes the clamp of the operator (`_clamp`).
        node = self.network.only_reader(name)
        if node is not None and node.op_type in ACTIVATIONS:
            after = self.network.only_reader(node.outputs[0])
            codes = self._coded(after, QUANTIZE)
            clips = codes is not None and (self._implied(node, codes) or self._clamp(name) != "none")
            return codes if clips else None
        return self._coded(node, QUANTIZE)

    def _clamp(self, name: str) -> Activation:
        """Return the activation of a Relu, or of a Clip from 0 to 6, that fuses with the writer of `name`."""
        writer = self.network.writer.get(name)
        node = self.network.only_reader(name)
        if self.network.rounding != "pow2" or writer is None or writer.op_type not in CLAMPED or node is None:
            return "none"
        if node.op_type == "Clip" and self._bounds(node) == (0.0, 6.0):
            return "relu6"
        return "relu" if node.op_type == "Relu" else "none"

    def _implied(self, node: RawNode, codes: Coded) -> bool:
        # The quantisation itself clips to the range of codes. A Relu or Clip that clips no more than this is redundant.
        if codes.quant is None or not one_scale(self.network, codes):
            return False
        least, most = code_limits(self.network.dtype(codes.tensor))
        scale = codes.quant.scale[0]
        zero = codes.quant.zero_point[0]
        if node.op_type == "Relu":
            return zero == least
        low, high = self._bounds(node)
        return low - (least - zero) * scale < SLACK and (most - zero) * scale - high < SLACK

    def _bounds(self, clip: RawNode) -> tuple[float, float]:
        # The limits are attributes up to opset 10, and inputs from opset 11 on. A limit that is computed at run time
        # makes the range empty, so that the Clip is not fused.
        limits = []
        for index, key, absent in ((1, "min", -np.inf), (2, "max", np.inf)):
            value = self.network.constants.get(clip.input(index))
            limit = -absent if value is None or value.size != 1 else value.reshape(-1)[0]
            limits.append(float(limit if clip.input(index) else clip.attributes.get(key, absent)))
        return limits[0], limits[1]

    def _bias(self, name: str, fused: Fused) -> str:
        """Return the name of the int32 codes from which the bias `name` is dequantised; '' if no kernel accepts it."""
        node = self.network.writer.get(name)
        if node is None or node.op_type != DEQUANTIZE:
            return ""
        if fused.op_type == "Conv":
            # onnxruntime tolerates a small difference of scales. For larger differences, it uses real arithmetic.
            products = _product_scale(fused.inputs)
            quant = self.network.quantisation(node)
            scale = np.array(quant.scale if quant else [np.inf])
            if not (np.abs(scale - products) <= BIAS_SCALE_ABSOLUTE + BIAS_SCALE_RELATIVE * products).all():
                return ""
        codes = node.inputs[0]
        zero = self.network.constants.get(node.input(2))
        constant = codes in self.network.constants and (zero is None or not zero.any())
        return codes if constant and self.network.dtype(codes) == "int32" else ""

    def _conversion(self, node: RawNode) -> Fused | None:
        # A Relu or Clip between dequantise and quantise must have no effect on the codes.
        source = node.inputs[0]
        before = self.network.writer.get(source)
        codes = self._coded(node, QUANTIZE)
        if before is not None and before.op_type in ACTIVATIONS and codes and self._implied(before, codes):
            source = before.inputs[0]
        coded = self.dequantised(source)
        if coded is None or codes is None or not all(one_scale(self.network, end) for end in (coded, codes)):
            return None
        return Fused(node.name, "Requantize", {}, (coded,), "", (), (codes,))


def _product_scale(coded: tuple[Coded, ...]) -> Array:
    scales = [np.array(operand.quant.scale if operand.quant else (1.0,), np.float32) for operand in coded[:2]]
    return scales[0] * scales[1]


def _qlinear(network: OnnxNetwork, node: RawNode) -> Fused | None:
    op_type, positions, out, bias_position = QOPERATORS[node.op_type]
    inputs = [_coded(network, node, index) for index in positions or range(2, len(node.inputs), 3)]
    quant = network.quant(node.input(out), node.input(out + 1), 1, network.rank(node.outputs[0]))
    bias = node.input(bias_position) if bias_position is not None else ""
    if not inputs or None in inputs or quant is None or (bias and bias not in network.constants):
        return None
    coded = tuple(filter(None, inputs))
    fused = Fused(node.name, op_type, node.attributes, coded, bias, (), (Coded(node.outputs[0], quant),))
    return fused if has_kernel(network, fused) else None


def _coded(network: OnnxNetwork, node: RawNode, position: int) -> Coded | None:
    codes = node.input(position)
    if not codes:
        return None
    # The output channels of weights are the first axis in convolutions and with transB, else the last axis.
    rank = network.rank(codes)
    axis = 0 if node.op_type == "QLinearConv" or node.attributes.get("transB") else rank - 1
    quant = network.quant(node.input(position + 1), node.input(position + 2), axis, rank)
    return Coded(codes, quant) if quant else None
