"""Layouts against their definition, element by element; what does not fit is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.errors import ConfigError, InputError, MachineError
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Matrix, Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F16, F32, I8, DType, dtype_of, from_fields, rounding_of
from tilewright.targets.bm1684x.values.memory import Memories

FOUR = Config(lanes=4)


@pytest.mark.parametrize("kind", layout.LAYOUTS)
@pytest.mark.parametrize("dtype", [I8, F16, F32], ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_every_element_lies_where_the_rule_says(kind: str, dtype: DType, start: int) -> None:
    shape = Shape(2, 6, 3, 5)
    tensor = Tensor.local(start, 128, shape, dtype, FOUR, kind)
    n, c, h, w = tensor.stride
    for index in itertools.product(*map(range, shape)):
        lane, slot = (start + index[1]) % 4, (start + index[1]) // 4
        elements = index[0] * n + slot * c + index[2] * h + index[3] * w
        want = LOCAL_BASE + lane * FOUR.lane_bytes + 128 + elements * dtype.bytes
        assert tensor.addresses[index] == want, index
    assert len(np.unique(tensor.addresses)) == shape.elements or kind == "dma"


def test_strides_of_the_source_document() -> None:
    """Its examples of fp16 tensors on four lanes."""
    shape = Shape(2, 3, 4, 5)
    assert layout.aligned(shape, F16, 0, FOUR) == (32, 32, 5, 1)
    assert layout.aligned(shape, F16, 2, FOUR) == (64, 32, 5, 1)
    assert layout.compact(shape, F16, 2, FOUR) == (40, 20, 5, 1)
    assert layout.line(shape, F16, 0, FOUR) == (128, 128, 32, 1)


def test_the_default_of_a_dma_copy_ignores_the_start_lane() -> None:
    shape = Shape(2, 3, 4, 5)
    assert layout.dma_default(shape, F16, 2, FOUR).n == 32
    assert layout.dma_default_differs(shape, 2, FOUR)
    assert not layout.dma_default_differs(shape, 1, FOUR)  # does not wrap
    assert not layout.dma_default_differs(Shape(1, 3, 4, 5), 2, FOUR)  # n is 1


def test_matrices_spread_columns() -> None:
    matrix = Matrix.local(0, 0, (2, 40), 15, F16, FOUR)
    assert matrix.storage.shape == (2, 3, 1, 15)
    lanes, offsets = np.divmod(matrix.addresses - LOCAL_BASE, FOUR.lane_bytes)
    assert lanes[0].tolist() == [column // 15 for column in range(40)]
    assert offsets[1].tolist() == [64 + 2 * (column % 15) for column in range(40)]
    rows = Rows(Tensor.local(0, 0, (1, 3, 1, 7), I8, FOUR))
    assert ((rows.addresses - LOCAL_BASE) // FOUR.lane_bytes)[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("dtype", "group"), [(I8, 64), (F16, 32), (F32, 1)], ids=str)
def test_kernels_group_input_channels(dtype: DType, group: int) -> None:
    oc, ic, kh, kw = 6, 70, 2, 3
    kernel = ConvWeights(LOCAL_BASE, (oc, ic, kh, kw), dtype, FOUR)
    assert kernel.group == group
    groups = -(-ic // group)
    for o, i, y, x in itertools.product(range(oc), (0, 1, 31, 32, 63, 64, 69), range(kh), range(kw)):
        inside = (o // 4) * groups * kh * kw * group + ((i // group) * kh * kw + y * kw + x) * group + i % group
        want = LOCAL_BASE + o % 4 * FOUR.lane_bytes + inside * dtype.bytes
        assert kernel.addresses[o, i, y, x] == want


def test_a_stride_of_zero_repeats() -> None:
    tensor = Tensor.free(0, 0, (2, 2, 3, 1), (0, 16, 0, 0), F32, FOUR)
    assert len(np.unique(tensor.addresses)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 1, 1, 1), (1, 1, 1, 1)), "every size must be 1..65535"),
        (((1, 1, 1, 65536), (1, 1, 1, 1)), "every size"),
        (((1, 1, 1, 1), (1, 1, -1, 1)), "must not be negative"),
    ],
)
def test_impossible_tensors_are_refused(arguments: tuple[tuple[int, ...], tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tensor.free(0, 0, *arguments, F32, FOUR)


def test_impossible_places_are_refused() -> None:
    with pytest.raises(InputError, match="lane 4"):
        Tensor.local(4, 0, (1, 1, 1, 1), F32, FOUR)
    with pytest.raises(InputError, match="multiple of 4"):
        Tensor.free(0, 2, (1, 1, 1, 1), (1, 1, 1, 1), F32, FOUR)
    with pytest.raises(InputError, match=r"f32 \(1, 1, 1, 1\): it starts at byte 0x20 of lane 0.* multiples of 64"):
        Tensor.local(0, 32, (1, 1, 1, 1), F32, FOUR)
    with pytest.raises(InputError, match="ends at byte 262148 of a lane"):
        Tensor.local(3, FOUR.lane_bytes - 4, (1, 2, 1, 1), F32, FOUR, "compact")
    with pytest.raises(InputError, match="ends at byte"):
        _ = ConvWeights(LOCAL_BASE + FOUR.lane_bytes - 64, (5, 1, 1, 1), I8, FOUR).addresses
    with pytest.raises(InputError, match="no layout 'tight'"):
        Tensor.local(0, 0, (1, 1, 1, 1), F32, FOUR, "tight")
    with pytest.raises(InputError, match="5 columns per channel"):
        Matrix.local(0, 0, (1, 4), 5, F32, FOUR)


def test_memories_read_what_was_written_and_refuse_the_rest() -> None:
    memories = Memories(FOUR)
    memories.new_ddr(DDR_BASE, 64)
    tensor = Tensor.ddr(DDR_BASE, (1, 1, 2, 4), F32, FOUR)
    values = np.arange(8, dtype=np.float32).reshape(tensor.shape)
    memories.write(tensor.addresses, values)
    np.testing.assert_array_equal(memories.read(tensor.addresses, F32.storage), values)
    with pytest.raises(MachineError, match="no memory holds 0x100000040"):
        memories.read(np.array([DDR_BASE + 64]), I8.storage)
    with pytest.raises(MachineError, match="no memory holds"):
        memories.read(np.array([LOCAL_BASE, STATIC_BASE]), I8.storage)
    with pytest.raises(MachineError, match="not a multiple of 4"):
        memories.read(np.array([DDR_BASE + 2]), F32.storage)
    with pytest.raises(MachineError, match="overlaps"):
        memories.new_ddr(DDR_BASE + 32, 64)
    with pytest.raises(MachineError, match="outside"):
        memories.new_ddr(0, 1)


def test_types_have_the_codes_of_the_device_api() -> None:
    codes = {"i8": 1, "u8": 0, "f16": 3, "f32": 5, "i16": 7, "u16": 6, "i32": 9, "u32": 8, "bf16": 11}
    assert {name: dtype.code for name, dtype in DTYPES.items()} == codes
    assert all(from_fields(dtype.precision, dtype.signed) is dtype for dtype in DTYPES.values())
    for call, message in ((lambda: dtype_of("i4"), "i4"), (lambda: rounding_of("up_"), "up_")):
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(InputError, match="reserved"):
        from_fields(7, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"lanes": 3}, {"lanes": 128}, {"banks": 0}, {"bank_bytes": 1 << 18}, {"eu_bytes": 48}, {"lane": 1}],
    ids=str,
)
def test_illegal_machines_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Config.read(wrong, {})


def test_machines_are_read_and_kept() -> None:
    assert Config.read(None, {"lanes": "8"}).lanes == 8
    assert Config.read("figures", {}) == FOUR
    assert Config.read(FOUR.to_dict(), {}).digest() == FOUR.digest()
    with pytest.raises(ConfigError, match="choose one of bm1684x, figures"):
        Config.read("huge", {})
    with pytest.raises(ConfigError, match="not an integer"):
        Config.read(None, {"lanes": "many"})
