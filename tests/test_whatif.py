"""What-ifs: each figure is that of a run on the changed machine; which keys and numbers may change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import model_path
from tilewright import targets
from tilewright.cli import cli
from tilewright.errors import ConfigError, HazardError, InputError, ProgramError
from tilewright.model import inputs
from tilewright.program import file
from tilewright.program.program import Program
from tilewright.report.metrics import RECOMPILED, SAME, Result
from tilewright.run import run
from tilewright.targets import given
from tilewright.targets.base import Change
from tilewright.targets.vta.timing import LEAST
from tilewright.whatif import Explores, on_machine, what_if_timing, whatifs

pytestmark = pytest.mark.usefixtures("brief_search")
DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
#: Another value of each key that only changes time.
OTHER = {
    "vta": {
        "clock_mhz": "250",
        **{"LOG_BUS_WIDTH": "9", "dram_latency": "99", "queue_depth": "300", "token_depth": "77", "alu_lanes": "4"},
        **{"burst_beats": "16", "memory_model": "tsim"},
        **{"inp_read_bits": "64", "wgt_read_bits": "512", "acc_read_bits": "128", "acc_write_bits": "64"},
    },
    "cfu": {
        **{"icache_bytes": "1024", "dcache_bytes": "16384", "l2_bytes": "16384", "l2_line_bytes": "32"},
        **{"dram_row_bytes": "1024", "dram_banks": "2", "clock_mhz": "100"},
    },
    "zynq": {
        **{"control": "direct", "banked": "1", "ports": "1", "fetch": "full", "write_behind": "1", "axi_bytes": "8"},
        **{"handshake": "7", "relayout": "3", "clock_mhz": "200"},
    },
    "bm1684x": {"clock_mhz": "500"},
    "gemmini": {
        **{"bus_bytes": "8", "reads_in_flight": "4", "writes_in_flight": "2", "memory_latency": "40"},
        **{"rs_load": "4", "rs_execute": "8", "rs_store": "4", "queue_load": "3", "queue_execute": "3"},
        **{"queue_store": "1", "clock_mhz": "500", "rtl": "2023"},
    },
}


@cache
def program(name: str) -> Program:
    return tw.compile(DIGITS, name)


@cache
def samples(name: str = DIGITS) -> dict[str, Any]:
    return dict(inputs.random(tw.load(name)).values)


def command(*arguments: str) -> dict[str, Any]:
    """Run a command that must succeed, and return the object that it prints."""
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def options(found: dict[str, Any], timing: str) -> list[str]:
    sets = [word for key, value in found["set"].items() for word in ("--set", f"{key}={value}")]
    return [*sets, "--timing", what_if_timing(timing, found["timing"])]


@pytest.mark.parametrize("name", targets.names())
def test_every_what_if_is_a_run(name: str, tmp_path: Path) -> None:
    """The command line gives each figure again: `exec` for the same program, `run` for one compiled again."""
    path = tmp_path / "digits.twp"
    file.save(program(name), path)
    told = command("run", DIGITS, "-t", name, "--what-if", "--no-cache")
    found = told["whatifs"]
    assert [one["cycles"] for one in found] == sorted(one["cycles"] for one in found)
    assert {one["program"] for one in found} == {SAME, RECOMPILED}
    assert any(one["cycles"] < told["cycles"] for one in found)
    for one in found:
        other = ["exec", str(path)] if one["program"] == SAME else ["run", DIGITS, "-t", name, "--no-cache"]
        again = command(*other, *options(one, told["timing"]))
        assert again["cycles"] == one["cycles"], one
        assert again["matches_reference"]
        cycles = {layer["name"]: layer["cycles"] for layer in again["layers"] if layer["where"] == name}
        for layer in told["layers"]:
            own = {each["change"]: each["cycles"] for each in layer["whatifs"]}
            assert own.get(one["change"]) == cycles.get(layer["name"])


@pytest.mark.slow
def test_every_what_if_of_keyword_spotting_on_vta_is_a_run(shared: Path) -> None:
    model = str(model_path(shared, "kws"))
    made, given_samples = tw.compile(model, "vta"), samples(model)
    result = made.run(given_samples)
    found = whatifs(made, result, recompile=True)
    assert {one.program for one in found} == {SAME, RECOMPILED}
    for one in found:
        sets = {key: str(value) for key, value in one.set.items()}
        other = on_machine(made, sets) if one.program == SAME else tw.compile(model, "vta", overrides=sets)
        assert run(other, given_samples, timing=what_if_timing(result.timing, one.timing)).cycles == one.cycles, one


@pytest.mark.parametrize("name", targets.names())
def test_keys_that_only_change_time_leave_the_program_alone(name: str) -> None:
    """On machines whose plans depend on time, the outputs are the same. On the others, the compiled program is."""
    made = program(name)
    target = targets.get(name)
    keys = given.only_time(target.config(made.config, {}))
    assert set(keys) == set(OTHER[name])
    expected = run(made, samples())
    for key in keys:
        value = {key: OTHER[name][key]}
        again = run(on_machine(made, value), samples())
        assert again.matches_reference, key
        assert not again.findings, key
        assert dict(again.config) == target.config(made.config, value).to_dict()
        if name in ("gemmini", "vta"):
            continue
        other = tw.compile(DIGITS, name, overrides=value)
        assert [step.name for step in other.steps] == [step.name for step in made.steps]
        for one, two in zip(made.launches, other.launches, strict=True):
            for array in set(one.arrays) - {"elf"}:  # whose debug information has the machine's sizes
                np.testing.assert_array_equal(one.arrays[array], two.arrays[array], err_msg=f"{key}: {array}")
        assert other.run(samples()).cycles == again.cycles
    assert run(made, samples()).cycles == expected.cycles, "a run on another machine changed this machine's cycles"


def test_samples_in_several_blocks_have_the_bound_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made, several = program("vta"), {name: np.repeat(data, 3, axis=0) for name, data in samples().items()}
    alone = run(made, samples())
    monkeypatch.setattr("tilewright.run.TOGETHER_BYTES", 1)
    result = run(made, several)
    assert (result.samples, result.cycles, result.bound) == (3, alone.cycles, alone.bound)


def test_what_ifs_without_a_flag(tmp_path: Path) -> None:
    """`run` and `exec` time the same program on changed machines; cfu, which must run the values too, does not."""
    path = tmp_path / "digits.twp"
    for name in targets.names():
        file.save(program(name), path)
        for told in (command("exec", str(path)), command("run", DIGITS, "-t", name, "--no-cache")):
            assert {one["program"] for one in told["whatifs"]} == (set() if name == "cfu" else {SAME})


def test_the_report_names_the_best() -> None:
    done = CliRunner().invoke(cli, ["run", DIGITS, "-t", "zynq", "--no-cache"])
    lines = [line for line in done.stdout.splitlines() if line.startswith("what-if")]
    found = command("run", DIGITS, "-t", "zynq", "--no-cache")
    assert len(lines) == 5
    best = found["whatifs"][0]
    saved = 100 * (1 - best["cycles"] / found["cycles"])
    assert f"{best['change']}: {best['cycles']:,} cycles (-{saved:.1f} %)" in lines[0]


def offering(name: str, *changes: Change, monkeypatch: pytest.MonkeyPatch) -> Iterable[Any]:
    """Return the what-ifs of digits on a target that offers these changes."""
    target = targets.get(name)
    monkeypatch.setattr(type(target), "changes", lambda *_: iter(changes))
    assert isinstance(target, Explores)
    made = program(name)
    return whatifs(made, run(made, samples()), samples(), recompile=True)


def test_machines_that_cannot_run_the_network_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Illegal keys and numbers, a key that changes more than time, and layers that move to the host."""
    bad = (
        Change("illegal", {"dram_latency": -1}),
        Change("no such number", timing={"nothing": 1}),
        Change("another program", {"alu": "fused"}),
    )
    good = Change("fast", {"dram_latency": 0})
    assert [one.change for one in offering("vta", *bad, good, monkeypatch=monkeypatch)] == ["fast"]
    fused = tw.compile(DIGITS, "vta", overrides={"alu": "fused"})
    back = Change("upstream's ALU", {"alu": "upstream"}, recompile=True)
    monkeypatch.setattr(type(targets.get("vta")), "changes", lambda *_: iter([back]))
    assert not whatifs(fused, fused.run(samples()), recompile=True), "the host runs one layer more"


