"""Signed operators of any width in Verilog, compiled with the sign extensions of verilator.h, against Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.hdl.build import Wire
from tilewright.hdl.model import Compiled

pytestmark = pytest.mark.gxx
WIDTHS = range(1, 65)
#: Expressions of two signed operands x and y, and the same in Python.
OPERATORS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "extended": ("x", lambda x, y: x),
    "sum": ("x + y", lambda x, y: x + y),
    "product": ("x * y", lambda x, y: x * y),
    "greater": ("$signed({{63{1'b0}}, x > y})", lambda x, y: int(x > y)),
    "shifted": ("x >>> 3", lambda x, y: x >> 3),
}


def module() -> str:
    """A module in which output OPERATOR has 64 bits for each of WIDTHS, in this order."""
    lines = [f"    output [{64 * len(WIDTHS) - 1}:0] {name}" for name in OPERATORS]
    text = "module Signed (input clk, input [63:0] a, input [63:0] b,\n" + ",\n".join(lines)
    text += ", output [63:0] unequal);\n"
    for at, bits in enumerate(WIDTHS):
        text += f"    wire signed [{bits - 1}:0] x{bits} = a[{bits - 1}:0], y{bits} = b[{bits - 1}:0];\n"
        for name, (expression, _) in OPERATORS.items():
            here = expression.replace("x", f"x{bits}").replace("y", f"y{bits}")
            text += f"    wire signed [63:0] {name}{bits} = {here};\n"
            text += f"    assign {name}[{64 * at + 63}:{64 * at}] = {name}{bits};\n"
    # A product of operands of different widths is extended once more, and added up: an element of an array.
    text += "    wire signed [16:0] p = $signed(a[8:0]) * $signed(b[7:0]);\n"
    return text + "    wire signed [63:0] u = p + $signed(a[8:0]);\n    assign unequal = u;\nendmodule\n"


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def test_signed_operators_of_all_widths_are_exact() -> None:
    wide = [Wire(name, 64 * len(WIDTHS)) for name in OPERATORS]
    ports = [Wire("clk", 1), Wire("a", 64), Wire("b", 64), *wide, Wire("unequal", 64)]
    model = Compiled.of_verilog({"signed.v": module()}, "Signed", ports).model()
    rng, mask = np.random.default_rng(3), (1 << 64) - 1
    edges = [0, 1, mask, 1 << 63, mask >> 1, 0x8080808080808080, 0x0100000080000100]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [(int(a), int(b)) for a, b in rng.integers(0, mask, (40, 2), np.uint64, endpoint=True)]
    for a, b in pairs:
        model["a"], model["b"] = a, b
        model.step()
        for name, (_, meaning) in OPERATORS.items():
            found = model[name]
            for at, bits in enumerate(WIDTHS):
                wanted = meaning(signed(a, bits), signed(b, bits)) & mask
                assert found >> 64 * at & mask == wanted, (name, bits, hex(a), hex(b))
        product = signed(a, 9) * signed(b, 8)
        assert model["unequal"] == (product + signed(a, 9)) & mask, (hex(a), hex(b))
