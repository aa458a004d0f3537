"""The gateware against the simulator: bits of results, cycles, page services; and that differences are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.targets.zynq.cases import LAYERS as CASES
from tests.targets.zynq.cases import SHAPES, WINDOW, Case, case, hash_of
from tests.targets.zynq.gateware.machines import MACHINES, DisturbedPace, image_of, machine
from tests.targets.zynq.gateware.random_layers import random_case
from tests.targets.zynq.machines import whatif
from tests.targets.zynq.networks import Chain
from tilewright.array import Array
from tilewright.cli import cli, main
from tilewright.errors import ConfigError, MachineError
from tilewright.program import file
from tilewright.targets import get
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.gateware import cosim, engine
from tilewright.targets.zynq.isa.layer import RULES, Kind
from tilewright.targets.zynq.timing import service
from tilewright.targets.zynq.values import machine as values

pytestmark = pytest.mark.gxx
LAYERS = CASES | SHAPES
ALWAYS = ("rows", "two frames, one sweep", "window, one output")
EACH = [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow) for name in MACHINES]


def of(layer: str, name: str = "rows", seed: int = 0, **fields: int) -> Case:
    layer_case = case(hash_of(layer) + seed, machine(name), **{**LAYERS[layer], **fields})
    return replace(layer_case, factor=layer_case.factor / 16)  # so that few results are clipped


@pytest.mark.parametrize("name", EACH)
def test_layers_have_the_same_bits_and_cycles(name: str) -> None:
    for layer in LAYERS:
        for seed in range(2):
            print(layer, "seed", seed)
            given = of(layer, name, seed)
            compared = cosim.compare(layer, image_of(given), given.data, "verilator")
            assert (compared.differences, compared.mismatched_bytes) == ((), 0)
            assert compared.cycles == compared.rtl_cycles == service.schedule(given.layer).cycles


@pytest.mark.parametrize("name", EACH)
def test_random_layers_have_the_same_bits_and_cycles(name: str) -> None:
    for seed in range(30):
        print("seed", seed)
        given = random_case(seed, machine(name))
        pace = DisturbedPace(seed) if seed % 4 == 3 else cosim.STEADY
        compared = cosim.compare("random", image_of(given), given.data, "verilator", pace=pace)
        assert (compared.differences, compared.mismatched_bytes) == ((), 0)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["conv1_1", "conv5_1", "pool5", "fc3"])
def test_layers_of_vgg16_at_full_size_on_the_preset_fast(layer: str) -> None:
    """A layer of each kind; of the convolutions, the first one and one of 32 iterations."""
    numbers = {"conv1_1": 0, "conv5_1": 14, "pool5": 17, "fc3": 20}
    config = Config.read("fast", {})
    fields = whatif.vgg16(config)[numbers[layer]].fields
    given = case(
        numbers[layer], config, **{name: fields[name] for name in ("kind", "ic", "oc", "rows", "cols", "r", "l")}
    )
    image = replace(image_of(given), factor=given.factor / 16)
    compared = cosim.compare(layer, image, given.data, "verilator")
    assert (compared.differences, compared.mismatched_bytes) == ((), 0)
    assert compared.cycles == compared.rtl_cycles == service.schedule(given.layer).cycles


@pytest.mark.parametrize("rule", RULES)
def test_all_rules_of_rounding(rule: str) -> None:
    for layer in ("conv_1_1", "fc remainder 32"):
        given = of(layer, rule=RULES.index(rule))
        factor = 2.0 ** np.round(np.log2(given.factor)) if rule == "pow2" else given.factor
        compared = cosim.compare(layer, replace(image_of(given), factor=factor), given.data, "verilator")
        assert (compared.differences, compared.mismatched_bytes) == ((), 0)


@pytest.mark.parametrize("layer", LAYERS)
def test_waiting_and_holding_at_random_cycles_change_no_bit_and_no_engine_cycle(layer: str) -> None:
    """Pages take random additional cycles, and the engine is held at random ones: `run` checks that no state moves."""
    for seed in (1, 2):
        print("seed", seed)
        given = of(layer, seed=seed)
        compared = cosim.compare(layer, image_of(given), given.data, "verilator", pace=DisturbedPace(seed))
        assert (compared.differences, compared.mismatched_bytes) == ((), 0)
        assert compared.rtl_cycles > compared.cycles


@pytest.mark.slow
def test_both_simulators_of_the_rtl_agree() -> None:
    given = of("conv_1_1")
    compared = cosim.compare("conv_1_1", image_of(given), given.data, "cxxrtl")
    assert (compared.differences, compared.mismatched_bytes) == ((), 0)


def test_a_wrong_bit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    given, right = of("pool"), values.run
    place = 4 * given.layer.positions // 4 + 1  # results are written plane by plane

    def wrong(*arguments: Any) -> Array:
        codes = right(*arguments).copy()
        codes.reshape(-1, given.layer["ic"])[1, 4] ^= 4
        return codes

    monkeypatch.setattr(values, "run", wrong)
    compared = cosim.compare("pool", image_of(given), given.data, "verilator")
    assert compared.mismatched_bytes == 1
    assert compared.differences[0].startswith(f"result {place} is")
    assert compared.first_cycle is not None


def test_a_wrong_cycle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    given, right = of("conv"), service.schedule
    monkeypatch.setattr(
        service,
        "schedule",
        lambda layer, paged=True: right(replace(layer, config=replace(layer.config, control="direct")), paged),
    )
    compared = cosim.compare("conv", image_of(given), given.data, "verilator")
    assert any("the engine works" in text for text in compared.differences)
    assert any(text.startswith("service #") for text in compared.differences)
    assert compared.mismatched_bytes == 0


def test_a_program_from_the_command_line(tmp_path: Path) -> None:
    config = machine("rows")
    program = get("zynq").compile(Chain(3, (6, 4, 3)).conv(4).pool().flat().dense(7).graph(), config, "ort")
    path, wave = tmp_path / "chain.twp", tmp_path / "chain.vcd"
    file.save(program, path)
    done = CliRunner().invoke(cli, ["cosim", str(path), "--json"], standalone_mode=False)
    launches = json.loads(done.stdout)["launches"]
    assert [case["cycles"] - case["rtl_cycles"] for case in launches] == [0, 0, 0]
    assert not any(case["differences"] for case in launches)
    assert main(["cosim", str(path), "--wave", str(wave), "--whole"]) == 0
    text = wave.read_text()
    for name in ("waiting", "block", "stage", "step", "sum", "level0_0"):
        assert f" {name} " in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({key: 2, "dsp_budget": 400}, f"{key}=2") for key in ("outputs", "fc_batch")]
    + [({"banked": 1}, "banked=1")]
    + [({**WINDOW, "axi_bytes": 64}, "nine beats of 16"), ({**WINDOW, "fc_batch": 2}, "fc_batch=2")]
    + [({"handshake": 3}, "handshake=3 is too short"), ({"axi_bytes": 64}, "a bias block has 16 bytes")],
)
def test_what_has_no_gateware_says_so(changes: dict[str, str | int], reason: str) -> None:
    config = Config.read({**machine("rows").to_dict(), **changes}, {})
    with pytest.raises(ConfigError, match=reason):
        engine.require(config)


def test_layers_without_gateware_say_so() -> None:
    given = of("fc remainder 32")
    with pytest.raises(MachineError, match="negative requantisation factor"):
        engine.require_layer("fc", replace(image_of(given), factor=-given.factor))
    zero = case(1, machine("window"), kind=int(Kind.FC), r=16, l=5, zw=-200)
    with pytest.raises(MachineError, match="zw=-200; with window=1"):
        engine.require_layer("fc", image_of(zero))
    wide = case(1, machine("rows"), kind=int(Kind.FC), r=16, l=5000)
    with pytest.raises(MachineError, match="5000 output channels"):
        engine.require_layer("fc", image_of(wide))
