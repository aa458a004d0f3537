"""Removes transposes: moves each transpose towards the outputs, until two cancel or an operator needs the axis order.

A transposed value is recorded as a `View` of another tensor. A transpose node is only emitted when an operator needs
the value itself. A channels-first network keeps one transpose at its input and at most one at its output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Site, fresh_name

#: Permutations of the axes of images: channels first to channels last, and back.
TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)
#: Element-wise ONNX operators whose results do not depend on the order of elements: exact operations, and tables.
_ANY_ORDER = frozenset(("Relu", "Clip", "Abs", "Neg", "Floor", "Ceil", "QLinearSigmoid", "QLinearLeakyRelu"))


class View(NamedTuple):
    """A transposed view of the tensor `base`: axis i of the value is axis `permutation[i]` of the tensor."""

    base: str
    permutation: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        return self.permutation == tuple(range(len(self.permutation)))


def channels_last(graph: Graph) -> Graph:
    """Return a valid graph in which transposes are moved towards the outputs and cancelled where possible."""
    return _Layout(graph).run()


class _Layout:
    """The state of `channels_last`: new nodes and tensors, and `views`, the values without a tensor of their own.

    `materialised` maps views to the names of tensors, for the views whose transpose was emitted.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self.nodes: list[Node] = []
        self.views: dict[str, View] = {}
        self.materialised: dict[View, str] = {}
        self.names = {*graph.tensors, *(node.name for node in graph.nodes)}

    def run(self) -> Graph:
        # Try in this order: the result of the node becomes a view of its input; the operator runs on the bases of its
        # input views; the weights of the next layer are permuted instead of a flattened image. Otherwise, materialise
        # the inputs.
        for site in self.graph.sites():
            if not (self._keep_as_view(site) or self._run_on_bases(site) or self._absorb(site)):
                self.nodes.append(replace(site.node, inputs=tuple(map(self.materialise, site.node.inputs))))
        for name in self.graph.outputs:
            self._name_output(name)
        return replace(self.graph, tensors=self.tensors, nodes=tuple(self.nodes)).pruned()

    def materialise(self, name: str) -> str:
        """Return a tensor whose value is `name`. If `name` is only a view, emit its transpose first."""
        view = self.views.get(name)
        if view is None or view.is_identity:
            return view.base if view else name
        if view not in self.materialised:
            # Emit a transpose, or a reshape if no element moves (only axes of 1 are moved).
            result = self.tensors[name]
            shape = self.tensors[view.base].shape
            order = [axis for axis in view.permutation if shape[axis] > 1]
            op = ops.Reshape(result.shape) if order == sorted(order) else ops.Transpose(view.permutation)
            self._emit(f"{name}:{op.kind}", op, view.base, name)
            self.materialised[view] = name
        return self.materialised[view]

    def _name_output(self, name: str) -> None:
        source = self.materialise(name)
        fixed = source in (*self.graph.inputs, *self.graph.outputs) or self.tensors[source].data is not None
        if source != name and not fixed:
            self._rename(source, name)
        elif source != name:
            self._emit(f"{name}:copy", ops.Reshape(self.tensors[name].shape), source, name)

    def _rename(self, old: str, new: str) -> None:
        self.tensors[new] = replace(self.tensors[old], name=new)
        for index, node in enumerate(self.nodes):
            inputs, outputs = (tuple(new if n == old else n for n in names) for names in (node.inputs, node.outputs))
            self.nodes[index] = replace(node, inputs=inputs, outputs=outputs)
        self.views = {name: view._replace(base=new) if view.base == old else view for name, view in self.views.items()}

    def _emit(self, name: str, op: ops.Op, source: str, result: str) -> None:
        self.nodes.append(Node(fresh_name(name, self.names), op, (source,), (result,)))

    def _keep_as_view(self, site: Site) -> bool:
        """Record the result of a transpose, or a reshape to the same shape, as a view. Return whether this is done."""
        op = site.node.op
        x = site.optional(0)
        out = site.output
        if x is None or x.data is not None:
            return False
        view = self.views.get(x.name) or View(x.name, tuple(range(len(x.shape))))
        if isinstance(op, ops.Transpose):  # compose the permutations, so that a view is never a view of a view
            self.views[out.name] = View(view.base, tuple(view.permutation[axis] for axis in op.permutation))
        elif isinstance(op, ops.Reshape) and x.shape == out.shape and x.quant == out.quant:
            self.views[out.name] = view
        return out.name in self.views

    def _run_on_bases(self, site: Site) -> bool:
        """Try to run an operator in the axis order of the bases of its input views. Return whether this succeeds."""
        # Inputs that are not constants must be views with the same permutation, or some input would need a transpose.
        views = {self.views[name] for name in site.node.inputs if name in self.views}
        permutations = {view.permutation for view in views if not view.is_identity}
        if len(permutations) != 1:
            return False
        (permutation,) = permutations
        op = _permuted(site, permutation)
        if op is None or len(site.outputs) != 1:
            return False
        inputs = []
        for name in site.node.inputs:
            view = self.views.get(name)
            if view is not None and view.permutation == permutation:
                inputs.append(view.base)
            elif not name or self.tensors[name].data is not None:
                inputs.append(self._constant(name, permutation) if name else "")
            else:
                return False
        inner = fresh_name(f"{site.output.name}:nhwc", self.names)  # the output is a view of this tensor
        shape = tuple(site.output.shape[axis] for axis in np.argsort(permutation))
        self.tensors[inner] = replace(site.output, name=inner, shape=shape)
        self.nodes.append(replace(site.node, op=op, inputs=tuple(inputs), outputs=(inner,)))
        self.views[site.output.name] = View(inner, permutation)
        return True

    def _constant(self, name: str, permutation: tuple[int, ...]) -> str:
        """Permute the axes of a constant so that it broadcasts against the base of a view. Return its new name."""
        tensor = self.tensors[name]
        if tensor.size == 1 or tensor.data is None:
            return name
        missing = len(permutation) - len(tensor.shape)
        data = tensor.data.reshape((1,) * missing + tensor.shape).transpose(np.argsort(permutation))
        permuted = fresh_name(f"{name}:nhwc", self.names)
        self.tensors[permuted] = replace(tensor, name=permuted, shape=data.shape, data=np.ascontiguousarray(data))
        return permuted

    def _absorb(self, site: Site) -> bool:
        """Try to flatten the base of a view, and permute the weights of all readers. Return whether this succeeds."""
        x = site.optional(0)
        out = site.output
        view = self.views.get(x.name) if x else None
        if not isinstance(site.node.op, ops.Reshape) or x is None or view is None or view.is_identity:
            return False
        # Each row of the flat result is an image, so the batch axis must stay first. The order inside a row must match
        # the columns of the weights, which are constant and can be permuted.
        flat = out.shape == (x.shape[0], x.size // x.shape[0]) and view.permutation[0] == 0
        readers = self._products(out.name)
        if not flat or not readers:
            return False
        # Permute the columns to the base's order: axis j of the base is axis back[j] of the view.
        back = np.argsort(view.permutation)
        for weights in {reader.inputs[1] for reader in readers}:
            tensor = self.tensors[weights]
            assert tensor.data is not None
            columns = tensor.data.reshape(-1, *x.shape[1:]).transpose(0, *back[1:])
            self.tensors[weights] = replace(tensor, data=np.ascontiguousarray(columns).reshape(tensor.shape))
        self.nodes.append(replace(site.node, inputs=(view.base,)))
        return True

    def _products(self, name: str) -> list[Node]:
        """Return the fully connected nodes that read a value, or [] if another node reads the value or the weights."""
        products = []
        for node in self.graph.readers.get(name, ()):
            same = self.graph.tensors[node.outputs[0]].shape == self.graph.tensors[name].shape
            if isinstance(node.op, ops.Reshape) and same:
                nodes = self._products(node.outputs[0])
            else:
                nodes = [node] if self._is_product_of(node, name) else []
            if not nodes:
                return []
            products += nodes
        return [] if name in self.graph.outputs else products

    def _is_product_of(self, node: Node, name: str) -> bool:
        if not isinstance(node.op, ops.FullyConnected) or node.inputs[0] != name or name in node.inputs[1:]:
            return False
        weights = node.inputs[1]
        return self.graph.tensors[weights].data is not None and len(self.graph.readers[weights]) == 1


def _permuted(site: Site, permutation: tuple[int, ...]) -> ops.Op | None:
    """Return the operator of `site` for inputs that are not yet permuted by `permutation`.

    Its axes are renumbered, so that permuting its result gives the result of the original operator. Return None if the
    operator depends on the order of axes.
    """
    op = site.node.op
    rank = len(permutation)
    if isinstance(op, ops.Quantize | ops.Dequantize | ops.Clamp):
        return op
    if isinstance(op, ops.Add | ops.Mul | ops.IntegerAdd | ops.RequantShift):
        return op if len(site.output.shape) == rank else None
    if isinstance(op, ops.Concat):
        return replace(op, axis=permutation[op.axis % rank])
    if isinstance(op, ops.Pad):
        return replace(op, padding=tuple(op.padding[axis] for axis in np.argsort(permutation)))
    elementwise = isinstance(op, ops.OnnxOp) and op.op_type in _ANY_ORDER
    single = all(tensor is None or tensor.size == 1 for tensor in site.inputs[1:])  # one number for all elements
    return op if elementwise and single else None
