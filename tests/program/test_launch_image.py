"""Launches from damaged files: each part that is missing or does not fit is refused with the launch's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.program.launch_image import MAX_BYTES, DramSegment, LaunchImage
from tilewright.program.program import Launch

BASES = ("in", "out")


def launch() -> Launch:
    segments = (DramSegment("w", 0, 4, "const"), DramSegment("x", 8, 2, "input"), DramSegment("y", 16, 2, "inout"))
    data = {"w": np.arange(4, dtype=np.uint8), "y": np.zeros(2, np.uint8)}
    image = LaunchImage(np.zeros((3, 8), np.uint8), segments, data, {"in": 8, "out": 16}, np.array([0, 1, 1]))
    return image.launch("one", ("a", "b"), plan="p")


def test_an_image_comes_back_from_its_launch() -> None:
    image = LaunchImage.of(launch(), 8, BASES)
    assert (image.bases, image.outputs) == ({"in": 8, "out": 16}, ("y",))
    assert [segment.name for segment in image.segments] == ["w", "x", "y"]
    assert image.data["w"].tolist() == [0, 1, 2, 3]
    assert image.layer is not None
    assert image.layer.tolist() == [0, 1, 1]
    assert launch().meta["plan"] == "p"


def test_memory_before_a_launch() -> None:
    dram = LaunchImage.of(launch(), 8, BASES).dram({"x": np.full((3, 2), 7, np.uint8)}, 3)
    assert [(segment.data.shape[0], segment.initialised, segment.shared) for segment in dram.segments] == [
        (1, True, True),
        (3, True, True),
        (1, True, True),
    ]
    assert dram["x"].tolist() == [[7, 7]] * 3


@pytest.mark.parametrize("writable", [True, False])
def test_a_launch_that_writes_its_input_leaves_the_callers_alone(writable: bool) -> None:
    """A damaged program may do so; the arrays of a caller may be read-only."""
    given = np.full((3, 2), 7, np.uint8)
    given.flags.writeable = writable
    dram = LaunchImage.of(launch(), 8, BASES).dram({"x": given}, 3)
    dram.writable(3, 8, 1, 2, 2, "a store")[:] = 9
    assert (given.tolist(), dram["x"].tolist()) == ([[7, 7]] * 3, [[9, 9]] * 3)


def segment(**changes: Any) -> dict[str, Any]:
    return {"segments": [{"name": "x", "address": 8, "size": 2, "kind": "input"} | changes]}


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"segments": None}, "segments: is null"),
        ({"segments": [7]}, r"segment 0: is 7, not an object"),
        (segment(kind="rom"), r"segment 'x'.kind: is \"rom\"; choose one of const"),
        (segment(name=3), "name: is 3, not a text"),
        (segment(address=-1), "address: is -1; it must be 0 to"),
        (segment(address="8"), 'address: is "8", not an integer'),
        (segment(size=0), "size: is 0; it must be 1 to"),
        (segment(size=MAX_BYTES + 1), "MiB of segments"),
        (segment(kind="const", size=5), "segment 'x' lacks its 5 bytes"),
        (segment(more=1), 'has "more", which is unknown'),
        ({"bases": {"in": 0}}, "bases: lacks 'out'"),
        ({"bases": {"in": 0, "out": 1 << 40}}, "bases.out: is"),
        ({"bases": {"in": 0, "out": True}}, "out: is true, not an integer"),
    ],
)
def test_numbers_that_do_not_fit(meta: dict[str, Any], said: str) -> None:
    good = launch()
    with pytest.raises(ProgramError, match=f"^launch 'one': .*{said}"):
        LaunchImage.of(Launch("one", ("a", "b"), {**good.meta, **meta}, good.arrays), 8, BASES)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("insns", None),
        ("insns", np.zeros((0, 8), np.uint8)),
        ("insns", np.zeros((3, 4), np.uint8)),
        ("insns", np.zeros((3, 8), np.int8)),
        ("dram.w", None),
        ("dram.w", np.zeros(3, np.uint8)),
        ("dram.w", np.zeros(4, np.int8)),
        ("layer", np.array([0, 1, 2])),
        ("layer", np.array([0, -1, 0])),
        ("layer", np.array([0, 1])),
        ("layer", np.array([0.0, 1.0, 1.0])),
    ],
)
def test_arrays_that_do_not_fit(name: str, array: Any) -> None:
    good = launch()
    arrays = {key: value for key, value in {**good.arrays, name: array}.items() if value is not None}
    with pytest.raises(ProgramError, match=r"^launch 'one'.*; compile it again$"):
        LaunchImage.of(Launch("one", ("a", "b"), good.meta, arrays), 8, BASES)