def test_a_machine_on_which_the_program_deadlocks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tw.compile(DIGITS, "vta", overrides={"stages": "4", "alu": "fused"})
    short = {"token_depth": 1, "queue_depth": 1}
    with pytest.raises(HazardError, match="deadlock"):
        run(on_machine(made, {key: str(value) for key, value in short.items()}), samples())
    changes = Change("short", short), Change("fast", {"dram_latency": 0})
    monkeypatch.setattr(type(targets.get("vta")), "changes", lambda *_: iter(changes))
    assert [one.change for one in whatifs(made, made.run(samples()))] == ["fast"]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            {"alu": "fused"},
            "compile the model again with the override alu=fused; the keys of vta that only change time are",
        ),
        ({"dram_latency": "0", "stages": "4"}, "a program compiled for another stages"),
        ({"dram_latencies": "0"}, "did you mean dram_latency"),
        ({"dram_latency": "-1"}, "dram_latency is -1, not an integer"),
    ],
)
def test_keys_that_change_more_than_time_are_refused(overrides: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        on_machine(program("vta"), overrides)
    path = tmp_path / "digits.twp"
    file.save(program("vta"), path)
    sets = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(cli, ["exec", str(path), *sets])
    assert isinstance(done.exception, ConfigError)


def test_a_changed_configuration_is_still_refused() -> None:
    broken = replace(program("vta"), config=dict(program("vta").config) | {"dram_latency": 3})
    with pytest.raises(ProgramError, match="its configuration was changed"):
        on_machine(broken, {"dram_latency": "0"})


@pytest.mark.parametrize(
    ("name", "timing", "reason"),
    [
        ("vta", "tilewright,alu=0", "alu is '0'; give an integer in 1..1048576"),
        ("vta", "tilewright,alu=1.5", "alu is '1.5'; give an integer"),
        ("vta", "tilewright,alu", "alu is ''; give an integer"),
        ("vta", "tilewright,", "tilewright has no number ''"),
        ("vta", "tilewright,alu=1,alu=1", "alu is given twice"),
        ("vta", "tilewright,wide=1", "its numbers are gemm, alu, alu_immediate, requantise, dispatch, pipeline"),
        ("vta", "verilog,alu=1", "vta has no timing model 'verilog'; choose one of tilewright, hls, chisel, ideal"),
        ("cfu", "sourced,write_slots=0", "give an integer in 1..1048576"),
        ("cfu", "sourced,word=-1", "give an integer in 0..1048576"),
        ("zynq", "paged,handshake=0", "paged has no number 'handshake' that can be changed; give timing paged"),
        ("bm1684x", "estimate,read_rate=nan", "give a number in 1..1048576"),
        ("bm1684x", "estimate,read_rate=inf", "give a number in 1..1048576"),
    ],
)
def test_illegal_numbers_of_timing_models_are_refused(name: str, timing: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        run(program(name), samples(), timing=timing)
    assert caught.value.where == "timing"
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", targets.names())
def test_every_number_of_a_timing_model_can_be_changed(name: str) -> None:
    """A slower machine takes at least as long, its result has the whole name, and its evidence names the model."""
    target, made = targets.get(name), program(name)
    for model in target.timing_models:
        own = run(made, samples(), timing=model.name, compare=False, check=False)
        slowed = [f"{key}={number.value + 3}" for key, number in model.numbers.items() if not key.endswith("_rate")]
        if not slowed:
            continue
        text = ",".join([model.name, *slowed])
        found: Result = run(made, samples(), timing=text, compare=False, check=False)
        assert found.timing == text
        assert found.evidence.startswith(f"a what-if of {model.name} with {slowed[0]}")
        assert found.evidence.endswith(model.evidence)
        assert found.cycles > own.cycles


@pytest.mark.parametrize("timing", ["tilewright", "hls", "ideal"])
def test_each_number_of_vta_has_an_effect(timing: str) -> None:
    """Each number makes a program of one of two machines slower: digits needs no REQ or no sum of two tensors."""
    made = program("vta"), tw.compile(DIGITS, "vta", overrides={"alu": "fused"})
    own = [run(one, samples(), timing=timing, compare=False, check=False).cycles for one in made]
    for key in LEAST:
        slow = [run(one, samples(), timing=f"{timing},{key}=90", compare=False, check=False).cycles for one in made]
        assert any(a > b for a, b in zip(slow, own, strict=True)), key


def test_commands_plan_with_a_what_if_of_a_timing_model(tmp_path: Path) -> None:
    """`compile` and `explain` take the same names as `run`, and agree with it."""
    path, timing = str(tmp_path / "digits.twp"), "tilewright,alu=9,pipeline=40"
    command("compile", DIGITS, "-t", "vta", "-o", path, "--timing", timing, "--no-cache")
    told = command("exec", path, "--timing", timing)
    assert told["cycles"] == command("run", DIGITS, "-t", "vta", "--timing", timing, "--no-cache")["cycles"]
    explained = command("explain", DIGITS, "-t", "vta", "--timing", timing, "--no-cache")
    assert explained["timing"] == timing
    assert f"cycles (timing model {timing})" in explained["text"]


def test_what_ifs_of_a_what_if_keep_its_numbers() -> None:
    made = program("vta")
    result = run(made, samples(), timing="hls,dispatch=9")
    found = {one.change: one for one in whatifs(made, result)}
    alu = found["ALU with one micro-op per cycle"]
    assert run(made, samples(), timing="hls,dispatch=9,alu=1,alu_immediate=1,requantise=1").cycles == alu.cycles
    assert what_if_timing("hls,alu=3", {"alu": 1}) == "hls,alu=1"
