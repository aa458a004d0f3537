"""How a C function is described: its parameters in the order of the prototype, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.errors import MachineError

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.capi.tpu import DeviceApi

Given = Mapping[str, Any]


class Function(NamedTuple):
    """`parameters`: names, separated by blanks; `run` has them by name."""

    parameters: str
    run: Callable[[DeviceApi, Given], None]

    def call(self, name: str, api: DeviceApi, arguments: tuple[Any, ...]) -> None:
        """Raises MachineError for another number of arguments."""
        names = self.parameters.split()
        if len(arguments) != len(names):
            raise MachineError(name, f"{len(arguments)} arguments are given", f"it has {', '.join(names)}")
        self.run(api, {**dict(zip(names, arguments, strict=True)), "name": name})
