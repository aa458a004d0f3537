"""Golden vectors that lack a part, or hold another one: one line that names the file and what it lacks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cli import main

SEED, TRIALS = 20261122, 40
NET = "relu_1_80_33"
ODD: tuple[Any, ...] = (None, -1, 1 << 40, "x", 3.5, [], {})
#: What a network's description has to say, by the way to it; the first command and line of time stand for all.
NEEDED: tuple[tuple[Any, ...], ...] = (
    *(("net",), ("quant",), ("total_cycles",), ("timeline",), ("commands",), ("io",)),
    *(("timeline", 0, "type"), ("timeline", 0, "cycles")),
    *(("commands", 0, key) for key in ("subnet", "group", "engine", "fields")),
    *(("io", "inputs"), ("io", "outputs"), ("io", "inputs", 0, "name"), ("io", "inputs", 0, "address")),
    *(("io", "outputs", 0, key) for key in ("name", "address", "shape")),
)
Reading = tuple[int, str]


@pytest.fixture
def network(shared: Path, tmp_path: Path) -> Path:
    """A copy of one precision of a network; the path of its queues."""
    source = shared / "tpu_vectors" / "nets" / NET
    for name in ("INT8.cmdbuf.npz", "INT8.json", "INT8.output.npz", "input.npz"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    return tmp_path / "INT8.cmdbuf.npz"


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Reading]:
    """`conform` on a file: its status and what it says."""

    def replay(path: Path) -> Reading:
        status = main(["conform", "bm1684x", str(path)])
        said = capsys.readouterr()
        assert status in (0, 1, 2), said.err
        assert "Traceback" not in said.err
        return status, said.out + said.err

    return replay


def without(data: Any, way: tuple[Any, ...]) -> Any:
    """A copy of JSON data without one entry."""
    copy = json.loads(json.dumps(data))
    place = copy
    for key in way[:-1]:
        place = place[key]
    del place[way[-1]]
    return copy


@pytest.mark.parametrize("way", NEEDED, ids=lambda way: ".".join(map(str, way)))
def test_a_key_that_is_missing_is_named(way: tuple[Any, ...], network: Path, read: Callable[[Path], Reading]) -> None:
    description = network.with_name("INT8.json")
    description.write_text(json.dumps(without(json.loads(description.read_text()), way)))
    status, said = read(network)
    assert status == 1
    assert f"{description}: has no key '{way[-1]}' (found: " in said


def test_an_array_that_is_missing_is_named(network: Path, read: Callable[[Path], Reading]) -> None:
    for name, part in (("input.npz", "x"), ("INT8.output.npz", None)):
        path = network.with_name(name)
        content = path.read_bytes()
        with np.load(path) as archive:
            left = {key: archive[key] for key in archive.files}
        gone = part if part in left else next(iter(left))
        del left[gone]
        np.savez(path, **left)
        status, said = read(network)
        assert status == 1
        assert f"{path}: has no array '{gone}' (found: nothing)" in said
        path.unlink()
        assert f"{path}: is not a file" in read(network)[1]
        path.write_bytes(content)
    assert read(network) == (0, "passed 3, failed 0\n")


def ways(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every entry, in lists to the first few."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:4]) if isinstance(data, list) else ()
    for key, value in items:
        yield (*way, key)
        yield from ways(value, (*way, key))


LAYOUT = pytest.param("layout_addresses.npz", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [f"nets/{NET}/INT8.cmdbuf.npz", "ops/hau.npz", "ops/cast.npz", LAYOUT])
def test_odd_descriptions_are_one_line_a_case(
    name: str, shared: Path, tmp_path: Path, read: Callable[[Path], Reading]
) -> None:
    """Any entry left out or replaced: the file passes, fails or is refused."""
    source = shared / "tpu_vectors" / name
    path = tmp_path / source.name
    for part in source.parent.glob("*.npz" if name.startswith("nets") else source.name):
        (tmp_path / part.name).write_bytes(part.read_bytes())
    stem = source.name.removesuffix(".npz").removesuffix(".cmdbuf")
    good = json.loads((source.parent / f"{stem}.json").read_text())
    good = good[:12] if isinstance(good, list) else good
    found, places = Counter[int](), list(ways(good))
    for trial in range(TRIALS):
        rng = np.random.default_rng([SEED, trial])
        way = places[int(rng.integers(len(places)))]
        odd = without(good, way)
        if rng.random() < 0.6:
            place = odd
            for key in way[:-1]:
                place = place[key]
            other = ODD[int(rng.integers(len(ODD)))]
            if isinstance(place, list):
                place.insert(way[-1], other)
            else:
                place[way[-1]] = other
        (tmp_path / f"{stem}.json").write_text(json.dumps(odd))
        status, said = read(path)
        found[status] += 1
        assert status == 0 or said.count("\n") <= 1 + said.count("FAILED "), f"seed {SEED}, trial {trial}: {said}"
    assert found[1] + found[2] > 10, found
