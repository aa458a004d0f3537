"""Drawings of layouts: every element once, in the text and in the picture; the command."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import drawing
from tilewright.targets.bm1684x.layouts.drawing import LETTER, LINE, MARGIN
from tilewright.targets.bm1684x.layouts.placement import LayoutRequest, Placement, place
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F16, dtype_of

FOUR = Config(lanes=4)
Capture = pytest.CaptureFixture[str]


def laid(kind: str, shape: tuple[int, ...], dtype: str, *numbers: Any, **more: Any) -> Placement:
    """On four lanes; `numbers` as LayoutRequest has them."""
    return place(LayoutRequest(kind, shape, dtype, *numbers, **more), FOUR)


def test_the_pictures_of_the_source_document(golden: Callable[[str, str], None]) -> None:
    """Its fp16 examples: aligned and compact from lanes 0 and 2, matrices of several widths."""
    drawn = [laid(kind, (2, 3, 4, 5), "f16", start).text() for kind in ("aligned", "compact") for start in (0, 2)]
    drawn += [laid("matrix", (2, 40), "f16", width=width).text() for width in (40, 20, 15, 8, 6)]
    drawn.append(laid("64ic", (5, 70, 1, 2), "i8").text())
    golden("bm1684x.layouts.txt", "\n".join(drawn))


@pytest.mark.parametrize("kind", ["aligned", "compact", "line", "free", "matrix", "64ic"])
def test_runs_hold_every_element_once(kind: str) -> None:
    shape = (3, 40) if kind == "matrix" else (3, 6, 2, 5)
    stride = (40, 20, 9, 1) if kind == "free" else None
    placed = laid(kind, shape, "i8", 1, 64, stride, 7 if kind == "matrix" else None)
    runs = list(drawing.runs(placed.operand.addresses, 1, FOUR))
    assert sum(run.count for run in runs) == placed.operand.addresses.size
    for run in runs:
        if run.count:
            for index, at in ((run.first, run.offset), (run.last, run.offset + run.size - 1)):
                assert placed.operand.addresses[index] == LOCAL_BASE + run.lane * FOUR.lane_bytes + at
    for before, after in itertools.pairwise(runs):
        assert before.lane != after.lane or before.offset + before.size == after.offset


def test_a_picture_has_a_box_for_every_element() -> None:
    placed = laid("aligned", (2, 6, 2, 3), "f16", 2)
    picture = ElementTree.fromstring(placed.svg())
    titles = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(set(titles)) == 72
    assert "n1 c3 h0 w2: lane 1, byte 0xc4" in titles
    texts = [node for node in picture.iter("{http://www.w3.org/2000/svg}text") if node.get("text-anchor") == "middle"]
    assert "".join(str(node.text) for node in texts[:4]) == "n0c2h0w0"  # in lane 0
    assert len(texts) == 72 * 4
    with pytest.raises(InputError, match="at most 4096"):
        laid("aligned", (1, 64, 9, 9), "f16").svg()


def test_long_texts_end_with_what_was_left_out() -> None:
    text = laid("free", (1, 300, 1, 1), "i8", stride=(0, 3, 1, 1)).text()
    left = re.search(r"and (\d+) more lines", text)
    assert left
    assert text.count("\n") == drawing.MOST_LINES + 2


@pytest.mark.parametrize("dtype", ["i8", "f16", "f32"])
def test_names_fit_into_their_boxes(dtype: str) -> None:
    picture = ElementTree.fromstring(laid("aligned", (1, 1, 1, 120), dtype).svg())
    boxes = [node for node in picture.iter("{http://www.w3.org/2000/svg}rect") if len(node)]
    texts = [node for node in picture.iter("{http://www.w3.org/2000/svg}text") if node.get("text-anchor") == "middle"]
    assert len(boxes) == 120
    assert "".join(str(node.text) for node in texts).count("w") == 120
    wide, high = float(boxes[0].attrib["width"]), float(boxes[0].attrib["height"])
    per_line = 64 // dtype_of(dtype).bytes
    for number, box in enumerate(boxes):
        assert float(box.attrib["x"]) == pytest.approx(MARGIN + number % per_line * wide, abs=0.01)
    assert max(len(str(node.text)) for node in texts) * LETTER <= wide
    lines = {float(node.attrib["y"]) for node in texts if float(node.attrib["y"]) < float(boxes[0].attrib["y"]) + high}
    assert max(lines) - min(lines) + LINE <= high


def test_an_element_that_repeats_is_drawn_once() -> None:
    placed = laid("free", (2, 4, 3, 1), "i8", stride=(0, 4, 1, 1))
    assert placed.svg().count("<title>") == 12
    assert placed.text().count("n0c3h2w0") == 1
    assert "n1" not in placed.text().split("offset")[2]


def test_operands_explain_themselves() -> None:
    tensor = Tensor.local(2, 0, (2, 3, 4, 5), F16, FOUR)
    assert "n1 c2 h0-3 w0-4 (40 B)" in tensor.explain()
    assert tensor.svg().startswith("<svg ")


def test_the_trap_of_default_strides_is_named() -> None:
    assert "n stride 32, not 64" in laid("aligned", (2, 3, 4, 5), "f16", 2).note
    assert "n stride 64, not 32" in laid("dma", (2, 3, 4, 5), "f16", 2).note
    assert not laid("aligned", (2, 3, 4, 5), "f16", 0).note


def test_the_command_draws(tmp_path: Path, capsys: Capture) -> None:
    command = ["layout", "matrix", "2,40", "f16", "-t", "bm1684x", "--set", "lanes=4", "--width", "15"]
    assert main([*command, "--svg", str(tmp_path / "m.svg")]) == 0
    assert "row1 column30-39 (20 B)" in capsys.readouterr().out
    assert (tmp_path / "m.svg").read_text().startswith("<svg ")
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert np.array(answer["addresses"]).reshape(2, 40)[1, 15] == FOUR.lane_bytes + 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tight", "1,1,1,1", "f16"], "no layout 'tight'"),
        (["aligned", "1,1,1", "f16"], "aligned takes N,C,H,W"),
        (["aligned", "1,1,1,1", "f8"], "no element type 'f8'"),
        (["aligned", "1,x", "f16"], "not a list of integers"),
        (["free", "1,1,1,1", "f16"], "give --stride"),
        (["free", "1,1,1,1", "f16", "--stride", "1,1"], "four strides"),
        (["aligned", "1,1,1,1", "f16", "--width", "2"], "leave --width out"),
        (["64ic", "1,1,1,1", "f16"], "8-bit weights"),
        (["aligned", "9,64,200,300", "f32"], "of a lane, which has 262144"),
        (["aligned", "1,1,1,1", "f16", "--start-lane", "64"], "lane 64"),
    ],
)
def test_bad_layouts_are_one_line(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["layout", *arguments, "-t", "bm1684x"]) == 2
    printed, said = capsys.readouterr()
    assert not printed
    assert message in said
    assert said.count("\n") == 1


def test_other_targets_have_no_layouts(capsys: Capture) -> None:
    assert main(["layout", "aligned", "1,1,1,1", "i8", "-t", "vta"]) == 2
    assert "vta has no layouts to draw" in capsys.readouterr().err
