"""Cycles of each command: the vendor compiler's estimate, which is no measurement of silicon.

Formulas and numbers fit the timelines that the vendor's compiler prints for the networks of tpu_vectors. Exact there:
convolutions, matrix products, pooling, arithmetic. Transfers are fitted. A number stands beside what it was fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import Trace
from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated, timeline
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.elaborate import Elaborated
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.isa.operations.base import attribute
from tilewright.targets.bm1684x.layouts.layout import aligned
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.spread import ConvWeights, Matrix
from tilewright.targets.bm1684x.layouts.tensor import Rows, Tensor, storage_of
from tilewright.targets.bm1684x.timing.conflicts import passes, waits


class Timing(NamedTuple):
    """The fitted numbers."""

    #: Bytes a cycle of tensor transfers: into local memory (0.844 of 64), and out of it (0.64 of 64).
    read_rate: float = 54.0167
    write_rate: float = 40.9775
    #: Bytes a cycle of matrix transfers and broadcasts; as exact as the timelines show.
    matrix_read_rate: float = 58.0
    matrix_write_rate: float = 44.0
    #: Bytes that a run of neighbouring elements costs at least.
    shortest_run: int = 256
    #: A tensor transfer has the full rate from `full` units of `unit` bytes on; a smaller one in proportion.
    unit: int = 4096
    full: int = 4
    #: Pooling with a horizontal stride above 1 against one of 1.
    strided_pool: int = 3
    #: A division: this often a pass over its operands for each Newton step, and once more.
    division_step: int = 10
    #: Passes of the sequences that stand for one operation here: `runtime/functions.py`, as in compiled programs.
    exponential: int = 22
    sigmoid: int = 56
    #: Elements a cycle of each of the ceil(log2 n) passes of a sort, of the one of an NMS: guesses, in no timeline.
    sort_rate: int = 1


ESTIMATE = Timing()
#: Where the cube's rows of pixels (or matrix columns) and input channels come from.
PIXELS = {1: 4, 2: 4, 4: 16}
MATRIX_COLUMNS = 4


def cycles(command: Command, config: Config, timing: Timing = ESTIMATE) -> int:
    """Cycles of one command, at least 1."""
    if command.operation.engine == HAU:
        return _sort(command, timing)
    if command.operation.engine == DMA:
        return max(1, _transfer(command, config, timing))
    return max(1, COMPUTE.get(command.operation.name, _passes)(command, config, timing))


def trace(
    program: Elaborated, config: Config, timing: Timing = ESTIMATE, serial: bool = False, conflicts: bool = False
) -> Trace:
    """When each command runs: engines in order, each command when what it names has ended. Raises HazardError.

    `conflicts`: with the model of bank conflicts.
    """
    busy = np.array([cycles(command, config, timing) for command in program.commands], np.int64)
    if conflicts:
        busy *= np.array([passes(command, config) for command in program.commands], np.int64)
    found = _timed(program, busy, serial)
    if conflicts:
        found = _timed(program, busy + waits(program.commands, found, config), serial)
    moved = np.array([_bytes_of_ddr(command) for command in program.commands], np.int64).reshape(-1, 2)
    return replace(found, bytes_read=moved[:, 0], bytes_written=moved[:, 1], fetch_bytes=0)


def times(program: Elaborated, config: Config) -> tuple[Trace, Trace]:
    """The trace of a launch, and the one without any overlap."""
    return trace(program, config), trace(program, config, serial=True)


def _timed(program: Elaborated, busy: Array, serial: bool) -> Trace:
    """The trace for these cycles of each command."""
    zero = np.zeros(len(busy), np.int64)
    costs = Costs.of(zero, busy, zero, zero, zero)
    no_port, no_fetch = Channel(beat_bytes=1, latency=0, burst=0), Fetch(insn_bytes=1, depth=0)
    return timeline(program.table, program.order, Simulated(costs, no_port, no_fetch), serial)


def _conv(command: Command, config: Config, timing: Timing) -> int:
    """n * oc / lanes * pixels / q * taps * ic / P, each rounded up."""
    n, oc, oh, ow = command.results["y"].shape
    w = command.operands["w"]
    assert isinstance(w, ConvWeights)
    _, ic, kh, kw = w.shape
    pixels = _up(oh * ow, PIXELS[w.dtype.bytes])
    return n * _up(oc, config.lanes) * pixels * kh * kw * _up(ic, w.group)


def _matmul(command: Command, config: Config, timing: Timing) -> int:
    """By rows: as a convolution. Spread columns: a pass over a row of the result for each product and addend."""
    left, right, y = command.operands["L"], command.operands["R"], command.results["y"]
    assert not isinstance(left, Constant) and not isinstance(right, Constant)
    depth = left.shape[0] if attribute(command.attributes, "left_transposed") else left.shape[1]
    if isinstance(y, Rows):
        group = 1 if left.dtype.bytes == 4 else config.eu_bytes // left.dtype.bytes
        return _up(y.shape[0], config.lanes) * _up(y.shape[1], MATRIX_COLUMNS) * _up(depth, group)
    assert isinstance(y, Matrix)
    rows, channels, _, width = y.storage.shape
    row = _up(width, config.eu_bytes // left.dtype.bytes) * _up(channels, config.lanes)
    return rows * row * (depth + sum(name in command.operands for name in ("bias", "acc")))


def _sort(command: Command, timing: Timing) -> int:
    """A merge sort's passes over its operand; what suppresses boxes reads each element once."""
    x = command.operands["x"]
    assert not isinstance(x, Constant)
    length = x.shape[0]
    if command.operation.name != "hau_sort":
        return _up(length, timing.sort_rate)
    return _up(length * max(1, (length - 1).bit_length()), timing.sort_rate)


