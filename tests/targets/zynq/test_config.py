"""Configurations: what is legal, what each change takes of the chip, and the document's counts of VGG16."""

from __future__ import annotations

from typing import Any

import pytest

from tests.targets.zynq.machines import whatif
from tilewright.errors import ConfigError
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import schedule


def test_the_first_design_is_refused_with_its_bill() -> None:
    with pytest.raises(ConfigError, match=r"34828 of 140 BRAM36.*weight store \(BRAM36\) 32768"):
        Config.read("first", {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout": "nchw"}, "choose one of chw, hwc, rows"),
        ({"frames": 2, "layout": "chw"}, "not known in advance with layout=chw"),
        ({"oc_blocking": 1, "layout": "hwc"}, "layout=hwc splits kernels"),
        ({"lat_use": 0, "control": "pipelined"}, "no delay state"),
        ({"lat_use": 0, "outputs": 2, "macs_per_dsp": 2}, "one at a time"),
        ({"ports": 2}, "needs banked"),
        ({"resident": 1}, "two frames"),
        ({"macs_per_dsp": 2}, "two outputs"),
        ({"outputs": 2}, "288 of 220 DSP48"),
        ({"frames": 2}, "202 of 140 BRAM36"),
        ({"fc_lanes": 100}, "16 or 144"),
        ({"data_bits": "x"}, "not an integer"),
        ({"framse": 2}, "did you mean frames"),
        ({"window": 1}, "window=1 needs control=pipelined, not states"),
        ({**PRESETS["fast"], "ports": 2}, "window=1 needs ports=1, not 2"),
        ({**PRESETS["fast"], "data_bits": 7}, "a data block must have a line of 256 words"),
    ],
)
def test_what_is_illegal_names_its_rule(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Config.read(changes, {})


@pytest.mark.parametrize(
    ("options", "dsp", "bram"),
    [
        ({}, 155, 105),  # 3 x 32 BRAM36, one of biases, 8 of requantisation factors
        ({"frames": 2, "weight_bits": 16, "result_bits": 16}, 155, 138),
        ({"outputs": 2, "macs_per_dsp": 2}, 155, 105),
        ({"outputs": 3, "macs_per_dsp": 2}, 216, 105),  # other multipliers of logic
        (PRESETS["fast"], 216, 138),
    ],
)
def test_bills(options: dict[str, Any], dsp: int, bram: int) -> None:
    assert (Config(**options).dsp, Config(**options).bram36) == (dsp, bram)


@pytest.mark.parametrize(
    ("options", "cycles"),
    [
        ({}, 147),
        ({"lat_use": 0}, 146),
        ({"control": "pruned"}, 145),
        ({"banked": 1}, 5),
        ({"banked": 1, "control": "direct"}, 4),
        ({"banked": 1, "control": "pipelined"}, 2),
        ({"banked": 1, "control": "pipelined", "ports": 2}, 1),
        ({"outputs": 2, "macs_per_dsp": 2, "fetch": "full"}, 291),
    ],
)
def test_cycles_of_an_iteration(options: dict[str, Any], cycles: int) -> None:
    assert Config(**options).iteration() == cycles


def test_a_window_buffer_holds_512_channels() -> None:
    deep = {**dict.fromkeys(("r", "l"), 0), "kind": int(Kind.CONV_OTHER), "ic": 528, "oc": 4, "rows": 8, "cols": 8}
    assert "528 input channels exceed the window buffer" in walk.refusal(Layer(Config(**PRESETS["fast"]), deep))
    assert walk.refusal(Layer(Config(**PRESETS["fast"]), {**deep, "ic": 512})) == ""


def layers(**options: Any) -> list[Layer]:
    vgg: list[Layer] = whatif.vgg16(Config(**options))
    return vgg


def test_iterations_of_vgg16() -> None:
    """The design note, section 6: iterations, utilisation, and both readings of FC."""
    by_kind = {kind: [layer for layer in layers() if layer.kind == kind] for kind in Kind}
    convolutions = [*by_kind[Kind.CONV_1_1], *by_kind[Kind.CONV_OTHER]]
    assert [layer.iterations for layer in convolutions] == [
        *(3211264, 12845056, 6422528, 12845056, 6422528, 12845056, 12845056),
        *(6422528, 12845056, 12845056, 3211264, 3211264, 3211264),
    ]
    assert [round(layer.utilization, 4) for layer in convolutions] == [0.1875, *[1.0] * 12]
    assert [layer.iterations for layer in by_kind[Kind.FC]] == [716800, 118784, 29000]
    assert [round(layer.utilization, 4) for layer in by_kind[Kind.FC]] == [0.9956, 0.9808, 0.9808]
    by16 = [layer.iterations for layer in layers(layout="chw", fc_lanes=16) if layer.kind == Kind.FC]
    assert by16 == [6422528, 1048576, 256000]
    assert sum(layer.iterations for layer in layers()) == 110_047_560
    assert sum(layer.inputs for layer in by_kind[Kind.POOL]) == 6_121_472
    assert sum(layer.outputs for layer in layers() if layer.kind != Kind.POOL) == 13_556_712


def test_blocks_of_vgg16() -> None:
    """Section 6: packed blocks, straddling kernels, and page loads of the repaired layout."""
    packed = [layer for layer in layers(layout="hwc") if layer.conv]
    assert [placement.data_blocks(layer) for layer in packed] == [2, 25, 7, 13, 4, 7, 7, 2, 4, 4, 1, 1, 1]
    assert [placement.weight_blocks(layer) for layer in packed] == [1, 1, 1, 2, 3, 5, 5, 9, 18, 18, 18, 18, 18]
    assert [walk.straddling(layer) for layer in packed] == [0, 0, 0, 1, 2, 4, 4, 8, 16, 16, 16, 16, 16]
    repaired = [layer for layer in layers() if layer.conv]
    loads = [schedule(layer).loads() for layer in repaired]
    rows = [128, 2048, 896, 2048, 1024, 2048, 2048, 1024, 2048, 2048, 1, 1, 1]
    assert [counts["data"] for counts in loads] == rows
    assert sum(counts["weight"] for counts in loads) == 123
    assert [counts["result"] for counts in loads] == [25, 25, 13, 13, 7, 7, 7, 4, 4, 4, 1, 1, 1]
    fc = [schedule(layer).loads()["weight"] for layer in layers() if layer.kind == Kind.FC]
    assert fc == [784, 128, 32]


def test_times_of_vgg16() -> None:
    """Section 7: compute cycles of each model of the loader, stalls of each layout."""
    engine = {
        name: sum(schedule(layer, paged=False).cycles for layer in layers(**options))
        for name, options in LOADERS.items()
    }
    assert engine == {"ideal": 129_725_754, "floor": 349_820_874, "serial": 16_196_669_514}
    stall = {name: stalls(**options) for name, options in {"chw": {"layout": "chw"}, "hwc": {"layout": "hwc"}}.items()}
    assert stall["chw"][0] == pytest.approx(1.34e8, rel=0.1)
    assert stall["hwc"][0] == pytest.approx(3.54e7, rel=0.1)
    assert stall["chw"][1] == stall["hwc"][1] == pytest.approx(1.69e5, rel=0.01)


#: 1, 3 and 147 cycles an iteration, and 10 more than the note's pools have: 2 after each of five.
LOADERS: dict[str, dict[str, Any]] = {
    "ideal": {"banked": 1, "ports": 2, "control": "pipelined"},
    "floor": {"banked": 1, "ports": 2, "control": "direct"},
    "serial": {},
}


def stalls(**options: Any) -> tuple[int, int]:
    """Block loads of convolutions: data, weights."""
    loads = [schedule(layer).loads() for layer in layers(**options) if layer.conv]
    return sum(counts["data"] for counts in loads), sum(counts["weight"] for counts in loads)


def test_blocks_beyond_the_register_are_refused() -> None:
    fc = {"kind": int(Kind.FC), "r": 25088, "l": 4096}
    assert walk.refusal(Layer(Config(), {**dict.fromkeys(("ic", "oc", "rows", "cols"), 0), **fc})) == ""
    wide = Layer(Config(), {**dict.fromkeys(("ic", "oc", "rows", "cols"), 0), **fc, "l": 6000})
    assert "1149 weight blocks exceed the block register" in walk.refusal(wide)
