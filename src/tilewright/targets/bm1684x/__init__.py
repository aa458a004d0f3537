"""BM1684X: a 64-lane TPU. Read README.md first.

It has no compiler yet, so it exports a MACHINE, not a TARGET: golden vectors are replayed and layouts drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.targets.base import ConformCase

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.placement import Placement


class Bm1684x:
    """The machine."""

    name = "bm1684x"

    def conform(self, path: Path) -> Iterator[ConformCase]:
        """Every case of one golden vector file."""
        from tilewright.targets.bm1684x.conformance import conform

        return conform(path)

    def layout(
        self,
        kind: str,
        shape: Sequence[int],
        dtype: str,
        config: str | None,
        overrides: Mapping[str, str],
        numbers: Mapping[str, int],
        stride: Sequence[int] | None,
    ) -> Placement:
        """Where the elements of a tensor lie. Raises InputError or ConfigError."""
        from tilewright.targets.bm1684x.config import Config
        from tilewright.targets.bm1684x.placement import place

        machine = Config.read(config, overrides)
        width = numbers.get("width")
        return place(kind, shape, dtype, machine, numbers.get("start", 0), numbers.get("offset", 0), stride, width)


MACHINE = Bm1684x()
