"""The LSTM layer of TFLite with int8 activations and weights: UNIDIRECTIONAL_SEQUENCE_LSTM with a 16-bit cell state.

TFLite Micro and LiteRT differ in their arithmetic. For logistic and tanh, TFLite Micro uses a table, and LiteRT uses
gemmlowp's 16-bit functions. Of the two products of a gate, TFLite Micro saturates each one, LiteRT saturates their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.graph.ir import Op, Shape, Site
from tilewright.graph.ops.activation import Logistic, Tanh, in_12288ths
from tilewright.graph.ops.linear import centre
from tilewright.graph.rounding import (
    FIXED16,
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
    """A gate: weights (K, N) minus zero points, factors as (multiplier, shift), and bias (N)."""

    w: Array
    recurrent: Array
    bias: Array
    factor: tuple[Array, Array]
    recurrent_factor: tuple[Array, Array]


@dataclass(frozen=True)
class Lstm(Op):
    """An LSTM over the time axis of x, which is (B, T, K), or (T, B, K) if `time_major`.

    Inputs are x, four weights (N, K), four recurrent weights (N, N), four int32 biases (N), the hidden state (B, N) and
    the cell state (B, N), int16 with a scale 2**k. The order of the gates is input, forget, cell, output. Outputs are
    the hidden states of all steps, and the hidden and cell state after the last step. `cell_clip` limits the real cell
    state (0: no limit). `hidden_scale` and `hidden_zero` are the scale and zero point of the hidden state in LiteRT.
    """

    kind = "lstm"
    time_major: bool = False
    cell_clip: float = 0.0
    hidden_scale: float = 1.0
    hidden_zero: int = 0

    def check_types(self, site: Site) -> None:
        """Raises UnsupportedError unless activations and weights are int8 and the cell state is int16."""
        kinds = [tensor.dtype if tensor else "" for tensor in site.inputs]
        required = ["int8"] * (1 + 2 * GATES) + ["int32"] * GATES + ["int8", "int16"]
        wrong = kinds != required or [tensor.dtype for tensor in site.outputs] != ["int8", "int8", "int16"]
        reason = "is an LSTM of other types than int8 activations and weights, int32 biases and an int16 cell state"
        site.refuse_if(wrong, reason)

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shapes. Raises ModelError for shapes that do not fit, UnsupportedError for other scales."""
        x = site.input(0).shape
        hidden = site.input(13).shape
        cell = site.input(14)
        fits = len(x) == 3 and len(hidden) == 2 and cell.shape == hidden and hidden[0] == x[1 if self.time_major else 0]
        site.fail_if(not fits, f"has an input of shape {list(x)} and states of shape {list(hidden)}")
        size = hidden[1]
        shapes = [site.constant(1 + index).shape for index in range(3 * GATES)]
        required = [(size, x[2])] * GATES + [(size, size)] * GATES + [(size,)] * GATES
        site.fail_if(shapes != required, f"has weights that do not fit {x[2]} inputs and {size} cells")
        site.fail_if(not 0 <= self.cell_clip < MAX_FACTOR, f"limits its cell state to {self.cell_clip:g}")
        power = self.power(cell)
        wrong = abs(np.log2(cell.scale) - power) > 1e-3 or cell.zero_point
        site.refuse_if(wrong, "has a cell state whose scale is not a power of two")
        site.refuse_if(not -15 <= power <= -9, f"has a cell state of scale 2**{power}, not 2**-15..2**-9")
        return ((*x[:2], size), hidden, hidden)

    @staticmethod
    def power(cell: Tensor) -> int:
        return int(np.rint(np.log2(cell.scale)))

    def macs(self, site: Site) -> int:
        a, b, inputs = site.input(0).shape
        size = site.input(13).shape[1]
        return GATES * a * b * size * (inputs + size)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        unit = _Arithmetic(self, site, rounding.name == "tflm")
        x = values[0]
        hidden = values[13]
        cell = values[14]
        assert x is not None and hidden is not None and cell is not None  # checked by `validate`
        samples = max(len(x), len(hidden), len(cell))
        time = 1 if self.time_major else 2  # the index of the time axis; axis 0 is the sample axis
        steps = np.moveaxis(np.broadcast_to(x, (samples, *x.shape[1:])), time, 0)  # (T, S, B, K)
        inputs = unit.of_inputs(steps)  # one matrix product for all steps, which do not depend on the state
        state = np.broadcast_to(hidden, (samples, *hidden.shape[1:]))
        cells = np.broadcast_to(cell, (samples, *cell.shape[1:])).astype(np.int64)
        outputs = []
        for step in range(len(steps)):
            cells, state = unit.step([part[step] for part in inputs], state, cells)
            outputs.append(state)
        return (np.stack(outputs, axis=time), state, cells.astype(np.int16))


