"""Golden vectors of gathers, scatters and tables: made here with NumPy, for all types and odd shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.conform import replay
from tilewright.targets import get
from tilewright.targets.bm1684x.conformance.ops import conform
from tilewright.targets.bm1684x.values.dtypes import BF16, DTYPES, F16, F32, I8, I16, I32, U8, U16, U32, DType

SEED, COUNT = 12, 120
TYPES = (U8, I8, U16, I16, U32, I32, F16, BF16, F32)
Vector = tuple[Mapping[str, str], Mapping[str, Array], Array]


def bits(random: np.random.Generator, dtype: DType, *shape: int) -> Array:
    """Return random bit patterns; NaNs are among them."""
    return np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.bytes), dtype.storage).reshape(shape)


def drawn(random: np.random.Generator, dtype: DType, high: int, *shape: int) -> Array:
    return random.integers(0, min(high, dtype.high + 1), shape).astype(dtype.storage)


def table_lookup(random: np.random.Generator, dtype: DType, index: DType) -> Vector:
    size = int(random.choice([1, 17, 256, 300]))
    x = drawn(random, index, size, *shape_of(random))
    table = bits(random, dtype, size)
    return {"src": index.name, "dst": dtype.name}, {"table": table, "x": x}, table[x]


def gather(kind: str, random: np.random.Generator, dtype: DType, index: DType) -> Vector:
    n, c, h, w = shape_of(random)
    count = int(random.integers(1, 40))
    if kind == "w":
        param, at = bits(random, dtype, n, c, 1, w), drawn(random, index, w, count)
        y = param[:, :, :, at]
    elif kind == "hw":  # the column, then the row
        param, at = bits(random, dtype, n, c, h, w), drawn(random, U16, min(h, w), count, 2)
        y = param[:, :, at[:, 1], at[:, 0]].reshape(n, c, 1, count)
    elif kind == "batch_bcast_w":
        param, at = bits(random, dtype, 1, c, 1, w), drawn(random, index, w, n, c, 1, count)
        y = np.take_along_axis(np.broadcast_to(param, (n, c, 1, w)), at.astype(np.int64), 3)
    else:
        param, at = bits(random, dtype, 1, c, h, w), drawn(random, index, h, n, c, count, 1)
        y = np.take_along_axis(np.broadcast_to(param, (n, c, h, w)), at.astype(np.int64), 2)
    return {"dtype": dtype.name, "idt": index.name}, {"param": param, "index": at}, y


def scatter(kind: str, random: np.random.Generator, dtype: DType, index: DType) -> Vector:
    """Return a scatter to memory of zeros. The last of equal indices wins."""
    n, c, h, w = shape_of(random)
    count = int(random.integers(1, 40))
    y: Array = np.zeros((n, c, 1 if kind.endswith("w") and kind != "hw" else h, w), dtype.storage)
    if kind == "w":
        param, at = bits(random, dtype, n, c, 1, count), drawn(random, index, w, count)
        for k in range(count):
            y[:, :, 0, at[k]] = param[:, :, 0, k]
    elif kind == "hw":
        param, at = bits(random, dtype, n, c, 1, count), drawn(random, U16, min(h, w), count, 2)
        for k in range(count):
            y[:, :, at[k, 1], at[k, 0]] = param[:, :, 0, k]
    elif kind == "batch_bcast_w":
        param, at = bits(random, dtype, 1, c, 1, count), drawn(random, index, w, n, c, 1, count)
        for i, j, k in np.ndindex(n, c, count):
            y[i, j, 0, at[i, j, 0, k]] = param[0, j, 0, k]
    else:
        param, at = bits(random, dtype, 1, c, count, w), drawn(random, index, h, n, c, count, 1)
        for i, j, k in np.ndindex(n, c, count):
            y[i, j, at[i, j, k, 0]] = param[0, j, k]
    return {"dtype": dtype.name, "idt": index.name}, {"param": param, "index": at}, y


def rows(way: str, random: np.random.Generator, dtype: DType, index: DType) -> Vector:
    """Return a gather of rows by the DMA. An index out of range gives the constant."""
    del index
    _, c, h, w = shape_of(random)
    count = int(random.integers(1, 20))
    at = drawn(random, U32, h if way == "scatter" else h + 2, 1, c, count, 1)
    param = bits(random, dtype, 1, c, count if way == "scatter" else h, w)
    y: Array = np.full((1, c, h if way == "scatter" else count, w), 0 if way == "scatter" else 7, np.uint8)
    y = y.astype(f"<u{dtype.bytes}").view(dtype.storage)
    for j, k in np.ndindex(c, count):
        if way == "scatter":
            y[0, j, at[0, j, k, 0]] = param[0, j, k]
        elif at[0, j, k, 0] < h:
            y[0, j, k] = param[0, j, at[0, j, k, 0]]
    return {"dtype": dtype.name, "C_bits": 7}, {"param": param, "index": at}, y  # type: ignore[dict-item]


def shape_of(random: np.random.Generator) -> tuple[int, ...]:
    return (int(random.integers(1, 4)), int(random.choice([1, 3, 64, 65])), *map(int, random.integers(1, 20, 2)))


MAKERS: dict[str, Callable[..., Vector]] = {"table_lookup": table_lookup}
for _kind in ("w", "hw", "batch_bcast_w", "batch_bcast_h"):
    MAKERS[f"{_kind}_gather"] = lambda *given, kind=_kind: gather(kind, *given)
    MAKERS[f"{_kind}_scatter"] = lambda *given, kind=_kind: scatter(kind, *given)
for _way in ("S2L", "L2S", "L2L", "S2S"):
    MAKERS[f"gdma_h_gather_{_way}"] = lambda *given: rows("gather", *given)
    MAKERS[f"gdma_h_scatter_{_way}"] = lambda *given: rows("scatter", *given)


def vectors(folder: Path, damage: bool = False) -> Path:
    """Write random vectors of all makers. With `damage`, one element of each result is wrong."""
    arrays: dict[str, Array] = {}
    cases: list[Mapping[str, Any]] = []
    for number in range(COUNT):
        random = np.random.default_rng([SEED, number])
        name = list(MAKERS)[number % len(MAKERS)]
        dtype, index = random.choice(np.array(TYPES, object)), random.choice(np.array([U8, U16], object))
        parameters, inputs, y = MAKERS[name](random, dtype, index)
        y = np.ascontiguousarray(y)
        if damage:  # not the sign or a payload of a NaN
            y = y.copy()
            y.reshape(-1).view(f"<u{dtype.bytes}")[-1] = np.uint64(1) if y.reshape(-1)[-1] == 0 else np.uint64(0)
        case = {"id": f"move_{number:04}", "op": name, **parameters, "inputs": list(inputs), "outputs": ["y"]}
        cases.append({**case, "out_shape": y.shape})
        arrays |= {f"{case['id']}/in/{operand}": values for operand, values in inputs.items()}
        arrays[f"{case['id']}/out/y"] = y
    np.savez(folder / "move.npz", **arrays)  # type: ignore[arg-type]
    (folder / "move.json").write_text(json.dumps(cases))
    return folder / "move.npz"


def test_moves_by_index_pass_in_all_types_and_shapes(tmp_path: Path) -> None:
    assert set(TYPES) <= set(DTYPES.values())
    failed = [f"seed {SEED}: {case.name}: {case.reason}" for case in conform(vectors(tmp_path)) if not case.passed]
    assert not failed


def test_one_wrong_element_fails(tmp_path: Path) -> None:
    cases: Iterator[Any] = conform(vectors(tmp_path, damage=True))
    assert all("differs in 1 of" in case.reason for case in cases)


@pytest.mark.parametrize("part", ["ops", "nets"])
def test_later_vectors_pass(part: str, shared: Path) -> None:
    """A table, a gather, and a convolution whose input goes to seven lanes each, by rows without gaps."""
    cases = list(replay(get("bm1684x"), [shared / "tpu_vectors_new" / part]))
    assert len(cases) == {"ops": 2, "nets": 12}[part]
    assert not [f"{case.name}: {case.reason}" for case in cases if not case.passed]
