"""Estimate the cycles of commands as the vendor's compiler does, and count multiply-accumulates.

The estimate was not measured on silicon. Its formulas and constants reproduce the timelines that the vendor's compiler
prints for the networks of tpu_vectors. The rules for transfers were found by sampling the vendor's estimator with
random transfers. A tensor moves in runs of adjacent elements, and a run shorter than 256 bytes takes as long as one of
256 bytes. DDR has four channels, and consecutive pages of 4096 bytes lie in consecutive channels. A transfer that uses
fewer channels is proportionally slower. The estimator considers only the first four pages that a transfer visits. Pages
are counted from the tensor's first byte. If source and destination differ in shape, the estimator considers only the
first four pages of the tensor, and uses the source's shape for both. If a command without strides exchanges n and c,
the size of a plane is rounded up to a multiple of 16 bytes. A broadcast without strides moves row by row. All other
kinds of transfers have constant rates. Copies within local memory take no time in the vendor's estimator. In this
model, such a copy takes as long as a copy into local memory.

Bank conflicts are a **model**, which the vendor's estimate does not have. The machine's rules for conflicts and their
cost are not published, and nothing here was measured. In the model, a bank serves one access per cycle. The cycles of a
compute command are multiplied by the largest number of its operands and results that share a bank. A transfer that
shares a bank with a compute command waits while both would run at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated
from tilewright.sim.steps import Trace
from tilewright.sim.timeline import timeline
from tilewright.targets.bm1684x.config import CUBE_MACS, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram
from tilewright.targets.bm1684x.isa.operation import Flow, attribute
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride, aligned
from tilewright.targets.bm1684x.layouts.tensor import Matrix, Rows, Tensor
from tilewright.targets.bm1684x.timing.banks import bank_uses, chart, meetings
from tilewright.targets.bm1684x.timing.model import ESTIMATE, Timing

#: The number of pixels that the cube computes at a time, by bytes per weight. If matrices are stored by rows, the cube
#: computes MATRIX_COLUMNS columns at a time.
PIXELS = {1: 4, 2: 4, 4: 16}
MATRIX_COLUMNS = 4
#: The operands that are read element by element. All other operands are parameters.
STREAMED = ("a", "b", "x", "acc")


def cycles(command: Command, config: Config, timing: Timing = ESTIMATE) -> int:
    if command.operation.engine == HAU:
        length = command.operands["x"].shape[0]  # model: a sort is a merge sort; NMS reads each element once
        passes = max(1, (length - 1).bit_length()) if command.operation.name == "hau_sort" else 1
        return _ceil(length * passes, timing.sort_rate)
    if command.operation.engine == DMA:
        return max(1, transfer(command, timing))
    if command.operation.flow is Flow.CONVOLUTION:
        n, oc, oh, ow = command.results["y"].shape
        x = command.operands["x"]
        kernel = (oc, x.shape[1], *command.attributes["window"].kernel)
        return n * conv_cycles(kernel, oh * ow, x.dtype.bytes, config)
    if command.operation.flow is Flow.PRODUCT:
        return _matmul(command, config)
    if command.operation.flow is Flow.INDEXED:
        return _moved(command, config, timing)
    return max(1, _elements(command, config) * _passes(command, config, timing))


def trace(
    program: ElaboratedProgram, config: Config, serial: bool = False, conflicts: bool = False, timing: Timing = ESTIMATE
) -> Trace:
    """Return the times of all commands.

    A command starts after the previous command of its engine, and after all commands that it needs. With `serial`, it
    also waits for the previous command of the program. With `conflicts`, the times include the model of bank conflicts.
    Raises HazardError if the commands deadlock.
    """
    busy = np.array([cycles(command, config, timing) for command in program.commands], np.int64)
    if conflicts:
        uses = bank_uses(program.commands, config)
        compute = np.array([command.operation.engine == TIU for command in program.commands], np.bool_)
        busy *= np.where(compute, uses.max(1).clip(1), 1)
    timed = _timed(program, busy, serial)
    if conflicts:
        timed = _timed(program, busy + waits(uses > 0, timed), serial)
    moved = np.array([_bytes_of_ddr(command) for command in program.commands], np.int64).reshape(-1, 2)
    timed = replace(timed, bytes_read=moved[:, 0], bytes_written=moved[:, 1], fetch_bytes=0)
    return replace(timed, draw=partial(chart, program.commands, timed, config))


def _timed(program: ElaboratedProgram, busy: Array, serial: bool) -> Trace:
    zero = np.zeros(len(busy), np.int64)
    costs = Costs.of(zero, busy, zero, zero, zero)
    no_port = Channel(beat_bytes=1, latency=0, burst=0)
    no_fetch = Fetch(insn_bytes=1, depth=0)
    return timeline(program.table, program.order, Simulated(costs, no_port, no_fetch), serial)


def conv_cycles(kernel: Sequence[int], pixels: int, size: int, config: Config) -> int:
    """Return the cycles of a convolution with a kernel (oc, ic, kh, kw) of `size`-byte weights, for one sample.

    The formula is `(oc / lanes) * (pixels / PIXELS) * kh * kw * (ic / group)`, where `/` rounds up. The cube takes the
    same time whether all or only some of its lanes, pixels and input channels are used.
    """
    oc, ic, kh, kw = kernel
    return _ceil(oc, config.lanes) * _ceil(pixels, PIXELS[size]) * kh * kw * _ceil(ic, config.cube_group(size))


def _moved(command: Command, config: Config, timing: Timing) -> int:
    name = command.operation.name
    y = command.results["y"]
    x = command.operands["x"]
    h, w = (x if name.endswith("scatter") else y).shape[2:]
    # Rows move 64 bytes in 2 cycles; single elements move one per lane and cycle.
    row = timing.moved_row * _ceil(w * y.dtype.bytes, config.eu_bytes) if name.startswith("h_") else w
    whole = y.shape[0] * _ceil(y.shape[1], config.lanes) * h * row
    return max(1, _ceil(whole, timing.copies) if name == "pe_gather_4bank" else whole)


def _matmul(command: Command, config: Config) -> int:
    left = command.operands["L"]
    y = command.results["y"]
    depth = attribute(command.attributes, "depth")
    if not depth:
        depth = left.shape[0] if attribute(command.attributes, "left_transposed") else left.shape[1]
    # A product of matrices stored by rows takes as long as a convolution.
    if isinstance(y, Rows):
        products = _ceil(y.shape[1], MATRIX_COLUMNS) * _ceil(depth, config.cube_group(left.dtype.bytes))
        return _ceil(y.shape[0], config.lanes) * products
    # If the columns are spread over the lanes, a row of the result needs one pass for each term of its sums. The terms
    # are the products, the bias and `acc`.
    assert isinstance(y, Matrix)
    rows, channels, _, width = y.storage.shape
    row = _ceil(width, config.eu_bytes // left.dtype.bytes) * _ceil(channels, config.lanes)
    return rows * row * (depth + sum(name in command.operands for name in ("bias", "acc")))


def _passes(command: Command, config: Config, timing: Timing) -> int:
    name = command.operation.name
    y = command.results["y"]
    if command.operation.flow is Flow.WINDOW:
        window = command.attributes["window"]
        return prod(window.kernel) * (timing.strided_pool if window.stride[1] > 1 else 1)
    if name == "fp_taylor":
        return command.operands["coefficients"].shape[-1]
    if name == "fp_div":
        return timing.division_step * attribute(command.attributes, "steps") + 1
    if name in ("fp_exp", "fp_sigmoid"):
        return timing.exponential if name == "fp_exp" else timing.sigmoid
    tensors = [operand for operand in command.operands.values() if isinstance(operand, Tensor)]
    overwrites = isinstance(y, Tensor) and any(_overlap(y, tensor, config) for tensor in tensors if tensor.is_local)
    widest = max((operand.stride.w for operand in tensors), default=1)
    # A result that overwrites an operand doubles the passes, and so do two strided operands.
    return (2 if overwrites else 1) * (2 if len(strided(command, config)) > 1 else 1) * max(1, widest)


def strided(command: Command, config: Config) -> list[str]:
    """Return the names of the operands that are encoded with strides.

    A decoded command lists these operands in its attribute `strided`. In a command that was not decoded, an operand has
    strides if the operand repeats elements, or if its layout is not `aligned`.
    """
    listed: list[str] | None = command.attributes.get("strided")
    if listed is not None:
        return listed
    shape = command.results["y"].shape
    names = []
    for name in ("a", "b"):
        place = command.operands.get(name)
        if isinstance(place, Tensor) and place.is_local:
            default = aligned(place.shape, place.dtype, place.start_lane, config)
            begins = place.lane_offset % config.eu_bytes == 0
            names += [name] * (place.shape != shape or place.stride != default or not begins)
    return names


def _elements(command: Command, config: Config) -> int:
    y = command.results["y"]
    operands = {name: operand for name, operand in command.operands.items() if name in STREAMED}
    # The engine processes 64 bytes of the widest operand per lane and cycle.
    size = max(operand.dtype.bytes for operand in (y, *operands.values()))
    n, c, h, w = y.shape if len(y.shape) == 4 else (1, 1, 1, int(np.prod(y.shape)))
    return n * _ceil(c, config.lanes) * _ceil(h * w, config.eu_bytes // size)


def _overlap(y: Tensor, operand: Tensor, config: Config) -> bool:
    # This repeats the estimator's comparison of addresses: tensors that begin in different lanes never overlap.
    if y.start_lane != operand.start_lane:
        return False

    def extent(tensor: Tensor) -> tuple[int, int]:
        n, c, h, w = tensor.shape
        if 0 in tensor.stride:  # operands with repeated elements are parameters
            return tensor.lane_offset, tensor.lane_offset
        slot = _ceil(h * w, config.eu_bytes) * config.eu_bytes * tensor.dtype.bytes
        return tensor.lane_offset, tensor.lane_offset + n * _ceil(tensor.start_lane + c, config.lanes) * slot

    low, end = extent(y)
    other_low, other_end = extent(operand)
    return low < other_end and other_low < end


def _bytes_of_ddr(command: Command) -> tuple[int, int]:
    if command.operation.engine == TIU:
        return 0, 0
    x, y = command.operands["x"], command.results["y"]
    reads = 0 if isinstance(x, Constant) or x.storage.is_local else int(np.prod(x.shape)) * x.dtype.bytes
    return reads, 0 if y.storage.is_local else int(np.prod(y.shape)) * y.dtype.bytes


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def waits(used: Array, trace: Trace) -> Array:
    """Return the cycles that each transfer waits while compute commands use its banks: int64 [commands].

    `used` tells which banks each command uses: bool [commands, banks]. Compute commands do not wait, so their entries
    are 0.
    """
    waited = np.zeros(len(used), np.int64)
    for step, busy in meetings(trace):
        both = np.minimum(trace.end[busy], trace.end[step]) - np.maximum(trace.start[busy], trace.start[step])
        shares = (used[busy] & used[step]).any(1)
        waited[step] = int(both[shares].clip(0).sum())
    return waited


def macs(command: Command) -> int:
    """Return a command's number of multiply-accumulates, including padding (0 without multiplications)."""
    name = command.operation.factor
    if not name or isinstance(command.operands[name], Constant):
        return 0  # a product with a number does not use the multipliers
    factor = command.operands[name]
    y = prod(command.results["y"].shape)
    if command.operation.flow is Flow.PRODUCT:
        return y * (factor.shape[0] if command.attributes.get("left_transposed") else factor.shape[1])
    return y * prod(factor.shape[1:] if command.operation.flow is Flow.CONVOLUTION else factor.shape[2:])


