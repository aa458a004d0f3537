"""Compares an imported `.onnx` file with onnxruntime without optimisations, layer by layer.

The inputs of every layer are codes that the graph has computed. So a rounding difference cannot spread, and an import
error appears in its own layer. To this end, the file is cut at each tensor of codes that is also in the graph, and such
a tensor becomes an input. The file's value before a QuantizeLinear is compared: the graph must have the code nearest to
this value, and in the mode `pow2` the upper code at a tie. Real outputs must agree to float32's accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph import ops, ort, reference
from tilewright.graph.ir import Graph, Site
from tilewright.graph.tensor import INT4, Tensor, code_limits
from tilewright.model import onnx as importer
from tilewright.model.onnx_file import CUSTOM
from tilewright.model.onnx_values import CODES, DEQUANTIZE, QUANTIZE
from tilewright.model.shapes import cut
from tilewright.model.verification import Comparison, Verification, compared

#: If a value is this close to a tie (in codes), the float32 sums of the file and an integer kernel may round it
#: differently.
NEAR = 1 / 64
#: Tolerances of a real output, relative to its largest magnitude; HALF applies if any tensor is float16.
REAL = 1e-4
HALF = 1e-2
#: Relative tolerance of averages: `pow2` approximates 1 / n by a factor of seven bits (docs/quantize.md).
AVERAGE = 1 / 128
#: The difference, in codes, that is allowed between onnxruntime's softmax on codes and a real softmax.
SOFTMAX = 1.0
#: The unit of the sum of exponentials in TFLite's fixed-point softmax (gemmlowp: 12 integer bits, 19 fraction bits).
EXPONENTIAL = 2.0**-19
#: The largest number of products of int8 codes (up to 2^14) with an exact sum in float32 (24 bits), in any order.
EXACT_TERMS = (1 << 24) // (1 << 14)
IDENTITIES = ("Identity", "Dropout")
_GIVEN = ":given"


def verify(path: Path, graph: Graph, samples: Mapping[str, Array]) -> Verification:
    """Compare the import of the file `path` with onnxruntime, and the outputs of `graph` with the import's outputs."""
    try:
        runtime = ort.package("onnxruntime")
    except ModelError as error:
        return Verification("onnxruntime", reason=f"{error.reason}; {error.remedy}")
    shapes = {name: graph.tensors[name].shape for name in graph.inputs}
    framework = f"onnxruntime {runtime.__version__}"
    model = ort.package("onnx").load(str(path))
    until = () if {info.name for info in model.graph.output} == set(graph.outputs) else graph.outputs
    imported = importer.imported(path, shapes, until)
    if until:
        cut(model.graph, until)
    if any(node.op_type in CUSTOM for node in model.graph.node):
        return Verification(framework, reason=f"onnxruntime has no operator {CUSTOM[0]}")
    shared = Cut(model, imported)
    try:
        session = ort.session(shared.model)
    except Exception as error:  # onnxruntime raises many types of exceptions
        return Verification(framework, reason=f"onnxruntime cannot load the file: {ort.one_line(error)}")

    def compare(sample: Mapping[str, Array], comparison: Comparison) -> None:
        values = _values(imported, sample)
        shared.compare(session, values, comparison)
        for name, array in reference.run(graph, sample).items():  # check that the layout pass has changed no value
            steps = array[0].astype(np.float64) - values[name]
            comparison.add(name, ~np.isclose(array[0], values[name], rtol=REAL, atol=0, equal_nan=True), steps)

    return compared(framework, samples, compare)


def _values(graph: Graph, sample: Mapping[str, Array]) -> dict[str, Array]:
    values: dict[str, Array] = dict(sample)

    def observe(site: Site, results: tuple[Array, ...]) -> None:
        values.update(zip(site.node.outputs, results, strict=True))

    values |= reference.run(graph, sample, observe=observe)
    return {name: array[0] for name, array in values.items()}


