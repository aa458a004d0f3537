"""Reads and checks the user's float model, and converts it to the common form of all schemes.

The common form has opset 13 or later, batch 1, folded constants, known shapes, and no BatchNorm or Dropout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper, shape_inference, version_converter
from onnxruntime.quantization import quant_pre_process

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, in_file, printable
from tilewright.files import regular, scratch
from tilewright.graph.ir import Graph
from tilewright.graph.ort import session
from tilewright.graph.tensor import DTYPES, Tensor
from tilewright.model.onnx_file import external_file
from tilewright.model.onnx_resolve import without_branches
from tilewright.model.shapes import Shapes, check_until, cut, declared, domain_remedy, fixed_shapes
from tilewright.quantize.memory import check_tensors
from tilewright.quantize.names import Names, NeutralNames, name_nodes, tensors_of
from tilewright.quantize.tflite_nodes import converted

#: The first opset with DequantizeLinear per channel, and the IR version of written files.
OPSET = 13
IR_VERSION = 8
QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")
CONTROL = ("If", "Loop", "Scan", "SequenceMap")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def read(path: str | Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> ModelProto:
    """Read a float .onnx or .tflite model, and convert it to the common form.

    `shapes` maps ONNX inputs with open extents to their shapes. `until` names values that become the outputs of an ONNX
    model. Raises ModelError if the file is not a valid model, UnsupportedError, naming the node or input, if the model
    cannot be quantised, and InputError if a shape does not fit.
    """
    path = regular(path, ModelError)
    try:
        check_until(path, until)
        model = converted(path) if path.suffix == ".tflite" else _loaded(path, until)
        if not model.graph.node or not model.opset_import:
            raise ModelError(path, "is not an ONNX model", "give a float .onnx file")
        if any(node.op_type == "If" for node in model.graph.node):
            with in_file(path):
                model = without_branches(path, shapes, until)
                shapes = None
        refuse(model, str(path))  # first, because the checker's error would not name a custom operator
        onnx.checker.check_model(model)
    except DecodeError:
        raise ModelError(path, "is not an ONNX file", "give a float .onnx file") from None
    except (
        onnx.checker.ValidationError,
        ValueError,
        TypeError,
        FileNotFoundError,
    ) as error:  # the checker raises TypeError for names that are bytes
        raise ModelError(path, f"is not a valid ONNX model: {first_line(error)}") from None
    fix_inputs(model, path, shapes)
    return prepare(model, str(path))


def _loaded(path: Path, until: Collection[str]) -> ModelProto:
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            with in_file(path):
                external_file(tensor, path, f"constant '{printable(tensor.name)}'")
    onnx.load_external_data_for_model(model, str(path.parent))
    if until:
        with in_file(path):
            cut(model.graph, until)
        inferred = {info.name: info for info in shape_inference.infer_shapes(model).graph.output}
        for info in model.graph.output:
            info.CopyFrom(inferred[info.name])
    return model


def refuse(model: ModelProto, where: str) -> None:
    """Raises UnsupportedError if no scheme can quantise a model.

    The model must not be quantised already, must not have custom operators or control flow, and must have a node in
    WEIGHTED.
    """
    for node in model.graph.node:
        what = f"node '{title(node)}' is {node.domain + '::' if node.domain else ''}{node.op_type}"
        if node.op_type in QUANTISED or node.op_type.startswith("QLinear") or node.op_type == "RequantShift":
            raise UnsupportedError(where, f"is already quantised: {what}", "give the float model")
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedError(where, f"{what}, a custom operator", domain_remedy(model.graph, ("", "ai.onnx")))
        if node.op_type in CONTROL:
            raise UnsupportedError(where, f"{what}, control flow", "export a network with a fixed structure")
    if not any(node.op_type in WEIGHTED for node in model.graph.node):
        raise UnsupportedError(where, f"has nothing to quantise: it has no {', '.join(WEIGHTED)}")


def fix_inputs(model: ModelProto, path: Path, shapes: Shapes | None = None) -> None:
    """Fix the shapes of inputs by the rules of `model.shapes`.

    Raises UnsupportedError if the shape or the type of an input is not supported, and InputError if a shape in `shapes`
    does not fit.
    """
    graph = model.graph
    for info in real_inputs(model):
        kind = onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type)
        if kind not in ("FLOAT", "INT32", "INT64", "BOOL"):
            raise UnsupportedError(path, f"input '{info.name}' is {kind}", "convert the model to float32")
    with in_file(path):
        shape_of = fixed_shapes(map(declared, real_inputs(model)), shapes)
    for info in real_inputs(model):
        info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, shape_of[info.name]))
    # Shapes in the file may be those of another batch size. Remove them: they are inferred again from the inputs.
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")


def real_inputs(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs without constants, which old files also list as inputs."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def prepare(model: ModelProto, where: str) -> ModelProto:
    """Return the model after onnxruntime's preprocessing. Raises UnsupportedError if the preprocessing fails."""
    try:
        prepared = _preprocess(model)
        used = {node.domain for node in prepared.graph.node} | {""}
        imports = [entry for entry in prepared.opset_import if entry.domain in used]
        del prepared.opset_import[:]
        prepared.opset_import.extend(imports)
        name_nodes(prepared.graph.node)  # onnxruntime expands operators into nodes with repeated names
        _flatten_biases(prepared)
        _name_averages(prepared)
    except UnsupportedError as error:
        raise error.within(Path(where)) from None
    except Exception as error:  # converter, inference and session raise many types of exceptions
        raise UnsupportedError(where, f"onnxruntime cannot preprocess the model: {first_line(error)}") from None
    return prepared