def _pool(command: Command, config: Config, timing: Timing) -> int:
    window = command.attributes["window"]
    taps = window.kernel[0] * window.kernel[1]
    return _elements(command, config) * taps * (timing.strided_pool if window.stride[1] > 1 else 1)


def _taylor(command: Command, config: Config, timing: Timing) -> int:
    coefficients = command.operands["coefficients"]
    assert not isinstance(coefficients, Constant)
    return _elements(command, config) * coefficients.shape[-1]


def _divide(command: Command, config: Config, timing: Timing) -> int:
    return _elements(command, config) * (timing.division_step * attribute(command.attributes, "steps") + 1)


def _sequence(passes: str) -> Callable[[Command, Config, Timing], int]:
    return lambda command, config, timing: _elements(command, config) * int(getattr(timing, passes))


def _passes(command: Command, config: Config, timing: Timing) -> int:
    """A pass over the result; twice where it overwrites an operand, and where two operands have free strides."""
    factor = 1
    y = command.results["y"]
    tensors = [operand for operand in command.operands.values() if isinstance(operand, Tensor)]
    if isinstance(y, Tensor) and any(_overlap(y, operand, config) for operand in tensors if operand.is_local):
        factor *= 2
    if len(strided(command, config)) > 1:
        factor *= 2
    widest = max((operand.stride.w for operand in tensors), default=1)
    return _elements(command, config) * factor * max(1, widest)


def strided(command: Command, config: Config) -> list[str]:
    """Operands that the command gives strides: as it was encoded, else those that repeat or are not aligned."""
    given: list[str] | None = command.attributes.get("strided")
    if given is not None:
        return given
    shape = command.results["y"].shape
    found = []
    for name in ("a", "b"):
        place = command.operands.get(name)
        if isinstance(place, Tensor) and place.is_local:
            default = aligned(place.shape, place.dtype, place.start_lane, config)
            found += [name] * (place.shape != shape or place.stride != default)
    return found


