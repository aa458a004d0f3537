"""The LSTM layer of TFLite with int8 activations and weights: UNIDIRECTIONAL_SEQUENCE_LSTM with a 16-bit cell state.

TFLite Micro and LiteRT compute it differently. TFLite Micro's logistic and tanh come from a table, LiteRT's from
gemmlowp's 16-bit functions; TFLite Micro saturates the two products of a gate one by one, LiteRT saturates their sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.fixed_point import FIXED16
from tilewright.graph.ir import Op, Shape, Site
from tilewright.graph.ops.activation import Logistic, Tanh, in_12288ths
from tilewright.graph.ops.linear import centre
from tilewright.graph.rounding import (
    MAX_FACTOR,
    Rounding,
    multiply_by_quantized_multiplier,
    multiply_by_real,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from tilewright.graph.tensor import Tensor

GATES = 4  # input, forget, cell, output
#: Scales of a gate before and after its activation function.
BEFORE, AFTER = 2.0**-12, 2.0**-15


class _Gate(NamedTuple):
    """A gate's weights (K, N) less zero points, its factors as (multiplier, shift), and its bias (N)."""

    w: Array
    recurrent: Array
    bias: Array
    factor: tuple[Array, Array]
    recurrent_factor: tuple[Array, Array]


@dataclass(frozen=True)
class Lstm(Op):
    """An LSTM over the time axis of x (B, T, K), or if `time_major`, (T, B, K). The output has N values for each step.

    Inputs: x; for the gates input, forget, cell, output in this order, four weights (N, K), four recurrent weights
    (N, N), four int32 biases (N); the hidden state (B, N) and the cell state (B, N), int16 with a scale 2**k.
    Outputs: the hidden states of all steps; hidden and cell state after the last step. `cell_clip` limits the real
    cell state (0: no limit). `hidden_scale` and `hidden_zero` are those that LiteRT takes for the hidden state.
    """

    kind = "lstm"
    time_major: bool = False
    cell_clip: float = 0.0
    hidden_scale: float = 1.0
    hidden_zero: int = 0

    def check_types(self, site: Site) -> None:
        """Check types. Raises UnsupportedError unless activations and weights are int8 and the cell state int16."""
        kinds = [tensor.dtype if tensor else "" for tensor in site.inputs]
        wanted = ["int8"] * (1 + 2 * GATES) + ["int32"] * GATES + ["int8", "int16"]
        if kinds != wanted or [tensor.dtype for tensor in site.outputs] != ["int8", "int8", "int16"]:
            reason = "is an LSTM of other types than int8 activations and weights, int32 biases and an int16 cell state"
            raise UnsupportedError(site.where, reason)

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shapes. Raises ModelError if inputs do not fit, UnsupportedError for other scales."""
        x, hidden, cell = site.input(0).shape, site.input(13).shape, site.input(14)
        if len(x) != 3 or len(hidden) != 2 or cell.shape != hidden or hidden[0] != x[0 if not self.time_major else 1]:
            raise ModelError(site.where, f"has an input of shape {list(x)} and states of shape {list(hidden)}")
        size = hidden[1]
        for index in range(GATES):
            shapes = (site.constant(1 + index), site.constant(1 + GATES + index), site.constant(1 + 2 * GATES + index))
            if [array.shape for array in shapes] != [(size, x[2]), (size, size), (size,)]:
                raise ModelError(site.where, f"has weights that do not fit {x[2]} inputs and {size} cells")
        site.fail_if(not 0 <= self.cell_clip < MAX_FACTOR, f"limits its cell state to {self.cell_clip:g}")
        if abs(np.log2(cell.scale) - np.rint(np.log2(cell.scale))) > 1e-3 or cell.zero_point:
            raise UnsupportedError(site.where, "has a cell state whose scale is not a power of two")
        if not -15 <= self._power(cell) <= -9:
            raise UnsupportedError(site.where, f"has a cell state of scale 2**{self._power(cell)}, not 2**-15..2**-9")
        return ((*x[:2], size), hidden, hidden)

    @staticmethod
    def _power(cell: Tensor) -> int:
        return int(np.rint(np.log2(cell.scale)))

    def macs(self, site: Site) -> int:
        (a, b, inputs), size = site.input(0).shape, site.input(13).shape[1]
        return GATES * a * b * size * (inputs + size)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        arithmetic: type[_Arithmetic] = _Micro if rounding.name == "tflm" else _LiteRT
        unit = arithmetic(self, site)
        x, hidden, cell = values[0], values[13], values[14]
        assert x is not None and hidden is not None and cell is not None  # validation has checked it
        samples = max(len(x), len(hidden), len(cell))
        time = 1 if self.time_major else 2  # the axis, after that of samples
        steps = np.moveaxis(np.broadcast_to(x, (samples, *x.shape[1:])), time, 0)  # (T, S, B, K)
        inputs = unit.of_inputs(steps)
        state = np.broadcast_to(hidden, (samples, *hidden.shape[1:]))
        cells = np.broadcast_to(cell, (samples, *cell.shape[1:])).astype(np.int64)
        outputs = []
        for step in range(len(steps)):
            cells, state = unit.step([part[step] for part in inputs], state, cells)
            outputs.append(state)
        return (np.stack(outputs, axis=time), state, cells.astype(np.int16))


class _Arithmetic(ABC):
    """The integer arithmetic of a step, which the two runtimes share as far as the methods below."""

    def __init__(self, op: Lstm, site: Site) -> None:
        self.x, self.hidden, self.cell = site.input(0), site.input(13), site.input(14)
        self.power = op._power(self.cell)
        self.clip = int(np.clip(np.fix(op.cell_clip / self.cell.scale), -32768, 32767))
        self.op = op
        self.gates = [self._gate(site, index) for index in range(GATES)]

    def _gate(self, site: Site, index: int) -> _Gate:
        w, r = site.input(1 + index), site.input(1 + GATES + index)
        return _Gate(
            centre(site.constant(1 + index), w).T,
            centre(site.constant(1 + GATES + index), r).T,
            site.constant(1 + 2 * GATES + index).astype(np.int64),
            self.factor(self.x.scale, w.scale),
            self.factor(self.hidden.scale, r.scale),
        )

    @abstractmethod
    def factor(self, scale: float, weight_scale: float) -> tuple[Array, Array]: ...

    def of_inputs(self, x: Array) -> list[Array]:
        """Return each gate's products with the inputs x (T, S, B, K), rescaled: (T, S, B, N)."""
        centred, parts = centre(x, self.x), []
        for gate in self.gates:
            total = exact_matmul(centred.reshape(-1, x.shape[-1]), gate.w, 255, 128) + gate.bias
            scaled = multiply_by_quantized_multiplier(total, *gate.factor)
            parts.append(FIXED16.saturated(scaled).reshape(*x.shape[:-1], -1))
        return parts

    def step(self, inputs: Sequence[Array], state: Array, cells: Array) -> tuple[Array, Array]:
        """Return the cell state (int64) and hidden state (int8) after a step, from those before it."""
        centred, gates = centre(state, self.hidden), []
        for index, gate in enumerate(self.gates):
            total = exact_matmul(centred, gate.recurrent, 255, 128).astype(np.int64)
            total = self.saturated(multiply_by_quantized_multiplier(total, *gate.recurrent_factor))
            before = FIXED16.saturated(inputs[index] + total)
            gates.append(self.tanh(before, -12) if index == 2 else self.logistic(before))
        i, f, g, o = gates
        cells = FIXED16.saturated(self.times(f, cells, 15) + self.times(i, g, 30 + self.power))
        if self.clip > 0:
            cells = np.clip(cells, -self.clip, self.clip)
        return cells, self.output(o, self.tanh(cells, self.power))

    def saturated(self, x: Array) -> Array:
        return x

    @abstractmethod
    def logistic(self, x: Array) -> Array: ...

    @abstractmethod
    def tanh(self, x: Array, power: int) -> Array:
        """Return tanh of codes with the scale 2**power."""

    @abstractmethod
    def times(self, a: Array, b: Array, shift: int) -> Array:
        """Return a * b / 2**shift, rounded."""

    @abstractmethod
    def output(self, gate: Array, values: Array) -> Array:
        """Return the hidden state, int8, from output gate and tanh of the cell state."""

    def _hidden(self, product: Array, factor: tuple[Array, Array], zero: int) -> Array:
        return np.clip(multiply_by_quantized_multiplier(product, *factor) + zero, -128, 127).astype(np.int8)


