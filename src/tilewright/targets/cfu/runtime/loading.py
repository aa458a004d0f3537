"""A launch as the program that the machine loads, and its source lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.program.program import Launch
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.firmware_image import FirmwareImage

from . import elf


def program_of(name: str, image: FirmwareImage) -> elf.Executable:
    """Return the program that the machine loads: code, data and model, with symbols for profiles."""
    code = image.words.astype("<u4").tobytes()
    parts = ((RAM_BASE, code), (RAM_BASE + len(code), image.data.tobytes()), (image.model, image.blob.tobytes()))
    segments = tuple(elf.Segment(address, raw, len(raw)) for address, raw in parts if raw)
    functions = {symbol.name: elf.Symbol(symbol.address, symbol.nbytes) for symbol in image.symbols}
    return elf.Executable(
        name, image.entry, segments, (range(RAM_BASE, RAM_BASE + len(code)),), functions, functions, b""
    )


def source_of(launch: Launch, image: FirmwareImage) -> elf.Source:
    """Return the functions of a launch, and its source lines if the ELF file is in it."""
    file = launch.arrays.get("elf", np.zeros(0, np.uint8)).tobytes()
    return elf.Source(replace(program_of(launch.name, image), file=file))
