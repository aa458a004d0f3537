"""The scheme tflm: what TFLite Micro and LiteRT compute with the same integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


from onnx import helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.quantize.models import every_kernel, model, samples, save  # noqa: E402
from tilewright.cli import main  # noqa: E402
from tilewright.errors import InputError  # noqa: E402
from tilewright.graph import ops, reference  # noqa: E402
from tilewright.graph.ir import Graph  # noqa: E402
from tilewright.quantize import Options, quantize  # noqa: E402


@pytest.fixture
def made(tmp_path: Path) -> Path:
    report = quantize(*save(tmp_path, every_kernel(), samples(size=16)), tmp_path / "q.onnx", Options("tflm"))
    assert report.verification is not None and not report.verification.differences
    assert report.fidelity.outputs[0].snr_db > 25
    return tmp_path / "q.onnx"


def ends(graph: Graph) -> tuple[str, str]:
    """The first and last tensors of int8 codes in the order of the kernels: images, and probabilities."""
    linear = next(site for site in graph.sites() if isinstance(site.node.op, ops.Conv2D))
    last = next(site for site in graph.sites() if isinstance(site.node.op, ops.Softmax))
    return linear.node.inputs[0], last.node.outputs[0]


def computed(graph: Graph, rounding: str, count: int = 12) -> tuple[Any, Any]:
    """Codes of images, (S, 1, H, W, C), and the codes that the reference computes for them."""
    seen: dict[str, list[Any]] = {name: [] for name in ends(graph)}

    def observe(site: Any, results: tuple[Any, ...]) -> None:
        for name, array in zip(site.node.outputs, results, strict=True):
            if name in seen:
                seen[name].append(array)

    reference.run(graph, samples(count, seed=9, size=16)[:, None], rounding, observe)
    source, result = (np.concatenate(parts) for parts in seen.values())
    return source, result


def test_every_layer_is_an_operator_of_tflite_micro(made: Path) -> None:
    graph = tw.load(made)
    assert graph.rounding == "tflm"
    kinds = {type(site.node.op) for site in graph.sites()}
    assert {ops.AveragePool2D, ops.Softmax, ops.FullyConnected, ops.Add} <= kinds and ops.OnnxOp not in kinds
    for site in graph.sites():
        if isinstance(site.node.op, ops.AveragePool2D | ops.MaxPool2D):
            assert site.input(0).quant == site.output.quant
        if isinstance(site.node.op, ops.Linear):
            assert site.constant(1).min() >= -127 and site.constant(2).dtype == np.int32


def test_litert_computes_the_same_codes(made: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    from tests.quantize.tflite_file import written

    graph = tw.load(made)
    images, expected = computed(graph, "litert")
    kind = interpreter.OpResolverType.BUILTIN_REF
    runner = interpreter.Interpreter(model_content=written(graph, *ends(graph)), experimental_op_resolver_type=kind)
    runner.allocate_tensors()
    (given,), (result,) = runner.get_input_details(), runner.get_output_details()
    for image, codes in zip(images, expected, strict=True):
        runner.set_tensor(given["index"], image)
        runner.invoke()
        np.testing.assert_array_equal(runner.get_tensor(result["index"]), codes)


def test_tflite_micro_computes_the_same_codes(made: Path) -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime", reason="pip install tflite-micro")
    pytest.importorskip("ai_edge_litert.schema_py_generated")
    from tests.quantize.tflite_file import written

    graph = tw.load(made)
    images, expected = computed(graph, "tflm")
    runner = runtime.Interpreter.from_bytes(written(graph, *ends(graph)))
    for image, codes in zip(images, expected, strict=True):
        runner.set_input(image, 0)
        runner.invoke()
        np.testing.assert_array_equal(runner.get_output(0), codes)


@pytest.mark.riscv
def test_the_cfu_runs_all_of_it(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tw.compile(made, "cfu").run(samples(2, size=16)[:, None])
    assert result.matches_reference and result.coverage == 1
    assert {layer.op for layer in result.layers if layer.where == "host"} == {"quantize", "transpose", "dequantize"}
    plain = tmp_path / "affine.onnx"
    quantize(str(tmp_path / "m.onnx"), str(tmp_path / "x.npy"), plain, Options("affine"))
    assert main(["run", str(plain), "-t", "cfu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "only 0 % of the MACs ran on cfu" in said and "rounding=tflm" in said and "--scheme tflm" in said
    assert tw.compile(plain, "cfu", rounding="tflm").run(samples(1, size=16)[:, None]).coverage == 1


def test_uint8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tflm has int8"):
        quantize(
            *save(tmp_path, every_kernel(), samples(size=16)), tmp_path / "q.onnx", Options("tflm", activations="uint8")
        )


def test_a_conversion_that_rounds_twice_is_no_error(tmp_path: Path) -> None:
    """TFLite's QUANTIZE shifts out bits after its first rounding; the joined branches have scales far apart."""
    node, draw = helper.make_node, np.random.default_rng(1).standard_normal
    constants = {"a": draw((8, 3, 1, 1)).astype(np.float32) * 0.2, "b": draw((8, 3, 1, 1)).astype(np.float32)}
    nodes = [
        node("Conv", ["x", "a"], ["small"]),
        node("Conv", ["x", "b"], ["large"]),
        node("Concat", ["small", "large"], ["y"], axis=1),
    ]
    report = quantize(
        *save(tmp_path, model(nodes, constants, [1, 3, 16, 16], {"y": [1, 16, 16, 16]}), samples(size=16)),
        tmp_path / "q.onnx",
        Options("tflm"),
    )
    assert report.verification is not None and report.verification.passed, str(report.verification)


def test_a_softmax_of_many_classes_is_no_error(tmp_path: Path) -> None:
    """TFLite rounds each exponential before it sums them. Those of 9,000 equal classes are all off by the same part."""
    node, classes, likely = helper.make_node, 9000, 8
    weights, offsets = np.zeros((3, classes), np.float32), np.full(classes, -9, np.float32)
    weights[:, :likely], offsets[:likely] = 0.3, -0.13 * np.arange(likely)
    nodes = [
        node("GlobalAveragePool", ["x"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", "w", "b"], ["logits"]),
        node("Softmax", ["logits"], ["y"]),
    ]
    made = model(nodes, {"w": weights, "b": offsets}, [1, 3, 16, 16], {"y": [1, classes]})
    report = quantize(*save(tmp_path, made, samples(size=16)), tmp_path / "q.onnx", Options("tflm"))
    assert report.verification is not None and report.verification.passed, str(report.verification)
