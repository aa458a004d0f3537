"""Writes a plan as a standard QDQ graph. All scales are powers of two, and all zero points are 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper, shape_inference

from tilewright.array import Array
from tilewright.graph.rounding import mean_factor
from tilewright.model.onnx_file import ROUNDING
from tilewright.model.onnx_values import ACTIVATIONS
from tilewright.quantize.model import Network
from tilewright.quantize.names import Names, tensors_of
from tilewright.quantize.pow2.plan import AVERAGES, Step, divisor
from tilewright.quantize.pow2.scales import Scales, codes

#: An informative entry of the model's metadata_props: the names of the convolutions whose unrounded result an addition
#: reads.
UNROUNDED = "tilewright.unrounded"


class Writer:
    """Writes the QDQ graph of a plan. `nodes` and `constants` are the part of the graph that is written already."""

    def __init__(self, scales: Scales) -> None:
        self.net = scales.plan.net
        self.plan = scales.plan
        self.scales = scales
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.tensor = Names(tensors_of(self.net.model))
        self.node = Names(node.name for node in self.net.nodes)

    def model(self) -> ModelProto:
        for name in self.net.inputs:
            self.quantised(name, name)
        for step in self.plan.steps:
            self.step(step)
        used = {name for node in self.nodes for name in node.input}
        model = with_nodes(self.net.model, self.net.model.graph.name, self.nodes, used, self.constants)
        model.producer_name = "tilewright"
        unrounded = [step.name for step in self.plan.steps if step.addition is not None]
        helper.set_model_props(model, {ROUNDING: "pow2", **({UNROUNDED: ",".join(unrounded)} if unrounded else {})})
        return model

    def step(self, step: Step) -> None:
        """Write a step: its node, its fused nodes, its int8 constants, and the quantisation of its outputs."""
        node = NodeProto()
        node.CopyFrom(step.node)
        for index, name in enumerate(node.input):
            if name not in self.plan.group:
                continue
            # A node reads the dequantised tensor. Each step has its own codes of a constant, as the scales may differ.
            if not self.net.is_constant(name):
                node.input[index] = self.real(name)
            elif name in step.inputs and step.role != "host":
                stored = self.tensor(f"{step.name}_{name}", (step.name, name))
                node.input[index] = self.quantised_constant(stored, name, self.scales.of(name))
        if step.weights:
            self.weights(step, node)
        last = node
        self.nodes.append(node)
        for fused in filter(None, (step.addition, step.activation)):
            last = NodeProto()
            last.CopyFrom(fused)
            self.nodes.append(last)
            for index, name in enumerate(last.input):
                last.input[index] = self.real(name) if name == step.residual else name
        for index, name in enumerate(last.output):
            if name not in self.plan.group:
                continue
            if name in self.net.outputs:
                last.output[index] = self.tensor(f"{name}_float", name)
            self.quantised(name, last.output[index])

    def quantised(self, name: str, source: str) -> None:
        """If the tensor `name` is int8 in the plan, quantise and dequantise its real values (`source`)."""
        if name not in self.plan.group:
            return
        scale = self.scale(self.scales.of(name))
        zero = self.zero("int8")
        middle = self.tensor(f"{name}_QuantizeLinear_Output", name)
        self.add("QuantizeLinear", [source, scale, zero], middle)
        self.add("DequantizeLinear", [middle, scale, zero], self.real(name))

    def real(self, name: str) -> str:
        """Return the name of the dequantised values of an int8 tensor. An output of the model keeps its name."""
        return name if name in self.net.outputs else self.tensor(f"{name}_DequantizeLinear_Output", name)

    def weights(self, step: Step, node: NodeProto) -> None:
        """Write the weights of a product in int8, and its bias in int32 at the scale of the sums."""
        stored = self.tensor(f"{step.name}_weight", step.name)
        node.input[1] = self.quantised_constant(stored, step.weights, self.scales.weights[step.name])
        if step.bias:
            unit = self.scales.accumulator(step)
            values = np.rint(np.ldexp(self.net.constant(step.bias).astype(np.float64), -unit)).astype(np.int32)
            node.input[2] = self.store(self.tensor(f"{step.name}_bias", step.name), values, unit)

    def quantised_constant(self, stored: str, name: str, exponent: int) -> str:
        """Write the constant `name` as int8 codes under the name `stored`. Return the name of their real values."""
        return self.store(stored, codes(self.net.constant(name), exponent).astype(np.int8), exponent)

    def store(self, name: str, values: Array, exponent: int) -> str:
        """Write integer codes with a DequantizeLinear. Return the name of their real values."""
        real = self.tensor(f"{name}_DequantizeLinear_Output", name)
        if name not in self.constants:
            self.constants[name] = values
            self.add("DequantizeLinear", [name, self.scale(exponent), self.zero(str(values.dtype))], real)
        return real

    def scale(self, exponent: int) -> str:
        name = self.tensor(f"scale_2^{exponent}")
        self.constants[name] = np.array(2.0**exponent, np.float32)
        return name

    def zero(self, dtype: str) -> str:
        name = self.tensor(f"zero_{dtype}")
        self.constants[name] = np.array(0, dtype)
        return name

    def add(self, op: str, inputs: list[str], output: str) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], name=self.node(f"{output}_node")))


def exact(model: ModelProto) -> ModelProto:
    """Convert a pow2 model to float32 operators whose results in onnxruntime equal its integer arithmetic."""
    # Scales are powers of two, so codes, and sums of products up to 2**24 times their scale, are exact in float32. A
    # larger int32 sum may be rounded to 24 bits before its shift.
    averaging = any(node.op_type in AVERAGES for node in model.graph.node)
    net = Network(shape_inference.infer_shapes(model) if averaging else model)
    fresh = Names(tensors_of(model))
    half, lowest, highest = (fresh(name) for name in ("half", "lowest", "highest"))
    nodes: list[NodeProto] = []
    constants = {half: 0.5, lowest: -128.0, highest: 127.0}
    for node in net.nodes:
        if node.op_type == "QuantizeLinear":
            # clip(floor(x / scale + 1/2), -128, 127) rounds ties upwards, as the scheme does. onnxruntime's
            # QuantizeLinear would round ties to even.
            scale = float(net.constant(node.input[1]))
            up, down = fresh(f"times_{1 / scale:g}"), fresh(f"times_{scale:g}")
            constants |= {up: 1 / scale, down: scale}
            name = node.output[0]
            scaled, raised, floor = (fresh(f"{name}_{part}", name) for part in ("scaled", "raised", "floor"))
            nodes += [
                helper.make_node("Mul", [node.input[0], up], [scaled]),
                helper.make_node("Add", [scaled, half], [raised]),
                helper.make_node("Floor", [raised], [floor]),
                helper.make_node("Clip", [floor, lowest, highest], [name]),
            ]
        elif node.op_type == "DequantizeLinear" and not net.is_constant(node.input[0]):
            down = fresh(f"times_{float(net.constant(node.input[1])):g}")
            nodes.append(helper.make_node("Mul", [node.input[0], down], node.output))
        elif count := _count(net, node):
            # The scheme multiplies the sum by a factor of seven bits, but the node returns the mean. Therefore convert
            # the mean back to the sum of the codes, which is an integer, and multiply this sum by the factor.
            unit = float(net.constant(net.producer[node.input[0]].input[1]))
            factor, exponent = mean_factor(count)
            name = node.output[0]
            to_codes = count / unit
            to_real = factor * unit / 2**exponent
            back = fresh(f"times_{to_codes:.9g}")
            times = fresh(f"times_{to_real:.9g}")
            constants |= {back: to_codes, times: to_real}
            average, about, total = (fresh(f"{name}_{part}", name) for part in ("mean", "about", "sum"))
            averages = NodeProto()
            averages.CopyFrom(node)
            averages.output[0] = average
            nodes += [
                averages,
                helper.make_node("Mul", [average, back], [about]),
                helper.make_node("Round", [about], [total]),
                helper.make_node("Mul", [total, times], [name]),
            ]
        else:
            nodes.append(node)
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    return with_nodes(model, "exact", nodes, {tensor.name for tensor in model.graph.initializer}, arrays)


def with_nodes(
    model: ModelProto, name: str, nodes: list[NodeProto], kept: Collection[str], constants: Mapping[str, Array]
) -> ModelProto:
    """Return a model with new nodes. Its initializers are `constants` and the old initializers named in `kept`."""
    source = model.graph
    initializers = [tensor for tensor in source.initializer if tensor.name in kept]
    initializers += [numpy_helper.from_array(value, title) for title, value in constants.items()]
    graph = helper.make_graph(nodes, name, source.input, source.output, initializers)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _count(net: Network, node: NodeProto) -> int:
    """Return the number of codes of an average, or 0 if the node is no average or needs no factor (a power of two)."""
    if node.op_type not in AVERAGES:
        return 0
    before, after = net.producer.get(node.input[0]), net.consumers.get(node.output[0], [])
    stays = [reader for reader in after if reader.op_type not in ("QuantizeLinear", *ACTIVATIONS)]
    if before is None or before.op_type != "DequantizeLinear" or stays:
        return 0  # computed on the host
    count = divisor(net, node)
    return count if count & (count - 1) else 0
