"""Firmware for a machine: a built-in variant, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime import elf

from . import firmware
from .layout import GAP, Kind
from .project import Project, kernel_names
from .variants import Variant

Records = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Build:
    """Firmware for a machine. `program` returns the ELF program, `meta` what the launch tells of it.

    The firmware takes operators as the variants with these `extensions` do, and as the tuned ones if it is `tuned`.
    `spare` bytes of the arena follow its last activation.
    """

    program: Callable[[Records], elf.Executable]
    meta: Callable[[elf.Executable, Records], dict[str, Any]]
    tuned: bool = False
    extensions: Collection[str] = ()
    spare: int = 0


def built_in(config: Config, variant: Variant, compiler: firmware.Compiler) -> Build:
    """Return a variant of the built-in firmware."""
    return Build(
        lambda records: firmware.firmware(variant, records, config, compiler),
        lambda program, records: {"variant": variant.name, "compiler": compiler.version},
        variant.tuned,
        config.extension_names if variant.header == "coupled" else (),
    )


def of_project(config: Config, project: Project, compiler: firmware.Compiler | None) -> Build:
    """Return the user's firmware. Raises InputError if it cannot be compiled."""
    built = project.program(config, compiler)

    def meta(program: elf.Executable, records: Records) -> dict[str, Any]:
        version, names = compiler.version if compiler else "an ELF file", kernel_names(program)
        kernels = [names.get(Kind(record["kind"]), "main.c") for record in records]
        return {"variant": str(project.path), "compiler": version, "kernels": kernels}

    return Build(lambda records: built, meta, spare=GAP)  # so that stores after the last activation are found
