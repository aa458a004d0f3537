"""The description of an operation: its meaning on arrays, the rules that refuse it, and the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType, Rounding
from tilewright.targets.bm1684x.values.elementwise import STEPS

TIU = "tiu"
DMA = "dma"
HAU = "hau"


#: The attributes of commands with their default values.
ATTRIBUTES: Mapping[str, Any] = {
    **dict.fromkeys(("mode", "source_mode"), Rounding.HALF_TO_EVEN),
    **dict.fromkeys(("saturate", "rotated", "relu", "descending", "without_strides"), False),
    **dict.fromkeys(("left_transposed", "right_transposed", "both_transposed"), False),
    **dict.fromkeys(("left", "right", "pad", "between", "base", "depth"), 0),
    **{"steps": STEPS, "window": None, "axis": 3, "threshold": 0.0},
}


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    return attributes.get(name, ATTRIBUTES[name])


@dataclass(frozen=True, eq=False)
class Values:
    """The arguments of an operation's `meaning`.

    `data` has the values of the operands (no entry for an omitted operand), `types` the types of operands and results,
    and `shapes` the shapes of the results.
    """

    data: Mapping[str, Array]
    types: Mapping[str, DType]
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        return self.data[name]

    def attribute(self, name: str) -> Any:
        return attribute(self.attributes, name)

    @property
    def mode(self) -> Rounding:
        return self.attribute("mode")


class Flow(Enum):
    """The elements of the operands on which an element of the result depends."""

    WHOLE = "all elements"
    ELEMENTWISE = "an element of each operand in PER_ELEMENT, and all elements of others"
    PAIRS = "an element of each of two vectors"
    MOVE = "an element of x: the meaning, applied to the numbers of elements, returns which"
    INDEXED = "an element that another operand selects"
    CONVOLUTION = "the pixels in a window, of all channels"
    WINDOW = "the pixels in a window, of one channel"
    PRODUCT = "a row and a column"


#: For each element of its result, an element-wise operation reads one element of each of these operands.
PER_ELEMENT = ("a", "b", "c", "d", "x", "acc")


class Signature(NamedTuple):
    """The argument of a rule: the types of operands and results by name, and the command's attributes."""

    types: Mapping[str, DType]
    attributes: Mapping[str, Any]


#: A function that computes the result, or several results by name.
Meaning = Callable[[Values], Array | Mapping[str, Array]]
#: A function of the values and the results. It returns masks (bool) of the touched elements, by name of operand or
#: result.
Touches = Callable[[Values, Mapping[str, Array]], Mapping[str, Array]]
#: A function that returns the reason to refuse a command, or "" to accept the command.
Rule = Callable[[Signature], str]
#: A rule for the positions of operands and results in memory. Its argument has the operands and results by name.
PlaceRule = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Operation:
    """An operation: a pure function on arrays (`meaning`), its operands (`inputs`) and results (`outputs`).

    - `rules` refuse types and attributes, and `places` refuse positions of operands in memory (None: the rules of the
      engine).
    - `inexact`: the machine's iteration is not documented, so tests of golden vectors allow a few units in the last
      place.
    - `by_data`: the values of operands decide which elements are written.
    - `touches` returns masks of the touched elements, if the values of the operands `deciding` decide which are
      touched.
    - `flow` tells on which elements of the operands an element of the result depends. In sums of products, the shape of
      the operand `factor` gives the number of products.
    - `arithmetic` lists the arithmetic for one element of the result by the names in energy tables, without types
      (None: not published).
    - `numbers` has types of operands for which a Python kernel may pass numbers (None: the type of the result). All
      other numbers have the type of the first tensor.
    """

    name: str
    engine: str
    inputs: tuple[str, ...]
    meaning: Meaning
    rules: tuple[Rule, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    inexact: bool = False
    by_data: bool = False
    touches: Touches | None = None
    flow: Flow = Flow.WHOLE
    deciding: tuple[str, ...] = ()
    factor: str = ""
    arithmetic: tuple[str, ...] | None = None
    numbers: Mapping[str, DType | None] = field(default_factory=dict)
    places: tuple[PlaceRule, ...] | None = None

    def results(self, values: Values) -> Mapping[str, Array]:
        computed = self.meaning(values)
        return {"y": computed} if isinstance(computed, np.ndarray | np.generic) else computed

    def refusal(self, types: Mapping[str, DType], attributes: Mapping[str, Any]) -> str:
        signature = Signature(types, attributes)
        return next((reason for rule in self.rules if (reason := rule(signature))), "")


OPERATIONS: dict[str, Operation] = {}
#: Operands that a command may omit.
OPTIONAL = ("acc", "bias", "zero", "zeros", "pads", "inserts", "shift", "numbers", "y_before", "other", "kept")


def define(
    engine: str, name: str, inputs: str, meaning: Meaning, *rules: Rule, outputs: str = "y", **more: Any
) -> None:
    """Add an operation to OPERATIONS. Raises ValueError if there is already an operation with this name."""
    if name in OPERATIONS:
        raise ValueError(f"two operations are called {name}")
    OPERATIONS[name] = Operation(name, engine, tuple(inputs.split()), meaning, rules, tuple(outputs.split()), **more)
