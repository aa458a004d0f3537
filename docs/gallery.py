"""Write docs/gallery: the page of the digits on each target, and pictures of two of them for the README.

The pictures need Playwright and Chromium; without these, only pages are written.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import ROOT, chromium
from tilewright import targets
from tilewright.cli import main

DIGITS = "examples/digits"
GALLERY = ROOT / "docs" / "gallery"
#: Pages of which the README shows a picture: the place to which they are scrolled, and what a user did before.
ZOOMED = """() => {
  const { timed, view } = tilewright, place = timed.layers.find((each) => each.layer.name === "conv2d_5");
  view.show(place.from + 0.4 * (place.to - place.from), place.to);
  const launch = timed.launchAt(place.from), stores = launch.tracks[launch.units.indexOf("store")].steps;
  view.select({ launch, step: stores[1] });
}"""
PICTURES = {"vta": ("#strip", ZOOMED), "cfu": ("header", "() => 0")}
#: Pixels of a picture.
WIDTH, HEIGHT = 1280, 800


def pages() -> None:
    """Write the page of the digits on each target."""
    for target in targets.names():
        page = f"docs/gallery/{target}.html"
        command = ["run", f"{DIGITS}/digits.tflite", "-t", target, "-i", f"{DIGITS}/samples.npz", "--html", page]
        if main(command):
            raise SystemExit(f"{target}: the run has a finding")


def pictures() -> None:
    """Write a picture of each page in PICTURES."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for target, (place, done) in PICTURES.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto((GALLERY / f"{target}.html").as_uri())
            page.wait_for_function("document.documentElement.dataset.ready")
            page.evaluate(done)
            page.locator(place).evaluate("(element) => element.scrollIntoView()")
            page.screenshot(path=GALLERY / f"{target}.png")
        browser.close()


if __name__ == "__main__":
    os.chdir(ROOT)
    Path(GALLERY).mkdir(exist_ok=True)
    pages()
    if chromium():
        pictures()
