"""The kernels of a program whose firmware is the user's own, beside those of the built-in firmware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.report.metrics import Result


@dataclass(frozen=True)
class OwnKernels:
    """The kernels of a program with the user's firmware.

    `firmware` is its folder or file, `compiler` what compiled it, and `beside` the built-in firmware to compare it
    with. `kernels` has the kernel of each layer, `cycles` the layer's cycles with the built-in firmware.
    """

    firmware: str
    compiler: str
    beside: str
    kernels: Mapping[str, str]
    cycles: Mapping[str, int]

    def by_kernel(self, result: Result) -> dict[str, tuple[int, int]]:
        """Return, for each kernel, its cycles in a run and those of the built-in kernels for the same layers.

        The kernels are in order of their cycles, the largest first.
        """
        found: dict[str, tuple[int, int]] = {}
        for layer in result.layers:
            if (kernel := self.kernels.get(layer.name)) is not None:
                own, other = found.get(kernel, (0, 0))
                found[kernel] = own + layer.cycles, other + self.cycles[layer.name]
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    def to_json(self, result: Result) -> dict[str, Any]:
        layers = [
            {
                "name": row.name,
                "kernel": self.kernels[row.name],
                "cycles": row.cycles,
                "built_in": self.cycles[row.name],
            }
            for row in result.layers
            if row.name in self.kernels
        ]
        told = {"path": self.firmware, "compiler": self.compiler, "beside": self.beside}
        return {**told, "layers": layers, "cycles": result.cycles, "built_in": sum(self.cycles.values())}
