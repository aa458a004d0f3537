"""Sparse constants of .tflite files, against LiteRT's DENSIFY and its sparse products; MediaPipe's custom operator."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.model.tflite_cases import codes, written
from tests.model.tflite_writer import Quantised, Writer, litert, run_litert, schema
from tilewright.array import Array
from tilewright.errors import ModelError, TilewrightError
from tilewright.graph import reference
from tilewright.model import load
from tilewright.model.tflite_file import read

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))]


def sparse(
    data: Array, order: list[int], blocks: list[int], sizes: list[int], compressed: list[bool]
) -> tuple[Any, Array]:
    """The sparsity parameters and the stored values of `data`, by recursion over the axes in `order`.

    `blocks` are the axes that blocks of `sizes` cut; `compressed` says which axes of `order` list their indices.
    """
    made = schema.SparsityParametersT()
    made.traversalOrder, made.blockMap, made.dimMetadata = order, blocks or None, []
    inner = dict(zip(blocks, sizes, strict=True))
    extents = [data.shape[axis] // inner.get(axis, 1) for axis in range(data.ndim)] + sizes
    segments: list[list[int]] = [[0] for _ in order]
    indices: list[list[int]] = [[] for _ in order]
    values: list[Any] = []

    def under(chosen: dict[int, int]) -> Array:
        """The part of the data under some indices of axes."""
        slices = []
        for axis in range(data.ndim):
            step, level = inner.get(axis, 1), data.ndim + blocks.index(axis) if axis in inner else None
            first, last = (chosen[axis] * step, chosen[axis] * step + step) if axis in chosen else (0, data.shape[axis])
            places = range(first, last) if level not in chosen else range(first + chosen[level], last, step)
            slices.append(list(places))
        return data[np.ix_(*slices)]

    def walk(level: int, chosen: dict[int, int]) -> None:
        if level == len(order):
            values.append(under(chosen).item())
            return
        for index in range(extents[order[level]]):
            further = {**chosen, order[level]: index}
            if compressed[level]:
                if not under(further).any():
                    continue
                indices[level].append(index)
            walk(level + 1, further)
        segments[level].append(len(indices[level]))

    walk(0, {})
    for level, axis in enumerate(order):
        held = schema.DimensionMetadataT()
        held.format, held.denseSize = int(compressed[level]), extents[axis]
        if compressed[level]:
            largest = max(segments[level][-1], extents[axis])
            kind, number = (("Uint8Vector", 3), ("Uint16Vector", 2))[largest > 255]
            held.arraySegmentsType = held.arrayIndicesType = number
            for name, vector in (("arraySegments", segments[level]), ("arrayIndices", indices[level])):
                table = getattr(schema, f"{kind}T")()
                table.values = np.array(vector, f"uint{8 if number == 3 else 16}")
                setattr(held, name, table)
        made.dimMetadata.append(held)
    return made, np.array(values, data.dtype)


def drawn(rng: np.random.Generator, dtype: str, rank: int) -> tuple[Array, Any, Array]:
    """A tensor with many zeros, in a random form. LiteRT takes axes inside blocks in their order only."""
    blocks = sorted(int(axis) for axis in rng.permutation(rank)[: rng.integers(0, rank + 1)])
    sizes = [int(size) for size in rng.integers(1, 4, len(blocks))]
    shape = [int(extent) for extent in rng.integers(1, 4, rank)]
    for axis, size in zip(blocks, sizes, strict=True):
        shape[axis] *= size
    data = (rng.integers(-127, 128, shape) * (rng.random(shape) < 0.3)).astype(dtype)
    data.flat[rng.integers(data.size)] = 1  # a file that stores no value has no constant
    order = rng.permutation(rank).tolist() + list(range(rank, rank + len(blocks)))
    compressed = [bool(rng.integers(2)) and axis < rank for axis in order]
    return data, *sparse(data, order, blocks, sizes, compressed)


def held(writer: Writer, data: Array, parameters: Any, values: Array, quant: Quantised | None = None) -> int:
    tensor = writer.tensor(data.shape, str(data.dtype), quant, values)
    writer.graphs[0].tensors[tensor].sparsity = parameters
    return tensor


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_sparse_constants_equal_densify(dtype: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    for number in range(5):
        data, parameters, values = drawn(rng, dtype, int(rng.integers(1, 5)))
        writer, quant = Writer(), Quantised(0.5) if dtype == "int8" else None
        x, y = held(writer, data, parameters, values, quant), writer.tensor(data.shape, dtype, quant)
        writer.op("DENSIFY", [x], [y], "DensifyOptions")
        path = writer.written(tmp_path / "sparse.tflite", [x], [y])
        where = f"seed {seed}, tensor {number}: {data.shape}"
        np.testing.assert_array_equal(read(path)[0].tensors[x].data, data, where)
        interpreter = litert(path)
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), data, where)


@pytest.mark.parametrize("through_densify", [False, True])
def test_a_product_with_sparse_weights(through_densify: bool, tmp_path: Path) -> None:
    """LiteRT's own sparse product takes rows of blocks of 1 x 16."""
    rng, quant = np.random.default_rng(46), Quantised(0.02)
    data = (rng.integers(-127, 128, (8, 64)) * np.repeat(rng.random((8, 4)) < 0.5, 16, 1)).astype(np.int8)
    writer = Writer()
    w = held(writer, data, *sparse(data, [0, 1, 2], [1], [16], [False, True, False]), quant)
    x, y = writer.tensor((2, 64), "int8", Quantised(0.1, 3)), writer.tensor((2, 8), "int8", Quantised(0.9, -5))
    bias = writer.constant(rng.integers(-900, 900, 8).astype(np.int32), Quantised(0.002))
    if through_densify:
        w, stored = writer.tensor((8, 64), "int8", quant), w
        writer.op("DENSIFY", [stored], [w], "DensifyOptions")
    writer.op("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions")
    graph = load(writer.written(tmp_path / "product.tflite", [x], [y]))
    inputs = codes(graph, 1)
    theirs = run_litert(tmp_path / "product.tflite", dict(enumerate(inputs.values())), "litert")[0]
    np.testing.assert_array_equal(reference.run(graph, inputs, "litert")[graph.outputs[0]], theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_sparse_constants_are_refused(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    data, parameters, values = drawn(rng, "int8", 3)
    level = parameters.dimMetadata[int(rng.integers(len(parameters.dimMetadata)))]
    wrong: Any = [0, -1, 7, 1 << 30]
    if level.format:
        vector = (level.arraySegments, level.arrayIndices)[int(rng.integers(2))]
        vector.values = np.append(vector.values, 200).astype(np.uint8)
    else:
        level.denseSize = int(rng.choice(wrong))
    writer = Writer()
    x, y = held(writer, data, parameters, values, Quantised(0.5)), writer.tensor(data.shape, "int8", Quantised(0.5))
    writer.op("DENSIFY", [x], [y], "DensifyOptions")
    with pytest.raises(TilewrightError) as raised:
        read(writer.written(tmp_path / "sparse.tflite", [x], [y]))
    assert isinstance(raised.value, ModelError) and "\n" not in str(raised.value), f"seed {seed}"


def with_bias_of_mediapipe(path: Path) -> Path:
    """The file with its TRANSPOSE_CONV as MediaPipe's custom operator, which has the inputs x, weights and bias."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    (operator,) = model.subgraphs[0].operators
    operator.inputs = [operator.inputs[2], operator.inputs[1], operator.inputs[3]]
    options = operator.builtinOptions
    padding = {0: 1, 1: 2}[options.padding]  # the C enumeration: kTfLitePaddingSame, kTfLitePaddingValid
    operator.customOptions = list(struct.pack("<iii", padding, options.strideW, options.strideH))
    operator.builtinOptions, operator.builtinOptionsType = None, 0
    code = model.operatorCodes[0]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = "Convolution2DTransposeBias"
    import flatbuffers

    builder = flatbuffers.Builder(1 << 12)
    builder.Finish(model.Pack(builder), b"TFL3")
    made = path.with_name(f"mediapipe_{path.name}")
    made.write_bytes(bytes(builder.Output()))
    return made


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "kind"), [("int8", "int32"), ("int16", "int64")])
def test_a_transposed_convolution_of_mediapipe(dtype: str, kind: str, seed: int, tmp_path: Path) -> None:
    path = written("transpose_conv", dtype, seed, tmp_path / "t.tflite", bias_kind=kind)
    graph = load(with_bias_of_mediapipe(path))
    inputs = codes(graph, seed)
    theirs = run_litert(path, dict(enumerate(inputs.values())))[0]
    np.testing.assert_array_equal(reference.run(graph, inputs, "litert")[graph.outputs[0]], theirs, f"seed {seed}")


@pytest.mark.parametrize(("same", "stride"), list(product((True, False), (1, 2, 3))))
def test_a_real_transposed_convolution_of_mediapipe(same: bool, stride: int, tmp_path: Path) -> None:
    """`quantize` converts it; onnxruntime gives what LiteRT gives for TRANSPOSE_CONV."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tilewright.quantize.tflite_nodes import converted

    rng, kernel = np.random.default_rng(stride), 3
    size = 5 * stride if same else 5 * stride + max(0, kernel - stride)
    writer = Writer()
    x, y = writer.tensor((1, 5, 5, 4), "float32"), writer.tensor((1, size, size, 6), "float32")
    shape = writer.constant(np.array((1, size, size, 6), np.int32))
    w = writer.constant(rng.normal(size=(6, kernel, kernel, 4)).astype(np.float32))
    bias = writer.constant(rng.normal(size=6).astype(np.float32))
    options: dict[str, Any] = {"padding": 0 if same else 1, "strideH": stride, "strideW": stride}
    writer.op("TRANSPOSE_CONV", [shape, w, x, bias], [y], "TransposeConvOptions", **options)
    path = writer.written(tmp_path / "real.tflite", [x], [y])
    sample = rng.normal(size=(1, 5, 5, 4)).astype(np.float32)
    model = converted(with_bias_of_mediapipe(path))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (ours,) = session.run(None, {session.get_inputs()[0].name: sample})
    np.testing.assert_allclose(ours, run_litert(path, {0: sample[None]})[0][0], rtol=1e-5, atol=1e-5)
