"""Sums, averages and rescaled codes on the machine, under the arithmetic of each runtime: all equal the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.single_node import check, machine, one_node, quant, seeded
from tilewright.graph.ir import Quant, Tensor
from tilewright.graph.ops import Add, Mean, Mul, Op, Quantize, RealAveragePool2D, Window
from tilewright.graph.rounding import rounding_mode
from tilewright.run import run
from tilewright.targets.vta.compiler import elementwise
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.lower import lower
from tilewright.targets.vta.compiler.lowered import Context

pytestmark = pytest.mark.usefixtures("brief_search")

BATCHED = {"LOG_BATCH": "1"}


@pytest.mark.parametrize("keys", [{}, {"stages": "4"}, BATCHED, {"LOG_PAR_BUFF_SIZE": "10"}], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_of_two_tensors(dtype: str, keys: dict[str, str]) -> None:
    for rng in seeded(6):
        shape = (1, int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 50)))
        inputs = (Tensor("a", shape, dtype, quant(rng, dtype)), Tensor("b", shape, dtype, quant(rng, dtype)))
        graph = one_node(Add(), inputs, quant(rng, dtype), dtype, "ort")
        check(graph, machine(alu="float", **keys), rng)


@pytest.mark.parametrize("rounding", ["ort", "xnnpack", "pow2"])
def test_sums_are_exact_for_all_pairs_of_codes(rounding: str) -> None:
    """Of 256 x 256 elements, with scales that make every fourth sum a tie too."""
    grid = np.indices((256, 256)) - 128
    for rng in seeded(12):
        kinds = [quant(rng, "int8") for _ in range(3)]
        if rounding == "pow2":
            kinds = [Quant((2.0 ** int(rng.integers(-6, 1)),), (0,)) for _ in kinds]
        inputs = tuple(Tensor(name, (1, 256, 1, 256), "int8", kind) for name, kind in zip("ab", kinds, strict=False))
        graph = one_node(Add(), inputs, kinds[2], "int8", rounding)
        program = compile_graph(graph, machine(alu="float"), rounding)
        given = {name: part.astype(np.int8).reshape(1, 1, 256, 1, 256) for name, part in zip("ab", grid, strict=True)}
        result = run(program, given)
        assert result.matches_reference
        assert [layer.where for layer in result.layers] == ["vta"]


def test_a_sum_that_no_constants_give_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "proven_sum", lambda *_: None)
    rng = np.random.default_rng(0)
    inputs = tuple(Tensor(name, (1, 2, 2, 4), "int8", quant(rng, "int8")) for name in "ab")
    graph = one_node(Add(), inputs, quant(rng, "int8"), "int8", "ort")
    (site,) = graph.sites()
    reason = lower(site, Context(machine(alu="float"), rounding_mode("ort"), "tilewright"))
    assert isinstance(reason, str)
    assert "all pairs of codes" in reason
    check(graph, machine(alu="float"), rng, on_chip=False)


@pytest.mark.parametrize("source", ["int8", "uint8"])
@pytest.mark.parametrize("op", [Quantize(), Mul()], ids=lambda op: str(op.kind))
def test_codes_of_another_scale(op: Op, source: str) -> None:
    """Through real numbers, as onnxruntime does it; times a constant, where it adds the zero point before it rounds."""
    for rng in seeded(12):
        shape = (1, int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 50)))
        inputs = [Tensor("a", shape, source, quant(rng, source))]
        if isinstance(op, Mul):
            kind = quant(rng, source)
            code = np.array(kind.zero_point[0] + rng.choice([-100, -7, 3, 90])).clip(*_ends(source)).astype(source)
            inputs.append(Tensor("b", (), source, kind, code))
        graph = one_node(op, tuple(inputs), quant(rng, source), source, "ort")
        check(graph, machine(alu="float"), rng, on_chip=isinstance(op, Quantize))


def _ends(dtype: str) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


@pytest.mark.parametrize(
    ("alu", "rounding"), [("float", "ort"), ("fused", "tflm"), ("rounding", "tflm"), ("fused", "litert")]
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_means_over_an_image(alu: str, rounding: str, dtype: str) -> None:
    for rng in seeded(6):
        shape = (1, int(rng.integers(1, 14)), int(rng.integers(1, 14)), int(rng.integers(1, 50)))
        op = Mean((1, 2), bool(rng.integers(2)))
        graph = one_node(op, (Tensor("x", shape, dtype, quant(rng, dtype)),), quant(rng, dtype), dtype, rounding)
        check(graph, machine(alu=alu), rng)


@pytest.mark.parametrize("keys", [{}, {"alu": "rounding"}, BATCHED], ids=str)
@pytest.mark.parametrize("kind", ["mean", "pool"])
def test_averages_by_a_factor_and_a_shift(kind: str, keys: dict[str, str]) -> None:
    """Of any number of elements; padding that counts adds zeros."""
    for rng in seeded(8):
        height, width = (int(n) for n in rng.integers(3, 14, 2))
        kernel, pads = (int(rng.integers(2, 4)), int(rng.integers(2, 4))), tuple(int(n) for n in rng.integers(0, 2, 4))
        window = Window(kernel, (int(rng.integers(1, 3)), 1), (pads[0], pads[1], pads[2], pads[3]))
        op: Op = Mean((1, 2), True) if kind == "mean" else RealAveragePool2D(window, True)
        scales = [Quant((2.0 ** int(exponent),), (0,)) for exponent in rng.integers(-2, 1, 2)]
        x = Tensor("x", (1, height, width, int(rng.integers(1, 50))), "int8", scales[0])
        check(one_node(op, (x,), scales[1], "int8", "pow2"), machine(**keys), rng)
