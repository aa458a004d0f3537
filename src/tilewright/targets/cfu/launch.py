"""One launch on S samples: each is a run of the machine from reset, as its time may depend on its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError, ProgramError

from .config import Config
from .image import BASE, Image
from .rv32 import core, elf

STACK_BYTES = 1 << 16  # what main.c leaves for its stack


def program_of(name: str, image: Image) -> elf.Image:
    """What the machine loads: code, data and model; with symbols, for profiles."""
    code = image.words.astype("<u4").tobytes()
    parts = ((BASE, code), (BASE + len(code), image.data.tobytes()), (image.model, image.blob.tobytes()))
    segments = tuple(elf.Segment(address, raw, len(raw)) for address, raw in parts if raw)
    functions = {symbol.name: elf.Symbol(symbol.address, symbol.size) for symbol in image.symbols}
    return elf.Image(name, image.entry, segments, (range(BASE, BASE + len(code)),), functions, functions, b"")


def runs(
    name: str, image: Image, config: Config, inputs: Mapping[str, Array], samples: int, timing: str
) -> Iterator[core.Run]:
    """A run for each of the samples int8 (S, *shape). Raises MachineError for one that does not end well."""
    if image.end + STACK_BYTES > BASE + config.ram_bytes:
        reason = f"needs main memory up to {image.end + STACK_BYTES:#x}"
        raise ProgramError(f"launch '{name}'", reason, f"it ends at {BASE + config.ram_bytes:#x}")
    program = program_of(name, image)
    reads = {place.name: (image.arena + place.offset, place.nbytes) for place in image.outputs}
    for index in range(samples):
        writes = {
            image.arena + place.offset: np.ascontiguousarray(inputs[place.name][index]).tobytes()
            for place in image.inputs
            if place.name in inputs
        }
        run = core.run(program, config, timing=timing, writes=writes, reads=reads)
        if run.trap is not None:
            raise MachineError(f"launch '{name}'", str(run.trap))
        if run.exit_code:
            text = f": {run.text.strip()}" if run.text.strip() else ""
            raise MachineError(f"launch '{name}'", f"the firmware ends with status {run.exit_code}{text}")
        yield run


@dataclass(frozen=True)
class Region:
    """What one operator took: cycles of the whole machine."""

    operator: int
    cycles: int


def regions(run: core.Run) -> list[Region]:
    """The operators of a run, in order, from its marks (cycle, index + 1 where one begins, 0 where it ends)."""
    found, began, current = [], 0, 0
    for cycle, mark in run.marks:
        if mark:
            began, current = cycle, mark
        elif current:
            found.append(Region(current - 1, cycle - began))
            current = 0
    return found
