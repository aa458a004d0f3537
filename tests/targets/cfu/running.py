"""Programs on the core, with what differs from the published machine given by name."""

from __future__ import annotations

from typing import Any

from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime import core
from tilewright.targets.cfu.runtime.elf import Executable


def run(image: Executable, config: Config, **given: Any) -> core.Run:
    """Run a program. `given` are arguments of core.Setup and core.run."""
    how = {name: given.pop(name) for name in ("timing", "cfu", "max_instructions", "drive") if name in given}
    return core.run(image, core.Setup(config, **how), **given)
