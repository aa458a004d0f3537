"""Products of two computed operands: the second is laid out as weights at every run, one set a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.targets.vta.single_node import check, codes, machine, one_node, quant, seeded
from tilewright.graph.ir import Quant, Tensor
from tilewright.graph.ops import MatMul
from tilewright.program import file
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph

pytestmark = pytest.mark.usefixtures("brief_search")

KEYS: tuple[dict[str, str], ...] = (
    {},
    {"LOG_BATCH": "1"},
    {"alu": "float"},
    {"stages": "4"},
    {"LOG_INP_BUFF_SIZE": "9", "LOG_WGT_BUFF_SIZE": "12"},
)


def shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    leading = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3))))
    rows, depth, columns = (int(n) for n in rng.integers(1, 50, 3))
    return (*leading, rows, depth), (*leading, depth, columns)


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("dtypes", [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8")], ids=str)
def test_matrices_with_zero_points(dtypes: tuple[str, str], keys: dict[str, str]) -> None:
    """The host adds what zero points of both sides make of rows and columns."""
    for rng in seeded(4):
        operands = zip("ab", shapes(rng), dtypes, strict=True)
        inputs = tuple(Tensor(name, shape, dtype, quant(rng, dtype)) for name, shape, dtype in operands)
        out = Quant((inputs[0].scale * inputs[1].scale * 300,), quant(rng, dtypes[0]).zero_point)
        check(one_node(MatMul(), inputs, out, dtypes[0], "ort"), machine(**keys), rng)


@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_matrices_by_shifts(keys: dict[str, str]) -> None:
    for rng in seeded(6):
        kinds = [Quant((2.0 ** int(exponent),), (0,)) for exponent in (-3, -4, rng.integers(-2, 4))]
        inputs = tuple(
            Tensor(name, shape, "int8", kind) for name, shape, kind in zip("ab", shapes(rng), kinds, strict=False)
        )
        check(one_node(MatMul(), inputs, kinds[2], "int8", "pow2"), machine(**keys), rng)


def test_a_constant_side_and_a_saved_program(tmp_path: Path) -> None:
    for rng in seeded(2):
        inputs = [
            Tensor(name, shape, "int8", quant(rng, "int8")) for name, shape in zip("ab", shapes(rng), strict=True)
        ]
        inputs[1] = Tensor("b", inputs[1].shape, "int8", inputs[1].quant, codes(rng, inputs[1], 1)[0])
        graph = one_node(MatMul(), tuple(inputs), Quant((1.0,), (5,)), "int8", "ort")
        check(graph, machine(), rng)
        file.save(compile_graph(graph, machine(), "ort"), tmp_path / "p.twp")
        result = run(file.load(tmp_path / "p.twp"), codes(rng, inputs[0], 19))  # more than run together
        assert result.matches_reference
