"""What Python and notebooks show of a run: short texts, an escaped table, data, a picture, files."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.run
from tests.cli.digits import MODEL
from tests.report.runs import LAUNCH, SOFTMAX, result
from tilewright.api import Program
from tilewright.errors import InputError
from tilewright.model import inputs
from tilewright.program.program import HostStep
from tilewright.report.metrics import Deviation, Layer

#: Characters of the longest text: two lines of a wide terminal.
LONGEST = 240
CONV = replace(LAUNCH, causes={"GEMM": 30, "load bandwidth": 20}, executed_macs=64)
RUN = result(CONV, SOFTMAX, replace(CONV, name="dense", causes={"GEMM": 50}))


def test_a_result_says_cycles_coverage_agreement_and_hazards() -> None:
    assert repr(RUN) == "<Result net on fake: 100 cycles, 100 % of MACs on fake, matches the reference, 0 hazards>"
    part = replace(result(CONV, Layer("big", "conv2d", "host", macs=1600)), matches_reference=False, checked=False)
    said = "<Result net on fake: 50 cycles, 3.8 % of MACs on fake, DIFFERS from the reference, hazards not checked>"
    assert repr(part) == said
    close = replace(RUN, matches_reference=None, deviations={"y": Deviation(0.0125, 1.0, 100.0)})
    assert "differs from the reference by up to 0.0125" in repr(close)
    assert ", not compared," in repr(replace(RUN, matches_reference=None))


def test_layers_and_deviations_are_one_line() -> None:
    assert repr(CONV) == "<Layer conv (conv2d) on fake: 50 cycles, utilisation 0.0 %, mostly GEMM>"
    assert repr(SOFTMAX) == "<Layer softmax (softmax) on host: no exponential>"
    assert repr(Deviation(0.0125, 1.0, 100.0, 3)) == "<Deviation up to 0.0125, SNR 20.0 dB, 3 values overflow>"


@pytest.mark.usefixtures("brief_search")
@pytest.mark.parametrize("target", ["vta", "cfu", "zynq", "bm1684x"])
def test_everything_that_a_user_sees_is_short(target: str) -> None:
    graph = tw.load(MODEL)
    program = tw.compile(graph, target)
    samples = inputs.random(graph)
    ran = program.run(samples.values)
    traces = list(ran.trace.values())
    parts = [*graph.nodes, *program.steps, *ran.layers, *traces, *(trace.table for trace in traces)]
    paths = [trace.path for trace in traces if trace.path]
    for shown in [graph, program, samples, ran, *parts, *paths, *(trace.table.footprints for trace in traces)]:
        text = repr(shown)
        assert len(text) <= LONGEST and "\n" not in text, text
        assert text.startswith("<") or isinstance(shown, HostStep)
    assert all(len(repr(tensor)) - len(tensor.name) < 80 for tensor in graph.tensors.values())
    assert repr(graph) == "<Graph digits: 10 nodes, int8[1,8,8,1] -> int8[1,10]>"
    assert f"{len(program.launches)} launches" in repr(program)


def test_the_notebook_table_is_escaped_and_short() -> None:
    layers = (replace(CONV, name="<b>x</b>", op="<i>", causes={"<u>": 50}), replace(SOFTMAX, reason="<script>"))
    html = replace(result(*layers), model="<h1>")._repr_html_()
    for tag in ("<b>x", "<i>", "<u>", "<script>", "<h1>"):
        assert tag not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html and "&lt;script&gt;" in html and "&lt;h1&gt; on fake" in html
    assert html.count("<tr>") == 1 + 2 + 1
    assert "64 of 64 MACs ran on fake (100 %)" in html


def test_the_table_is_a_list_without_pandas_and_a_data_frame_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = RUN.table()
    assert [row["name"] for row in rows] == ["conv", "softmax", "dense"]
    assert len({tuple(row) for row in rows}) == 1  # all have the same keys
    assert [row["causes.GEMM"] for row in rows] == [30, 0, 50]
    assert [row["cycles"] for row in rows] == [50, 0, 50]
    frame = SimpleNamespace(DataFrame=lambda data: ("frame", data))
    monkeypatch.setitem(sys.modules, "pandas", frame)
    assert RUN.table() == ("frame", rows)


class Axes:
    """Records the bars of a picture."""

    def __init__(self) -> None:
        self.bars: dict[str, tuple[list[int], list[int]]] = {}
        self.said: list[str] = []

    def barh(self, places: range, cycles: list[int], left: list[int], label: str) -> None:
        self.bars[label] = (list(left), list(cycles))

    def set_xlabel(self, text: str) -> None:
        self.said.append(text)

    def set_title(self, text: str) -> None:
        self.said.append(text)

    def set_yticks(self, places: range, labels: list[str]) -> None:
        self.said += labels

    def invert_yaxis(self) -> None: ...

    def legend(self, title: str) -> None: ...


def test_the_picture_has_a_bar_for_each_layer_divided_by_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    axes, closed = Axes(), list[Any]()
    plots = ModuleType("matplotlib.pyplot")
    plots.subplots = lambda **options: ("figure", axes)  # type: ignore[attr-defined]
    plots.close = closed.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    assert RUN.plot() == "figure"
    assert axes.bars == {"GEMM": ([0, 0], [30, 50]), "load bandwidth": ([30, 50], [20, 0])}
    assert axes.said == ["conv", "dense", "cycles per sample, for 100 % of the MACs", "net on fake, rounding tflm"]
    assert closed == ["figure"]
    many = result(replace(CONV, causes={f"c{i}": 50 - 4 * i for i in range(12)}, cycles=sum(range(6, 51, 4))))
    many.plot()
    last = axes.bars["other causes"]
    assert last[0][0] + last[1][0] == many.cycles


def test_a_picture_without_matplotlib_or_cycles_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(InputError, match="matplotlib is not installed; run `pip install matplotlib`"):
        RUN.plot()
    with pytest.raises(InputError, match="no cycles to show"):
        result(SOFTMAX).plot()


def test_a_real_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    RUN.plot().savefig(tmp_path / "run.svg")
    assert "load bandwidth" in (tmp_path / "run.svg").read_text()


def test_a_real_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    assert isinstance(RUN.table(), pandas.DataFrame)
    assert RUN.table()["causes.GEMM"].sum() == 80


def test_a_result_writes_the_files_of_the_command_line(tmp_path: Path) -> None:
    timed = replace(RUN, clock_mhz=50.0)
    timed.to_html(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert "100 cycles per sample = 2.00 us at 50 MHz, for 100 % of the MACs" in page
    assert "1 given from Python" in page
    timed.save_trace(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    with pytest.raises(InputError, match="cannot be written"):
        timed.to_html(tmp_path / "missing" / "run.html")


def test_a_run_knows_its_clock_and_whether_hazards_were_looked_for() -> None:
    graph = tw.load(MODEL)
    ran = tw.compile(graph, "bm1684x").run(inputs.random(graph).values, check=False)
    assert (ran.clock_mhz, ran.checked) == (1000.0, False)
    assert ran.to_json()["clock_mhz"] == 1000.0


def test_run_has_the_keywords_of_the_function_that_it_calls() -> None:
    own, called = (inspect.signature(function).parameters for function in (Program.run, tilewright.run.run))
    assert {name: own[name].default for name in list(own)[2:]} == {n: called[n].default for n in list(called)[2:]}
    for function in (Program.run, tilewright.run.run, tilewright.run.run_bare, tw.compile, tw.load):
        parameters = inspect.signature(function).parameters.values()
        assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters), function
        assert all(each.annotation is not each.empty for each in parameters if each.name != "self"), function


def test_an_unknown_keyword_is_refused() -> None:
    program = tw.compile(MODEL, "bm1684x")
    codes = np.zeros((1, 1, 8, 8, 1), np.int8)
    with pytest.raises(TypeError, match="timng"):
        program.run(codes, timng="x")  # type: ignore[call-arg]