def peak(commands: Sequence[Command], lanes: int) -> int:
    """Return the machine's peak MACs per cycle for the narrowest type that the commands multiply, or 0."""
    sizes = {c.operands[c.operation.factor].dtype.bytes for c in commands if c.operation.factor}
    return lanes * max((CUBE_MACS[size] for size in sizes), default=0)


#: The time of these transfers depends only on the bytes of one operand.
BY_BYTES = {
    "dma_linear": "y",
    "dma_linear_bcast": "x",
    "dma_cw_trans": "y",
    "dma_h_gather": "y",
    "dma_h_scatter": "x",
    "dma_mask_select": "x",
    "dma_nonzero": "x",
}


def transfer(command: Command, timing: Timing) -> int:
    x, y = command.operands["x"], command.results["y"]
    name = command.operation.name
    size = y.dtype.bytes
    from_lanes = not isinstance(x, Constant) and x.storage.is_local
    to_lanes = y.storage.is_local
    if name in BY_BYTES:
        moved = prod(command[BY_BYTES[name]].shape) * size
        return int(moved * (2 if from_lanes and to_lanes else 1) / timing.turn_rate)
    if matrices := [end for end in (y, x) if isinstance(end, Matrix)]:
        rate = timing.matrix_read_rate if to_lanes else timing.matrix_write_rate
        if name == "dma_matrix_trans":
            rate *= timing.matrix_turn
        run = matrices[0].storage.shape.w * size
        return int(prod(y.shape) * size * max(1.0, timing.shortest_run / run) / rate)
    assert isinstance(y, Tensor)
    if isinstance(x, Constant):
        runs, run = _runs(y.shape, y.stride)
        return int(runs * max(timing.shortest_run, run * size) / timing.matrix_read_rate)
    assert isinstance(x, Tensor)
    if name == "dma_broadcast":  # all lanes receive a run at the same time
        n, _, h, w = y.shape
        by_rows = attribute(command.attributes, "without_strides")
        runs, run = (n * h, w) if by_rows else _runs(Shape(n, 1, h, w), x.stride, y.stride)
        return int(runs * max(timing.shortest_run, run * size) / timing.matrix_read_rate)
    # If the shapes differ, the estimator uses the source's shape for source and destination.
    runs, run = _runs(y.shape if name == "dma_nc_trans" else x.shape, x.stride, y.stride)
    out = timing.write_rate if from_lanes else timing.copy_rate
    rate = timing.read_rate if to_lanes else out
    # The estimator computes in float32, and its rounding errors affect the times.
    rounded = np.float32(runs * max(timing.shortest_run, run * size))
    return int(rounded / np.float32(rate) * np.float32(timing.full) / np.float32(_channels(command, x, y, timing)))