class Cut:
    """An ONNX model, cut at all tensors of codes that are also in the graph (`shared`).

    For the nodes that read these tensors, the tensors become new inputs of the model. The values with which the tensors
    are compared become outputs.
    """

    def __init__(self, model: Any, graph: Graph) -> None:
        self.graph = graph
        self.model = model
        half = any(tensor.dtype == "float16" for tensor in graph.tensors.values())
        self.real = HALF if half else REAL
        self.sites = {name: site for site in graph.sites() for name in site.node.outputs}
        self.writer = {name: node for node in model.graph.node for name in node.output}
        self.computed = self._computed_names()
        self.shared = {
            name: tensor
            for name, tensor in graph.tensors.items()
            if name in self.computed and name in self.writer and tensor.dtype in CODES and tensor.quant is not None
        }
        #: Shared tensors with a scale that is not in the file: the import, like onnxruntime, has merged two pairs
        #: (`onnx_rewrite.merge`).
        self.merged = self._bypass_merged_pairs()
        self._cut()

    def _computed_names(self) -> set[str]:
        computed = set(self.graph.inputs)
        for node in self.model.graph.node:
            if computed.intersection(node.input):
                computed.update(node.output)
        return computed

    def _source(self, name: str) -> Any:
        """Return the ONNX node before a value and all its identities; None for inputs and constants."""
        node = self.writer.get(name)
        while node is not None and node.op_type in IDENTITIES:
            node = self.writer.get(node.input[0])
        return node

    def _bypass_merged_pairs(self) -> set[str]:
        """If the import has merged a pair of quantise and dequantise into another pair, replace it by an identity.

        Return the names of the shared tensors that a QuantizeLinear computes from the results of these identities.
        """
        # The import has merged a pair if its codes are not a tensor of the graph.
        passed = set[str]()
        unshared = self.computed - self.graph.tensors.keys()
        for node in self.model.graph.node:
            before = self._source(node.input[0]) if node.op_type == DEQUANTIZE else None
            if node.op_type in IDENTITIES and node.input[0] in passed:
                passed.add(node.output[0])
            elif before is not None and before.op_type == QUANTIZE and before.output[0] in unshared:
                _make_identity(node, before.input[0])
                passed.add(node.output[0])
        readers = (node for node in self.model.graph.node if node.op_type == QUANTIZE and node.input[0] in passed)
        return {node.output[0] for node in readers if node.output[0] in self.shared}

    def _cut(self) -> None:
        # The DequantizeLinear after a merged tensor has a wrong scale. Its readers get the graph's real values instead.
        body = self.model.graph
        self.compared_names = dict[str, None]()
        self.inputs = dict[str, str]()  # the new input of the model, by shared tensor
        for node in body.node:
            if node.op_type == DEQUANTIZE and node.input[0] in self.merged:
                _make_identity(node, node.input[0] + _GIVEN)
                continue
            node.input[:] = [name + _GIVEN if name in self.shared else name for name in node.input]
        for name, tensor in self.shared.items():
            dtype = "float32" if name in self.merged else tensor.dtype
            given = name + _GIVEN
            if tensor.code_type == INT4:  # onnxruntime's interface for Python has no arrays of int4
                onnx = ort.package("onnx")
                given += ":int8"
                cast = onnx.helper.make_node("Cast", [given], [name + _GIVEN], to=onnx.TensorProto.INT4)
                body.node.insert(0, cast)
            self.inputs[name] = given
            body.input.append(ort.value_info(given, ort.ValueType(dtype, tensor.shape)))
            self.compared_names |= dict.fromkeys(self._sources(name))
        self.compared_names |= {value.name: None for value in body.output}
        del body.output[:]
        names = (name for name in self.compared_names if name in self.writer)
        body.output.extend(ort.package("onnx").ValueInfoProto(name=name) for name in names)

    def _sources(self, name: str) -> Iterable[str]:
        """Return the ONNX values with which a tensor is compared: the inputs of its QuantizeLinear, or the tensor."""
        node = self.writer[name]
        return node.input if node.op_type == QUANTIZE else (name,)

    def _computing_site(self, name: str) -> Site:
        """Return the operator that computes a tensor, before the moves and clamps that the import has added.

        If the import has added rescalings before a concatenation, return the coarsest of these.
        """
        site = self.sites[name]
        # These operators do not round, so the tolerance depends on the operator before them.
        while isinstance(site.node.op, ops.Clamp | ops.Transpose | ops.Reshape):
            before = site.input(0).name
            if before in self.shared or before not in self.sites:
                return site
            site = self.sites[before]
        if isinstance(site.node.op, ops.Concat):
            names = {x.name for x in site.inputs if x} & self.sites.keys() - self.shared.keys()
            added = (self.sites[name] for name in sorted(names))
            rescaled = (conversion for conversion in added if isinstance(conversion.node.op, ops.Quantize))
            return max(rescaled, key=_first_rounding, default=site)
        return site

    def compare(self, session: Any, values: Mapping[str, Array], comparison: Comparison) -> None:
        """Compare one sample with the `values` that the graph computed for it, and record the differences."""
        feed = {name: ort.aligned(values[name]) for name in self.graph.inputs}
        for name, tensor in self.shared.items():
            feed[self.inputs[name]] = _real(values[name], tensor) if name in self.merged else ort.aligned(values[name])
        names = [output.name for output in session.get_outputs()]
        file_values = feed | dict(zip(names, session.run(names, feed), strict=True))
        to_array = ort.package("onnx").numpy_helper.to_array
        file_values |= {
            tensor.name: to_array(tensor)
            for tensor in self.model.graph.initializer
            if tensor.name in self.compared_names
        }
        for name in self.shared:
            self._compare_codes(
                name, values[name], [file_values[source] for source in self._sources(name) if source], comparison
            )
        # Outputs that are not codes are compared, too: reals within a tolerance, other types exactly.
        for name in self.compared_names:
            if name in self.graph.outputs and name not in self.shared:
                if file_values[name].dtype.kind == "f":
                    comparison.add_real(name, values[name], file_values[name], self.real)
                else:
                    comparison.add_equal(name, values[name], file_values[name])

    def _compare_codes(self, name: str, ours: Array, theirs: list[Array], comparison: Comparison) -> None:
        tensor = self.shared[name]
        site = self._computing_site(name)
        if self.writer[name].op_type != QUANTIZE:
            comparison.add_equal(name, ours, theirs[0])
            return
        # If the file has a scale for this tensor, use it, so that a wrong import of the scale is detected.
        scale = tensor.scale
        zero = float(tensor.zero_point)
        if name not in self.merged:
            scale, zero = (float(array.reshape(-1)[0]) for array in (theirs[1], [*theirs, np.zeros(1)][2]))
        low, high = code_limits(tensor.code_type)
        with np.errstate(invalid="ignore", over="ignore"):
            exact = np.nan_to_num(theirs[0].astype(np.float64) / scale + zero, nan=low)
        exact = np.clip(exact, low, high)
        steps = ours - exact
        wrong = np.abs(steps) > 0.5 + _tolerance(site, exact - zero, self.graph.rounding == "tflm")
        if self.graph.rounding == "pow2" and _terms(site) <= EXACT_TERMS and not _averages(site):
            wrong |= (exact % 1 == 0.5) & (steps < 0)  # a tie that was rounded down
        comparison.add(name, wrong, steps)


