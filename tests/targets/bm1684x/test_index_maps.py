"""Where elements lie and which ones an index selects, each against loops over single elements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilewright.graph.ir import Quant, Tensor
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.meaning import checked, command_of
from tilewright.targets.bm1684x.isa.operation import Values
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.samples import Phases, SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Matrix, Operand, packed
from tilewright.targets.bm1684x.layouts.tensor import Tensor as Placed
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, DType

CONFIG = Config(lanes=4, banks=4)


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 9])
def test_spans_are_the_lanes_of_the_addresses(start: int, channels: int) -> None:
    tensor = Placed.local(start, 64, (2, channels, 2, 3), I16, CONFIG)
    lanes = (tensor.addresses[0, :, 0, 0] - LOCAL_BASE) // CONFIG.lane_bytes
    spans = list(tensor.spans)
    assert len(spans) == tensor.slots
    covered = [(first + lane - low, lane) for first, low, end in spans for lane in range(low, end)]
    assert covered == list(enumerate(lanes.tolist()))


@pytest.mark.parametrize(
    ("shape", "stride", "runs"),
    [
        ((1, 1, 3, 4), (12, 12, 4, 1), (1, 12)),
        ((1, 1, 3, 4), (24, 24, 8, 1), (3, 4)),
        ((1, 1, 3, 4), (24, 24, 8, 2), (3, 7)),
        ((1, 1, 1, 4), (24, 24, 8, 2), (1, 7)),
        ((1, 1, 3, 4), (4, 4, 0, 1), (1, 4)),
    ],
)
def test_runs_of_a_channel(shape: tuple[int, ...], stride: tuple[int, ...], runs: tuple[int, int]) -> None:
    assert Placed.free(0, 0, shape, stride, I8, CONFIG).runs == runs


@pytest.mark.parametrize(("dtype", "ic"), [(I8, 70), (I8, 3), (I16, 33), (F32, 5)])
def test_weights_lie_in_groups_of_input_channels(dtype: DType, ic: int) -> None:
    oc, kh, kw = 3, 2, 3
    values = np.arange(1, oc * ic * kh * kw + 1).reshape(oc, ic, kh, kw).astype(dtype.storage)
    laid, group = packed(values, dtype, CONFIG), CONFIG.cube_group(dtype.bytes)
    weights = ConvWeights(LOCAL_BASE, (oc, ic, kh, kw), dtype, CONFIG)
    for o, i, y, x in product(range(oc), range(ic), range(kh), range(kw)):
        place = 0, o, (i // group * kh + y) * kw + x, i % group
        assert laid[place] == values[o, i, y, x]
        assert weights.addresses[o, i, y, x] == weights.storage.addresses[place]
    assert np.count_nonzero(laid) == np.count_nonzero(values)
    assert (weights.unpacked(laid) == values).all()


def test_images_by_phase() -> None:
    phases = Phases(c=2, h=5, w=4, sh=2, sw=2, top=1, left=0, rows=3, columns=3, offsets=(0, 4))
    stored = SampleFormat(phases.channels * 2, 2, 3, U8, 128, 7, phases)
    values = np.random.default_rng(0).integers(-128, 128, (3, 1, 5, 4, 2)).astype(np.int8)
    packed = stored.pack(values)
    expected = np.full((3, stored.elements), 7, np.uint8)
    expected[:, phases.channels * 9 :] = 0
    for y, x, c in product(range(5), range(4), range(2)):
        row, column = divmod(y + 1, 2), divmod(x, 2)
        place = (((row[1] * 2 + column[1]) * 2 + c) * 3 + row[0]) * 3 + column[0]
        expected[:, place] = values[:, 0, y, x, c].astype(np.int16) + 128
    assert (packed == expected).all()


def test_pixels_beyond_the_last_window_are_not_stored() -> None:
    phases = Phases(c=1, h=4, w=4, sh=1, sw=1, top=0, left=0, rows=3, columns=2, offsets=(0,))
    stored = SampleFormat(1, 3, 2, U8, 128, 0, phases)
    values = np.arange(16, dtype=np.int8).reshape(1, 1, 4, 4, 1)
    assert (stored.pack(values)[0, :6] == np.array([0, 1, 4, 5, 8, 9]) + 128).all()
    assert sorted(stored.places.tolist()) == [*[-1] * 10, *range(6)]


def test_codes_have_their_channels_first() -> None:
    tensor = Tensor("t", (1, 2, 3, 4), "int8", Quant((1.0,), (-128,)))
    stored = SampleFormat.of(tensor)
    values = np.arange(48, dtype=np.int8).reshape(2, 1, 2, 3, 4)
    laid = stored.pack(values)
    assert (laid.reshape(2, 4, 2, 3) == values[:, 0].transpose(0, 3, 1, 2).astype(np.int16) + 128).all()
    assert (stored.unpack(laid, tensor) == values).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_table_lookup(channels: int) -> None:
    random = np.random.default_rng(1)
    table = random.integers(0, 1 << 16, (1, channels, 1, 5)).astype(np.uint16)
    index = random.integers(0, 8, (2, 3, 4, 6)).astype(np.uint8)
    operation, fill = OPERATIONS["table_lookup"], np.uint16(9)
    types = {"x": U8, "table": U16, "fill": U16, "y": U16}
    data = table if channels > 1 else table.reshape(-1)
    values = Values({"x": index, "table": data, "fill": np.asarray(fill)}, types, {"y": index.shape}, {})
    y = operation.results(values)["y"]
    read = np.zeros(table.shape, np.bool_)
    for at in np.ndindex(index.shape):
        channel, entry = at[1] if channels > 1 else 0, int(index[at])
        assert y[at] == (table[0, channel, 0, entry] if entry < 5 else fill)
        if entry < 5:
            read[0, channel, 0, entry] = True
    assert operation.touches is not None
    assert (operation.touches(values, {"y": y})["table"].reshape(table.shape) == read).all()


def test_a_selection_from_one_sample_reads_what_any_mask_keeps() -> None:
    operation = OPERATIONS["w_mask_select"]
    mask = np.array([[1, 0, 0, 1], [0, 0, 1, 1]], np.uint8).reshape(2, 1, 1, 4)
    for samples in (1, 2):
        x = np.arange(4 * samples, dtype=np.uint8).reshape(samples, 1, 1, 4)
        data = {"x": x, "mask": mask, "y_before": np.full(mask.shape, 9, np.uint8)}
        types = {"x": U8, "mask": U8, "y_before": U8, "y": U8, "counts": U16}
        values = Values(data, types, {"y": mask.shape, "counts": (2, 1, 1, 1)}, {})
        results = operation.results(values)
        assert operation.touches is not None
        touched = operation.touches(values, results)
        assert touched["x"].tolist() == ((mask != 0) if samples == 2 else (mask != 0).any(0, keepdims=True)).tolist()
        assert results["counts"].reshape(-1).tolist() == [2, 2]
        assert touched["y"].reshape(2, 4).tolist() == [[True, True, False, False]] * 2


@pytest.mark.parametrize("name", ["fp_add", "int_sub", "int_mul", "max", "xor", "less", "fp_div"])
def test_pairs_of_vectors_over_several_channels_are_encoded(name: str) -> None:
    dtype = F32 if name.startswith("fp_") else I32
    config = Config()

    def vector(offset: int, rows: int, columns: int, width: int) -> Matrix:
        return Matrix.local(0, offset, (rows, columns), width, dtype, config)

    operands: dict[str, Operand | Constant] = {"a": vector(0, 1, 11, 4), "b": vector(64, 1, 6, 3)}
    if name == "less":
        operands["c"] = Constant(1, dtype)
    attributes = {"saturate": True} if name.startswith("int") else {}
    command = Command(OPERATIONS[f"vc_{name}"], operands, {"y": vector(128, 11, 6, 3)}, attributes)
    read = command_of(checked(command, 0, 0, config), config)
    assert read.operation is command.operation
    for operand, place in command.places.items():
        if isinstance(place, Matrix):
            assert (place.addresses == read.places[operand].addresses).all()  # type: ignore[union-attr]
    single = OPERATIONS[name]
    assert command.operation.rules == single.rules


def test_addresses_in_ddr_have_no_lanes() -> None:
    tensor = Placed.ddr(DDR_BASE, (2, 3, 4, 5), I8, CONFIG)
    assert (tensor.addresses.reshape(-1) == DDR_BASE + np.arange(120)).all()
