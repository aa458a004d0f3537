"""The compute engine's transposes and broadcasts: their meaning, and their encoding in the format TRANS&BC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.config import STATIC_BASE, Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operation import TIU, Flow, Values, define
from tilewright.targets.bm1684x.isa.parts import (
    Fields,
    Instruction,
    Layout,
    Local,
    Sizes,
    Type,
    local_tensor,
    of_kind,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import Tensor


def transposed(*order: int) -> Callable[[Values], Array]:
    """Return a function that computes an operation: it permutes the axes of the operand x to `order`."""
    return lambda v: v["x"].transpose(order)


def broadcast(v: Values) -> Array:
    """Return the operand x, broadcast to the shape of the result y."""
    return np.broadcast_to(v["x"], v.shapes["y"])


cw_transposed = transposed(0, 3, 2, 1)
alike = rules.alike("x", "y")
moves = partial(define, TIU, flow=Flow.MOVE, arithmetic=())
for name in ("cw_trans", "wc_trans"):
    moves(name, "x", cw_transposed, alike, places=(rules.in_lanes, rules.first_lane))
moves("npu_bcast", "x", broadcast, alike, places=(rules.in_lanes, rules.within_lanes))
moves("static_bcast", "x", broadcast, alike, places=())
moves("static_distribute", "x", cw_transposed, alike, places=(rules.first_of_lanes,))


#: Moves copy bits, so the type is unsigned.
BITS = Type("res0_prec")


@dataclass(frozen=True)
class Static:
    """How the operand x of static_bcast or static_distribute is encoded: one row of static memory.

    `length` is the field with the number of its elements.
    """

    length: str = "res0_w"
    own = "x"
    type = BITS

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        """Return {"x": the row}. Raises ProgramError if its address is not in static memory."""
        address = encoded["opd0_addr"]
        if not STATIC_BASE <= address < STATIC_BASE + config.static_bytes:
            raise ProgramError(str(encoded), f"its source {address:#x} is not in static memory")
        return {"x": Tensor.ddr(address, (1, 1, 1, encoded[self.length]), BITS.read(encoded), config)}

    def write(self, command: Command) -> Fields:
        return {"opd0_addr": of_kind(command, "x", Tensor, "x is not a tensor").address}


def _channels(command: Command) -> int:
    """Return the number of lanes that a row of static memory goes to."""
    return command.results["y"].shape[1]


def _length(command: Command) -> int:
    """Return the number of elements in a row of static memory."""
    return command.results["y"].shape[3]


def _turning(function: int, operation: str, sizes: str, y_layout: Layout | None = None, **more: Any) -> Instruction:
    """Return the instruction of a transpose or broadcast. `sizes` lists the result's fields with the source's sizes."""
    x = Local("x", "opd0", BITS, Sizes(sizes), layout.aligned, noted=Sizes("- opd0_c - opd0_w"))
    y = Local("y", "res0", BITS, layout=y_layout)
    return Instruction("TRANS&BC", operation, (x, y), {"tsk_eu_typ": function}, **more)


INSTRUCTIONS = (
    _turning(0, "cw_trans", "res0_n res0_w res0_h res0_c", layout.line),
    _turning(1, "wc_trans", "res0_n res0_w res0_h res0_c"),
    _turning(3, "npu_bcast", "res0_n 1 res0_h res0_w", takes=lambda c: local_tensor(c, "x").shape.c == 1),
    _turning(2, "npu_bcast", "res0_n res0_c res0_h res0_w"),
    Instruction(
        *("TRANS&BC", "static_bcast", (Static(), Local("y", "res0", BITS)), {"tsk_eu_typ": 4}),
        written={"opd0_c": _channels, "opd0_w": _length},
    ),
    Instruction(
        "TRANS&BC",
        "static_distribute",
        (Static("res0_c"), Local("y", "res0", BITS, layout=layout.compact)),
        {"tsk_eu_typ": 5},
        written={"opd0_c": _channels, "opd0_w": 1},
    ),
)