class _Micro(_Arithmetic):
    """TFLite Micro: factors in float64, functions from the table of 256 values."""

    def factor(self, scale: float, weight_scale: float) -> tuple[Array, Array]:
        return quantize_multiplier(np.float64(scale) * np.float64(weight_scale) / BEFORE)

    def saturated(self, x: Array) -> Array:
        return FIXED16.saturated(x)

    def logistic(self, x: Array) -> Array:
        return Logistic().table(in_12288ths(x, BEFORE, 0))

    def tanh(self, x: Array, power: int) -> Array:
        left = power + 12
        scaled = x * (3 << left) if left >= 0 else (x * 3 + (1 << (-left - 1))) >> -left
        return Tanh().table(scaled)

    def times(self, a: Array, b: Array, shift: int) -> Array:
        return FIXED16.saturated(multiply_by_real(a * b, 2.0**-shift))

    def output(self, gate: Array, values: Array) -> Array:
        factor = quantize_multiplier(AFTER * AFTER / np.float64(self.hidden.scale))
        return self._hidden(gate * values, factor, self.hidden.zero_point)


class _LiteRT(_Arithmetic):
    """LiteRT: factors in float32, functions in 16-bit fixed point."""

    def factor(self, scale: float, weight_scale: float) -> tuple[Array, Array]:
        return quantize_multiplier(float(np.float32(weight_scale) * np.float32(scale) / np.float32(BEFORE)))

    def logistic(self, x: Array) -> Array:
        return FIXED16.logistic(x, 3)

    def tanh(self, x: Array, power: int) -> Array:
        return FIXED16.tanh(x, 15 + power)

    def times(self, a: Array, b: Array, shift: int) -> Array:
        return rounding_divide_by_pot(a * b, shift)

    def output(self, gate: Array, values: Array) -> Array:
        factor = quantize_multiplier(float(np.float32(AFTER) / np.float32(self.op.hidden_scale) * np.float32(AFTER)))
        return self._hidden(gate * values, factor, self.op.hidden_zero)