class _Arithmetic:
    """The integer arithmetic of one step, in TFLite Micro (if `micro`) or in LiteRT."""

    def __init__(self, op: Lstm, site: Site, micro: bool) -> None:
        self.micro = micro
        self.x = site.input(0)
        self.hidden = site.input(13)
        cell = site.input(14)
        self.power = op.power(cell)
        self.clip = int(np.clip(np.fix(op.cell_clip / cell.scale), -32768, 32767))
        self.gates = [self._gate(site, index) for index in range(GATES)]
        if micro:
            self.zero = self.hidden.zero_point
            factor = AFTER * AFTER / self.hidden.scale
        else:
            self.zero = op.hidden_zero
            factor = float(np.float32(AFTER) / np.float32(op.hidden_scale) * np.float32(AFTER))
        self.result = quantize_multiplier(factor)

    def _gate(self, site: Site, index: int) -> _Gate:
        w = site.input(1 + index)
        r = site.input(1 + GATES + index)
        return _Gate(
            centre(site.constant(1 + index), w).T,
            centre(site.constant(1 + GATES + index), r).T,
            site.constant(1 + 2 * GATES + index).astype(np.int64),
            self._factor(self.x.scale, w.scale),
            self._factor(self.hidden.scale, r.scale),
        )

    def _factor(self, scale: float, weight_scale: float) -> tuple[Array, Array]:
        # The same float type and order of operations as in TFLite, because the last bit of a factor decides ties.
        kind = np.float64 if self.micro else np.float32
        return quantize_multiplier(float(kind(weight_scale) * kind(scale) / kind(BEFORE)))

    def of_inputs(self, x: Array) -> list[Array]:
        """Return, for each gate, the rescaled products (T, S, B, N) of its weights and the inputs x (T, S, B, K)."""
        centred = centre(x, self.x)
        parts = []
        for gate in self.gates:
            total = exact_matmul(centred.reshape(-1, x.shape[-1]), gate.w, 255, 128) + gate.bias
            scaled = multiply_by_quantized_multiplier(total, *gate.factor)
            parts.append(FIXED16.saturated(scaled).reshape(*x.shape[:-1], -1))
        return parts

    def step(self, inputs: Sequence[Array], state: Array, cells: Array) -> tuple[Array, Array]:
        """Compute a step from the states before the step. Return the new cell state (int64) and hidden state (int8)."""
        centred = centre(state, self.hidden)
        gates = []
        for index, gate in enumerate(self.gates):
            total = exact_matmul(centred, gate.recurrent, 255, 128).astype(np.int64)
            total = multiply_by_quantized_multiplier(total, *gate.recurrent_factor)
            before = FIXED16.saturated(inputs[index] + (FIXED16.saturated(total) if self.micro else total))
            gates.append(self._tanh(before, -12) if index == 2 else self._logistic(before))  # the cell gate uses tanh
        i, f, g, o = gates
        # The scale of gates is 2**-15, and the scale of cells is 2**power. Therefore f * cells has 15 fraction bits too
        # many for the scale of cells, and i * g has 30 + power.
        cells = FIXED16.saturated(self._times(f, cells, 15) + self._times(i, g, 30 + self.power))
        if self.clip > 0:
            cells = np.clip(cells, -self.clip, self.clip)
        hidden = multiply_by_quantized_multiplier(o * self._tanh(cells, self.power), *self.result)
        return cells, np.clip(hidden + self.zero, -128, 127).astype(np.int8)

    def _logistic(self, x: Array) -> Array:
        return Logistic().by_table(in_12288ths(x, BEFORE, 0)) if self.micro else FIXED16.logistic(x, 3)

    def _tanh(self, x: Array, power: int) -> Array:
        left = power + 12
        if not self.micro:
            return FIXED16.tanh(x, 15 + power)
        return Tanh().by_table(x * (3 << left) if left >= 0 else (x * 3 + (1 << (-left - 1))) >> -left)

    def _times(self, a: Array, b: Array, shift: int) -> Array:
        if self.micro:
            return FIXED16.saturated(multiply_by_real(a * b, 2.0**-shift))
        return rounding_divide_by_pot(a * b, shift)
