"""Golden vectors of the vendor's functional model, and that a wrong machine fails them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.conform import replay
from tilewright.errors import InputError
from tilewright.targets import get
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.conformance.ops import conform
from tilewright.targets.bm1684x.isa.elaborate import elaborate
from tilewright.targets.bm1684x.timing.estimate import trace
from tilewright.targets.bm1684x.values import elementwise, floats

FAMILIES = (
    *("cast", "fp_arith", "int_arith", "select", "quant", "conv_fp", "conv_int8"),
    *("pool_dw", "matmul", "move", "gdma", "hau"),
)


def failures(path: Path) -> list[str]:
    cases = list(conform(path))
    assert cases
    return [f"{case.name}: {case.reason}" for case in cases if not case.passed]


@pytest.fixture(scope="module")
def vectors(shared: Path) -> Path:
    return shared / "tpu_vectors"


def test_every_element_lies_where_the_model_put_it(vectors: Path) -> None:
    assert not failures(vectors / "layout_addresses.npz")


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_are_exact_and_refused_ones_refused(family: str, vectors: Path) -> None:
    assert not failures(vectors / "ops" / f"{family}.npz")


@pytest.mark.parametrize(
    "name", ["mlp3", "resblock", "mm_1_256_1000", "softmax_64_100", "dw_32_56_k3s2", "transpose_1_40_20_30"]
)
def test_small_networks_replay(name: str, vectors: Path) -> None:
    for path in sorted((vectors / "nets" / name).glob("*.cmdbuf.npz")):
        assert not failures(path)


@pytest.mark.slow
def test_all_networks_replay(vectors: Path) -> None:
    cases = list(replay(get("bm1684x"), [vectors / "nets"]))
    assert not [f"{case.name}: {case.reason}" for case in cases if not case.passed]
    assert {case.name.split()[-1] for case in cases} == {"fields", "output", "cycles"}


@pytest.mark.slow
def test_every_command_takes_the_estimated_cycles(vectors: Path) -> None:
    """Also those that conform compares in totals only."""
    for path in sorted((vectors / "nets").rglob("*.cmdbuf.npz")):
        about = json.loads(path.with_name(path.name.replace(".cmdbuf.npz", ".json")).read_text())
        with np.load(path) as archive:
            program = elaborate({engine: archive[f"{engine}_0_0"] for engine in ("tiu", "dma")}, Config())
        estimate = trace(program, Config())
        for engine in ("tiu", "dma"):
            mine = [row for row, step in enumerate(program.steps) if step.engine == engine]
            lines = [line for line in about["timeline"] if line["type"].startswith("GDMA") == (engine == "dma")]
            assert (estimate.end - estimate.start)[mine].tolist() == [line["cycles"] for line in lines], path
        assert estimate.cycles == about["total_cycles"]


def test_one_digit_less_in_a_constant_is_found(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "ESTIMATE", elementwise.ESTIMATE + np.uint32(1))
    assert any("fp_div" in line for line in failures(vectors / "ops" / "fp_arith.npz"))


def test_kept_subnormals_are_found(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floats, "flush", lambda x: x)
    assert failures(vectors / "ops" / "fp_arith.npz")


def copied(source: Path, folder: Path) -> Path:
    """One precision of a network, in a folder of its own."""
    stem = source.name.removesuffix(".cmdbuf.npz")
    for path in (source, source.with_name(f"{stem}.json"), source.with_name(f"{stem}.output.npz")):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "input.npz").write_bytes(source.with_name("input.npz").read_bytes())
    return folder / source.name


def test_changed_queues_are_found(vectors: Path, tmp_path: Path) -> None:
    """A dependency that is gone is a race; another operation has other fields, another output."""
    path = copied(vectors / "nets" / "resblock" / "INT8.cmdbuf.npz", tmp_path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    original = arrays["tiu_0_0"].copy()
    bits = int.from_bytes(original[:64].tobytes(), "little")
    without = bits & ~(((1 << 20) - 1) << 21)
    arrays["tiu_0_0"][:64] = np.frombuffer(without.to_bytes(64, "little"), np.uint8)
    np.savez(path, **arrays)
    cases = {case.name.split()[-1]: case for case in conform(path)}
    assert not cases["fields"].passed
    assert "race" in cases["output"].reason
    maximum = bits ^ (1 << 45 | 1 << 47)  # a maximum instead of a product
    arrays["tiu_0_0"][:64] = np.frombuffer(maximum.to_bytes(64, "little"), np.uint8)
    np.savez(path, **arrays)
    cases = {case.name.split()[-1]: case for case in conform(path)}
    assert "decodes to other fields" in cases["fields"].reason
    assert "differs in" in cases["output"].reason


def test_other_cycles_are_found(vectors: Path, tmp_path: Path) -> None:
    path = copied(vectors / "nets" / "mlp3" / "INT8.cmdbuf.npz", tmp_path)
    about = json.loads((tmp_path / "INT8.json").read_text())
    line = next(line for line in about["timeline"] if line["type"] == "MM2")
    line["cycles"] += 1
    (tmp_path / "INT8.json").write_text(json.dumps(about))
    cases = {case.name.split()[-1]: case for case in conform(path)}
    assert "takes 416 cycles, not 417" in cases["cycles"].reason
    line["cycles"] -= 1
    about["total_cycles"] *= 2
    (tmp_path / "INT8.json").write_text(json.dumps(about))
    assert "the network takes" in {case.name.split()[-1]: case for case in conform(path)}["cycles"].reason


def test_a_network_without_a_total_is_compared_by_its_commands(vectors: Path, tmp_path: Path) -> None:
    path = copied(vectors / "nets" / "mlp3" / "INT8.cmdbuf.npz", tmp_path)
    about = json.loads((tmp_path / "INT8.json").read_text())
    about["total_cycles"] = None
    (tmp_path / "INT8.json").write_text(json.dumps(about))
    assert {case.name.split()[-1]: case.passed for case in conform(path)}["cycles"]
    next(line for line in about["timeline"] if line["type"] == "MM2")["cycles"] += 1
    (tmp_path / "INT8.json").write_text(json.dumps(about))
    assert "takes 416 cycles" in {case.name.split()[-1]: case for case in conform(path)}["cycles"].reason


def test_what_is_no_vector_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not a golden vector"):
        list(conform(tmp_path / "x.npz"))
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InputError, match="is damaged"):
        list(conform(tmp_path / "x.npz"))


def test_the_command_counts_cases(vectors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "bm1684x", str(vectors / "ops" / "hau.npz"), str(vectors / "ops" / "gdma.npz")]) == 0
    assert capsys.readouterr().out == "passed 10, failed 0\n"
