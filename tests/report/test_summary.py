"""Numbers for people, predictions, the HTML page and the files."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.report.runs import LAUNCH, RUN, SOFTMAX, result, summed
from tilewright import files
from tilewright.array import Array
from tilewright.graph.ir import Graph, Tensor
from tilewright.report import page as pages
from tilewright.report import record, summary
from tilewright.report.metrics import Layer
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


def test_top_causes_explain_half_of_the_cycles() -> None:
    assert summary.top_causes({"a": 20, "b": 15, "c": 5}) == "a 50%"
    assert summary.top_causes({"a": 19, "b": 15, "c": 6}) == "a 48%, b 38%"
    assert summary.top_causes({}) == "-"


def test_a_layer_without_serial_time_is_said_to_have_none() -> None:
    """A dash and a sentence, not a number: also the sum over the layers has none."""
    known = replace(LAUNCH, name="known", serial_cycles=90)
    ran = replace(result(), layers=(known, replace(LAUNCH, name="early", serial_cycles=None)))
    assert (ran.serial_cycles, ran.to_json()["serial_cycles"]) == (None, None)
    assert [layer["serial_cycles"] for layer in ran.to_json()["layers"]] == [90, None]
    assert [summary.cells(0, layer)["serial"] for layer in ran.layers] == ["90", "-"]
    assert summary.totals(ran)["serial"] == "-"
    (said,) = [fact.statement for fact in summary.facts(summed(ran, "random", 100.0)) if fact.topic == "overlap"]
    assert said.startswith("the time in serial order is not defined: in early an instruction needs a token")
    assert said in page_of(summed(ran, "random", 100.0))


def page_of(shown: Summary) -> str:
    return pages.page(record.of(shown))


class Structure(HTMLParser):
    """Tags that are open, and everything that the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "html", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "html":
            assert self.open.pop() == tag


def test_the_page_is_well_formed_escaped_and_self_contained() -> None:
    layers = (replace(LAUNCH, name="<b>conv"), SOFTMAX)
    page = page_of(summed(result(*layers), "1 sample", 100.0))
    structure = Structure()
    structure.feed(page)
    assert not structure.open
    assert not structure.fetched
    assert "&lt;b&gt;conv" in page
    assert "<b>conv" not in page
    assert "guess: nothing at all" in page


def test_several_outputs_are_all_written(tmp_path: Path) -> None:
    outputs: dict[str, Array] = {"file": np.zeros((4, 1, 3), np.int8), "a/b": np.ones((4, 2, 2), np.int16)}
    files.write_outputs(tmp_path / "o.npz", outputs)
    with np.load(tmp_path / "o.npz") as written:
        assert {name: written[name].shape for name in written.files} == {
            "file": (4, 3),
            "a_b": (4, 2, 2),  # a safe name of a file
            "outputs": (4, 3),
        }


def test_json_names_what_was_not_checked() -> None:
    found = summed(replace(RUN, checked=False), "1 sample", 100.0, predictions=(1,), labels=(0,)).to_json()
    assert (found["checked"], found["predictions"], found["correct"]) == (False, [1], 0)


def facts(*layers: Layer, clock: float = 75.0) -> dict[str, str]:
    return {fact.topic: fact.statement for fact in summary.facts(summed(result(*layers), "1 sample", clock))}


HOST_CONV = Layer("big", "conv2d", "host", reason="no rule", macs=12_500_000)


def test_macs_on_the_machine_come_first_and_no_time_is_given_where_the_host_computed() -> None:
    """Cycles of launches that reshape are no time of a network whose convolutions the host ran."""
    reshape = replace(LAUNCH, name="flat", op="reshape", macs=0)
    found = facts(HOST_CONV, reshape)
    assert next(iter(found)) == "MACs"
    assert found["MACs"] == "0 of 12.5 M MACs ran on fake (0 %)"
    assert "time" not in found
    mine, left = "of 1 layer on fake only (0 % of the MACs)", "12.5 M MACs ran on the host"
    assert found["cycles"] == f"50 per sample, {mine}; not the network's time: {left}"
    assert not any(" us" in text or "MHz" in text for text in found.values())
    page = page_of(summed(result(HOST_CONV, reshape), "1 sample", 75.0))
    assert "0 of 12.5 M MACs ran on fake (0 %)" in page
    assert " us at" not in page
    assert "<small>for one sample, of the machine's layers alone</small>" in page.replace("&#x27;", "'")


