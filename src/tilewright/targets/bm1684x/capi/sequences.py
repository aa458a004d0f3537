"""Functions of the device API that the machine runs as sequences of commands, such as sines and activations.

The sequences are in sequences/*.txt, as observed in the command queues of the vendor's model. A function begins with
NAME(PARAMETERS) TYPE; a function for several float types has a block for each. Every further line is a command: its
operation, results = operands in the order of the operation's description, and attributes. An operand is one of:

    work0, work0:i16   the tensor of the call's shape at this parameter's local address, of TYPE or of the type given
    coeff/10           a row of 10 coefficients, of which each lane has a copy
    #3f800000, #f:i16  a constant, as its bits in hexadecimal
    {beta}, {1/beta}   a constant computed from a parameter: its value, 1/, ln() or 1/ln() of it
    steps={num_iter}   an attribute that a parameter gives
    -                  an absent operand
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.layout import Operand
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import cast

FILES = ("roots", "trigonometric", "exponential", "activations")
HEAD = re.compile(r"(\w+)\(([\w ]+)\) (\w+)")
TOKEN = re.compile(r"([^:/]+?)(?::(\w+))?(?:/(\d+))?")
#: Constants that a sequence computes from a parameter, by the expression around it.
COMPUTED: Mapping[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "1/": lambda value: np.float32(1) / value,
    "ln": lambda value: np.float32(np.log(np.float64(value))),
    "1/ln": lambda value: np.float32(1 / np.log(np.float64(value))),
}
EXPRESSION = re.compile(r"\{(1/ln|ln|1/)?\(?(\w+)\)?\}")


#: Attributes of commands, from their text. The number of steps is a parameter's name in braces.
READ: Mapping[str, Callable[[str], Any]] = {
    "mode": lambda text: Rounding[text.upper()],
    "saturate": lambda text: text == "True",
    "steps": lambda text: text.strip("{}"),
}


class Step(NamedTuple):
    """A command of a sequence: the operation, its results, operands (by name, as tokens) and attributes."""

    operation: str
    results: Mapping[str, str]
    operands: Mapping[str, str]
    attributes: Mapping[str, Any]


def _step(line: str) -> Step:
    name, *words = line.split()
    operation, middle = OPERATIONS[name], words.index("=")
    given = [word for word in words[middle + 1 :] if "=" not in word]
    pairs = (word.split("=") for word in words[middle + 1 :] if "=" in word)
    attributes = {key: READ[key](text) for key, text in pairs}
    operands = {own: word for own, word in zip(operation.inputs, given, strict=True) if word != "-"}
    return Step(name, dict(zip(operation.outputs, words[:middle], strict=True)), operands, attributes)


def _blocks() -> Iterator[tuple[str, str, DType, tuple[Step, ...]]]:
    """Yield the sequences: the function, its parameters, the float type, and the steps."""
    for name in FILES:
        text = files(__package__).joinpath("sequences", f"{name}.txt").read_text(encoding="utf-8")
        for block in text.split("\n\n")[1:]:
            head, *lines = block.strip().splitlines()
            found = HEAD.fullmatch(head)
            assert found, head
            yield found[1], found[2], DTYPES[found[3]], tuple(map(_step, lines))


def _operand(api: Issuer, given: Given, token: str, dtype: DType) -> Operand | Constant:
    if token.startswith("{"):
        found = EXPRESSION.fullmatch(token)
        assert found, token
        with np.errstate(all="ignore"):
            if found[1] == "1/ln" and not given[found[2]] > 0:
                raise MachineError(given["name"], f"{found[2]} is {given[found[2]]}", "give a positive number")
            real = np.atleast_1d(COMPUTED[found[1] or ""](np.float32(given[found[2]])))
            bits = cast(real, F32, dtype, Rounding.HALF_AWAY_FROM_ZERO).view(f"<u{dtype.bytes}")
            return Constant(int(bits[0]), dtype)
    found = TOKEN.fullmatch(token)
    assert found, token
    own = DTYPES[found[2]] if found[2] else dtype
    if token.startswith("#"):
        return Constant(int(found[1][1:], 16), own)
    shape = given["shape"].shape
    if found[3]:
        return api.row(given[found[1]], shape.c, int(found[3]), own)
    return api.local(given[found[1]], shape, None, own)


def _function(parameters: str, of_types: Mapping[DType, tuple[Step, ...]]) -> Function:
    def run(api: Issuer, given: Given) -> None:
        dtype = given.get("dtype", next(iter(of_types)))
        if dtype not in of_types:
            known = ", ".join(sorted(map(str, of_types)))
            raise MachineError(given["name"], f"the machine has no such function for {dtype}", f"give {known}")
        for step in of_types[dtype]:
            ends: list[Any] = [
                {own: _operand(api, given, token, dtype) for own, token in end.items()}
                for end in (step.operands, step.results)
            ]
            steps = {"steps": given[step.attributes["steps"]]} if "steps" in step.attributes else {}
            api.issue(step.operation, ends[0], ends[1], {**step.attributes, **steps})

    return Function(parameters, run)


def _functions() -> dict[str, Function]:
    parameters: dict[str, str] = {}
    found: dict[str, dict[DType, tuple[Step, ...]]] = {}
    for name, names, dtype, steps in _blocks():
        parameters[name] = names
        found.setdefault(name, {})[dtype] = steps
    return {name: _function(parameters[name], of_types) for name, of_types in found.items()}


#: Functions by name, without the prefix tpu_bdc_.
SEQUENCED = _functions()
