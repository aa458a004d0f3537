"""Spaces: texts and files of values, points and their neighbours."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.explore.space import Axis, Space


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("13..16", "13 14 15 16"),
        ("64..512 * 2", "64 128 256 512"),
        ("64..500 * 2", "64 128 256"),
        ("0..64 + 16", "0 16 32 48 64"),
        ("-2..1", "-2 -1 0 1"),
        ("0x10..0x12", "16 17 18"),
        ("7", "7"),
        ("upstream, fused", "upstream fused"),
        ([3, 4], "3 4"),
        (["a", "b"], "a b"),
    ],
)
def test_values(values: object, expected: str) -> None:
    assert Axis.of("key", values).values == tuple(expected.split())


@pytest.mark.parametrize(
    "values", ["4..3", "0..4 * 2", "1..4 * 1", "1..9 + 0", "", [], [1, 1], 3, [None], "0..99999", "a..b"]
)
def test_malformed_values(values: object) -> None:
    with pytest.raises(TilewrightError, match="key"):
        Axis.of("key", values)


def test_only_ascending_numbers_are_ordered() -> None:
    assert Axis.of("k", [1, 2, 9]).ordered
    assert not Axis.of("k", [2, 1]).ordered
    assert not Axis.of("k", ["a", "b"]).ordered


SPACE = Space((Axis.of("a", "1..3"), Axis.of("b", "x, y, z, w"), Axis.of("c", "5..6")))


def test_points_are_all_combinations_in_order() -> None:
    found = [tuple(SPACE.at(point).values()) for point in range(SPACE.size)]
    assert found == list(product("123", "xyzw", "56"))
    assert all(SPACE.point(SPACE.indices(point)) == point for point in range(SPACE.size))


def test_neighbours_differ_in_one_key_and_one_step_where_ordered() -> None:
    for point in range(SPACE.size):
        own = SPACE.indices(point)
        near = set()
        for other in range(SPACE.size):
            steps = [abs(a - b) for a, b in zip(own, SPACE.indices(other), strict=True)]
            if sum(map(bool, steps)) == 1 and steps[0] <= 1 and steps[2] <= 1:
                near.add(other)
        assert set(SPACE.neighbours(point)) == near


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    content = {"config": "pynq", "set": {"stages": 4}, "keys": {"alu": ["upstream"], "b": "1..2"}, "where": ["b < 2"]}
    path.write_text(json.dumps(content), encoding="utf-8")
    space = Space.read(path)
    assert (space.size, space.fixed, space.rules, space.config) == (2, {"stages": "4"}, ("b < 2",), "pynq")
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"keys": {}},
        {"keys": []},
        {"key": {"a": [1]}},
        {"keys": {"a": [1]}, "set": {"a": 2}},
        {"keys": {"a": [1]}, "where": "x < 2"},
        {"keys": {"a": [1]}, "config": 3},
        [1],
    ],
)
def test_malformed_files(tmp_path: Path, content: object) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TilewrightError) as error:
        Space.read(path)
    assert "space.json" in str(error.value)
