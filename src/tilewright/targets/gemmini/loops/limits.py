"""Checks of a loop's registers: a reason and a remedy for each size that the unrollers cannot run.

The unrollers do not check sizes. If a size is 0, their counters run to 65,536. Values that exceed their field lose
bits, and operands that exceed the memories overwrite each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.errors import ProgramError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import CODES, FORMATS
from tilewright.targets.gemmini.loops.conv import TileShape
from tilewright.targets.gemmini.loops.words import COMMANDS, MATMUL, OnChip

Registers = Mapping[str, int]
#: The activations of LOOP_WS (Activation.scala).
LAYERNORM = 2
IGELU = 3
SOFTMAX = 4
NORMALISED = (LAYERNORM, SOFTMAX)


#: The reason why a loop cannot run, and the remedy.
Fault = tuple[str, str]


def complete(unroller: int, registers: Registers, command: int) -> None:
    """Raises ProgramError if no command has set a register of the loop that `command` starts."""
    start = COMMANDS[unroller][0].name
    for funct in COMMANDS[unroller]:
        form = FORMATS[CODES[funct.name.lower()]]
        if any(place.name not in registers for place in form.places):
            reason = f"no {form.name} came before (the unroller has two sets of registers, which loops use in turn)"
            raise ProgramError(f"command {command} ({start})", reason, "send all configuration commands for each loop")


def check(unroller: int, registers: Registers, command: int, place: OnChip, config: Config) -> None:
    """Raises ProgramError with the name of a register if the unroller cannot run the loop that `command` starts."""
    rules = _matmul if unroller == MATMUL else _conv
    for fault in rules(registers, place, config):
        raise ProgramError(f"command {command} ({COMMANDS[unroller][0].name})", *fault)


def _matmul(r: Registers, place: OnChip, config: Config) -> Iterator[Fault]:
    dim = config.dim
    i = r["i"]
    j = r["j"]
    k = 0 if r["resadd"] else r["k"]
    used = "ij" if r["resadd"] else "ijk"
    yield from _zeros(r, used)
    for name in used:
        if r[f"pad_{name}"] >= dim:
            yield f"pad_{name} is {r[f'pad_{name}']}", f"pad at most {dim - 1} rows or columns of a block"
    yield from _halves(r)
    yield from _overfull("A and B", i * k * dim, k * j * dim, place, config)
    yield from _beyond("C", i * j * dim, place, config)
    if r["transpose_a"] and (r["transpose_b"] or r["resadd"]):
        partner = "a residual addition" if r["resadd"] else "transpose_b"
        yield f"transpose_a together with {partner}, which the hardware does not allow", "clear one of them"
    if r["resadd"] and (r["transpose_b"] or r["d"]):
        yield "a residual addition with a transposed B or with D", "clear transpose_b, and set d=0"
    if r["activation"] > SOFTMAX:
        yield f"activation is {r['activation']}", f"use 0 (none) to {SOFTMAX}"
    if r["activation"] > 1 and not config.normaliser:
        yield f"activation {r['activation']} needs a normaliser", "use 0 (none) or 1 (ReLU), or set normaliser=1"


def _conv(r: Registers, place: OnChip, config: Config) -> Iterator[Fault]:
    names = ("batches", "orows", "ocols", "pochs", "krows", "kcols", "kchs", "conv_stride", "kernel_dilation")
    yield from _zeros(r, names)
    shape = TileShape(r, config)
    if min(shape.unpadded) < 0:
        yield "the borders (upad, dpad, lpad, rpad) are larger than the input", "use smaller borders"
    yield from _halves(r)
    yield from _overfull("input and weights", shape.input_rows, shape.weight_rows, place, config)
    yield from _beyond("the result", shape.out_rows, place, config)
    if shape.pixels > 1 and shape.pixels * r["kchs"] > config.dim:
        reason = f"max_pixels is {shape.pixels}, with {r['kchs']} channels (kchs) more than the {config.dim} of a row"
        yield reason, "lower max_pixels"
    if not r["no_pool"] and r["output"]:
        limits = {"pool_stride": 3, "pool_size": 3, "pupad": 3, "plpad": 3, "pool_out_col_dim": 255}
        limits |= dict.fromkeys(("porows", "pocols", "orows", "ocols"), 255)
        yield from _zeros(r, ("pool_stride", "pool_size", "porows", "pocols"))
        for name, limit in limits.items():
            if r[name] > limit:
                yield f"{name} is {r[name]}; a pooled store takes at most {limit}", "pool smaller tiles"


def _zeros(r: Registers, names: Iterable[str]) -> Iterator[Fault]:
    for name in names:
        if not r[name]:
            yield f"{name} is 0, so the hardware would count to 65,536", "use a value of at least 1"


def _overfull(what: str, a: int, b: int, place: OnChip, config: Config) -> Iterator[Fault]:
    """Yield a fault if operands of `a` and `b` rows overlap, or leave the scratchpad."""
    # Nothing stops an operand at the end of its half, so a lone loop may use rows of the other half.
    a_end = place.a + a
    b_first = place.b_end - b
    if max(place.a, b_first) < min(a_end, place.b_end) or a_end > config.all_spad_rows or b_first < 0:
        yield f"{what} take {a + b} rows; half of the scratchpad has {config.half}", "use smaller tiles"


def _beyond(what: str, rows: int, place: OnChip, config: Config) -> Iterator[Fault]:
    if place.c + rows > config.acc_rows:
        reason = f"{what} takes {rows} rows from row {place.c} on; the accumulator has {config.acc_rows}"
        yield reason, "use smaller tiles"


def _halves(r: Registers) -> Iterator[Fault]:
    for name in ("a_spad", "b_spad"):
        if r[name] > 2:
            yield f"{name} is {r[name]}", "use 0 (alternate), 1 or 2 (a half of the scratchpad)"
