"""Write a C driver for the host of a board. The driver sets registers, starts a launch, and waits for its end.

`sources` makes the files: vta_hw_spec.h (the configuration and the register map, gateware/header.py), vta_driver.h,
vta_driver.c, and vta_dram.bin, the initial contents of DRAM. The driver needs no operating system. The caller of the
driver provides three functions: read a register, write a register, flush the caches. In the C files next to this
module, @name@ is a placeholder.

Each launch has a separate area of DRAM: first its segments at their addresses, then its instructions on a new page.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.files import write_folder
from tilewright.program import driver
from tilewright.program.launch_image import KINDS, MAX_ADDRESS, Dram
from tilewright.program.program import Program
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import area, header
from tilewright.targets.vta.isa.fields import PAGE, REGIONS, paged
from tilewright.targets.vta.isa.stream import image_of


def write(program: Program, folder: str | Path) -> None:
    """Write the driver of a program to a folder. Raises as `sources` does, and InputError if writing fails."""
    write_folder(folder, sources(program))


def sources(program: Program) -> dict[str, bytes]:
    """Return the files of the C driver, {name: content}.

    Raises ConfigError if the machine has no gateware. Raises UnsupportedError if no layer runs on the machine, or if
    DRAM is too small.
    """
    config = Config.read(program.config, {})
    area.require(config)
    align = max(PAGE, *(sram.tile_bytes for sram in config.chips))
    launches = list[str]()
    segments = list[str]()
    parts = list[Array]()
    at = 0
    for number, launch in enumerate(program.launches):
        image = image_of(launch)
        memory, insns = loaded(image.dram({}, 1), image.insns)
        bases = ", ".join(f"{at + image.bases[name]}u" for name in REGIONS)
        size = -(-memory.size // align) * align  # the next launch's DRAM indices count whole tiles
        launches.append(f"    {{{at}u, {size}u, {at + insns}u, {len(image.insns)}u, {{{bases}}}}}")
        for segment in image.segments:
            kind = f"VTA_{segment.kind.upper()}"
            place = f"{at + segment.address}u, {segment.size}u"
            segments.append(f"    {{{number}u, {kind}, {driver.string(segment.name)}, {place}}}")
        parts.append(np.pad(memory, (0, size - memory.size)))
        at += size
    if not launches:
        raise UnsupportedError("driver", "no layer of the program runs on the machine")
    if at > MAX_ADDRESS:
        raise UnsupportedError("driver", f"the launches need {at:,} bytes of DRAM, more than 32-bit addresses reach")
    values = {
        "count": len(launches),
        "segment_count": len(segments),
        "bytes": at,
        "align": align,
        "kinds": ", ".join(f"VTA_{kind.upper()}" for kind in KINDS),
        "regions": len(REGIONS),
        "launches": ",\n".join(launches),
        "segments": ",\n".join(segments),
        "bases": "\n".join(
            f"  port->write(VTA_REG_{name.upper()}_BASE, address + it->bases[{number}]);"
            for number, name in enumerate(REGIONS)
        ),
    }
    code = driver.filled(Path(__file__).parent, ("vta_driver.h", "vta_driver.c"), values)
    return {
        **code,
        "vta_hw_spec.h": header.text(config).encode("ascii"),
        "vta_dram.bin": np.concatenate(parts).tobytes(),
    }


def loaded(dram: Dram, insns: Array) -> tuple[Array, int]:
    """Return one sample's DRAM (uint8 by address) including the instructions, and the address of the instructions."""
    memory = contents(dram, insns.size)
    base = memory.size - PAGE - paged(insns.size)
    memory[base : base + insns.size] = insns.reshape(-1)
    return memory, base


def contents(dram: Dram, more: int = 0) -> Array:
    """Return one sample's DRAM by address, uint8, followed by zeros: pages for `more` bytes, plus one page."""
    top = max((segment.end for segment in dram.segments), default=0)
    memory = np.zeros(paged(top) + paged(more) + PAGE, np.uint8)
    for segment in dram.segments:
        memory[segment.address : segment.end] = segment.data[0]
    return memory
