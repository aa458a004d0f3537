"""What every target promises, checked for each that is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import targets
from tilewright.array import Array
from tilewright.errors import ConfigError, InputError
from tilewright.program import file
from tilewright.program.program import Program

DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module", params=targets.names())
def program(request: pytest.FixtureRequest) -> Program:
    return tw.compile(DIGITS / "digits.tflite", target=request.param)


@pytest.fixture(scope="module")
def codes() -> Array:
    with np.load(DIGITS / "samples.npz") as archive:
        found: Array = archive["inputs"][:5]
    return found


def test_a_target_says_what_it_is(program: Program) -> None:
    target = targets.get(program.target)
    assert target.name == program.target
    assert target.title and target.timing_models
    assert all(model.evidence for model in target.timing_models)
    for preset in target.presets:
        facts = target.describe(target.config(preset, {}))
        assert facts["macs_per_cycle"] > 0
        assert facts["clock_mhz"] > 0


def test_a_configuration_round_trips_and_refuses_what_it_does_not_know(program: Program) -> None:
    target = targets.get(program.target)
    config = target.config(program.config, {})
    assert config.to_dict() == program.config
    assert config.digest() == program.digest
    with pytest.raises(ConfigError):
        target.config(None, {"no_such_key": "1"})


def test_outputs_equal_the_reference_and_nothing_races(program: Program, codes: Array) -> None:
    result = program.run(codes)
    assert result.matches_reference is True
    assert result.findings == ()
    assert result.cycles > 0
    assert [layer.name for layer in result.layers] == [step.name for step in program.steps]
    for layer in result.layers:
        assert (layer.where == "host") == bool(layer.reason)
        assert layer.where == "host" or 0 < layer.cycles <= layer.serial_cycles


def test_a_saved_program_is_the_same_program(program: Program, codes: Array, tmp_path: Path) -> None:
    file.save(program, tmp_path / "digits.twp")
    again = file.load(tmp_path / "digits.twp").run(codes)
    first = program.run(codes)
    assert again.cycles == first.cycles
    for name, values in first.outputs.items():
        np.testing.assert_array_equal(again.outputs[name], values)


def test_every_order_that_tokens_allow_gives_the_same(program: Program, codes: Array) -> None:
    expected = program.run(codes)
    orders: list[dict[str, Any]] = [{"order": "time"}, *({"order": "random", "seed": seed} for seed in range(4))]
    for options in orders:
        result = program.run(codes, **options)
        for name, values in expected.outputs.items():
            np.testing.assert_array_equal(result.outputs[name], values, err_msg=str(options))


def test_samples_do_not_influence_each_other(program: Program, codes: Array) -> None:
    together = program.run(codes)
    for index in range(len(codes)):
        alone = program.run(codes[index : index + 1])
        assert alone.cycles == together.cycles
        for name, values in alone.outputs.items():
            np.testing.assert_array_equal(values[0], together.outputs[name][index])


def test_text_is_read_back_exactly(program: Program) -> None:
    target = targets.get(program.target)
    text = target.disassemble(program)
    again = target.assemble(text, target.config(program.config, {}))
    assert target.disassemble(again) == text
    for first, second in zip(program.launches, again.launches, strict=True):
        np.testing.assert_array_equal(first.arrays["insns"], second.arrays["insns"])


def test_json_is_stable(program: Program, codes: Array) -> None:
    found = json.loads(json.dumps(program.run(codes).to_json()))
    keys = (
        "model target config rounding timing samples cycles macs utilization seconds matches_reference hazards layers"
    )
    assert set(keys.split()) <= set(found)
    keys = "name op where cycles macs utilization dram_read_bytes dram_write_bytes stalls"
    assert all(set(keys.split()) <= set(layer) for layer in found["layers"])
    assert found["cycles"] == sum(layer["cycles"] for layer in found["layers"])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="vta"):
        targets.get("nothing")
