"""The float model that the user brings: read, checked, and brought into the one form that both schemes start from.

That form: opset 13 or later, batch 1, constants folded, BatchNorm and Dropout folded away, all shapes known.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError
from onnx import ModelProto, helper, numpy_helper, shape_inference, version_converter
from onnxruntime.quantization import quant_pre_process

from tilewright.errors import ModelError, UnsupportedError
from tilewright.files import regular
from tilewright.graph.ir import DTYPES, Graph, Tensor

#: Per-channel DequantizeLinear came with this opset.
OPSET, IR_VERSION = 13, 8
QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")
CONTROL = ("If", "Loop", "Scan", "SequenceMap")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
PREPARED = "prepared.onnx"


def read(path: str | Path) -> ModelProto:
    """A float ONNX model in the common form. Raises ModelError or UnsupportedError naming the file and the node."""
    path = regular(path, ModelError)
    try:
        model = onnx.load(path)
        if not model.graph.node or not model.opset_import:
            raise ModelError(str(path), "is not an ONNX model", "give a float .onnx file")
        refuse(model, str(path))  # before the checker, which has no name for other people's operators
        onnx.checker.check_model(model)
    except DecodeError:
        raise ModelError(str(path), "is not an ONNX file", "give a float .onnx file") from None
    except (
        onnx.checker.ValidationError,
        ValueError,
        TypeError,
        FileNotFoundError,
    ) as error:  # names not in UTF-8: bytes
        raise ModelError(str(path), f"is not a valid ONNX model: {first_line(error)}") from None
    fix_inputs(model, str(path))
    return prepare(model, str(path))


def refuse(model: ModelProto, where: str) -> None:
    """Raise UnsupportedError for what no scheme here quantises."""
    for node in model.graph.node:
        what = f"node '{title(node)}' is {node.domain + '::' if node.domain else ''}{node.op_type}"
        if node.op_type in QUANTISED or node.op_type.startswith("QLinear") or node.op_type == "RequantShift":
            raise UnsupportedError(where, f"is already quantised: {what}", "give the float model")
        if node.domain not in ("", "ai.onnx"):
            raise UnsupportedError(where, f"{what}, no standard operator", "export with standard operators only")
        if node.op_type in CONTROL:
            raise UnsupportedError(where, f"{what}: control flow", "export a network with a fixed structure")
    if not any(node.op_type in WEIGHTED for node in model.graph.node):
        raise UnsupportedError(where, f"has nothing to quantise: none of {', '.join(WEIGHTED)}")


def fix_inputs(model: ModelProto, where: str) -> None:
    """A free batch becomes 1. Raises UnsupportedError for other free dimensions and for types that no scheme takes."""
    graph = model.graph
    for info in real_inputs(model):
        tensor = info.type.tensor_type
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
        if kind not in ("FLOAT", "INT32", "INT64", "BOOL"):
            raise UnsupportedError(where, f"input '{info.name}' is {kind}", "convert the model to float32")
        if not tensor.HasField("shape"):
            raise UnsupportedError(where, f"input '{info.name}' has no shape", "export it with a fixed shape")
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.dim_value > 0:
                continue
            if axis:
                free = f"input '{info.name}' has the free dimension '{dim.dim_param or '?'}' on axis {axis}"
                fix = "fix it: python -m onnxruntime.tools.make_dynamic_shape_fixed"
                raise UnsupportedError(where, free, fix)
            dim.dim_value = 1
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")


def real_inputs(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are not constants: old files list those too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def prepare(model: ModelProto, where: str) -> ModelProto:
    """The model after onnxruntime's own preprocessing for quantisation."""
    try:
        made = _preprocess(model)
        used = {node.domain for node in made.graph.node} | {""}
        imports = [entry for entry in made.opset_import if entry.domain in used]
        del made.opset_import[:]
        made.opset_import.extend(imports)
        for index, node in enumerate(made.graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        _flatten_biases(made)
        _name_averages(made)
    except Exception as error:  # converter, inference and session each raise types of their own
        raise UnsupportedError(where, f"cannot be prepared: {first_line(error)}") from None
    for tensor in made.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and not np.isfinite(numpy_helper.to_array(tensor)).all():
            raise UnsupportedError(where, f"constant '{tensor.name}' holds NaN or infinity")
    return made


def _preprocess(model: ModelProto) -> ModelProto:
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    inputs = real_inputs(model)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, IR_VERSION)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, prepared = Path(folder) / "model.onnx", Path(folder) / PREPARED
        onnx.save(shape_inference.infer_shapes(model), source)
        # Fails here with a reason; the preprocessing below would print a traceback and go on without folding.
        ort.InferenceSession(source, _quiet(), providers=["CPUExecutionProvider"])
        ort.set_default_logger_severity(4)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        return onnx.load(prepared)


def _flatten_biases(model: ModelProto) -> None:
    """Gemm's constant biases of shape (1, N) become (N,): onnxruntime's quantiser fails on two axes."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        bias = constants.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        if bias is None or len(bias.dims) != 2 or bias.dims[0] != 1:
            continue
        flat = numpy_helper.from_array(numpy_helper.to_array(bias)[0], f"{bias.name}_flat_{node.name}")
        model.graph.initializer.append(flat)
        node.input[2] = flat.name


def _name_averages(model: ModelProto) -> None:
    """An AveragePool over the whole image becomes GlobalAveragePool, whose integer kernel adds integers."""
    shapes = {info.name: shape_of(info) for info in (*model.graph.value_info, *model.graph.input)}
    for node in model.graph.node:
        given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        whole = tuple(given.get("kernel_shape", ())) == shapes.get(next(iter(node.input), ""), ())[2:]
        padded = any(given.get("pads", ())) or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
        if node.op_type == "AveragePool" and whole and not padded:
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]


def signature(model: ModelProto) -> Graph:
    """The inputs alone as a Graph: what reading samples looks at."""
    tensors = {}
    for info in model.graph.input:
        kind = str(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        assert kind in DTYPES
        tensors[info.name] = Tensor(info.name, shape_of(info), kind)
    return Graph(model.graph.name, tensors, (), tuple(tensors), ())


def shape_of(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)


def title(node: onnx.NodeProto) -> str:
    """What to call a node: its name, else its first output."""
    return node.name or next(iter(node.output), node.op_type)


def _quiet() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions
    return options


def first_line(error: Exception) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