def _preprocess(model: ModelProto) -> ModelProto:
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    inputs = real_inputs(model)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, IR_VERSION)
    with scratch() as folder:
        source = folder / "model.onnx"
        prepared = folder / "prepared.onnx"
        inferred = shape_inference.infer_shapes(model)
        check_tensors(inferred, "")  # first, because the preprocessing computes constants of any size
        neutral = NeutralNames(inferred)
        neutral.save(inferred, source)
        options = ort.SessionOptions()
        options.log_severity_level = 4  # no log, because errors are raised as exceptions
        try:
            # An invalid model fails here with a reason. The preprocessing alone would only print a traceback, and
            # continue without folding constants.
            ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            ort.set_default_logger_severity(4)
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
        except Exception as error:
            raise RuntimeError(neutral.text(first_line(error))) from None
        restored = neutral.restored(prepared)
        check_tensors(restored, "")
        return restored


def _flatten_biases(model: ModelProto) -> None:
    net = Network(model)
    fresh = Names(tensors_of(model))
    for node in net.nodes:
        bias = operand(node, 2)
        shape = net.shape(bias) if net.is_constant(bias) else ()
        if node.op_type == "Gemm" and len(shape) == 2 and shape[0] == 1:
            node.input[2] = fresh(f"{bias}_flat_{node.name}")
            model.graph.initializer.append(numpy_helper.from_array(net.constant(bias)[0], node.input[2]))


def _name_averages(model: ModelProto) -> None:
    """Replace AveragePool over the whole image by GlobalAveragePool, for which onnxruntime has an integer kernel."""
    net = Network(model)
    for node in net.nodes:
        covers_image = tuple(attribute(node, "kernel_shape", ())) == net.shape(operand(node, 0))[2:]
        if node.op_type == "AveragePool" and covers_image and not is_padded(node):
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]


