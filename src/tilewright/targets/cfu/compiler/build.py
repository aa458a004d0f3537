"""Firmware for a machine: a built-in variant, or the user's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime import elf

from . import firmware
from .layout import GAP, Kind
from .project import Project, kernel_names
from .variants import Variant


class Build(Protocol):
    """Firmware for a machine: how it takes operators, the ELF program, and what the launch tells of it."""

    @property
    def tuned(self) -> bool: ...
    @property
    def extensions(self) -> Collection[str]: ...
    @property
    def spare(self) -> int:
        """Return the bytes of the arena after its last activation."""

    def program(self, records: Sequence[Mapping[str, int]]) -> elf.Executable: ...
    def meta(self, program: elf.Executable, records: Sequence[Mapping[str, int]]) -> dict[str, Any]: ...


class BuiltIn:
    """A variant of the built-in firmware."""

    spare = 0

    def __init__(self, config: Config, variant: Variant, compiler: firmware.Compiler) -> None:
        self.config, self.variant, self.compiler = config, variant, compiler
        self.tuned = variant.tuned
        self.extensions = config.extension_names if variant.header == "coupled" else ()

    def program(self, records: Sequence[Mapping[str, int]]) -> elf.Executable:
        return firmware.firmware(self.variant, records, self.config, self.compiler)

    def meta(self, program: elf.Executable, records: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        return {"variant": self.variant.name, "compiler": self.compiler.version}


class Own:
    """The user's firmware. It takes operators as the portable kernels do."""

    tuned = False
    extensions = ()
    spare = GAP  # so that stores after the last activation are found

    def __init__(self, config: Config, project: Project, compiler: firmware.Compiler | None) -> None:
        self.project, self.compiler = project, compiler
        self._program = project.program(config, compiler)

    def program(self, records: Sequence[Mapping[str, int]]) -> elf.Executable:
        return self._program

    def meta(self, program: elf.Executable, records: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        version, names = self.compiler.version if self.compiler else "an ELF file", kernel_names(program)
        kernels = [names.get(Kind(record["kind"]), "main.c") for record in records]
        return {"variant": str(self.project.path), "compiler": version, "kernels": kernels}
