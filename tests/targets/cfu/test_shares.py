"""The cycles of each layer by C function and by source line."""

from __future__ import annotations

import re

import tilewright as tw
from tests.conftest import ROOT
from tilewright.model import inputs

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def test_functions_and_source_lines_take_all_cycles_of_a_layer() -> None:
    result = tw.compile(DIGITS, "cfu").run(inputs.random(tw.load(DIGITS)).values)
    (trace,) = result.trace.values()
    functions, lines = trace.shares["functions"], trace.shares["source lines"]
    assert [sum(parts.values()) for parts in functions] == [layer.cycles for layer in result.layers if layer.cycles]
    for by_function, by_line in zip(functions, lines, strict=True):
        for name, cycles in by_function.items():
            assert sum(own for line, own in by_line.items() if line.startswith(f"{name}, ")) == cycles
    assert any(
        re.match(r"conv_implicit[^,]*, implicit\.h:", line) for line in lines[0]
    )  # GCC: conv_implicit.constprop.0
