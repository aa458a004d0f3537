"""A function of a firmware: a kernel that a host launches by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.targets.bm1684x.runtime.kernel import Kernel


@dataclass(frozen=True)
class Function:
    """A kernel that a host launches by name. `unpacked` decodes its argument from `size` bytes (None: any number)."""

    kernel: Kernel
    size: int | None
    unpacked: Callable[[bytes], Any]

    @property
    def name(self) -> str:
        return self.kernel.name
