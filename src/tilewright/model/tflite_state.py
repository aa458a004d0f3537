"""The values that a `.tflite` network keeps from one run to the next, as states of a graph.

A file has them in two forms. Resource variables are named by VAR_HANDLE, read and written by READ_VARIABLE and
ASSIGN_VARIABLE, and get their first values in a subgraph that CALL_ONCE runs. Variable tensors belong to one operator,
an LSTM, and start with zeros (the codes of zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import State, fresh_name
from tilewright.graph.tensor import DTYPES, MAX_COMPUTED, Tensor
from tilewright.model.tflite_file import Call, Subgraph

STATEFUL = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")
#: A resource variable: its container and name.
Key = tuple[bytes | None, bytes | None]


class Variables:
    """The variables of a network, followed through its operators in the order of the file.

    Reading a variable for the first time makes the tensor that is read the source of a state. Later readers get the
    name of the tensor that was assigned last, or this source. New tensors are added to `tensors`.
    """

    def __init__(self, file: Sequence[Subgraph], tensors: dict[str, Tensor]) -> None:
        self.file, self.tensors = file, tensors
        self.names = set(tensors)
        self.handles: dict[str, Key] = {}
        self.initial: dict[Key, Tensor] = {}
        self.current: dict[Key, str] = {}
        self.sources: dict[Key, str] = {}
        self.aliases: dict[str, str] = {}
        self.own: list[State] = []

    def value(self, name: str) -> str:
        """Return the name of the tensor that holds the value of tensor `name` now."""
        return self.aliases.get(name, name)

    def take(self, call: Call) -> None:
        """Follow one of the operators STATEFUL. Raises ModelError if it is malformed."""
        if call.code == "CALL_ONCE":
            self._initialise(call)
        elif call.code == "VAR_HANDLE":
            self.handles[call.output.name] = _key(call)
        elif call.code == "READ_VARIABLE":
            self._read(call)
        else:
            self.current[self._variable(call)] = self.value(call.tensor(1).name)

    def states(self) -> tuple[State, ...]:
        """Return the states of the network. Raises ModelError if a variable has no initial value."""
        made = list(self.own)
        for key, source in self.sources.items():
            if key not in self.initial:
                raise ModelError(f"tensor '{source}'", "is a variable that nothing initialises")
            made.append(State(source, self.current[key], self._added(source, self.initial[key])))
        return tuple(made)

    def kept_by(self, call: Call, tensors: Sequence[Tensor]) -> tuple[str, ...]:
        """Return the names of new tensors for the values of an operator's variable `tensors` after it has run.

        Raises ModelError if one is not a variable tensor, UnsupportedError if its type or size is not supported.
        """
        names = []
        for tensor in tensors:
            unkept = tensor.name not in self.file[0].variables
            call.fail_if(unkept, f"has the state '{tensor.name}', which is not a variable tensor")
            wrong = tensor.dtype not in DTYPES or min(tensor.shape, default=1) < 1 or tensor.size > MAX_COMPUTED
            call.refuse_if(wrong, f"has the state '{tensor.name}' of {tensor.dtype}{list(tensor.shape)}")
            zero = tensor.quant.zero_point[0] if tensor.quant else 0
            start = replace(tensor, data=np.full(tensor.shape, zero, np.int64).astype(tensor.dtype))
            name = fresh_name(f"{tensor.name}:next", self.names)
            self.tensors[name] = replace(tensor, name=name, data=None)
            self.own.append(State(tensor.name, name, self._added(tensor.name, start)))
            self.aliases[tensor.name] = name
            names.append(name)
        return tuple(names)

    def _added(self, source: str, value: Tensor) -> str:
        name = fresh_name(f"{source}:initial", self.names)
        self.tensors[name] = replace(value, name=name, quant=self.tensors[source].quant)
        return name

    def _variable(self, call: Call) -> Key:
        name = call.tensor(0).name
        call.fail_if(name not in self.handles, f"{call.code} takes '{name}', which no VAR_HANDLE gives")
        return self.handles[name]

    def _read(self, call: Call) -> None:
        key, tensor = self._variable(call), call.output
        if key not in self.current:
            self.current[key] = self.sources[key] = tensor.name
            return
        held = self.tensors[self.current[key]]
        differs = (held.shape, held.dtype, held.quant) != (tensor.shape, tensor.dtype, tensor.quant)
        call.refuse_if(differs, "reads a variable with another shape, type or scale than was assigned")
        self.aliases[tensor.name] = held.name

    def _initialise(self, call: Call) -> None:
        """Take the constants that the subgraph of a CALL_ONCE assigns to variables."""
        index = call.option("InitSubgraphIndex", 0)
        call.fail_if(not 1 <= index < len(self.file), f"calls subgraph {index} of {len(self.file)}")
        handles: dict[str, Key] = {}
        for step in self.file[index].calls:
            if step.code == "VAR_HANDLE":
                handles[step.output.name] = _key(step)
            elif step.code == "ASSIGN_VARIABLE" and step.tensor(0).name in handles:
                step.constant(1)
                self.initial[handles[step.tensor(0).name]] = step.tensor(1)
            else:
                raise UnsupportedError(call.where, f"initialises variables with {step.code}", "use constants")


def _key(call: Call) -> Key:
    return call.option("Container", None), call.option("SharedName", None)
