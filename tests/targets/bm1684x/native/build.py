"""Firmware made of C text, and devices that it is loaded into."""

from __future__ import annotations

from pathlib import Path

from tilewright.targets.bm1684x.native.build import firmware
from tilewright.targets.bm1684x.native.firmware import Library
from tilewright.targets.bm1684x.native.process import Limits
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Kernel
from tilewright.targets.bm1684x.runtime.recording import Launched

START = '#include "tpu_kernel.h"\n'


def load(folder: Path, text: str, limits: Limits | None = None) -> Library:
    """Compile `text`, in folder/kernel.c, after an #include in line 1, and load it."""
    source, made = folder / "kernel.c", folder / "bm1684x.bin"
    source.write_text(START + text)
    firmware([source], made)
    return Library(made, limits)


def kernels(library: Library) -> dict[str, Kernel]:
    return {function.name: function.kernel for function in library.functions}


def launch(library: Library, name: str, device: Device | None = None, argument: bytes = b"") -> Launched:
    return (device or Device()).launch(kernels(library)[name], argument)
