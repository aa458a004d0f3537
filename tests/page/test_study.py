"""The page of a study in Chromium: its dots and lines are the study's machines, and it can be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.conftest import chromium
from tilewright.explore import Study
from tilewright.explore.measure import Model, Subject
from tilewright.explore.page import because, page, write
from tilewright.explore.space import Axis, Space
from tilewright.explore.trial import BASE, MEASURED, REFUSED, Trial
from tilewright.targets import get

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def study(seed: int = 0) -> Study:
    """Return a study of random figures, with names that try to break out of the page."""
    rng = np.random.default_rng(seed)
    space = Space(
        (Axis.of("LOG_INP_BUFF_SIZE", "11..15"), Axis.of("alu", "upstream, fused"), Axis.of("stages", "3..4"))
    )
    model = Model(HOSTILE, "/nowhere", "0")
    made = Study(Subject("vta", (model,), get("vta").config(None, {}).to_dict()), space, ("cycles", "on_chip_kib"))
    for point in (BASE, *range(space.size)):
        keys = space.at(point) if point >= 0 else {}
        cycles, size = (int(value) for value in rng.integers(1000, 9000, 2))
        refused = point in (3, 7)
        values: dict[str, Any] = {} if refused else {"cycles": cycles, "on_chip_kib": size / 10}
        causes, layers = ["GEMM", HOSTILE], {HOSTILE: {"conv": [cycles - 500, 100], HOSTILE: [0, 400]}}
        status, reason = (REFUSED, f"not 7 {HOSTILE}") if refused else (MEASURED, "")
        made.add(Trial(point, keys, status, f"digest {point}", reason, values, causes, {} if refused else layers))
    return made


def test_a_machine_is_explained_by_cause_and_by_layer() -> None:
    made = study()
    base = {"conv": [700, 200], "pool": [0, 100]}
    layers = {"conv": [400, 250], "pool": [0, 90]}
    made.trials[BASE] = replace(made.trials[BASE], causes=["GEMM", "load"], layers={"net": base})
    trial = replace(made.front()[0], causes=["GEMM", "load"], layers={"net": layers})
    text = (
        "-260 cycles beside the base machine: GEMM -300, load +40. Most in conv -250 (GEMM -300), pool -10 (load -10)"
    )
    assert because(made, trial) == text
    assert because(made, replace(trial, layers={"net": base})) == ""


@pytest.mark.chromium
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_shows_the_study(tmp_path: Path, width: int) -> None:
    from playwright.sync_api import sync_playwright

    made, path, said = study(), tmp_path / "study.html", list[str]()
    write(made, path)
    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = play.chromium.launch(executable_path=chromium(), args=flags)
        shown: Page = browser.new_page(viewport={"width": width, "height": 900})
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
        shown.goto(path.as_uri())
        shown.wait_for_function("document.documentElement.dataset.ready")
        dots = shown.evaluate("[...document.querySelectorAll('#front circle title')].map((title) => title.textContent)")
        expected = {f"cycles {trial.values['cycles']:,}" for trial in made.measured}
        assert {line for dot in dots for line in dot.splitlines() if line.startswith("cycles")} == expected
        assert len(dots) == len(made.measured) == 18
        orange = (
            "[...document.querySelectorAll('#front circle')].filter((dot) => dot.getAttribute('fill') === '#d55e00')"
        )
        assert shown.evaluate(f"{orange}.length") == len(made.front())
        rows = shown.evaluate(
            "[...document.querySelectorAll('#machines tr[data-point]')].map((row) => +row.dataset.point)"
        )
        assert rows == [trial.point for trial in made.front()]
        shown.hover(f"#machines tr[data-point='{rows[0]}']")
        assert shown.evaluate("document.querySelectorAll('#front circle[r=\"7\"]').length") == 1
        axis = shown.locator("#all rect[data-axis=stages]").bounding_box()
        assert axis
        shown.mouse.move(axis["x"] + axis["width"] / 2, axis["y"] + 2)
        shown.mouse.down()
        shown.mouse.move(axis["x"] + axis["width"] / 2, axis["y"] + axis["height"] / 3)
        shown.mouse.up()
        kept = (
            "[...document.querySelectorAll('#all path')].filter((line) => +line.getAttribute('opacity') > 0.1).length"
        )
        assert shown.evaluate(kept) == sum(trial.set["stages"] == "4" for trial in made.measured)
        browser.close()
    assert not said


def test_no_text_of_a_study_ends_its_element() -> None:
    text = page(study())
    assert HOSTILE not in text
    assert text.count("<script") == 2
