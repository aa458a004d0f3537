"""Tables at the widths of terminals: columns go by priority, and no letter is cut."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.cli.digits import MODEL, Capture
from tests.report.runs import LAUNCH, SOFTMAX, result, summed
from tilewright.cli import main
from tilewright.errors import at_shell
from tilewright.report import render
from tilewright.report.metrics import Layer, Result
from tilewright.report.table import Grid, wrapped

SEED = 17
WIDTHS = (60, 80, 120)
CAUSES = {"load bandwidth": 600, "GEMM": 500, "DRAM contention": 300, "ALU": 20}
LONG = "StatefulPartitionedCall/model/block_12/expand_1x1/BiasAdd;model/block_12/expand_1x1/Conv2D"


def layer(name: str, op: str, cycles: int) -> Layer:
    return replace(
        LAUNCH,
        name=name,
        op=op,
        cycles=cycles,
        serial_cycles=2 * cycles,
        macs=9216 * cycles // 607,
        executed_macs=2 * cycles,
        macs_per_cycle=4,
        dram_read_bytes=3 * cycles,
        dram_write_bytes=cycles,
        causes=CAUSES,
    )


TFLITE = result(
    layer("conv2d_0", "conv2d", 607),
    layer("depthwise_conv2d_1", "depthwise_conv2d", 1_268),
    layer("fully_connected_10", "fully_connected", 1_234_567),
    replace(SOFTMAX, name="softmax_11", reason="softmax needs exponentials and a division"),
)
ONNX = result(
    layer("Conv_0_quant", "conv2d", 607),
    layer(LONG, "conv2d", 98_765),
    Layer("Resize_3", "Resize", "host", reason="Resize of linear interpolation is not supported", macs=10**9),
)


def printed(ran: Result, width: int, advice: str = "") -> str:
    file = io.StringIO()
    summary = summed(replace(ran, seconds=0.5), "1 sample", 100.0, advice=advice)
    render.show(summary, Console(file=file, width=width, highlight=False, markup=False, emoji=False))
    return file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "ran", "advice"), [("tflite", TFLITE, ""), ("onnx", ONNX, "--set x=1 takes 1 more")])
def test_reports_at_the_widths_of_terminals(
    name: str, ran: Result, advice: str, width: int, golden: Callable[[str, str], None]
) -> None:
    with at_shell():
        golden(f"terminal/{name}.{width}.txt", printed(ran, width, advice))


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


def column(text: str, heading: str) -> str:
    """The text of a column, from the table's line below its headings on, in one word."""
    lines = text.splitlines()
    rule = next(index for index, line in enumerate(lines) if re.fullmatch("-+( +-+)*", line))
    low = lines[rule - 1].index(heading)
    starts = [match.start() for match in re.finditer("-+", lines[rule])]
    ends = [match.end() for match in re.finditer("-+", lines[rule])]
    place = max(i for i, start in enumerate(starts) if start <= low)
    return letters("".join(line[starts[place] : ends[place]] for line in lines[rule + 1 :]))


@pytest.mark.parametrize("width", range(40, 161, 8))
def test_names_and_reasons_are_whole_at_every_width(width: int) -> None:
    for ran in (TFLITE, ONNX):
        text = printed(ran, width)
        table = text.split("inputs  ")[0]
        assert all(len(line) <= width for line in table.splitlines()[2:])
        for own in ran.layers:
            assert letters(own.name) in column(text, "layer")
            if own.reason:
                assert letters(own.reason) in letters(table) or letters(own.reason) in column(table, "on host")
        assert "1,234,567" in table or ran is ONNX


@pytest.mark.parametrize(
    ("width", "text"), [(60, "host: as softmax_11"), (160, "softmax needs exponentials and a division")]
)
def test_a_reason_of_several_lines_is_printed_once(width: int, text: str) -> None:
    again = replace(TFLITE.layers[-1], name="softmax_12")
    other = replace(again, name="other_13", reason="no rule")
    lines = printed(replace(TFLITE, layers=(*TFLITE.layers, again, other)), width).splitlines()
    (line,) = [line for line in lines if "softmax_12 " in line]
    assert line.endswith(f" {text}")
    (line,) = [line for line in lines if "other_13 " in line]
    assert line.endswith("no rule")


def test_columns_go_by_priority_and_the_last_line_says_which() -> None:
    made = Grid(("name", "a", "b", "why"), {"a", "b"}, drop=("b", "a"), least={"why": 10})
    made.add_row("conv", "1,000", "2,000", "words that wrap")
    shown = {width: made.fit(width).dropped for width in (60, 30, 29, 23, 22, 4)}
    assert shown == {60: (), 30: (), 29: ("b",), 23: ("b",), 22: ("a", "b"), 4: ("a", "b")}
    for width in range(20, 60):
        fit = made.fit(width)
        assert sum(fit.widths) + 2 * (len(fit.widths) - 1) <= width
    assert made.fit(60).widths == (4, 5, 5, 15)


def test_words_wrap_whole_and_long_ones_at_their_joints() -> None:
    assert wrapped("load bandwidth 45%, GEMM", 14) == ["load bandwidth", "45%, GEMM"]
    assert wrapped("depthwise_conv2d_1", 18) == ["depthwise_conv2d_1"]
    assert wrapped("depthwise_conv2d_1", 12) == ["depthwise_", "conv2d_1"]
    assert wrapped("unbreakable", 4) == ["unbr", "eaka", "ble"]
    assert wrapped("層層層 b", 4) == ["層層", "層 b"]
    assert wrapped("", 4) == [""]
    random = np.random.default_rng(SEED)
    for _ in range(200):
        text = "".join(random.choice(list("ab_/ 層"), int(random.integers(0, 40))))
        width = int(random.integers(2, 20))
        lines = wrapped(text, width)
        assert letters("".join(lines)) == letters(text), (SEED, text)
        assert all(sum(2 if c == "層" else 1 for c in line) <= width for line in lines), (SEED, text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", [["targets"], ["explain", MODEL, "-t", "vta"]], ids=str)
def test_other_commands_keep_their_tables_whole(
    command: list[str], width: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", str(width))
    assert main(command) == 0
    out = capsys.readouterr().out
    names = ("published", "addressed4", "literal-hwc", "bm1684x") if command == ["targets"] else ("depthwise_conv2d_1",)
    for name in names:
        assert re.search(rf"^(\d+ +)?{re.escape(name)} ", out, re.MULTILINE), name
    assert "155 of 220" in out or command != ["targets"]
    assert (f"dropped for {width} columns: " in out) == (width < 80 or (command == ["targets"] and width <= 120))


def test_piped_reports_keep_each_fact_on_one_line_and_terminals_wrap_them() -> None:
    assert "\ntiming model  guess: nothing at all\n" in printed(TFLITE, 60)
    file = io.StringIO()
    render.show(summed(TFLITE, "many words " * 20, 100.0), Console(file=file, width=60, force_terminal=True))
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 60 for line in file.getvalue().splitlines())
