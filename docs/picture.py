"""Draws docs/run.svg: the real terminal output of the README's command. Run it with `make picture`."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

import tilewright as tw
from tilewright.coverage import best_offer
from tilewright.errors import at_shell
from tilewright.model import inputs
from tilewright.report import render
from tilewright.report.summary import Summary, predict

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    digits = ROOT / "examples" / "digits"
    program = tw.compile(digits / "digits.tflite", target="vta")
    assert program.graph is not None
    samples = inputs.read("examples/digits/samples.npz", program.graph)
    result = program.run(samples.values)
    to = Console(record=True, width=150, file=io.StringIO(), force_terminal=True, highlight=False)
    to.print("$ tilewright run examples/digits/digits.tflite -t vta -i examples/digits/samples.npz\n", style="dim")
    predictions = predict(program.graph, result.outputs)
    with at_shell():
        advice = str(best_offer(program) or "")
    made = Summary(result, samples.source, predictions, samples.classes, advice=advice)
    render.show(made, to)
    picture = to.export_svg(title="tilewright", unique_id="run")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)  # no fonts from the network
    (ROOT / "docs" / "run.svg").write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n")


if __name__ == "__main__":
    main()
