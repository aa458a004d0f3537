"""The page of long runs: seconds to write it, its size, first paint and frames a second while it zooms in Chromium.

`python -m bench.page [MODEL ..]`: streams of 100,000 and 1,000,000 instructions, and the models, on vta. It needs
Playwright and Chromium. The last column is the 1 % slowest frame: 33 ms is 30 frames a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import tilewright as tw
from bench.instruction_rate import ADDRESS, CONFIG, stream
from tests.conftest import chromium
from tilewright.model import inputs
from tilewright.program.launch_image import Dram, Segment
from tilewright.report import page, record
from tilewright.report.metrics import Layer, Result
from tilewright.report.summary import Summary
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.passes import prepare

ZOOM = """async () => {
  const { view } = tilewright, times = [];
  let last = performance.now();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let i = 0; i < 120; i++) {
    view.zoom(i % 60 < 30 ? 0.75 : 1 / 0.75, view.whole * 0.37);
    await frame();
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  return times.slice(2).sort((a, b) => a - b);
}"""


def long_run(instructions: int) -> Summary:
    """Return the summary of a stream of instructions, without its values."""
    fill = {name: np.full((1, 1 << 14), name != "uop", np.uint8) for name in ADDRESS}
    dram = Dram([Segment(n, a, fill[n], n != "out", n != "out") for n, a in ADDRESS.items()])
    trace = prepare(stream(instructions), CONFIG, dram, ADDRESS, RunOptions("tilewright")).trace
    assert trace
    layer = Layer("stream", "program", "vta", cycles=trace.cycles, causes=trace.causes("compute")[0], trace=trace)
    name = f"{instructions:,} instructions"
    return Summary(
        Result(name, "vta", {}, "", "tilewright", "", 1, {}, (layer,), (), None, 256, 0.0, clock_mhz=100.0), "none"
    )


def summaries(models: list[str]) -> Iterator[Summary]:
    for model in models:
        program = tw.compile(model, "vta", cache=True)
        assert program.graph
        yield Summary(program.run(inputs.random(program.graph).values), "random")
    yield from (long_run(size) for size in (100_000, 1_000_000))


def main() -> None:
    from playwright.sync_api import sync_playwright

    print(f"{'run':28} {'write s':>8} {'MB':>6} {'paint ms':>9} {'ready ms':>9} {'frame ms':>9} {'slowest':>8}")
    with TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for number, summary in enumerate(summaries(sys.argv[1:])):
            path = Path(folder) / f"{number}.html"
            began = perf_counter()
            page.write(record.of(summary), path)
            wrote = perf_counter() - began
            opened = browser.new_page(viewport={"width": 1600, "height": 1000})
            opened.goto(path.as_uri())
            opened.wait_for_function("document.documentElement.dataset.ready", timeout=120_000)
            paint = opened.evaluate("performance.getEntriesByType('paint').at(-1)?.startTime ?? NaN")
            ready = opened.evaluate("performance.now()")
            frames = opened.evaluate(ZOOM)
            middle, slow = frames[len(frames) // 2], frames[int(len(frames) * 0.99)]
            size, name = path.stat().st_size / 1e6, summary.result.model[:28]
            print(f"{name:28} {wrote:8.2f} {size:6.2f} {paint:9.0f} {ready:9.0f} {middle:9.1f} {slow:8.1f}")
            opened.close()
        browser.close()


if __name__ == "__main__":
    main()