def _make_identity(node: Any, name: str) -> None:
    node.op_type = "Identity"
    node.input[:] = [name]
    del node.attribute[:]


def _real(codes: Array, tensor: Tensor) -> Array:
    return (codes.astype(np.float32) - np.float32(tensor.zero_point)) * np.float32(tensor.scale)


def _terms(site: Site) -> int:
    return site.node.op.macs(site) // max(1, site.output.size)


def _averages(site: Site) -> bool:
    return isinstance(site.node.op, ops.Mean | ops.RealAveragePool2D)


def _tolerance(site: Site, codes: Array, twice: bool) -> Array | float:
    """Return the allowed difference between a tensor and its unrounded values, in addition to half a code.

    `codes` are the unrounded values without the zero point. `twice` is true if the graph rounds twice, like TFLite.
    """
    if _averages(site):
        return NEAR + AVERAGE * np.abs(codes)
    if isinstance(site.node.op, ops.OnnxOp) and site.node.op.op_type == "QLinearSoftmax":
        return NEAR + SOFTMAX
    if isinstance(site.node.op, ops.Linear):
        # The rounding of a real bias to the scale of the products has an error of at most half of this scale. If sums
        # are rounded twice, the first rounding has an error of at most this scale.
        weights = site.input(1).quant
        unit = site.input(0).scale * max(weights.scale if weights else (0.0,)) / site.output.scale
        return NEAR + unit * (twice + 0.5 * (site.optional(2) is not None))
    if twice and isinstance(site.node.op, ops.Softmax) and site.output.dtype == "int8":
        # TFLite rounds each exponential (0 to 1) to units of 2**-19, so each has an error of half a unit.
        return NEAR + codes * (site.output.shape[-1] / 2 * EXPONENTIAL)
    if twice and isinstance(site.node.op, ops.Quantize | ops.Mul):
        return NEAR + _first_rounding(site)
    return NEAR


def _first_rounding(site: Site) -> float:
    """Return the largest error of the first rounding, in codes. TFLite's QUANTIZE and MUL round a result twice."""
    # The product is rounded and then shifted right by n bits. So an error of 1/2 becomes an error of 2**-n / 2.
    inputs = [x for x in site.inputs if x]
    if any(x.quant is None for x in inputs):
        return 0.0
    exponent = int(np.frexp(np.prod([x.scale for x in inputs]) / site.output.scale)[1])
    return 2.0 ** (exponent - 1) if exponent < 0 else 0.0