def test_a_network_whose_macs_all_ran_on_the_machine_has_a_time() -> None:
    found = facts(replace(LAUNCH, executed_macs=64), SOFTMAX)
    assert found["MACs"] == "64 of 64 MACs ran on fake (100 %)"
    assert found["time"] == "50 cycles per sample = 0.67 us at 75 MHz, for 100 % of the MACs (host steps not counted)"
    assert "cycles" not in found


def test_a_network_without_macs_is_judged_by_its_layers() -> None:
    pool = replace(LAUNCH, name="pool", op="max_pool_2d", macs=0)
    assert facts(pool)["MACs"] == "none to run; 1 of 1 layers ran on fake"
    assert facts(pool)["time"].endswith("at 75 MHz, for 1 of 1 layers")
    assert facts(pool, SOFTMAX)["cycles"].endswith("not the network's time: the host ran the other layers")


def headline(*layers: Layer, advice: str = "") -> str:
    return summary.headline(summed(result(*layers), "1 sample", 75.0, advice=advice))


def test_the_first_line_warns_of_a_network_that_mostly_ran_on_the_host() -> None:
    """Half of the MACs is enough for a plain title."""
    half = (replace(LAUNCH, macs=50), replace(HOST_CONV, macs=50))
    assert headline(*half, advice="--set big=1 takes 1 more layer") == "net on fake, rounding tflm"
    less = (replace(LAUNCH, macs=49), replace(HOST_CONV, macs=51))
    said = "net on fake, rounding tflm: only 49.0 % of the MACs ran on fake"
    assert headline(*less) == said
    assert headline(*less, advice="--set big=1 takes 1 more layer") == f"{said}; --set big=1 takes 1 more layer"
    pool = replace(LAUNCH, macs=0)
    assert headline(pool, SOFTMAX) == "net on fake, rounding tflm"
    assert "only 1 of 3 layers ran on fake" in headline(pool, SOFTMAX, SOFTMAX)
    page = page_of(summed(result(*less), "1 sample", 75.0, advice="--set big=1 takes 1 more layer"))
    assert f"<h1>{said}; --set big=1 takes 1 more layer</h1>" in page


def test_an_option_that_takes_more_layers_is_a_fact_if_most_ran_on_the_machine() -> None:
    ran = summed(result(LAUNCH, SOFTMAX), "1 sample", 75.0, advice="--set big=1 takes 1 more layer")
    assert ("on the host", "1 layer; --set big=1 takes 1 more layer", False) in list(summary.facts(ran))
    assert ran.to_json()["advice"] == "--set big=1 takes 1 more layer"
    assert "advice" not in summed(RUN, "1 sample", 75.0).to_json()


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0 %"), (1, "0.1 %"), (500_000, "50.0 %"), (999_999, "99.9 %"), (1_000_000, "100 %")]
)
def test_a_share_is_round_only_where_it_is_exact(part: int, text: str) -> None:
    assert summary.share(part, 1_000_000) == text


def test_utilisation_is_of_executed_macs_and_of_each_layers_own_peak() -> None:
    """Padding taps that the machine skips are MACs of the operator, and no work of the array."""
    padded = replace(LAUNCH, macs=400, executed_macs=180, macs_per_cycle=4)
    whole = result(padded, replace(padded, executed_macs=360, macs_per_cycle=8))
    assert whole.utilization == (180 + 360) / (50 * 4 + 50 * 8)
    found = facts(padded, replace(padded, executed_macs=360, macs_per_cycle=8))
    assert found["utilisation"].startswith("90.0% of 4 and 8 MAC/cycle")
    assert found["MACs"] == "800 of 800 MACs ran on fake (100 %), which executed 540"
    data = whole.to_json()
    assert (data["macs"], data["macs_on_target"], data["executed_macs"], data["complete"]) == (800, 800, 540, True)
