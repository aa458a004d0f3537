"""Every operator between quantise and dequantise, against onnxruntime on random inputs: all outputs are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.model.onnx_nets import Net, answer, needs_vnni
from tests.model.onnx_operators import IMAGE, Build, extents, one
from tilewright.graph import reference
from tilewright.model import load

pytestmark = needs_vnni
SEED = 20261121
SAMPLES = 3


def conv(
    shape: tuple[int, ...], w: tuple[int, ...], axis: int | None = 0, bias: bool = True, **attributes: Any
) -> Build:
    def build(net: Net) -> str:
        operands = [net.quantized(net.input(shape)), net.weights(w, axis)]
        return str(net.op("Conv", *operands, *([net.bias(*operands)] if bias else []), **attributes))

    return build


def two(kind: str, a: tuple[int, ...], b: tuple[int, ...], constant: bool = False, **attributes: Any) -> Build:
    def build(net: Net) -> str:
        second = net.weights(b, None, net.codes.type) if constant else net.quantized(net.input(b))
        return str(net.op(kind, net.quantized(net.input(a)), second, **attributes))

    return build


def gemm(net: Net, **attributes: Any) -> str:
    rows = attributes.get("transB", 0)
    w = net.weights((9, 24) if rows else (24, 9), 0 if rows else 1)
    x = net.quantized(net.input((2, 24)))
    return str(net.op("Gemm", x, w, net.bias(x, w), **attributes))


def split(net: Net) -> str:
    pair = net.scales()
    parts = net.op("Split", net.quantized(net.input((1, 6, 5, 5)), pair), net.const([2, 4]), outputs=2, axis=1)
    first, second = (net.quantized(part, pair) for part in parts)
    return str(net.op("Concat", net.op("Relu", second), first, axis=1))


def flatten(net: Net) -> str:
    """Convolution, pool, flatten, product: the permutation goes into the product's weights."""
    pair = net.scales()
    x = net.quantized(conv((1, 4, 6, 6), (5, 4, 3, 3))(net), pair)
    x, w = net.quantized(net.op("Flatten", x), pair), net.weights((7, 80), 0)
    return str(net.op("Gemm", x, w, net.bias(x, w), transB=1))


def resize(net: Net) -> str:
    pair = net.scales()
    x = net.quantized(net.input((1, 3, 4, 5)), pair)
    x = net.op("Resize", x, "", net.const([1.0, 1.0, 2.0, 2.0], np.float32), mode="nearest")
    return str(net.op("Sigmoid", net.quantized(x, pair)))


def moved(kind: str, shape: tuple[int, ...], *rest: Any, **attributes: Any) -> Build:
    """An operator that keeps the quantisation, between two convolutions."""

    def build(net: Net) -> str:
        pair = net.scales()
        x = net.quantized(net.op("Conv", net.quantized(net.input(shape)), net.weights((4, shape[1], 1, 1))), pair)
        x = net.op(kind, x, *(net.const(r) for r in rest), **attributes)
        return str(net.op("Conv", net.quantized(x, pair), net.weights((3, 4, 1, 1))))

    return build


def activation(kind: str, **attributes: Any) -> Build:
    def build(net: Net) -> str:
        return str(net.op(kind, conv((1, 4, 5, 5), (6, 4, 3, 3))(net), **attributes))

    return build


def clip(net: Net, low: float, high: float) -> str:
    x = conv((1, 4, 5, 5), (6, 4, 3, 3))(net)
    return str(net.op("Clip", x, net.const(low, np.float32), net.const(high, np.float32)))


def norm(net: Net) -> str:
    x = net.quantized(net.input((2, 6, 8)))
    return str(
        net.op(
            "LayerNormalization", x, net.const(np.linspace(0.5, 2, 8), np.float32), net.const(np.zeros(8), np.float32)
        )
    )


