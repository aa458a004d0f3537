"""The commands of one engine as functions: how a call becomes a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import HAU, OPERATIONS, Operation
from tilewright.targets.bm1684x.isa.operations.base import ATTRIBUTES
from tilewright.targets.bm1684x.layouts.layout import Operand
from tilewright.targets.bm1684x.layouts.tensor import Flat, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, DType, rounding_of

#: Types of numbers that stand for operands, by operand and by operation; what is chosen has the type of the result,
#: others have that of the first tensor.
PARAMETERS: Mapping[str, DType] = {"shift": I8, "multiplier": I32, "offset": I32, "zero": I16}
OWN: Mapping[tuple[str, str], DType] = {
    ("fp32_requant", "scale"): F32,
    ("fp32_requant", "offset"): F32,
    ("fp32_dequant", "scale"): F32,
    ("int8_avg_pool2d", "scale"): U8,
}
CHOSEN = ("c", "d")


class Engine:
    """One engine's operations as functions: `engine.NAME(results.., operands.., attribute=..)`."""

    def __init__(self, issue: Callable[[Command], None], engine: str, prefix: str) -> None:
        self._issue = issue
        self._operations = {
            name.removeprefix(prefix): operation
            for name, operation in OPERATIONS.items()
            if operation.engine == engine and name.startswith(prefix)
        }

    def __getattr__(self, name: str) -> Callable[..., None]:
        operation = self._operations.get(name)
        if operation is None:
            raise AttributeError(f"there is no operation {name}; choose one of {', '.join(sorted(self._operations))}")
        return lambda *places, **named: self._issue(_command(operation, places, named))

    def __dir__(self) -> list[str]:
        return sorted(self._operations)


def _command(operation: Operation, places: tuple[Any, ...], named: Mapping[str, Any]) -> Command:
    """The call as a command; numbers become constants. Raises MachineError for more operands than there are."""
    order = (*operation.outputs, *operation.inputs)
    if len(places) > len(order):
        reason = f"{len(places)} operands are given, it has {', '.join(order)}"
        raise MachineError(operation.name, reason, "name attributes")
    given = dict(zip(order, places, strict=False)) | {name: named[name] for name in named if name in order}
    given = {name: _operand(operation, name, place) for name, place in given.items() if place is not None}
    if "y" not in given:
        raise MachineError(operation.name, "it has no result", f"give {', '.join(order)}")
    if unknown := sorted(set(named) - set(order) - set(ATTRIBUTES)):
        reason = f"there is no attribute {unknown[0]}"
        raise MachineError(operation.name, reason, f"choose one of {', '.join(sorted(ATTRIBUTES))}")
    if operation.engine == HAU:
        given = {name: _in_ddr(operation, operand) for name, operand in given.items()}
    results = {name: given[name] for name in operation.outputs if name in given}
    placed = [given[name] for name in (*operation.inputs, *operation.outputs) if name in given]
    first = next((operand.dtype for operand in placed if not isinstance(operand, int | float)), F32)
    operands: dict[str, Operand | Constant] = {}
    for name in operation.inputs:
        operand = given.get(name)
        if isinstance(operand, int | float):
            dtype = results["y"].dtype if name in CHOSEN else PARAMETERS.get(name, first)
            operand = Constant.of(operand, OWN.get((operation.name, name), dtype))
        if operand is not None:
            operands[name] = operand
    if "y_before" in operation.inputs:  # what is not scattered to stays
        operands.setdefault("y_before", results["y"])
    attributes = {name: value for name, value in named.items() if name not in order}
    if isinstance(attributes.get("mode"), str):
        attributes["mode"] = rounding_of(attributes["mode"])
    return Command(operation, operands, results, attributes)


def _operand(operation: Operation, name: str, place: Any) -> Any:
    """A tensor or a number of Python. Raises MachineError for anything else."""
    if isinstance(place, Real):
        return place.item() if isinstance(place, np.generic) else place
    if not hasattr(place, "addresses") and not isinstance(place, Constant):
        raise MachineError(operation.name, f"{name} is a {type(place).__name__}", "give a tensor or a number")
    return place


def _in_ddr(operation: Operation, operand: Any) -> Flat:
    """An operand of the sorting engine. Raises MachineError for one in local memory, or none."""
    if not isinstance(operand, Tensor) or operand.is_local:
        raise MachineError(operation.name, "it works from DDR to DDR", "give tensors outside of local memory")
    return Flat(operand)
