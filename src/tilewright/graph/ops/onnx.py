"""ONNX operators that this package does not implement. onnxruntime runs each one as a model with a single node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph import ort
from tilewright.graph.ir import Op, Shape, Site
from tilewright.graph.rounding import Rounding
from tilewright.graph.tensor import Tensor


@dataclass(frozen=True)
class OnnxOp(Op):
    """An operator of ONNX or of onnxruntime's own domain. `attributes` are sorted pairs (name, JSON value).

    `fed` lists the positions of constant inputs that onnxruntime gets at run time, such as dequantised weights. It
    packs all other constants in advance, and may then add products in another order.
    """

    kind = "onnx"
    op_type: str = "Identity"
    domain: str = ""
    opset: int = 13
    attributes: tuple[tuple[str, str], ...] = ()
    fed: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return self.op_type

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        return ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return tuple(tensor.shape for tensor in site.outputs)

    def call(self, site: Site) -> ort.Call:
        inputs = tuple(None if tensor is None else ort.ValueType(tensor.dtype, tensor.shape) for tensor in site.inputs)
        name = site.node.name
        return ort.Call(name, self.op_type, self.domain, self.opset, self.attributes, inputs, len(site.outputs))

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        call = self.call(site)
        outputs = tuple(ort.ValueType(tensor.dtype, tensor.shape) for tensor in site.outputs)
        constant_inputs = {i: tensor.data for i, tensor in enumerate(site.inputs) if tensor and tensor.data is not None}
        # The file was checked when it was read, but a damaged program file may declare other types.
        changed = ort.infer(call, ort.small(constant_inputs)) != outputs
        call.fail_if(changed, f"{self.op_type} returns types other than those declared for its outputs")
        constants = {i: data for i, data in constant_inputs.items() if i not in self.fed}
        count = max((value.shape[0] for value in values if value is not None), default=1)
        # Run one sample at a time, because operators of the model have no sample axis.
        rows = []
        for sample in range(count):
            operands = [None if value is None else value[sample % value.shape[0]] for value in values]
            rows.append(ort.run(call, outputs, operands, constants))
        return tuple(np.stack(parts) for parts in zip(*rows, strict=True))

    @staticmethod
    def real(site: Site) -> str:
        """Return why an integer machine cannot run a node with real numbers, or "" for other nodes."""
        op = site.node.op
        x = site.optional(0)
        real = isinstance(op, OnnxOp) and x is not None and x.dtype.startswith("float")
        return f"{op.label} computes real numbers (see `tilewright quantize`)" if real else ""

    def macs(self, site: Site) -> int:
        if self.op_type in ("Conv", "QLinearConv"):
            return site.output.size * prod(site.input(1 if self.op_type == "Conv" else 3).shape[1:])
        if self.op_type == "ConvTranspose":
            return site.input(0).size * prod(site.input(1).shape[1:])
        if self.op_type in ("MatMul", "Gemm", "QLinearMatMul"):
            return site.output.size * site.input(0).shape[-1]
        return 0
