"""Device buffers and tiles: handles, copies, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.program.launch_image import MAX_BYTES
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import PAGE
from tilewright.targets.vta.runtime import Memory, Runtime
from tilewright.targets.vta.runtime import memory as tiles
from tilewright.targets.vta.runtime.memory import MAX_TRANSFER, UOPS

SEED = 5


def test_buffers_are_apart_and_room_is_used_again() -> None:
    with Runtime() as rt:
        a, b, c = rt.alloc(1), rt.alloc(PAGE + 1, "b"), rt.alloc(PAGE)
        assert [x.address for x in (a, b, c)] == [UOPS + MAX_TRANSFER + n * PAGE for n in (0, 1, 3)]
        assert (a.name, b.name, c.name) == ("buffer0", "b", "buffer2")
        rt.free(b)
        assert rt.alloc(2 * PAGE + 1).address == c.address + PAGE  # does not fit the hole
        assert rt.alloc(2 * PAGE, "b").address == b.address
        assert "freed" in repr(b)
    assert a.freed


def test_copies_take_offsets_on_both_sides() -> None:
    with Runtime() as rt:
        a, b = rt.alloc(8), rt.alloc(8)
        assert not a.filled
        rt.copy(np.arange(10, 20, dtype=np.uint8), 2, a, 4, 3)
        assert a.data.tolist() == [0, 0, 0, 0, 12, 13, 14, 0]
        rt.copy(a, 5, b, 0, 2)
        assert b.data.tolist() == [13, 14, 0, 0, 0, 0, 0, 0]
        host = np.zeros((2, 2), np.int16)
        rt.copy(b, 0, host, 2, 2)
        assert host.tolist() == [[0, 14 << 8 | 13], [0, 0]]
        assert a.filled and not a.data.flags.writeable
        with pytest.raises(ProgramError, match=r"copy: bytes 7\.\.9 are not inside buffer 'buffer0' of 8 bytes"):
            rt.copy(a, 7, b, 0, 2)
        with pytest.raises(ProgramError, match=r"write: bytes -1\.\.1 are not inside buffer 'buffer1'"):
            rt.copy(a, 0, b, -1, 2)
        with pytest.raises(ProgramError, match=r"copy: bytes 0\.\.9 are not inside the source array of 8 bytes"):
            rt.copy(host, 0, b, 0, 9)
        with pytest.raises(ProgramError, match="copy: the target array is not contiguous"):
            rt.copy(a, 0, host[:, 0], 0, 2)


def test_what_is_no_live_buffer_of_this_runtime_is_refused() -> None:
    one, other = Runtime(), Runtime()
    a, b = one.alloc(64), other.alloc(64)
    assert a.address == b.address
    with pytest.raises(ProgramError, match="load_buffer_2d: buffer 'buffer0' belongs to another runtime"):
        one.load_buffer_2d(b, 0, 1, 1, 1, 0, Memory.INP)
    one.free(a)
    for call in (
        lambda: one.free(a),
        lambda: one.copy(a, 0, np.zeros(1, np.uint8), 0, 1),
        lambda: one.load_buffer_2d(a, 0, 1, 1, 1, 0, Memory.INP),
        lambda: a.data,
    ):
        with pytest.raises(ProgramError, match="buffer 'buffer0' is freed; allocate another"):
            call()
    one.close()
    with pytest.raises(ProgramError, match="alloc: the runtime is closed"):
        one.alloc(1)


@pytest.mark.parametrize(
    ("size", "name", "message"),
    [
        (0, None, "alloc: size is 0"),
        (1, "x", "alloc: the name 'x' is taken"),
        (1, "uop", "alloc: the name 'uop' is taken"),
        (MAX_BYTES, None, "alloc: .* bytes do not fit beside the 1 bytes in use"),
    ],
)
def test_alloc_refuses(size: int, name: str | None, message: str) -> None:
    with Runtime() as rt:
        rt.alloc(1, "x")
        with pytest.raises(ProgramError, match=f"^{message}"):
            rt.alloc(size, name)


@pytest.mark.parametrize("overrides", [{}, {"LOG_BATCH": "1"}, {"LOG_INP_WIDTH": "2"}, {"LOG_WGT_WIDTH": "1"}])
@pytest.mark.parametrize("memory", [Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT])
def test_tiles_come_back_as_the_matrix(memory: Memory, overrides: dict[str, str]) -> None:
    config = small(overrides)
    chip = config.sram(memory)
    rng = np.random.default_rng(SEED)
    matrix = rng.integers(-(1 << (chip.width - 1)), 1 << (chip.width - 1), (19, 35))
    raw = tiles.pack(matrix, memory, config)
    rows, columns = tiles.grid(memory, (19, 35), config)
    assert raw.size == rows * columns * chip.tile_bytes
    np.testing.assert_array_equal(tiles.unpack(raw, memory, (19, 35), config), matrix)


def small(overrides: dict[str, str]) -> Config:
    sizes = {"LOG_INP_BUFF_SIZE": "14"} if "LOG_INP_WIDTH" in overrides else {}
    sizes |= {"LOG_WGT_BUFF_SIZE": "16"} if "LOG_WGT_WIDTH" in overrides else {}
    return PRESETS["pynq"].with_overrides(overrides | sizes)


def test_a_tile_is_row_major() -> None:
    matrix = np.arange(2 * 32).reshape(2, 32)
    assert tiles.pack(matrix, Memory.INP, PRESETS["pynq"]).tolist() == list(range(64))
    weights = np.arange(16 * 32).reshape(16, 32) % 100
    tiled = tiles.pack(weights, Memory.WGT, PRESETS["pynq"]).reshape(2, 16, 16)
    np.testing.assert_array_equal(tiled[1], weights[:, 16:])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros(3, int), r"matrix: is int64 \[3\]"),
        (np.zeros((2, 2)), "matrix: is float64"),
        (np.full((1, 1), 128), r"matrix: has values outside -128\.\.127"),
    ],
)
def test_what_is_no_matrix_of_tiles_is_refused(matrix: Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiles.pack(matrix, Memory.INP, PRESETS["pynq"])
    with pytest.raises(InputError, match="tiles: have only 3 bytes; a 1x1 matrix in inp needs 16"):
        tiles.unpack(np.zeros(3, np.uint8), Memory.INP, (1, 1), PRESETS["pynq"])
