"""Functions of the device API that the machine runs as sequences of commands, such as sines and activations.

The sequences are in sequences/*.txt, as observed in the command queues of the vendor's model. The block of a function
begins with a line NAME TYPE; a function for several float types has a block for each type. Each further line describes
one command: results, operation and operands, in the order of the operation's description, then attributes. An operand
is written as:

    work0, work0:i16   a tensor of the call's shape at the address in the parameter work0, of TYPE or of the given type
    coeff/10           a row of 10 coefficients at the address in the parameter coeff; each lane has a copy
    #3f800000, #f:i16  a constant; its bits are in hexadecimal
    {beta}, {1/beta}   a constant computed from the parameter beta: beta, 1/beta, ln(beta) or 1/ln(beta)
    steps={num_iter}   an attribute with the value of the parameter num_iter
    -                  an omitted operand
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Args, FromCall, Functions, Issue, Issuer, Place, Run, Source, sequence
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import cast

FILES = ("roots", "trigonometric", "exponential", "activations")
HEAD = re.compile(r"(\w+) (\w+)")
TOKEN = re.compile(r"([^:/]+?)(?::(\w+))?(?:/(\d+))?")
#: For each expression in braces, the function that computes the constant from the parameter.
COMPUTED: Mapping[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "1/": lambda value: np.float32(1) / value,
    "ln": lambda value: np.float32(np.log(np.float64(value))),
    "1/ln": lambda value: np.float32(1 / np.log(np.float64(value))),
}
EXPRESSION = re.compile(r"\{(1/ln|ln|1/)?\(?(\w+)\)?\}")
#: The parser of each attribute. The text of `steps` is the name of a parameter in braces.
READ: Mapping[str, Callable[[str], Any]] = {
    "mode": lambda text: Rounding[text.upper()],
    "saturate": lambda text: text == "True",
    "steps": lambda text: FromCall(text.strip("{}")),
}


@dataclass(frozen=True)
class Expression:
    """A constant in a sequence that is computed from a float parameter of the call (see COMPUTED)."""

    function: str
    parameter: str
    dtype: DType

    def operand(self, api: Issuer, call: Args) -> Constant:
        """Return the constant for a call. Raises MachineError if the parameter is outside of the function's domain."""
        value = call[self.parameter]
        if self.function == "1/ln" and not value > 0:
            raise MachineError(call["name"], f"{self.parameter} is {value}", "give a positive number")
        with np.errstate(all="ignore"):
            real = np.atleast_1d(COMPUTED[self.function](np.float32(value)))
            bits = cast(real, F32, self.dtype, Rounding.HALF_AWAY_FROM_ZERO).view(f"<u{self.dtype.bytes}")
        return Constant(int(bits[0]), self.dtype)


def _source(token: str, dtype: DType) -> Source:
    if match := EXPRESSION.fullmatch(token):
        return Expression(match[1] or "", match[2], dtype)
    match = TOKEN.fullmatch(token)
    assert match, token
    operand_type = DTYPES[match[2]] if match[2] else dtype
    if token.startswith("#"):
        return Constant(int(match[1][1:], 16), operand_type)
    return Place(match[1], operand_type, row=int(match[3] or 0))


def _command(line: str, dtype: DType) -> Issue:
    name, *words = line.split()
    operation = OPERATIONS[name]
    middle = words.index("=")
    sources = [word for word in words[middle + 1 :] if "=" not in word]
    pairs = (word.split("=") for word in words[middle + 1 :] if "=" in word)
    named = [*zip(operation.inputs, sources, strict=True), *zip(operation.outputs, words[:middle], strict=True)]
    places = {operand: _source(word, dtype) for operand, word in named if word != "-"}
    return Issue(name, places, {key: READ[key](text) for key, text in pairs}, inherits=False)


def _function(of_types: Mapping[DType, Run]) -> Run:
    def run(api: Issuer, call: Args) -> None:
        dtype = call.get("dtype", next(iter(of_types)))
        if dtype not in of_types:
            types = ", ".join(sorted(map(str, of_types)))
            raise MachineError(call["name"], f"the machine has no such function for {dtype}", f"give {types}")
        of_types[dtype](api, call)

    return run


def _functions() -> Functions:
    blocks: dict[str, dict[DType, Run]] = {}
    for name in FILES:
        text = files(__package__).joinpath("sequences", f"{name}.txt").read_text(encoding="utf-8")
        for block in text.split("\n\n")[1:]:
            first, *lines = block.strip().splitlines()
            head = HEAD.fullmatch(first)
            assert head, first
            dtype = DTYPES[head[2]]
            blocks.setdefault(head[1], {})[dtype] = sequence(*(_command(line, dtype) for line in lines))
    return {name: _function(of_types) for name, of_types in blocks.items()}


#: Functions by name, without the prefix tpu_bdc_.
SEQUENCED = _functions()