def _runs(shape: Shape, *strides: Stride) -> tuple[int, int]:
    n, c, h, w = shape
    if all(stride.w == 1 or w == 1 for stride in strides):
        # elements of a row are adjacent; if rows are also adjacent, a channel is a single run
        if all(stride.h == w or h == 1 for stride in strides):
            return n * c, h * w
        return n * c * h, w
    return n * c * h * w, 1


def _channels(command: Command, x: Tensor, y: Tensor, timing: Timing) -> int:
    if x.storage.is_local and y.storage.is_local:
        return int(timing.full)
    ddr = x if y.storage.is_local else y
    shape, stride = ddr.shape, ddr.stride
    transposed = command.operation.name == "dma_nc_trans"
    differ = transposed or x.shape != y.shape
    if differ:  # as in `transfer`: the source's shape counts
        shape = Shape(y.shape.c, y.shape.n, y.shape.h, y.shape.w) if transposed else x.shape
        if attribute(command.attributes, "without_strides"):
            plane = -(-shape.h * shape.w * ddr.dtype.bytes // timing.plane) * timing.plane
            stride = Stride(0, plane // ddr.dtype.bytes, shape.w, 1)
    size = ddr.dtype.bytes
    pages = max(1, int(timing.full))
    long = max(1, -(-shape.h * stride.h * size // timing.unit))
    # The estimator considers only four pages, so the loop can end when four are known.
    visited: list[int] = []
    for n, c in product(range(shape.n), range(shape.c)):
        page = (n * stride.n + c * stride.c) * size // timing.unit
        visited += [number for number in range(page, page + min(long, pages)) if number not in visited]
        if len(visited) >= pages:
            break
    if differ:  # the estimator ignores pages beyond the tensor's first four
        return sum(number < pages for number in visited)
    return len({number % pages for number in visited[:pages]})
