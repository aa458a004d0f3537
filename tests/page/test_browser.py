"""The page of a run in Chromium: nothing is complained of, every number is that of --json, and it can be used."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT, chromium
from tilewright import targets
from tilewright.cli import main
from tilewright.model import inputs
from tilewright.run import Defines

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.chromium
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]  # as containers need
        started = play.chromium.launch(executable_path=chromium(), args=flags)
        yield started
        started.close()


class Opened:
    """A page in the browser, and what the browser said about it: messages, and addresses that it asked for."""

    def __init__(self, browser: Browser, path: Path, width: int = 1200) -> None:
        self.said: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url) if request.url != path.as_uri() else None)
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.ready")

    def value(self, script: str, given: Any = None) -> Any:
        return self.page.evaluate(script, given)

    def settled(self, script: str) -> Any:
        """Return the value of a script after the next frame, in which figures are drawn again."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.value(script)


Run = Callable[[str], tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the digits on a target, once. Return the path of the page, and the object that --json prints."""

    @cache
    def once(target: str) -> tuple[Path, dict[str, Any]]:
        path = tmp_path_factory.mktemp("pages") / f"{target}.html"
        command = ["run", str(DIGITS / "digits.tflite"), "-t", target, "-i", str(DIGITS / "samples.npz")]
        with redirect_stdout(StringIO()) as printed:
            assert main([*command, "--html", str(path), "--json", "--no-what-if"]) == 0
        return path, json.loads(printed.getvalue())

    return once


@pytest.fixture
def digits(browser: Browser, run: Run) -> Iterator[Opened]:
    """The page of the digits on VTA; at the end of a test, the browser has said nothing."""
    opened = Opened(browser, run("vta")[0])
    yield opened
    assert not opened.said
    opened.page.close()


@pytest.mark.parametrize("target", targets.names())
def test_every_number_is_that_of_json(target: str, browser: Browser, run: Run) -> None:
    path, printed = run(target)
    opened = Opened(browser, path)
    assert opened.value("tilewright.RUN.summary") == printed
    keys = ["", "name", "op", "where", "cycles", "binds", "", "macs", "utilization", "dram_read_bytes"]
    for index, layer in enumerate(printed["layers"]):
        cells = opened.value(
            f"[...document.querySelectorAll('#layers tbody tr')[{index}].cells].map((c) => c.dataset.v)"
        )
        expected = [str(layer[key]) if key else None for key in keys]
        shown = [cell if key else None for cell, key in zip(cells, keys, strict=False)]
        assert shown == expected
    cards = opened.page.locator(".cards").inner_text()
    assert f"{printed['cycles']:,}" in cards
    legend = opened.page.locator(".causes + .legend").first.inner_text()
    for cause, cycles in printed["causes"].items():
        assert cause in legend and f"{cycles:,}" in legend
    tips = opened.value("[...document.querySelectorAll('.causes + .legend')[0].children].map((item) => item.title)")
    machine = targets.get(target)
    assert isinstance(machine, Defines)
    assert tips == [str(machine.causes[cause]) for cause in printed["causes"]]
    assert not opened.said
    opened.page.close()


def test_instructions_are_those_of_the_trace(digits: Opened) -> None:
    program = tw.compile(DIGITS / "digits.tflite", "vta")
    traces = program.run(inputs.random(tw.load(DIGITS / "digits.tflite")).values).trace
    for index, trace in enumerate(traces.values()):
        launch = f"tilewright.timed.launches[{index}]"
        for column in ("start", "end", "wait"):
            shown = digits.value(f"Array.from({launch}.rows[{['start', 'until', 'end', 'wait'].index(column) + 2}])")
            np.testing.assert_array_equal(shown, getattr(trace, column))
        step = len(trace.table) // 2
        assert digits.value(f"{launch}.text({step})") == trace.table.describe(step)
        waited = [step for step in range(len(trace.table)) if trace.wait[step] and trace.cause[step] >= 2]
        for step in waited[:5]:
            giver = digits.value(f"{launch}.waitedFor({step})")
            assert trace.end[giver] == trace.start[step]


@pytest.mark.parametrize(("target", "row"), [("bm1684x", "bank 0"), ("zynq", "weight")])
def test_the_machines_own_figure_is_that_of_the_trace(target: str, row: str, browser: Browser, run: Run) -> None:
    opened = Opened(browser, run(target)[0])
    program = tw.compile(DIGITS / "digits.tflite", target)
    traces = list(program.run(inputs.random(tw.load(DIGITS / "digits.tflite")).values).trace.values())
    with opened.page.expect_download() as waiting:
        opened.page.locator("#chart .exports button").nth(1).click()
    opened.said.clear()  # a download is a request of a blob: address
    lines = list(csv.reader(Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()))
    expected, offset = [], 0
    for trace in traces:
        chart = trace.chart
        assert chart
        for place, kind, number, start, end, step in chart.boxes.T.tolist():
            text = chart.kinds[kind].text.replace("#", str(number))
            values = (number, offset + start, offset + end, step)
            own = [chart.rows[place].name, text, *map(str, values), trace.table.describe(step)]
            expected.append(own)
        offset += trace.cycles
        assert chart.title == opened.page.locator("#chart h2").inner_text()
    assert [line[1:] for line in lines[1:]] == expected

    name, text, _, start, end, step, described = next(line for line in expected if line[0] == row)
    place = opened.value(
        """([name, cycle]) => {
      const { view, chart, LEFT } = tilewright, canvas = document.querySelector("#chart canvas");
      const x = LEFT + ((cycle - view.from) / (view.to - view.from)) * (canvas.clientWidth - LEFT);
      return { x, y: chart.y(chart.rows.indexOf(name)) + 14 };
    }""",
        [name, (int(start) + int(end)) / 2],
    )
    opened.page.locator("#chart canvas").hover(position=place)
    tip = opened.page.locator("#chart .tip").inner_text()
    assert f"{text}, cycles {int(start):,} \N{EN DASH} {int(end):,}: {described}" in tip
    opened.page.locator("#chart canvas").click(position=place)
    assert opened.settled("tilewright.view.selected.step") == int(step)
    assert not opened.said
    opened.page.close()


def test_an_arrow_ends_the_wait_for_a_page(browser: Browser, run: Run) -> None:
    opened = Opened(browser, run("zynq")[0])
    waits = opened.value("""() => tilewright.timed.launches.flatMap((launch) =>
      [...Array(launch.count).keys()].filter((step) => launch.of("wait", step) > 0).map((step) => {
        const giver = launch.waitedFor(step);
        return [launch.of("start", step), giver < 0 ? -1 : launch.of("end", giver), launch.text(giver)];
      }))""")
    assert waits
    assert all(start == end and " block " in text for start, end, text in waits)
    opened.page.close()


def test_shares_of_a_pixel_are_exact(digits: Opened) -> None:
    """The cycles of each kind in any span, against a count cycle by cycle."""
    track = "tilewright.timed.launches[1].tracks[1]"
    starts, ends, kinds = (digits.value(f"Array.from({track}.{name})") for name in ("starts", "ends", "kinds"))
    rng = np.random.default_rng(3)
    for low, high in np.sort(rng.integers(0, max(ends) + 5, (40, 2))).tolist():
        for kind in set(kinds):
            spans = zip(starts, ends, kinds, strict=True)
            expected = sum(max(0, min(high, end) - max(low, start)) for start, end, own in spans if own == kind)
            at = [f"{track}.upTo({kind}, {time}, {sum(start <= time for start in starts)})" for time in (low, high)]
            assert digits.value(f"{at[1]} - {at[0]}") == expected, f"seed 3, {low}..{high}, kind {kind}"


def test_keys_wheel_and_drag_move_the_view(digits: Opened) -> None:
    page, canvas = digits.page, digits.page.locator("#timeline canvas")
    whole = digits.value("tilewright.view.to - tilewright.view.from")
    canvas.focus()
    page.keyboard.press("w")
    assert digits.settled("tilewright.view.to - tilewright.view.from") == pytest.approx(0.6 * whole)
    before = digits.value("tilewright.view.from")
    page.keyboard.press("ArrowRight")
    assert digits.settled("tilewright.view.from") > before
    page.keyboard.press("Home")
    assert digits.settled("[tilewright.view.from, tilewright.view.to]") == [0, whole]
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.mouse.wheel(0, -400)
    page.wait_for_function("tilewright.view.to - tilewright.view.from < 0.8 * tilewright.view.whole")
    before = digits.value("tilewright.view.from")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 120, box["y"] + 30)
    page.mouse.up()
    assert digits.settled("tilewright.view.from") > before


def test_a_layer_zooms_and_an_instruction_is_told(digits: Opened) -> None:
    page = digits.page
    page.locator("#layers tbody tr").nth(3).click()
    place = digits.settled("tilewright.timed.layers.find((each) => each.index === 3)")
    assert digits.value("[tilewright.view.from, tilewright.view.to]") == [place["from"], place["to"]]
    launch = "tilewright.timed.launchAt(tilewright.view.from + 1)"
    step = digits.value(f"{launch}.tracks[1].steps[20]")
    text = digits.value(f"{launch}.text({step})")
    x = digits.value(
        f"(() => {{ const l = {launch}, v = tilewright.view, c = document.querySelector('#timeline canvas');"
        f"const mid = (l.of('start', {step}) + l.of('until', {step})) / 2 + l.offset;"
        "const left = tilewright.LEFT; return left + (mid - v.from) / (v.to - v.from) * (c.clientWidth - left); })()"
    )
    page.locator("#timeline canvas").hover(position={"x": x, "y": 22 + 30 + 12})
    assert text in page.locator("#timeline .tip").inner_text()
    page.locator("#timeline canvas").click(position={"x": x, "y": 22 + 30 + 12})
    assert digits.settled("tilewright.view.selected.step") == step
    assert text in page.locator(".panel").inner_text()
    page.keyboard.press("n")
    assert digits.settled("tilewright.view.selected.step") == digits.value(f"{launch}.tracks[1].steps[21]")
    page.keyboard.press("Escape")
    assert digits.settled("tilewright.view.selected") is None


def test_the_table_sorts_and_filters(digits: Opened) -> None:
    page = digits.page
    page.get_by_role("button", name="cycles", exact=True).click()
    shown = digits.value("[...document.querySelectorAll('#layers tbody tr')].map((row) => +row.cells[4].dataset.v)")
    assert shown == sorted(shown, reverse=True)
    page.get_by_role("button", name="layer", exact=True).click()
    names = digits.value("[...document.querySelectorAll('#layers tbody tr')].map((row) => row.cells[1].dataset.v)")
    assert names == sorted(names)
    page.get_by_label("filter layers").fill("host soft")
    assert page.locator("#layers tbody tr:visible").count() == 1


@pytest.mark.parametrize("width", [360, 1200, 3840])
def test_nothing_is_wider_than_the_window(width: int, browser: Browser, run: Run) -> None:
    opened = Opened(browser, run("vta")[0], width)
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert not opened.said
    opened.page.close()


def test_figures_are_saved(digits: Opened) -> None:
    for section, count in (("strip", 2), ("timeline", 2), ("roofline", 2), ("network", 2), ("layers", 1)):
        buttons = digits.page.locator(f"#{section} .exports button")
        assert buttons.count() == count
        for index in range(count):
            with digits.page.expect_download() as waiting:
                buttons.nth(index).click()
            text = Path(waiting.value.path()).read_text(encoding="utf-8")
            assert text.startswith("<svg ") if waiting.value.suggested_filename.endswith("svg") else "," in text
    digits.said.clear()  # downloads are requests of blob: addresses


def test_a_race_is_shown_with_both_instructions(browser: Browser, tmp_path: Path) -> None:
    """One token less in the digits: the page names both instructions, and a click shows one in the timeline."""
    program, text, page = tmp_path / "a.twp", tmp_path / "a.txt", tmp_path / "a.html"
    with redirect_stdout(StringIO()) as printed:
        assert main(["compile", str(DIGITS / "digits.tflite"), "-t", "vta", "-o", str(program)]) == 0
        printed.truncate(0)
        assert main(["disasm", str(program)]) == 0
        lines = printed.getvalue().lstrip("\0").splitlines()
        pushes = [i for i, line in enumerate(lines) if line.startswith("load inp") and "push:compute" in line]
        pops = [i for i, line in enumerate(lines) if line.startswith("gemm") and "pop:load" in line and i > pushes[0]]
        lines[pushes[0]] = lines[pushes[0]].replace(" push:compute", "")
        lines[pops[1]] = lines[pops[1]].replace(" pop:load", "")
        text.write_text("\n".join(lines) + "\n")
        assert main(["asm", str(text), "-o", str(program)]) == 0
        assert main(["exec", str(program), "--html", str(page), "--no-what-if"]) == 1
    opened = Opened(browser, page)
    first, second = opened.value("RUN.summary.findings[0].steps.slice(0, 2)".replace("RUN", "tilewright.RUN"))
    hazard = opened.page.locator("#hazards .hazard").first
    assert f"#{first} " in hazard.inner_text() and f"#{second} " in hazard.inner_text()
    assert opened.value("tilewright.timed.unordered.length") >= 1
    causes = opened.value("tilewright.RUN.summary.hazard_causes.map((cause) => cause.others)")
    boxes = opened.page.locator("#hazards .hazard").all_inner_texts()
    assert len(boxes) == len(causes) and all(text in box for text, box in zip(causes, boxes, strict=True))
    hazard.locator("button.here").nth(1).click()
    assert opened.settled("tilewright.view.selected.step") == second
    start = opened.value("tilewright.view.selected.launch.of('start', tilewright.view.selected.step)")
    offset = opened.value("tilewright.view.selected.launch.offset")
    low, high = opened.value("[tilewright.view.from, tilewright.view.to]")
    assert low <= start + offset <= high < opened.value("tilewright.view.whole")
    assert not opened.said
    opened.page.close()
