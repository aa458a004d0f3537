"""Placements against a plain loop over elements, and against each other's directions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilewright.program.placement import NOWHERE, Placement

SEEDS = range(40)


def random_placement(rng: np.random.Generator, dtype: str, planes: int) -> Placement:
    """A few random steps over a small tensor."""
    made = Placement.of(tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist()), dtype, planes)
    for _ in range(int(rng.integers(0, 6))):
        axes = len(made.slots)
        axis = int(rng.integers(axes))
        kind = rng.choice(["pad", "split", "transpose", "reshape", "take", "windows"])
        if kind == "pad":
            widths = rng.integers(0, 3, (axes, 2)).tolist()
            made = made.pad(*((before, after) for before, after in widths), value=int(rng.integers(0, 9)))
        elif kind == "split":
            made = made.split(axis, int(rng.integers(1, 5)))
        elif kind == "transpose":
            made = made.transpose(*rng.permutation(axes).tolist())
        elif kind == "reshape":
            made = made.reshape(int(np.prod(made.slots[: axis + 1])), int(np.prod(made.slots[axis + 1 :])))
        elif kind == "take":
            size = made.slots[axis]
            made = made.take(axis, rng.permutation(size)[: int(rng.integers(1, size + 1))])
        elif np.prod(made.slots) < 500:
            made = made.take(axis, rng.integers(0, made.slots[axis], (2, 3)))
    return made


@pytest.mark.parametrize(("dtype", "planes"), [("int8", 0), ("uint8", 0), ("int16", 0), ("int32", 3), ("int32", 1)])
def test_all_directions_agree(dtype: str, planes: int) -> None:
    for seed in SEEDS:
        print("seed", seed)
        rng = np.random.default_rng([seed, planes, *dtype.encode()])
        place = random_placement(rng, dtype, planes)
        each = planes or np.dtype(dtype).itemsize
        half = 1 << 8 * each - 1
        low, high = (-half, half) if dtype != "uint8" else (0, 2 * half)
        values = rng.integers(low, high, (2, *place.shape)).astype(dtype)
        memory = place.pack(values)
        assert memory.dtype == np.uint8
        assert memory.shape == (2, place.nbytes)
        where, found = place.where, place.unpack(memory)
        assert where.shape == (*place.shape, each)
        assert found.dtype == dtype
        for index in product(*map(range, place.shape)):
            held = where[index]
            if held[0] == NOWHERE:
                assert (held == NOWHERE).all()
                assert found[0][index] == found[1][index] == 0
                continue
            for sample in range(2):
                word = b"".join(memory[sample, byte].tobytes() for byte in held)
                assert int.from_bytes(word, "little", signed=dtype != "uint8") == values[sample][index]
                assert found[sample][index] == values[sample][index]
        assert_padding(place, memory, values)


def assert_padding(place: Placement, memory: np.ndarray, values: np.ndarray) -> None:
    """Each slot has its element, at all of its places; slots without one have the same bytes in each sample."""
    slots = place.read(memory).reshape(2, -1)
    filled = place.element != NOWHERE
    np.testing.assert_array_equal(slots[:, filled], values.reshape(2, -1)[:, place.element[filled]])
    np.testing.assert_array_equal(slots[0, ~filled], slots[1, ~filled])
    if place.slot.max(initial=0) >= 0:
        first = {int(element): slot for slot, element in reversed([*enumerate(place.element)]) if element != NOWHERE}
        assert all(place.slot.reshape(-1)[element] == slot for element, slot in first.items())


def test_tiles_of_channels() -> None:
    place = Placement.of((2, 3, 5)).split(2, 4).transpose(2, 0, 1, 3)
    memory = place.pack(np.arange(1, 31, dtype=np.int8).reshape(1, 2, 3, 5))[0]
    assert memory[:8].tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert memory[24:32].tolist() == [5, 0, 0, 0, 10, 0, 0, 0]
    assert place.where[1, 2, 4, 0] == 44
    assert place.element[[44, 45]].tolist() == [29, NOWHERE]


def test_padding_holds_its_value() -> None:
    place = Placement.of((2,)).pad((1, 2), value=-7)
    assert place.pack(np.array([[3, 4]], np.int8)).view(np.int8).tolist() == [[-7, 3, 4, -7, -7]]
    assert place.element.tolist() == [NOWHERE, 0, 1, NOWHERE, NOWHERE]


def test_windows_overlap() -> None:
    place = Placement.of((4,)).take(0, np.arange(3)[:, None] + np.arange(2))
    assert place.pack(np.array([[5, 6, 7, 8]], np.int8)).tolist() == [[5, 6, 6, 7, 7, 8]]
    assert place.slot.tolist() == [0, 1, 3, 5]
    assert place.unpack(place.pack(np.array([[5, 6, 7, 8]], np.int8))).tolist() == [[5, 6, 7, 8]]


def test_a_reshape_keeps_the_number_of_slots() -> None:
    with pytest.raises(ValueError, match="do not make"):
        Placement.of((4, 3)).reshape(5, 2)
