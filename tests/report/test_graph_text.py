"""The text form of graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.mlperf import FILES, model_path
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.model import load
from tilewright.report.explain import graph_text

ROOT = Path(__file__).resolve().parents[2]


def tiny(scale: float = 0.1, code: int = 3, axis: int = -1) -> Graph:
    """One constant concatenated to the input, whose name needs quotes."""
    quant = Quant((float(np.float32(scale)),), (-1,))
    tensors = (
        Tensor("in put", (1, 2), "int8", quant),
        Tensor("c", (1, 1), "int8", quant, np.array([[code]], np.int8)),
        Tensor("out", (1, 3), "int8", quant),
    )
    node = Node("concat_0", ops.Concat(axis, "relu"), ("in put", "c"), ("out",))
    return Graph("tiny", {tensor.name: tensor for tensor in tensors}, (node,), ("in put",), ("out",))


def test_the_digits_example(golden: Callable[[str, str], None]) -> None:
    golden("digits.graph.txt", graph_text(load(ROOT / "examples" / "digits" / "digits.tflite")))


def test_every_part_of_a_line() -> None:
    assert graph_text(tiny().validate()).splitlines() == [
        "graph tiny: 1 nodes, 0 MACs",
        'input "in put": int8[1,2] scale 0.1 zero -1',
        'concat_0: concat{activation=relu} ("in put", int8[1,1] scale 0.1 zero -1 sha256:084fed08)'
        " -> int8[1,3] scale 0.1 zero -1",
        "output concat_0 as out",
    ]


def test_windows_absent_inputs_and_scales_for_each_channel() -> None:
    one = Quant((0.5,), (0,))
    weights = Quant((0.25, 0.125), (0, 0))
    tensors = (
        Tensor("x", (1, 4, 4, 1), "int8", one),
        Tensor("w", (2, 3, 3, 1), "int8", weights, np.zeros((2, 3, 3, 1), np.int8)),
        Tensor("y", (1, 2, 2, 2), "int8", one),
    )
    conv = Node("conv", ops.Conv2D("none", ops.Window((3, 3), padding=(0, 0, 0, 0))), ("x", "w", ""), ("y",))
    text = graph_text(Graph("g", {t.name: t for t in tensors}, (conv,), ("x",), ("y",)).validate())
    assert "conv: conv2d{window={kernel=[3,3]}} (x, int8[2,3,3,1] 2 scales 0.125..0.25 zero 0 axis 0 #" in text
    assert ", -) -> int8[1,2,2,2] scale 0.5 zero 0\n" in text


@pytest.mark.parametrize("changed", [tiny(scale=0.100001), tiny(code=4), tiny(axis=1)])
def test_what_changes_a_result_changes_the_text(changed: Graph) -> None:
    assert graph_text(changed) != graph_text(tiny())
    assert graph_text(replace(tiny(), name="other")) != graph_text(tiny())


@pytest.mark.parametrize("key", FILES)
def test_one_line_a_node(shared: Path, key: str) -> None:
    graph = load(model_path(shared, key))
    lines = graph_text(graph).splitlines()
    assert len(lines) == 1 + len(graph.inputs) + len(graph.nodes) + len(graph.outputs)
    assert max(map(len, lines)) < 400


def test_the_golden_fixture(
    golden: Callable[[str, str], None],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(golden.__globals__, "GOLDEN", tmp_path / "golden")
    monkeypatch.setattr(request.config.option, "update_golden", False)
    with pytest.raises(AssertionError, match=r"golden.a\.txt is missing: run pytest with --update-golden"):
        golden("a.txt", "one\n")
    monkeypatch.setattr(request.config.option, "update_golden", True)
    golden("a.txt", "one\n")
    monkeypatch.setattr(request.config.option, "update_golden", False)
    golden("a.txt", "one\n")
    with pytest.raises(AssertionError, match=r"differs from .*a\.txt: fix it, or run pytest with --update-golden"):
        golden("a.txt", "two\n")
    with pytest.raises(AssertionError, match="line ends differ"):
        golden("a.txt", "one")
