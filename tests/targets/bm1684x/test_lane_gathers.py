"""Gathers, scatters and selections of the compute engine, by their C names, against loops over single elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.targets.bm1684x.vendor.calls import CONFIG, Running, api
from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.capi.gathers import GATHERS
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.meaning import checked, command_of
from tilewright.targets.bm1684x.isa.operations.gathers import in_each_lane
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.timing.estimate import cycles
from tilewright.targets.bm1684x.values.dtypes import U8, U16, DType

SEED, OLD, TOP = 3, 9, 65535
Y, X, INDEX, COUNTS = 0x10000, 0x20000, 0x0, 0x38000
N, C, ROWS, WIDTH = 2, 70, 4, 7
SHAPES = {"w": (N, C, 1, 5), "hw": (N, C, 3, 5), "batch_bcast_w": (N, C, 1, 5), "batch_bcast_h": (N, C, 3, 5)}


def place(tpu: Running, at: int, shape: tuple[int, ...], dtype: DType, of: object = layout.aligned) -> Array:
    """Return the addresses in the array of local memory."""
    from tilewright.targets.bm1684x.layouts.layout import Shape

    sizes = Shape(*shape)
    return Tensor(LOCAL_BASE + at, sizes, of(sizes, dtype, 0, CONFIG), dtype, CONFIG).addresses  # type: ignore[operator]


def numbered(kind: str, index: Array, at: tuple[int, int, int, int], width: int) -> tuple[int, int]:
    """Return the row and the column that the index names for the element `at`."""
    n, c, h, w = at
    if kind == "w":
        return h, int(index[0, w, 0, 0])
    if kind == "hw":
        column, row = index[0, h * width + w, 0]
        return int(row), int(column)
    if kind == "batch_bcast_w":
        return h, int(index[n, c, 0, w])
    return int(index[n, c, h, 0]), w


def elements(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    yield from np.ndindex(*shape)


def index_shape(kind: str, of: tuple[int, ...]) -> tuple[int, ...]:
    n, c, h, w = of
    return {"w": (1, w, 1, 1), "hw": (1, h * w, 1, 2), "batch_bcast_w": (n, c, 1, w), "batch_bcast_h": (n, c, h, 1)}[
        kind
    ]


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("way", ["gather", "gather_exception", "scatter"])
def test_a_call_moves_the_elements_that_the_index_names(kind: str, way: str, repeated: bool) -> None:
    shared = kind in ("w", "hw")
    if shared and repeated and way != "gather_exception":
        pytest.skip("these have no such parameter")
    random, tpu, shape = np.random.default_rng(SEED), Running(64), SHAPES[kind]
    planar = kind in ("hw", "batch_bcast_h")
    width = shape[3] if kind == "batch_bcast_h" else WIDTH
    source = (N if shared else 1, C, ROWS if planar else 1, width)
    lined = layout.line if kind == "batch_bcast_h" else layout.aligned
    once = repeated and not shared
    x_at = place(tpu, X, source, U16, in_each_lane if once else lined)
    tpu.memories.write(x_at, random.integers(0, 60000, source, np.uint16))
    x = tpu.memories.read(x_at, U16.storage)
    y_at = place(tpu, Y, shape, U16, lined)
    old = np.full(shape, OLD, np.uint16)
    tpu.memories.write(y_at, old)
    of, limits = (shape, source) if way != "scatter" else ((N, *source[1:]), shape)
    sizes = index_shape(kind, of)
    top = {
        "w": (limits[3],),
        "hw": (limits[3], limits[2]),
        "batch_bcast_w": (limits[3],),
        "batch_bcast_h": (limits[2],),
    }[kind]
    index = random.integers(0, top, sizes).astype(np.uint16)
    if way == "gather_exception" and kind != "batch_bcast_h":
        index[random.random(sizes) < 0.3] = TOP
    make = layout.compact if shared else layout.aligned
    tpu.memories.write(place(tpu, INDEX, sizes, U16, make), index)

    expected = old.copy()
    for at in elements(of):
        row, column = numbered(kind, index, at, of[3])
        n, c, h, w = at
        if way == "scatter":
            expected[n, c, row, column] = x[n if shared else 0, c, h, w]
        elif TOP in (row, column):
            expected[at] = 77 if repeated else OLD
        else:
            expected[at] = x[n if shared else 0, c, row, column]
    extra: list[object] = [U16, *([] if kind == "hw" else [U16]), *([] if shared else [repeated])]
    params = [ROWS, WIDTH] if kind == "hw" else [ROWS if planar else WIDTH]
    constant, flag = ([77], [repeated]) if way == "gather_exception" else ([], [])
    name = f"tpu_bdc_{kind}_{way}"
    getattr(api(tpu), name)(Y, X, INDEX, *constant, dim4(*shape), *params, *extra, *flag)
    np.testing.assert_array_equal(tpu.memories.read(y_at, U16.storage), expected, f"seed {SEED}")
    assert checked(tpu.commands[0], 0, 0, CONFIG).format.name == ("SGL" if kind == "batch_bcast_h" else "SG")


def test_four_banks_hold_copies() -> None:
    tpu, values = Running(64), np.arange(20, dtype=np.uint8) + 100
    for copy in range(4):
        tpu.memories.write(place(tpu, X + copy * 0x8000, (1, C, 1, 20), U8), np.broadcast_to(values, (1, C, 1, 20)))
    index = np.random.default_rng(SEED).integers(0, 20, (1, C, 1, 9)).astype(np.uint8)
    tpu.memories.write(place(tpu, INDEX, index.shape, U8), index)
    c, shape = api(tpu), dim4(1, C, 1, 9)
    c.tpu_bdc_4bank_w_gather(Y, X, INDEX, shape, 20, U8, U8, False)
    np.testing.assert_array_equal(tpu.memories.read(place(tpu, Y, index.shape, U8), U8.storage), values[index])
    assert cycles(tpu.commands[0], CONFIG) == 5  # two slots of nine elements, four at a time
    assert command_of(checked(tpu.commands[0], 0, 0, CONFIG), CONFIG).operation.name == "pe_gather_4bank"
    with pytest.raises(MachineError, match="place it in"):
        c.tpu_bdc_4bank_w_gather(0, X, INDEX, shape, 20, U8, U8, False)
    tpu.memories.write(place(tpu, X, (1, 1, 1, 1), U8), np.zeros((1, 1, 1, 1), np.uint8))
    with pytest.raises(MachineError, match="four copies differ"):
        c.tpu_bdc_4bank_w_gather(Y, X, INDEX, shape, 20, U8, U8, False)


def test_a_selection_counts_what_it_keeps_in_each_row() -> None:
    tpu, random, shape = Running(64), np.random.default_rng(SEED), (2, C, 1, 12)
    x, mask = random.integers(0, 256, (1, C, 1, 12)).astype(np.uint8), random.integers(0, 2, shape).astype(np.uint16)
    for at, values, dtype in ((X, x, U8), (INDEX, mask, U16), (Y, np.full(shape, OLD, np.uint8), U8)):
        tpu.memories.write(place(tpu, at, values.shape, dtype), values)
    api(tpu).tpu_bdc_batch_bcast_w_mask_select(Y, COUNTS, X, INDEX, dim4(*shape), U8, U16, False)
    y = tpu.memories.read(place(tpu, Y, shape, U8), U8.storage)
    counts = tpu.memories.read(place(tpu, COUNTS, (2, C, 1, 1), U16, layout.compact), U16.storage)
    for n, c in np.ndindex(2, C):
        kept = x[0, c, 0][mask[n, c, 0] != 0].tolist()
        assert y[n, c, 0].tolist() == kept + [OLD] * (12 - len(kept))
        assert counts[n, c, 0, 0] == len(kept)


def refuses(call: Callable[[], None], text: str) -> None:
    with pytest.raises(MachineError, match=text):
        call()


def test_refusals() -> None:
    tpu = Running(64)
    c, lane = api(tpu), CONFIG.lane_bytes
    refuses(lambda: c.tpu_bdc_w_gather(Y, X, INDEX, dim4(1, 1, 2, 4), 8, U8, U8), "give h = 1")
    places = (Y + lane, X + lane, INDEX + lane)
    refuses(lambda: c.tpu_bdc_w_gather(*places, dim4(1, 1, 1, 4), 8, U8, U8), "begin in lane 0")
    refuses(lambda: c.tpu_bdc_table_lookup(Y, 0, lane, dim4(1, 1, 1, 4), 8, U8, U8), "the place in each lane")
    tpu.local[0] = 8
    refuses(lambda: c.tpu_bdc_w_scatter(Y, X, INDEX, dim4(1, 1, 1, 8), 1, U8, U8), "an index is 8, but there are 8")
    assert "table_lookup" in GATHERS
