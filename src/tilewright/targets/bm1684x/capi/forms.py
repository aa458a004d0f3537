"""How a C function is described: its parameters in the order of the prototype, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.names import dim2, dim4, padding_t
from tilewright.targets.bm1684x.dtypes import DType

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.capi.tpu import DeviceApi

Given = Mapping[str, Any]
#: What parameters are, by the end of their names; strides of tensors may be None.
KINDS: Mapping[str, type] = {"shape": dim4, "dtype": DType, "kernel": dim2, "dilation": dim2, "padding": padding_t}


class Function(NamedTuple):
    """`parameters`: names, separated by blanks; `run` has them by name."""

    parameters: str
    run: Callable[[DeviceApi, Given], None]

    def call(self, name: str, api: DeviceApi, arguments: tuple[Any, ...]) -> None:
        """Raises MachineError for another number of arguments."""
        names = self.parameters.split()
        if len(arguments) != len(names):
            raise MachineError(name, f"{len(arguments)} arguments are given", f"it has {', '.join(names)}")
        for parameter, value in zip(names, arguments, strict=True):
            kind = _kind(parameter)
            if kind and not isinstance(value, kind) and not (value is None and parameter.endswith("_stride")):
                raise MachineError(name, f"{parameter} is {value!r}", f"give a {kind.__name__}")
        self.run(api, {**dict(zip(names, arguments, strict=True)), "name": name})


def _kind(parameter: str) -> type | None:
    """What an argument must be, where its name says it."""
    if parameter.endswith("_stride"):
        return None if parameter == "row_stride" else dim4
    if parameter == "stride":
        return dim2
    return next((kind for end, kind in KINDS.items() if parameter == end or parameter.endswith(f"_{end}")), None)
