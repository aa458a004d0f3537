"""Networks on the engine: equal to the reference on every machine, refused with the reason, saved and read as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.targets.zynq.networks import Chain
from tilewright import contract, targets
from tilewright.errors import InputError, ProgramError
from tilewright.graph.ops import Conv2D, MaxPool2D, Window
from tilewright.graph.rounding import rounding_mode
from tilewright.model import inputs
from tilewright.program import stages
from tilewright.program.program import HostStep, Launch, Program
from tilewright.run import run
from tilewright.sim.passes import RunOptions
from tilewright.targets.zynq.compiler import codegen
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import Kind, Layer

ZYNQ = targets.get("zynq")


def network(dtype: str = "int8") -> Chain:
    return Chain(7, (12, 8, 3), dtype).conv(16).conv(7).pool().pool().flat().dense(9, relu=True).dense(5)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rounding", ["ort", "tflm", "litert"])
def test_outputs_equal_the_reference(preset: str, dtype: str, rounding: str) -> None:
    chain = network(dtype)
    program = ZYNQ.compile(chain.graph(), ZYNQ.config(preset, {}), rounding)
    assert [step.name for step in program.steps if isinstance(step, HostStep)] == ["n4"]  # the reshape
    result = run(program, chain.inputs(6))
    assert (result.matches_reference, result.findings) == (True, ())
    assert len({tuple(row) for row in next(iter(result.outputs.values())).reshape(6, -1).tolist()}) > 1


def test_sums_that_are_read_too_soon_are_found_and_wrong() -> None:
    chain = network()
    program = ZYNQ.compile(chain.graph(), ZYNQ.config(None, {"lat_use": "0"}), "ort")
    result = run(program, chain.inputs(2))
    assert result.matches_reference is False
    assert {finding.kind for finding in result.findings} == {"race"}
    assert [finding.launch for finding in ZYNQ.check(program)] == ["n0", "n1", "n5", "n6"]


def conv(window: Window) -> Conv2D:
    return Conv2D("relu", window)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (conv(Window((3, 3), (2, 2), (1, 1, 1, 1))), "stride 2x2"),
        (conv(Window((3, 3), (1, 1), (0, 0, 0, 0))), "padding 0/0/0/0"),
        (conv(Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2))), "dilation 2x2"),
        (MaxPool2D(Window((3, 3), (2, 2))), "kernel 3x3 is not supported; pools must be 2x2"),
        (MaxPool2D(Window((2, 2), (2, 2), (0, 1, 0, 1))), "padding 0/1/0/1"),
    ],
)
def test_other_windows_are_left_to_the_host(op: Conv2D | MaxPool2D, said: str) -> None:
    graph = Chain(1, (8, 8, 3)).conv(4).graph()
    site = next(graph.sites())
    site = replace(site, node=replace(site.node, op=op))
    reason = codegen.plan(site, Config(), rounding_mode("ort"))
    assert isinstance(reason, str)
    assert said in reason


@pytest.mark.parametrize(
    ("kind", "sizes", "config", "said"),
    [
        ("conv", (8, 8, 20), {}, "20 input channels are not supported; use up to 16 or a multiple of 16"),
        ("pool", (7, 8, 4), {}, "7x8 is not supported; its input must have even sides"),
        ("pool", (2, 300, 4), {}, "shift register"),
        ("conv", (8, 200, 16), {"data_bits": 12}, "three rows of 3200 words exceed a data block"),
        ("conv", (8, 8, 64), {"weight_bits": 9}, "a kernel of 576 words exceeds"),
        ("conv", (64, 64, 16), {"data_bits": 8, "layout": "chw", "block_bits": 7}, "256 data blocks exceed"),
    ],
)
def test_shapes_beyond_the_engine_say_why(
    kind: str, sizes: tuple[int, int, int], config: dict[str, Any], said: str
) -> None:
    rows, cols, ic = sizes
    fields = {
        "kind": int(Kind.POOL if kind == "pool" else Kind.CONV_OTHER),
        "rows": rows,
        "cols": cols,
        "ic": ic,
        "oc": 4,
    }
    from tilewright.targets.zynq.timing import walk

    layer = Layer(Config(**config), {**dict.fromkeys(("r", "l"), 0), **fields})
    assert said in walk.refusal(layer)


def test_the_analysis_is_the_documents() -> None:
    text = stages.text(ZYNQ.explain(ZYNQ.compile(network().graph(), Config(), "ort")))
    lines = [line.split() for line in text.splitlines()]
    assert ["n0", "3*3*3", "16", "12*8"] in lines
    assert ["n5", "42", "9"] in lines
    assert ["n1", "12*8*7", "=", "672", "(3*3*16)*7", "=", "1008"] in lines
    assert ["input", "12*8*3", "=", "288", "0"] in lines
    assert "bill: 155 of 220 DSP48, 105 of 140 BRAM36" in text


BARE = """\
.launch "pool"
pool ic=1 rows=2 cols=4 low=0 high=255
.array data uint8 8
0109030405060708
.launch "sum"
fc r=4 l=2 relu=1 rule=float w_signed=1 zx=1 zy=3 low=0 high=255
.array weight uint8 8
01020304ff000001
.array bias int32 2
0000000001000000
.array factor float64 1
000000000000f03f
.array data uint8 4
01020301  # zeros but two
"""


def test_a_bare_program_means_what_it_says() -> None:
    program = ZYNQ.assemble(BARE, Config())
    assert ZYNQ.disassemble(ZYNQ.assemble(ZYNQ.disassemble(program), Config())) == ZYNQ.disassemble(program)
    values = [ZYNQ.launch(program, launch, {}, RunOptions("paged")).values for launch in program.launches]
    assert values[0]["pool/result"].tolist() == [[9, 8]]
    # (0, 1, 2, 0) by (1, 2, 3, 4) is 8; by (-1, 0, 0, 1), and 1, is 1
    assert values[1]["sum/result"].tolist() == [[11, 4]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fc r=4", "fcc r=4", "line 6, column 1: found 'fcc'"),
        ("zx=1", "zx=256", "column 44: found '256'; expected -256..255"),
        ("rule=float", "rule=up", "one of float, double"),
        ("relu=1", "relu=1 relu=1", "relu only once"),
        ("l=2 ", "l=3 ", "lacks the array 'weight', uint8 \\[12\\]"),
        (".array bias int32 2", ".array bias int8 2", "column 13: found 'int8'; expected int32, the type of bias"),
        ("0109030405060708", "01090", "two hex digits"),
        ("high=255\n.array data", "high=256\n.array data", "found '256'; expected -256..255"),
        ("rows=2 cols=4", "rows=1 cols=4", "must have even sides"),
        ("ic=1", "ic=0", "ic is 0"),
        ("000000000000f03f", "000000000000f07f", "not finite"),
    ],
)
def test_text_errors_name_the_place(old: str, new: str, said: str) -> None:
    assert old in BARE
    with pytest.raises(ProgramError, match=said):
        ZYNQ.assemble(BARE.replace(old, new), Config())


def test_a_damaged_launch_is_the_files_fault() -> None:
    program = ZYNQ.compile(contract.network(), Config(), "tflm")
    good = program.launches[0]
    for name, array in (
        ("insns", good.arrays["insns"][:0]),
        ("insns", np.full_like(good.arrays["insns"], 255)),
        ("weight", good.arrays["weight"][:-1]),
        ("bias", good.arrays["bias"].astype(np.int64)),
        ("factor", np.full_like(good.arrays["factor"], np.nan)),
    ):
        with pytest.raises(ProgramError, match="launch 'dense'"):
            LayerImage.of(Launch(good.name, good.nodes, {}, {**good.arrays, name: array}), Config())
    renamed = Launch(good.name, ("scores",), {}, good.arrays)
    with pytest.raises(ProgramError, match="does not fit the network"):
        swapped = tuple(renamed if step is good else step for step in program.steps)
        run(Program(program.target, program.config, program.digest, "tflm", program.graph, swapped), contract.inputs())


def test_only_one_order_exists() -> None:
    program = ZYNQ.compile(contract.network(), Config(), "tflm")
    with pytest.raises(InputError, match="cannot run in the order 'random'"):
        run(program, contract.inputs(), order="random")
    assert "order" not in ZYNQ.passes


def test_two_timing_models() -> None:
    program = ZYNQ.compile(contract.network(), Config(), "tflm")
    paged, compute = (run(program, contract.inputs(), timing=name) for name in ("paged", "compute"))
    for a, b in zip(paged.layers, compute.layers, strict=True):
        assert a.cycles - b.cycles == sum((a.stalls or {}).values())
        assert not b.stalls


@pytest.mark.parametrize("timing", [None, "paged", "compute"])
def test_explain_counts_the_cycles_of_a_run(timing: str | None) -> None:
    program = ZYNQ.compile(network().graph(), Config(), "ort")
    assert program.graph
    result = run(program, inputs.random(program.graph).values, timing=timing, compare=False)
    text = stages.text(ZYNQ.explain(program, timing))
    assert f"timing model {result.timing}\n" in text
    table = text.split("engine: ")[1]
    for layer in result.layers:
        if layer.where == "zynq":
            (row,) = [line.split() for line in table.splitlines() if line.split()[:1] == [layer.name]][:1]
            assert row[-1] == str(layer.cycles)