def _elements(command: Command, config: Config) -> int:
    """Cycles of one pass: n * c / lanes * (h * w) / elements that a lane processes a cycle, by the widest type."""
    y = command.results["y"]
    operands = {name: operand for name, operand in command.operands.items() if name in STREAMED}
    size = max(operand.dtype.bytes for operand in (y, *operands.values()))
    n, c, h, w = y.shape if len(y.shape) == 4 else (1, 1, 1, int(np.prod(y.shape)))
    return n * _up(c, config.lanes) * _up(h * w, config.eu_bytes // size)


#: Operands that are read element by element; the others are parameters.
STREAMED = ("a", "b", "x", "acc")
COMPUTE: dict[str, Callable[[Command, Config, Timing], int]] = {
    **dict.fromkeys(("fp_conv2d", "int8_sym_quant_conv2d", "int8_asym_quant_conv2d"), _conv),
    **dict.fromkeys(("fp_mm", "int8_mm", "int8_zp_mm"), _matmul),
    **dict.fromkeys(("fp_depthwise2d", "int8_depthwise2d", "fp_avg_pool2d", "int8_avg_pool2d", "max_pool2d"), _pool),
    "fp_taylor": _taylor,
    "fp_div": _divide,
    "fp_exp": _sequence("exponential"),
    "fp_sigmoid": _sequence("sigmoid"),
}


def _overlap(y: Tensor, operand: Tensor, config: Config) -> bool:
    """Whether two tensors share bytes of a lane; each channel counts as a multiple of 64 elements, of any type."""

    def extent(tensor: Tensor) -> tuple[int, int]:
        n, c, h, w = tensor.shape
        if 0 in tensor.stride:  # repeated elements: parameters
            return tensor.lane_offset, tensor.lane_offset
        slot = _up(h * w, config.eu_bytes) * config.eu_bytes * tensor.dtype.bytes
        return tensor.lane_offset, tensor.lane_offset + n * _up(tensor.start_lane + c, config.lanes) * slot

    (low, end), (other_low, other_end) = extent(y), extent(operand)
    return low < other_end and other_low < end


def _transfer(command: Command, config: Config, timing: Timing) -> int:
    """Bytes at a rate; short runs count as longer ones, and small tensor transfers do not reach the rate."""
    x, y = command.operands["x"], command.results["y"]
    out = not isinstance(x, Constant) and _is_local(x) and not _is_local(y)
    size = y.dtype.bytes
    pairs, run = _runs(x, y)
    spread = isinstance(x, Matrix) or isinstance(y, Matrix) or command.operation.name == "dma_broadcast"
    if spread:
        rate = timing.matrix_write_rate if out else timing.matrix_read_rate
        moved = min(int(np.prod(operand.shape)) for operand in (x, y) if not isinstance(operand, Constant)) * size
        return int(moved * max(1.0, timing.shortest_run / (run * size)) / rate)
    rate = timing.write_rate if out else timing.read_rate
    units = pairs * run * size / timing.unit
    level = 2 ** round(math.log2(units)) if out else round(units)
    slow = timing.full / min(max(level, 1), timing.full)
    return int(pairs * max(timing.shortest_run, run * size) * slow / rate)


def _runs(x: Operand | Constant, y: Operand) -> tuple[int, int]:
    """How many runs of neighbouring elements are moved, and elements of each."""
    for operand in (x, y):
        if isinstance(operand, Matrix):
            n, c, _, w = operand.storage.shape
            return n * c, w
    tensors = [operand for operand in (x, y) if isinstance(operand, Tensor)]
    if not tensors:
        return 1, int(np.prod(y.shape))
    n, c, h, w = tensors[0].shape
    if all(t.stride.w == 1 or w == 1 for t in tensors):
        if all(t.stride.h == w or h == 1 for t in tensors):
            return n * c, h * w
        return n * c * h, w
    return n * c * h * w, 1


def _is_local(operand: Operand) -> bool:
    tensor = storage_of(operand)
    return tensor is not None and tensor.is_local


def _bytes_of_ddr(command: Command) -> tuple[int, int]:
    """Bytes read from outside local memory, and written there."""
    if command.operation.engine == TIU:
        return 0, 0
    x, y = command.operands["x"], command.results["y"]
    reads = 0 if isinstance(x, Constant) or _is_local(x) else int(np.prod(x.shape)) * x.dtype.bytes
    return reads, 0 if _is_local(y) else int(np.prod(y.shape)) * y.dtype.bytes


def _up(value: int, divisor: int) -> int:
    return -(-value // divisor)
