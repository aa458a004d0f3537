"""The registers of the two loop unrollers, and the commands that set them."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.isa.fields import CODES, FORMATS, Funct, fields

#: The unrollers. HOST marks primitive commands of the program itself.
HOST, MATMUL, CONV = 0, 1, 2
#: The commands that configure or start each unroller; the first one starts it.
COMMANDS = {
    MATMUL: tuple(Funct(number) for number in range(Funct.LOOP_WS, Funct.LOOP_WS_DC_STRIDES + 1)),
    CONV: tuple(Funct(number) for number in range(Funct.LOOP_CONV_WS, Funct.LOOP_CONV_WS_6 + 1)),
}
STARTS = tuple(functs[0] for functs in COMMANDS.values())
UNROLLER = {funct: unroller for unroller, functs in COMMANDS.items() for funct in functs}
#: Bits of a DRAM address or stride that a register keeps (coreMaxAddrBits of both generated builds).
ADDRESS_BITS = 40


def settings(commands: Array) -> dict[int, dict[str, int]]:
    """Return what each command of an unroller sets: registers by name, by the command's index in uint64 [n, 3]."""
    found: dict[int, dict[str, int]] = {}
    for funct in UNROLLER:
        rows = np.flatnonzero(commands[:, 0] == funct)
        if not len(rows):
            continue
        form = FORMATS[CODES[funct.name.lower()]]
        columns = fields(commands[rows], CODES[form.name])
        places = (*form.rs1, *form.rs2)
        kept = [columns[place.name] & ((1 << min(place.width, ADDRESS_BITS)) - 1) for place in places]
        for row, *values in zip(rows.tolist(), *(column.tolist() for column in kept), strict=True):
            found[row] = {place.name: value for place, value in zip(places, values, strict=True)}
    return found
