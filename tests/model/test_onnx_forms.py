"""Random forms of operators, and random networks of them, against onnxruntime: equal, or refused by both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.model.onnx_forms import FORMS, random_form
from tests.model.onnx_nets import Net, answer, needs_vnni
from tests.model.onnx_operators import IMAGE, Build, extents, one
from tests.model.onnx_random import random_network
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.graph import reference
from tilewright.model import load

pytestmark = needs_vnni
SAMPLES = 3


def unquantised_kernel(net: Net) -> str:
    """int8 activations by uint8 weights: a real convolution, whose bias is quantised all the same."""
    x, w = net.quantized(net.input(IMAGE)), net.weights((5, 6, 1, 1), 0, np.uint8)
    return str(net.op("Relu", net.op("Conv", x, w, net.const(net.rng.uniform(-1, 1, 5), np.float32))))


def inner_axis(net: Net) -> str:
    """Scales along the inner axis of a product, not its columns."""
    return str(net.op("Gemm", net.quantized(net.input((3, 4))), net.weights((4, 5), 0)))


def rounded_up(net: Net) -> str:
    """The last window would start behind the image; a window has no part of it."""
    x = net.quantized(net.input((1, 3, 7, 9)))
    return str(net.op("MaxPool", x, kernel_shape=[3, 2], strides=[1, 3], ceil_mode=1))


def between_pairs(net: Net) -> str:
    """Nothing but a Dropout: two pairs in a row, and two more."""
    x = net.quantized(net.op("Dropout", net.quantized(net.input((2, 40)))))
    return net.quantized(net.quantized(x))


#: Forms that were once read wrongly, or refused.
FOUND: dict[str, Build] = {
    "scalar": one("ReduceMean", (2, 3), keepdims=0),
    "not a number": one("Sqrt", (2, 40)),
    "window of the whole image": one("AveragePool", (1, 6, 3, 2), kernel_shape=[3, 2]),
    "windows behind the image": rounded_up,
    "average windows behind the image": one(
        "AveragePool", (2, 3, 10, 8), kernel_shape=[3, 1], strides=[3, 2], ceil_mode=1
    ),
    "interpolated": one("Resize", (1, 2, 4, 5), [], [1.0, 1.0, 0.5, 3.0], mode="linear"),
    "cut by padding": one("Pad", IMAGE, [0, 0, 1, 0, 0, 0, 0, -1]),
    "real bias, real convolution": unquantised_kernel,
    "inner axis": inner_axis,
    "two pairs": between_pairs,
}


def compare(net: Net, outputs: Sequence[str], path: Path) -> str:
    """'equal', or who refuses; raises AssertionError where both run and differ."""
    net.save(path, *outputs)
    inputs = {
        name: (net.rng.standard_normal((SAMPLES, *shape)) * 1.2).astype(np.float32) for name, shape in extents(net)
    }
    try:
        theirs = answer(path, inputs)
    except Exception:  # onnxruntime raises several of its own
        theirs = None
    try:
        ours = list(reference.run(load(path), inputs).values())
    except TilewrightError as error:
        assert "\n" not in str(error)
        return "refused by us" if theirs else "refused by both"
    if theirs is None:
        return "refused by onnxruntime"
    for index, found in enumerate(ours):
        golden = np.stack([sample[index] for sample in theirs])
        assert (found.dtype, found.shape) == (golden.dtype, golden.shape)
        np.testing.assert_array_equal(found, golden)
    return "equal"


def check_forms(kind: str, seeds: range, folder: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        print(kind, "seed", seed)
        counts[compare(*random_form(kind, seed), folder / "form.onnx")] += 1
    assert counts["refused by us"] == 0 and counts["equal"] >= 0.8 * len(seeds), counts


@pytest.mark.parametrize("kind", FORMS)
def test_forms_of_an_operator_equal_onnxruntime(kind: str, tmp_path: Path) -> None:
    check_forms(kind, range(6), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMS)
def test_many_forms_of_an_operator_equal_onnxruntime(kind: str, tmp_path: Path) -> None:
    check_forms(kind, range(1000, 1200), tmp_path)


def check_networks(seeds: range, folder: Path) -> None:
    for seed in seeds:
        print("network", seed)
        assert compare(*random_network(seed), folder / "network.onnx") == "equal"


def test_random_networks_equal_onnxruntime(tmp_path: Path) -> None:
    check_networks(range(30), tmp_path)


@pytest.mark.slow
def test_many_random_networks_equal_onnxruntime(tmp_path: Path) -> None:
    check_networks(range(1000, 2000), tmp_path)


@pytest.mark.parametrize("codes", [np.uint8, np.int8])
@pytest.mark.parametrize("case", FOUND)
def test_found_forms_equal_onnxruntime(case: str, codes: type, tmp_path: Path) -> None:
    for seed in range(4):
        net = Net(seed, codes)
        result, pair = FOUND[case](net), next(node.input[1:3] for node in net.nodes if node.op_type == "QuantizeLinear")
        assert compare(net, [net.quantized(result, tuple(pair))], tmp_path / "found.onnx") == "equal"


def test_a_real_result_keeps_its_real_bias(tmp_path: Path) -> None:
    net = Net(1)
    x, w = net.quantized(net.input((3, 8))), net.weights((8, 5), 1)
    y = net.op("Gemm", x, w, net.const(net.rng.uniform(-1, 1, 5), np.float32))
    assert compare(net, [y], tmp_path / "n.onnx") == "equal"


def test_a_product_that_is_quantised_and_an_output_is_a_real_one(tmp_path: Path) -> None:
    net = Net(1)
    y = net.op("Gemm", net.quantized(net.input((3, 2))), net.weights((2, 5), None))
    assert compare(net, [y, net.quantized(y)], tmp_path / "n.onnx") == "equal"


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_dilation_under_automatic_padding_is_refused(kind: str, tmp_path: Path) -> None:
    """onnxruntime leaves dilation out of the padding; its result has another size than ONNX says."""
    net = Net(1, opset=19)
    build = one(kind, IMAGE, kernel_shape=[1, 3], dilations=[2, 2], auto_pad="SAME_UPPER")
    path = net.save(tmp_path / "n.onnx", net.quantized(build(net)))
    with pytest.raises(UnsupportedError, match="when it computes the padding; export the padding as explicit pads"):
        load(path)


def test_a_dropout_that_trains_is_refused(tmp_path: Path) -> None:
    net = Net(1)
    x = net.op("Dropout", net.input((4,)), net.const(0.5, np.float32), net.const(True))
    with pytest.raises(UnsupportedError, match=r"op 'Dropout_0': Dropout trains.*export the model for inference"):
        load(net.save(tmp_path / "n.onnx", x))
