"""The block walk of the study example, as text, and of compiled layers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.blocked import SIZE, blocked_gemm
from tests.conftest import ROOT
from tilewright import targets
from tilewright.array import Array
from tilewright.program import stages
from tilewright.targets.vta.compiler import explain_walk
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.runtime import Memory, Runtime, UopRecorder

Golden = Callable[[str, str], None]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def zeros() -> tuple[Array, Array, Array]:
    nothing = np.zeros((SIZE, SIZE), np.int64)
    return nothing, nothing, nothing


def test_blocked_gemm(golden: Golden) -> None:
    with Runtime("pynq") as rt:
        blocked_gemm(rt, *zeros(), 1)
        golden("blocked_gemm.walk.txt", rt.explain())


def test_another_bus_counts_other_words() -> None:
    with Runtime("ultra96") as rt:
        blocked_gemm(rt, *zeros(), 2)
        text = rt.explain()
    assert "inp  128 x 2048 bit" in text
    assert "wgt  128 x 1024 x 16 bit" in text
    assert "row 2: dram 16, block 17..20, inp[4..7]" in text


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_have_the_outer_walk_of_one(threads: int) -> None:
    """One line for each output block, though the threads take turns with several blocks."""
    lines = (ROOT / "tests" / "golden" / "blocked_gemm.walk.txt").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("outer walk"))
    with Runtime("pynq") as rt:
        blocked_gemm(rt, *zeros(), threads)
        text = rt.explain()
    assert "\n".join(lines[start : start + 10]) in text


def test_sums_without_a_block_share_a_line_like_all_others() -> None:
    entries = np.array([(1, 1, 2), (1, 2, 0), (2, 1, 2), (2, 1, 2), (2, 2, 0), (3, 1, 1)], np.int64)
    lines = explain_walk._by_sum(entries)
    assert lines == [[(1, 1, 2), (2, 1, 2)], [(1, 2, 0), (2, 2, 0)], [(3, 1, 1)]]


def test_compiled_products(golden: Golden) -> None:
    program = tw.compile(DIGITS, "vta")
    config = PRESETS["pynq"]
    walks = {
        x.name: stages.text(explain_walk.walk(x, config, short=True))
        for x in program.launches
        if x.meta["layers"][0]["matrix"]
    }
    assert len(walks) == 3
    golden("digits.walk.txt", "".join(f"{name}\n{text}" for name, text in walks.items()))
    text = stages.text(targets.get("vta").explain(program))
    assert all(line.strip() in text for walk in walks.values() for line in walk.splitlines())
    assert "wgt  64 x 1024 x 32 bit" in text


def test_layers_of_one_launch_are_walked_one_by_one() -> None:
    """Each by its own instructions and its own numbers."""
    program = tw.compile(DIGITS, "vta", overrides={"alu": "fused"})
    (launch,) = [x for x in program.launches if len(x.nodes) > 1]
    config = PRESETS["pynq"].with_overrides({"alu": "fused"})
    text = stages.text(targets.get("vta").explain(program))
    assert "par  64 x 256 x 8 bit" in text
    walked = []
    for index, layer in enumerate(launch.meta["layers"]):
        found = stages.text(explain_walk.walk(launch, config, short=True, layer=index)).splitlines()
        if layer["matrix"]:
            (number,) = re.findall(r"^inner walk, #(\d+) gemm", found[0])
            assert launch.arrays["layer"][int(number)] == index
            assert found[1].startswith("  1x1+1 ")
            assert "\n    ".join([f"\n  {layer['node']}:", *found]) in text
            walked.append(layer["node"])
        else:
            assert f"\n  {layer['node']}:\n    inner" not in text
    assert walked == ["conv2d_0", "conv2d_2", "add_4"]


def test_padding_and_missing_loads_have_no_block() -> None:
    def one(k: UopRecorder) -> None:
        for n in range(3):
            k.uop_push(n, n)

    with Runtime() as rt:
        x = rt.to_device(np.zeros((2, 16), np.int64), Memory.INP)
        rt.load_buffer_2d(x, 1, 1, 1, 1, 0, Memory.INP, x_pad=(1, 0))
        rt.push_gemm(one)
        text = rt.explain()
    assert "inner walk, #2 gemm 3x1x1 micro-ops: input x weight + output block\n  -x-+- 2x-+- -x-+-\n" in text
    assert "row 1: dram 2, block 2, inp[1]" in text


def test_a_reset_forgets_the_bias() -> None:
    """The first sum starts as block 3 of the biases; the second, after a reset, goes nowhere."""

    def one(k: UopRecorder, reset: bool) -> None:
        k.uop_push(0, 0, reset=reset)

    with Runtime() as rt:
        x = rt.to_device(np.zeros((2, 16), np.int64), Memory.INP)
        w = rt.to_device(np.zeros((16, 16), np.int64), Memory.WGT)
        biases = rt.to_device(np.zeros((4, 16), np.int64), Memory.ACC)
        rt.load_buffer_2d(x, 1, 1, 1, 1, 0, Memory.INP)
        rt.load_buffer_2d(w, 0, 1, 1, 1, 0, Memory.WGT)
        rt.load_buffer_2d(biases, 2, 1, 1, 1, 0, Memory.ACC)
        for reset in (False, True, False):
            rt.push_gemm(one, reset)
        lines = rt.explain().splitlines()
    assert lines[1:5] == [
        "  2x1+3",
        "outer walk, 2 gemm: transfers of input x weight + bias, by dram_base",
        "  1x1+1",
        "  1x1+-",
    ]


def test_nothing_multiplied_is_nothing_to_walk() -> None:
    with Runtime() as rt:
        x = rt.to_device(np.zeros((2, 16), np.int64), Memory.INP)
        rt.load_buffer_2d(x, 0, 1, 1, 1, 0, Memory.INP)
        assert explain_walk.walk(rt.program().launches[0], rt.config) == []
        assert rt.explain() == ""