CASES: dict[str, tuple[Build, str]] = {
    "conv": (conv(IMAGE, (5, 6, 3, 3), pads=[1, 1, 1, 1]), "conv2d"),
    "conv per tensor, strides, no bias": (conv(IMAGE, (5, 6, 3, 2), None, False, strides=[2, 1]), "conv2d"),
    "conv same": (conv(IMAGE, (5, 6, 2, 3), auto_pad="SAME_UPPER", strides=[2, 2]), "conv2d"),
    "conv same lower": (conv(IMAGE, (5, 6, 2, 2), auto_pad="SAME_LOWER"), "conv2d"),
    "conv dilated": (conv(IMAGE, (5, 6, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]), "conv2d"),
    "conv grouped": (conv(IMAGE, (4, 3, 3, 3), group=2), "conv2d"),
    "conv depthwise": (conv(IMAGE, (6, 1, 3, 3), group=6, pads=[0, 1, 1, 0]), "depthwise_conv2d"),
    "conv depthwise, two each": (conv(IMAGE, (12, 1, 3, 3), group=6, strides=[2, 2]), "depthwise_conv2d"),
    "conv one dimension": (conv((1, 6, 20), (5, 6, 3)), "conv2d"),
    "conv three dimensions": (conv((1, 3, 5, 5, 5), (4, 3, 2, 2, 2)), "conv2d"),
    "conv transposed": (
        lambda net: net.op(
            "ConvTranspose", net.quantized(net.input(IMAGE)), net.weights((6, 4, 3, 3), None), strides=[2, 2]
        ),
        "onnx",
    ),
    "gemm": (gemm, "fully_connected"),
    "gemm rows": (lambda net: gemm(net, transB=1), "fully_connected"),
    "gemm scaled": (lambda net: gemm(net, alpha=0.5), "onnx"),
    "matmul": (
        lambda net: net.op("MatMul", net.quantized(net.input((3, 8))), net.weights((8, 5), 1)),
        "fully_connected",
    ),
    "matmul of rank three": (
        lambda net: net.op("MatMul", net.quantized(net.input((2, 3, 8))), net.weights((8, 5), None)),
        "fully_connected",
    ),
    "matmul batched": (two("MatMul", (2, 3, 8), (2, 8, 4)), "matmul"),
    "add": (two("Add", IMAGE, IMAGE), "add"),
    "add channels": (two("Add", IMAGE, (6, 1, 1), True), "add"),
    "add channels first": (two("Add", (1, 6, 1, 1), IMAGE), "add"),
    "add row": (two("Add", IMAGE, (9,), True), "add"),
    "add scalar": (two("Add", (1, 40), (1,), True), "add"),
    "mul": (two("Mul", IMAGE, IMAGE), "mul"),
    "mul channels": (two("Mul", IMAGE, (1, 6, 1, 1)), "mul"),
    "sub": (two("Sub", IMAGE, IMAGE), "onnx"),
    "concat": (two("Concat", IMAGE, (1, 2, 7, 9), axis=1), "concat"),
    "concat rows": (two("Concat", IMAGE, IMAGE, axis=-2), "concat"),
    "split": (split, "onnx"),
    "average": (one("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2]), "real_average_pool_2d"),
    "average padded": (
        one("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        "real_average_pool_2d",
    ),
    "average in the image": (one("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 0, 1, 2]), "real_average_pool_2d"),
    "average rounded up": (one("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), "onnx"),
    "global average": (one("GlobalAveragePool", IMAGE), "mean"),
    "reduce mean": (one("ReduceMean", IMAGE, axes=[2, 3]), "onnx"),
    "max": (moved("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), "max_pool_2d"),
    "max rounded up": (moved("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), "max_pool_2d"),
    "max dilated": (moved("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2]), "max_pool_2d"),
    "relu": (activation("Relu"), "onnx"),
    "clip 0 to 6": (lambda net: clip(net, 0.0, 6.0), "onnx"),
    "clip beyond the codes": (lambda net: clip(net, -100.0, 100.0), "conv2d"),
    "hard swish": (activation("HardSwish"), "onnx"),
    "sigmoid": (one("Sigmoid", IMAGE), "onnx"),
    "leaky relu": (one("LeakyRelu", IMAGE, alpha=0.2), "onnx"),
    "erf": (one("Erf", (2, 50)), "onnx"),
    "softmax": (one("Softmax", (2, 50)), "onnx"),
    "layer norm": (norm, "onnx"),
    "exp": (one("Exp", (2, 50)), "onnx"),
    "div": (two("Div", IMAGE, (6, 1, 1), True), "onnx"),
    "flatten": (flatten, "fully_connected"),
    "reshape": (moved("Reshape", IMAGE, [1, 4, 9, 7]), "reshape"),
    "transpose": (moved("Transpose", IMAGE, perm=[0, 1, 3, 2]), "transpose"),
    "slice": (moved("Slice", IMAGE, [1, 2], [5, 6], [2, 3]), "onnx"),
    "gather": (moved("Gather", IMAGE, [2, 0, 1, 1], axis=2), "onnx"),
    "pad": (moved("Pad", IMAGE, [0, 0, 1, 2, 0, 0, 0, 1]), "pad"),
    "pad reflected": (moved("Pad", IMAGE, [0, 0, 1, 2, 0, 0, 0, 1], mode="reflect"), "onnx"),
    "squeeze": (
        lambda net: net.op(
            "Squeeze", net.op("Conv", net.quantized(net.input(IMAGE)), net.weights((4, 6, 7, 1))), net.const([2])
        ),
        "conv2d",
    ),
    "resize": (resize, "upsample"),
}


def compare(net: Net, path: Path, result: str, span: float = 4.0) -> list[str]:
    """All outputs equal; returns the kinds of the graph's nodes."""
    net.save(path, result)
    inputs = {
        name: (net.rng.standard_normal((SAMPLES, *shape)) * span).astype(np.float32) for name, shape in extents(net)
    }
    theirs, graph = answer(path, inputs), load(path)
    assert graph.rounding == "ort"
    (ours,) = reference.run(graph, inputs).values()
    golden = np.stack([sample[0] for sample in theirs])
    different = int((ours.reshape(golden.shape) != golden).sum())
    assert different == 0, f"{different} of {golden.size} differ"
    return [node.op.kind for node in graph.nodes]


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES)
def test_an_operator_equals_onnxruntime(case: str, codes: type, tmp_path: Path) -> None:
    build, kind = CASES[case]
    for trial in range(4):
        seed = SEED + trial
        net = Net(seed, codes)
        result = build(net)
        kinds = compare(net, tmp_path / f"{trial}.onnx", net.quantized(result), 0.8)
        assert kind in kinds, f"seed {seed}: {kinds}"


def qdq_conv(net: Net, then: str, *rest: str) -> str:
    return str(net.op(then, conv((1, 4, 5, 5), (6, 4, 3, 3))(net), *rest))


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
@pytest.mark.parametrize("kind", ["Relu", "Clip"])
def test_what_the_codes_imply_is_folded(kind: str, codes: type, tmp_path: Path) -> None:
    """Relu where the zero point is the lowest code; Clip where its bounds are those of the codes."""
    net = Net(SEED, codes)
    pair = (net.const(6 / 255, np.float32), net.const(np.iinfo(codes).min, codes))
    bounds = (net.const(0.0, np.float32), net.const(6.0, np.float32)) if kind == "Clip" else ()
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(qdq_conv(net, kind, *bounds), pair))
    assert "conv2d" in kinds and "onnx" not in kinds


def test_a_bias_of_real_numbers_becomes_codes(tmp_path: Path) -> None:
    for kind in ("Conv", "Gemm"):
        net = Net(SEED)
        shape, w = ((1, 4, 5, 5), (6, 4, 3, 3)) if kind == "Conv" else ((3, 8), (6, 8))
        bias = net.const(net.rng.uniform(-1, 1, 6), np.float32)
        attributes: dict[str, Any] = {} if kind == "Conv" else {"transB": 1}
        x = net.op(kind, net.quantized(net.input(shape)), net.weights(w), bias, **attributes)
        kinds = compare(net, tmp_path / "n.onnx", net.quantized(x))
        assert "onnx" not in kinds


@pytest.mark.parametrize("factor", [1.005, 1.5])
def test_a_bias_of_another_scale(factor: float, tmp_path: Path) -> None:
    """Within onnxruntime's tolerance its codes are taken as they are; beyond it the convolution is a real one."""
    net = Net(SEED)
    x, w = net.quantized(net.input((1, 4, 5, 5))), net.weights((6, 4, 3, 3), None)
    scale = np.float32(net.scale_of(x) * net.scale_of(w) * factor)
    codes = net.const(net.rng.integers(-3000, 3000, 6), np.int32)
    bias = net.op("DequantizeLinear", codes, net.const(scale), net.const(0, np.int32))
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("Conv", x, w, bias)))
    assert ("conv2d" in kinds) == (factor < 1.01)


@pytest.mark.parametrize("kind", ["Gemm", "MatMul"])
def test_a_product_whose_result_stays_real(kind: str, tmp_path: Path) -> None:
    net = Net(SEED)
    x, w = net.quantized(net.input((3, 8))), net.weights((8, 5), 1)
    bias = [net.bias(x, w)] if kind == "Gemm" else []
    assert compare(net, tmp_path / "n.onnx", net.op(kind, x, w, *bias)) == ["quantize", "onnx"]


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
def test_quantisation_passes_what_only_moves_values(codes: type, tmp_path: Path) -> None:
    """Convolution, pool, transpose and reshape with one pair at the end; the next product has none of its own."""
    net = Net(SEED, codes)
    x = net.op("MaxPool", conv((1, 4, 9, 9), (6, 4, 2, 2))(net), kernel_shape=[2, 2], strides=[2, 2])
    x = net.quantized(net.op("Transpose", x, perm=[0, 2, 3, 1]))
    x = net.op("Reshape", x, net.const([16, 6]))
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("MatMul", x, net.weights((6, 5), 1))))
    assert [kind for kind in kinds if kind in ("conv2d", "max_pool_2d", "fully_connected", "onnx")] == [
        "conv2d",
        "max_pool_2d",
        "fully_connected",
    ]


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "kind", ["Conv", "MatMul", "Add", "Mul", "Concat", "GlobalAveragePool", "AveragePool", "Sigmoid"]
)
def test_qoperator_graphs(kind: str, codes: type, tmp_path: Path) -> None:
    net = Net(SEED, codes)
    shape = (3, 8) if kind == "MatMul" else (1, 4, 6, 6)
    domain = "" if kind in ("Conv", "MatMul") else "com.microsoft"
    first, last = net.scales(), net.scales()
    x = net.op("QuantizeLinear", net.input(shape), *first)
    w_shape, per = ((5, 4, 3, 3), 5) if kind == "Conv" else ((8, 5), 5)
    if kind in ("Conv", "MatMul"):
        scale = net.const(net.rng.uniform(0.001, 0.004, per), np.float32)
        w = (net.const(net.rng.integers(-127, 128, w_shape), np.int8), scale, net.const(np.zeros(per), np.int8))
        y = net.op(f"QLinear{kind}", x, *first, *w, *last)
    elif kind in ("Add", "Mul"):
        second = net.scales()
        y = net.op(
            f"QLinear{kind}",
            x,
            *first,
            net.op("QuantizeLinear", net.input(shape), *second),
            *second,
            *last,
            domain=domain,
        )
    elif kind == "Concat":
        second = net.scales()
        other = net.op("QuantizeLinear", net.input(shape), *second)
        y = net.op("QLinearConcat", *last, x, *first, other, *second, domain=domain, axis=1)
    else:
        more: dict[str, Any] = {"kernel_shape": [2, 3]} if kind == "AveragePool" else {}
        y = net.op(f"QLinear{kind}", x, *first, *last, domain=domain, **more)
    kinds = compare(net, tmp_path / "n.onnx", net.op("DequantizeLinear", y, *last), 0.8)
    assert kind == "Sigmoid" or "onnx" not in kinds


def test_a_network_has_one_transpose_at_each_end(tmp_path: Path) -> None:
    net = Net(SEED, np.int8)
    x = net.quantized(net.input((1, 3, 8, 8)))
    a = net.quantized(net.op("Conv", x, net.weights((6, 3, 3, 3)), pads=[1, 1, 1, 1]))
    b = net.quantized(net.op("Conv", a, net.weights((6, 1, 3, 3)), group=6, pads=[1, 1, 1, 1]))
    c = net.quantized(net.op("Add", a, b))
    c = net.quantized(net.op("Mul", c, net.weights((1, 6, 1, 1), None, np.int8)))
    d = net.quantized(net.op("Concat", c, a, axis=1))
    pair = net.scales()
    e = net.quantized(net.op("Conv", d, net.weights((4, 12, 1, 1))), pair)
    f = net.quantized(net.op("Pad", e, net.const([0, 0, 1, 1, 0, 0, 0, 0])), pair)
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("Conv", f, net.weights((2, 4, 2, 2)))))
    assert kinds.count("transpose") == 2
    assert kinds[1] == "transpose" and "onnx" not in kinds


@pytest.mark.parametrize("order", [1, -1])
def test_a_sum_takes_the_operand_with_one_value_a_row_last(order: int, tmp_path: Path) -> None:
    """onnxruntime swaps the two where that is the first, which a few elements in a thousand show."""
    for seed in range(SEED, SEED + 6):
        net = Net(seed)
        pairs = [(net.const(scale, np.float32), net.scales()[1]) for scale in net.rng.permutation([0.03, 0.05, 0.0125])]
        shapes = ((1, 32, 4, 64), (32, 1, 1))
        operands = [net.quantized(net.input(s), pair) for s, pair in zip(shapes, pairs, strict=False)]
        kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("Add", *operands[::order]), pairs[2]), 1.5)
        assert kinds.count("add") == 1


def test_a_transformer_block(tmp_path: Path) -> None:
    """Products of activations and of weights on codes; softmax, normalisation and GELU as onnxruntime runs them."""
    net = Net(SEED, np.uint8, opset=20)
    tokens, width, heads = 6, 16, 2
    x = net.quantized(net.input((1, tokens, width)))
    normed = net.op("LayerNormalization", x, net.const(np.ones(width), np.float32), axis=-1)
    normed = net.quantized(normed)
    parts = []
    for permutation in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        projected = net.quantized(net.op("MatMul", normed, net.weights((width, width), 1)))
        split = net.op("Reshape", projected, net.const([1, tokens, heads, width // heads]))
        parts.append(net.op("Transpose", split, perm=permutation))
    scores = net.quantized(net.op("MatMul", parts[0], parts[1]))
    mixed = net.quantized(net.op("MatMul", net.quantized(net.op("Softmax", scores, axis=-1)), parts[2]))
    joined = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), net.const([1, tokens, width]))
    added = net.quantized(net.op("Add", net.op("MatMul", joined, net.weights((width, width), 1)), x))
    wide = net.quantized(net.op("MatMul", added, net.weights((width, 32), 1)))
    active = net.quantized(net.op("Gelu", wide))
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("MatMul", active, net.weights((32, width), 1))))
    assert kinds.count("fully_connected") == 5


def test_a_model_that_is_channels_last_outside(tmp_path: Path) -> None:
    """As exporters from TensorFlow write it: transposes at both ends cancel with those of the importer."""
    net = Net(SEED, np.int8)
    x = net.quantized(net.op("Transpose", net.input((1, 8, 8, 3)), perm=[0, 3, 1, 2]))
    y = net.quantized(net.op("Conv", x, net.weights((4, 3, 3, 3))))
    kinds = compare(net, tmp_path / "n.onnx", net.op("Transpose", y, perm=[0, 2, 3, 1]))
    assert kinds == ["quantize", "conv2d", "dequantize"]


def test_operators_of_onnxruntime_s_own_domain(tmp_path: Path) -> None:
    net = Net(SEED)
    x = net.quantized(net.input((2, 16)))
    y = net.op(
        "BiasGelu",
        net.op("Gelu", x, domain="com.microsoft"),
        net.const(np.ones(16), np.float32),
        domain="com.microsoft",
    )
    compare(net, tmp_path / "n.onnx", net.quantized(y))


@pytest.mark.parametrize("axis", [None, 0])
def test_weights_that_are_quantised_or_transposed_in_the_graph(axis: int | None, tmp_path: Path) -> None:
    """As PyTorch writes a linear layer: real weights -> quantise -> dequantise -> transpose -> product."""
    for transposed in (False, True):
        net = Net(SEED)
        x = net.quantized(net.input((3, 8)))
        real = net.const(net.rng.standard_normal((5, 8)), np.float32)
        count = () if axis is None else (5,)
        pair = (net.const(np.full(count, 0.02), np.float32), net.const(np.zeros(count), np.int8))
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        w = net.op("DequantizeLinear", net.op("QuantizeLinear", real, *pair, **attributes), *pair, **attributes)
        y = net.op("MatMul", x, net.op("Transpose", w)) if transposed else net.op("Gemm", x, w, transB=1)
        kinds = compare(net, tmp_path / "n.onnx", net.quantized(y))
        assert kinds == ["quantize", "fully_connected", "dequantize"]


@pytest.mark.parametrize("addend", ["constant", "row", "codes", "activation"])
def test_a_product_and_a_sum_are_one(addend: str, tmp_path: Path) -> None:
    net = Net(SEED)
    x, w = net.quantized(net.input((3, 8))), net.weights((8, 5), 1)
    if addend == "codes":
        other = net.bias(x, w)
    elif addend == "activation":
        other = net.quantized(net.input((3, 5)))
    else:
        other = net.const(net.rng.uniform(-1, 1, (5,) if addend == "constant" else (1, 5)), np.float32)
    kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("Add", other, net.op("MatMul", x, w))))
    assert ("fully_connected" in kinds) == (addend in ("constant", "codes"))


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
@pytest.mark.parametrize("pairs", [2, 3])
def test_pairs_in_a_row_are_one_of_another_scale(pairs: int, codes: type, tmp_path: Path) -> None:
    for seed in range(SEED, SEED + 8):
        net = Net(seed, codes)
        x = conv((1, 4, 5, 5), (6, 4, 3, 3))(net)
        for index in range(pairs):
            same = net.scales()
            x = net.quantized(net.quantized(x, same), same) if index == 0 and seed % 2 else net.quantized(x)
        kinds = compare(net, tmp_path / "n.onnx", net.quantized(net.op("Conv", x, net.weights((3, 6, 1, 1)))))
        assert [kind for kind in kinds if kind != "transpose"] == ["quantize", "conv2d", "conv2d", "dequantize"]
