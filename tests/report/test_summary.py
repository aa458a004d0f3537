"""Numbers for people, predictions, the HTML page and the files."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.report.test_trace import LAUNCH, RUN, SOFTMAX, result
from tilewright.array import Array
from tilewright.graph.ir import Graph, Tensor
from tilewright.report import files, html, summary
from tilewright.report.summary import Summary


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1000, "1.00 k"), (257_280, "257 k"), (12_501_632, "12.5 M")]
)
def test_counts(number: int, text: str) -> None:
    assert summary.count(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1.00 KiB"), (17_613, "17.2 KiB"), (1 << 30, "1.00 GiB")]
)
def test_sizes(number: int, text: str) -> None:
    assert summary.size(number) == text


def test_shorten_keeps_both_ends() -> None:
    assert summary.shorten("average_pool_2d_6", 20) == "average_pool_2d_6"
    assert summary.shorten("a_very_long_layer_name_12", 12) == "a_ver..me_12"


def graph(inputs: tuple[int, ...], *outputs: tuple[int, ...]) -> Graph:
    tensors = {f"out{i}": Tensor(f"out{i}", shape, "int8") for i, shape in enumerate(outputs)}
    return Graph("g", {"in": Tensor("in", inputs, "int8"), **tensors}, (), ("in",), tuple(tensors))


def test_predictions_need_a_vector_of_scores() -> None:
    scores = np.array([[[3, 9, 9]], [[1, 0, -5]]], np.int8)
    assert summary.predict(graph((1, 8, 8, 1), (1, 3)), {"out0": scores}) == (1, 0)
    assert summary.predict(graph((1, 3), (1, 3)), {"out0": scores}) is None
    assert summary.predict(graph((1, 8), (1, 1)), {"out0": scores[:, :, :1]}) is None
    assert summary.predict(graph((1, 8), (1, 3, 1)), {"out0": scores}) is None
    assert summary.predict(graph((1, 8), (1, 3), (1, 3)), {"out0": scores, "out1": scores}) is None


def test_top_stall_is_the_longest() -> None:
    layer = replace(LAUNCH, stalls={"a": 5, "b": 20, "c": 1})
    assert summary.top_stall(layer) == "b 20 (40%)"
    assert summary.top_stall(replace(layer, stalls={})) == "-"


def test_a_layer_without_serial_time_is_said_to_have_none() -> None:
    """A dash and a sentence, not a number: also the sum over the layers has none."""
    known = replace(LAUNCH, name="known", serial_cycles=90)
    ran = replace(result(), layers=(known, replace(LAUNCH, name="early", serial_cycles=None)))
    assert (ran.serial_cycles, ran.to_json()["serial_cycles"]) == (None, None)
    assert [layer["serial_cycles"] for layer in ran.to_json()["layers"]] == [90, None]
    assert [summary.cells(0, layer)["serial"] for layer in ran.layers] == ["90", "-"]
    assert summary.totals(ran)["serial"] == "-"
    (said,) = [fact.statement for fact in summary.facts(Summary(ran, "random", 100.0)) if fact.topic == "overlap"]
    assert said.startswith("the time in serial order is not defined: in early an instruction needs a token")
    assert said in html.page(Summary(ran, "random", 100.0))


class Structure(HTMLParser):
    """Tags that are open, and everything that the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "html":
            assert self.open.pop() == tag


def test_the_page_is_well_formed_escaped_and_self_contained() -> None:
    layers = (replace(LAUNCH, name="<b>conv"), SOFTMAX)
    page = html.page(Summary(result(*layers), "1 sample", 100.0))
    structure = Structure()
    structure.feed(page)
    assert not structure.open
    assert not structure.fetched
    assert "&lt;b&gt;conv" in page
    assert "<b>conv" not in page
    assert "guess: nothing at all" in page
    assert "40 (80.0%)" in page  # compute was busy 40 of 50 cycles


def test_several_outputs_are_all_written(tmp_path: Path) -> None:
    outputs: dict[str, Array] = {"file": np.zeros((4, 1, 3), np.int8), "a/b": np.ones((4, 2, 2), np.int16)}
    files.write_outputs(tmp_path / "o.npz", outputs)
    with np.load(tmp_path / "o.npz") as written:
        assert {name: written[name].shape for name in written.files} == {
            "file": (4, 3),
            "a/b": (4, 2, 2),
            "outputs": (4, 3),
        }


def test_json_names_what_was_not_checked() -> None:
    found = Summary(RUN, "1 sample", 100.0, checked=False, predictions=(1,), labels=(0,)).to_json()
    assert (found["checked"], found["predictions"], found["correct"]) == (False, [1], 0)
