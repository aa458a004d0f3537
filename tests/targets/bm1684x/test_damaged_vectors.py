"""Golden vectors that lack a part: one line that names the file and what it lacks. tests/fuzz has more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cli import main

NET = "relu_1_80_33"
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
