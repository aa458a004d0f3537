"""Why the host runs a node, on every target: the operator by its own name, the attribute with its value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli import main
from tilewright.coverage import best_offer
from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep
from tilewright.template import onemac

pytestmark = pytest.mark.usefixtures("brief_search")

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SEED = 3
Shapes = Mapping[str, tuple[int, ...]]
TARGETS = ("vta", "zynq", "cfu", "bm1684x", "onemac")
MODELS = (
    "mnist8_cntk/model",
    "mlperf_tiny_qdq/resnet8_cifar10_int8_qdq",
    "light_structures/light_shufflenet",
    "deeploy_requantshift/miniMobileNetv2/network",
    "yunet_n_320/yunet_n_320_fp32",
)


def reasons(graph: Graph, target: str, **overrides: str) -> dict[str, str]:
    """The reason of each node on the host."""
    if target == "onemac":
        program = onemac.TARGET.compile(graph, onemac.TARGET.config(None, {}), "ort")
    else:
        program = tw.compile(graph, target, overrides=overrides, rounding="ort")
    return {step.node: step.reason for step in program.steps if isinstance(step, HostStep)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS)
def test_operators_have_their_own_names(model: str, target: str, shared: Path) -> None:
    graph = tw.load(shared / "onnx_models" / f"{model}.onnx")
    for node, reason in reasons(graph, target).items():
        assert "onnx" not in reason.lower().split(), f"{node}: {reason}"
        assert "are none" not in reason and " is none" not in reason, f"{node}: {reason}"
        op = graph.node(node).op
        if op.kind == "onnx" and "=" not in reason:
            assert op.label in reason, f"{node}: {reason}"


def real(*nodes: Any, inputs: Shapes, constants: Shapes) -> Callable[..., Any]:
    """Writes a float32 network whose output is 'y'."""
    value = onnx.helper.make_tensor_value_info
    random = np.random.default_rng(SEED)
    made = [
        onnx.numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in constants.items()
    ]
    own = [value(name, 1, shape) for name, shape in inputs.items()]
    graph = onnx.helper.make_graph(list(nodes), "net", own, [value("y", 1, None)], made)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    return lambda path: onnx.save(onnx.shape_inference.infer_shapes(model), path)


X, W = {"x": (1, 6, 9, 9)}, {"w": (6, 2, 3, 3)}
node = onnx.helper.make_node
CASES = {
    "group=3 is not supported; group=1 and depthwise convolutions (group=6) are": real(
        node("Conv", ["x", "w"], ["y"], group=3), inputs=X, constants=W
    ),
    "auto_pad=SAME_UPPER is not supported": real(
        node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER"), inputs=X, constants={"w": (6, 6, 3, 3)}
    ),
    "pads=[1, 1, 1, 1] is not supported for AveragePool; pads=0 is": real(
        node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), inputs=X, constants={}
    ),
    "alpha=0.5 is not supported; alpha=1.0 is": real(
        node("Gemm", ["x", "w"], ["y"], alpha=0.5), inputs={"x": (1, 6)}, constants={"w": (6, 5)}
    ),
    "the constant operand 'w' of Add is not supported; two computed tensors are": real(
        node("Add", ["x", "w"], ["y"]), inputs=X, constants={"w": (1, 6, 9, 9)}
    ),
    "dilations=[1, 20] is not supported; the largest is 15": real(
        node("Conv", ["x", "w"], ["y"], dilations=[1, 20], pads=[0, 6, 0, 6]),
        inputs={"x": (1, 6, 9, 30)},
        constants={"w": (6, 6, 1, 3)},
    ),
    "the bm1684x compiler has no rule for Softplus": real(node("Softplus", ["x"], ["y"]), inputs=X, constants={}),
}


@pytest.mark.parametrize("reason", CASES)
def test_real_networks_on_bm1684x_say_which_attribute(reason: str, tmp_path: Path) -> None:
    CASES[reason](tmp_path / "net.onnx")
    found = reasons(tw.load(tmp_path / "net.onnx"), "bm1684x", precision="f16")
    assert reason in found.values(), found


def test_advice_fits_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """int8 is no advice for a network that runs in f16, nor f16 for one that it would leave to the host."""
    next(iter(CASES.values()))(path := tmp_path / "net.onnx")

    def said(*options: str) -> str:
        assert main(["explain", str(path), *options]) == 0
        return capsys.readouterr().err

    assert "; make it int8" in said("-t", "vta")
    assert "; make it int8" in said("-t", "bm1684x")
    asked = said("-t", "bm1684x", "--set", "precision=f16")
    assert "; mostly because group=3 is not supported" in asked
    assert "int8" not in asked
    real(node("Conv", ["x", "w"], ["y"]), inputs=X, constants={"w": (6, 6, 3, 3)})(path)
    assert "; make it int8" in said("-t", "vta")
    assert "; --set precision=f16 takes 1 more layer, or make it int8" in said("-t", "bm1684x")
    assert not said("-t", "bm1684x", "--set", "precision=f16")
    assert main(["run", str(path), "-t", "bm1684x"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(
        "net on bm1684x, rounding ort: only 0 % of the MACs ran on bm1684x; --set precision=f16 takes"
    )
    assert main(["run", str(path), "-t", "bm1684x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"].startswith("--set precision=f16 takes 1 more layer")


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("mlperf_tiny_qdq/resnet8_cifar10_int8_qdq", "vta"),
        ("mlperf_tiny_qdq/dscnn_kws_int8_qdq", "vta"),
        ("mnist8_cntk/model", "bm1684x"),
        ("yunet_n_320/yunet_n_320_fp32", "bm1684x"),
    ],
)
def test_an_offered_option_takes_at_least_as_many_layers_as_it_says(model: str, target: str, shared: Path) -> None:
    """The compiler takes these layers, and those that only move data between them."""
    graph = tw.load(shared / "onnx_models" / f"{model}.onnx")
    program = tw.compile(graph, target, rounding="ort")
    offer = best_offer(program)
    assert offer is not None
    key, _, value = offer.option.partition("=")
    other = reasons(graph, target, **{key: value})
    moved = reasons(graph, target).keys() - other.keys()
    assert offer.layers <= len(moved)
    left = [site for site in graph.sites() if site.node.name in moved and site.node.op.macs(site)]
    assert offer.macs == sum(site.node.op.macs(site) for site in left)
    assert best_offer(tw.compile(graph, target, overrides={key: value}, rounding="ort")) is None


def test_the_report_names_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CASES["the bm1684x compiler has no rule for Softplus"](path := tmp_path / "net.onnx")
    assert main(["run", str(path), "-t", "bm1684x"]) == 0
    out = capsys.readouterr().out
    assert "Softplus" in out
    assert " onnx " not in out
