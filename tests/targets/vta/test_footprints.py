"""Bounds of kernels in closed form, against the tiles of every micro-op."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.sim.findings import OUT_OF_RANGE
from tilewright.sim.hazards import hazards, scan
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import BASE, LENGTH, MODE, PARTLY, SPACE, end_of
from tilewright.sim.suspects import everything
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.conform import memory
from tilewright.targets.vta.isa.alu import SEMANTICS, AluOp
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.steps.micro_kernel import ALU_UOP, FIELDS, UOP, Kernels, expanded
from tilewright.targets.vta.steps.moves import bounds

SEED = 20261123


def kernel(rng: np.random.Generator) -> tuple[tuple[int, ...], Array]:
    """FIELDS of a kernel with rows and columns in its loops or its list, in some order, and its list."""
    height, width, gap = (int(rng.integers(1, 6)) for _ in range(3))
    stride = width + (gap if rng.random() < 0.3 else 0)
    sets = [(height, stride), (width, 1), (int(rng.integers(1, 4)), int(rng.choice([0, height * stride, 7])))]
    rng.shuffle(sets)
    (outer, a), (inner, b), (count, c) = sets
    listed = int(rng.integers(0, 50)) + np.arange(count) * c
    if rng.random() < 0.3:
        listed = rng.integers(0, 9, int(rng.integers(0, 7)))
    table = np.stack([listed, rng.integers(0, 90, len(listed)), rng.integers(0, 40, len(listed))], axis=1)
    bgn = int(rng.integers(0, 20))
    factors = rng.integers(0, 9, 4).tolist()
    outer = 0 if rng.random() < 0.05 else outer
    loops = bgn, bgn + len(listed), outer, inner, a, b, *factors
    if rng.random() < 0.5:
        return (0, *loops, int(rng.integers(2)), 0, 0), table
    use_imm = int(rng.random() < 0.5)
    return (1, *loops, AluOp.ADD, use_imm, use_imm * int(rng.integers(9))), table


def kernels(pairs: list[tuple[tuple[int, ...], Array]], config: Config) -> Kernels:
    fields = np.array([own for own, _ in pairs], np.int64).reshape(-1, len(FIELDS))
    return Kernels(fields, [table for _, table in pairs], SEMANTICS[config.semantics])


@pytest.mark.parametrize("keys", [*({"semantics": name} for name in SEMANTICS), {"stages": "4"}], ids=str)
def test_bounds_span_the_exact_tiles_and_are_dense_where_they_say_so(keys: dict[str, str]) -> None:
    rng = np.random.default_rng(SEED)
    config = PRESETS["pynq"].with_overrides(keys)
    dense, gaps = 0, 0
    for _ in range(40):
        items = kernels([kernel(rng) for _ in range(int(rng.integers(0, 12)))], config)
        for item, rows in zip(items, bounds(items, config), strict=True):
            exact = item.footprint(config)
            exact = exact[exact[:, LENGTH] > 0]
            if not item.size:
                assert not rows.any()
                assert np.isin(exact[:, SPACE], (UOP, ALU_UOP)).all()
                continue
            for row in rows[rows[:, LENGTH] > 0]:
                mine = exact[(exact[:, SPACE] == row[SPACE]) & (exact[:, MODE] == row[MODE] & ~PARTLY)]
                assert len(mine), f"seed {SEED}"
                assert (mine[:, BASE].min(), end_of(mine).max()) == (row[BASE], row[BASE] + row[LENGTH])
                if row[MODE] & PARTLY:
                    gaps += 1
                else:
                    assert mine[:, LENGTH].sum() == row[LENGTH], f"seed {SEED}"
                    dense += 1
            kept = rows[rows[:, LENGTH] > 0]
            touched = set(zip(kept[:, SPACE].tolist(), (kept[:, MODE] & ~PARTLY).tolist(), strict=True))
            assert touched == set(zip(exact[:, SPACE].tolist(), exact[:, MODE].tolist(), strict=True))
    assert min(dense, gaps) > 100


def fields_of(count: int, loops: tuple[int, ...]) -> tuple[int, ...]:
    """Of a reset GEMM of `count` micro-ops in loops that move its destination only."""
    return (0, 0, count, *loops, 0, 0, 0, 0, 1, 0, 0)


def test_rows_of_a_rectangle_in_list_and_loops_are_dense() -> None:
    """However three dimensions of a full box are shared between the list and the loops."""
    config = PRESETS["pynq"]
    for order in ((20, 4, 1), (4, 20, 1), (1, 20, 4), (1, 4, 20), (20, 1, 4), (4, 1, 20)):
        extent = {20: 3, 4: 5, 1: 4}
        outer, inner, step = order
        table = np.zeros((extent[step], 3), np.int64)
        table[:, 0] = 7 + np.arange(extent[step]) * step
        loops = extent[outer], extent[inner], outer, inner
        (rows,) = bounds(kernels([(fields_of(len(table), loops), table)], config), config)
        assert rows[1, [BASE, LENGTH]].tolist() == [7, 60]
        assert not rows[1, MODE] & PARTLY
        loops = *loops[:3], inner + 1
        (rows,) = bounds(kernels([(fields_of(len(table), loops), table)], config), config)
        exact = np.unique(expanded(table, np.array([*loops, 0, 0, 0, 0]))[0])
        assert bool(rows[1, MODE] & PARTLY) >= (len(exact) != exact.max() - exact.min() + 1)


def test_golden_programs_are_checked_as_by_a_scan_of_everything(shared: Path) -> None:
    """Random programs, broken ones among them, under the semantics of each reference in turn."""
    found = 0
    for number, path in enumerate(sorted((shared / "vta_vectors").glob("*.npz"))):
        with np.load(path) as archive:
            vector = dict(archive)
        semantics = list(SEMANTICS)[number % len(SEMANTICS)]
        config = Config.from_json(json.loads(str(vector["config"]))).with_overrides({"semantics": semantics})
        dram, bases = memory(vector)
        passes = run_passes(vector["insn"], config, dram, bases, 1, RunOptions(values=False))
        if any(finding.kind == OUT_OF_RANGE for finding in passes.findings):
            continue
        table = passes.elaborated.table
        expected = scan(table, passes.order, everything(table))
        assert hazards(table, passes.order) == expected, (path.stem, semantics)
        found += len(expected)
    assert found