def signature(model: ModelProto) -> Graph:
    """Return a Graph with only the inputs of the model, for reading samples."""
    net = Network(model)
    tensors = {}
    for info in model.graph.input:
        kind = str(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        assert kind in DTYPES
        tensors[info.name] = Tensor(info.name, net.shape(info.name), kind)
    return Graph(model.graph.name, tensors, (), tuple(tensors), ())


def title(node: onnx.NodeProto) -> str:
    """Return a node's name for display: its name, else its first output, else its operator."""
    return node.name or next(iter(node.output), node.op_type)


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class Network:
    """A prepared model with fast access to its constants, readers and shapes."""

    def __init__(self, model: ModelProto, unbounded: frozenset[str] = frozenset()) -> None:
        """Index a model. `unbounded` names the tensors with NaN or infinity, which cannot have a scale."""
        self.model = model
        self.unbounded = unbounded
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.inputs = [info.name for info in model.graph.input]
        self.outputs = [info.name for info in model.graph.output]
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._arrays: dict[str, Array] = {}
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.consumers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            # A node that reads a tensor twice is one reader.
            for name in dict.fromkeys(node.input):
                self.consumers.setdefault(name, []).append(node)
        infos = (*model.graph.value_info, *model.graph.input, *model.graph.output)
        self._types = {info.name: info.type.tensor_type for info in infos}

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def constant(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self._constants[name])
        return self._arrays[name]

    def is_float(self, name: str) -> bool:
        if self.is_constant(name):
            return self._constants[name].data_type == onnx.TensorProto.FLOAT
        return name in self._types and self._types[name].elem_type == onnx.TensorProto.FLOAT

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, or () if the shape is unknown."""
        if self.is_constant(name):
            return tuple(self._constants[name].dims)
        return tuple(dim.dim_value for dim in self._types[name].shape.dim) if name in self._types else ()

    def only_consumer(self, name: str) -> NodeProto | None:
        """Return the only reader of a tensor, or None if it has several readers or is an output of the model."""
        readers = self.consumers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None


def unbounded(model: ModelProto, samples: Iterable[Mapping[str, Array]]) -> frozenset[str]:
    """Return the names of the float tensors that contain NaN or infinity: constants, and results for some sample.

    The samples are run only if such a constant exists. Raises UnsupportedError if weights contain NaN or infinity, or
    if onnxruntime cannot run the model.
    """
    net = Network(model)
    constants = {
        tensor.name: net.constant(tensor.name) for tensor in model.graph.initializer if net.is_float(tensor.name)
    }
    unbounded_names = {name for name, value in constants.items() if not np.isfinite(value).all()}
    weights = {name for node in net.nodes if node.op_type in WEIGHTED for name in node.input[:2]}
    if wrong := weights & unbounded_names:
        raise UnsupportedError(f"constant '{min(wrong)}'", "holds NaN or infinity", "train the model again")
    if unbounded_names:
        tracer = Tracer(model, [name for node in net.nodes for name in node.output if net.is_float(name)])
        for feed in samples:
            unbounded_names.update(name for name, value in tracer.run(feed).items() if not np.isfinite(value).all())
    return frozenset(unbounded_names)


def operand(node: NodeProto, index: int) -> str:
    return node.input[index] if index < len(node.input) else ""


def is_padded(node: NodeProto) -> bool:
    return any(attribute(node, "pads", ())) or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    for item in node.attribute:
        if item.name == name:
            value = helper.get_attribute_value(item)
            return value.decode() if isinstance(value, bytes) else value
    return default


@contextmanager
def _reported() -> Iterator[None]:
    """Run a `with` block. Raises UnsupportedError in place of onnxruntime's errors, which have many types."""
    try:
        yield
    except Exception as error:
        raise UnsupportedError("onnxruntime", f"cannot run the model: {first_line(error)}") from None


class Tracer:
    """An onnxruntime session that computes each node as written, without graph optimisations."""

    def __init__(self, model: ModelProto, tensors: list[str]) -> None:
        """Create a session that returns the tensors `tensors` and the outputs of the model."""
        traced = ModelProto()
        traced.CopyFrom(model)
        inputs, outputs = ({info.name for info in ends} for ends in (model.graph.input, model.graph.output))
        more = (name for name in dict.fromkeys(tensors) if name not in inputs | outputs)
        traced.graph.output.extend(ValueInfoProto(name=name) for name in more)
        self._direct = inputs.intersection(tensors)
        with _reported():
            self._session = session(traced)
        self._names = [info.name for info in self._session.get_outputs()]

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        with _reported():
            values = dict(zip(self._names, self._session.run(None, dict(feed)), strict=True))
        return values | {name: feed[name] for name in self._direct}
