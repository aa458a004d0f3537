"""A compiler of matrix products: one LOOP_WS a tile. The host adds the bias, requantises and clips; it runs all else.

A layer is rows of inputs times all weights, plus what the zero point of the inputs takes away. The sums leave the
accumulator as int32. Convolutions, pooling, and requantisation in the accumulator's scale unit are not compiled yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, FullyConnected, Linear, OnnxOp
from tilewright.graph.ops.linear import NO_RESIDUAL
from tilewright.graph.rounding import rounding_mode
from tilewright.program.launch_image import DramSegment, LaunchImage
from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.fields import raw
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands

#: Where the segments of a launch begin. Address 0 stands for zeros.
BASE, ALIGN = 0x1000, 64


@dataclass(frozen=True)
class Plan:
    """A matrix product, rows x depth by depth x outputs, and the blocks of a tile: `i` rows, `j` outputs, `k` deep."""

    rows: int
    depth: int
    outputs: int
    i: int
    j: int
    k: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.depth} x {self.outputs}: LOOP_WS of at most {self.i} x {self.k} x {self.j} blocks"


def plan(site: Site, config: Config) -> Plan | str:
    """Return the tiles of the matrix product that a node becomes, or the reason why the node runs on the host."""
    op = site.node.op
    if not isinstance(op, FullyConnected | Conv2D):
        return OnnxOp.real(site) or f"{op.label} is not compiled for gemmini, only matrix products are"
    if config.dataflow == "os":
        return "dataflow=os: LOOP_WS needs a machine with dataflow ws or both"
    x, w, bias = site.input(0), site.input(1), site.optional(2)
    if op.residual(site):
        return NO_RESIDUAL
    if isinstance(op, Conv2D):
        window, groups = op.window, x.shape[3] // w.shape[3]
        for name, value, only in (
            ("kernel", window.kernel, (1, 1)),
            ("stride", window.stride, (1, 1)),
            ("padding", window.padding, (0, 0, 0, 0)),
            ("group", groups, 1),
        ):
            if value != only:
                return f"{name}={value} is not compiled: only a convolution with {name}={only} is a matrix product"
    if w.data is None or x.data is not None or (bias and bias.data is None):
        return "weights and bias must be constant, and the input must be computed"
    if w.dtype != "int8" or x.dtype != "int8" or (w.quant and any(w.quant.zero_point)):
        return "inputs and weights must be int8, and the zero point of the weights must be 0"
    outputs, depth = w.shape[0], w.shape[-1]
    return tiles(x.size // depth, depth, outputs, config)


def tiles(rows: int, depth: int, outputs: int, config: Config) -> Plan:
    """Return the tiles of a product: results fill at most half of the accumulator, operands half of the scratchpad."""
    dim = config.dim
    blocks = [-(-size // dim) for size in (rows, outputs, depth)]
    results, operands = config.acc_rows // 2 // dim, config.all_spad_rows // 2 // dim
    j = min(blocks[1], max(1, int(results**0.5)), operands - 1)
    i = min(blocks[0], results // j, operands - j)
    j = min(blocks[1], results // i, operands - i)
    return Plan(rows, depth, outputs, i, j, min(blocks[2], operands // (i + j)))


def _cuts(size: int, blocks: int, dim: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tiles of a side: where each begins, its blocks, and how far its last block reaches beyond the side."""
    for first in range(0, size, blocks * dim):
        count = min(blocks, -(-(size - first) // dim))
        yield first, count, max(0, first + count * dim - size)


def emit(p: Plan, config: Config, x: int, w: int, d: int, y: int) -> Commands:
    """Return the commands of a product. `x`, `w`, `d`, `y`: DRAM addresses of inputs, weights, offsets and sums."""
    out = Commands(config)
    out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    out.gemmini_extended3_config_ld(p.depth, 1.0, False, 0)
    out.gemmini_extended3_config_ld(p.outputs, 1.0, False, 1)
    out.gemmini_extended3_config_ld(0, 1.0, False, 2)
    out.gemmini_config_st(p.outputs * ACC_BYTES)
    for row, i, pad_i in _cuts(p.rows, p.i, config.dim):
        for col, j, pad_j in _cuts(p.outputs, p.j, config.dim):
            for k0, k, pad_k in _cuts(p.depth, p.k, config.dim):
                a, b = x + row * p.depth + k0, w + k0 * p.outputs + col
                bias = d + col * ACC_BYTES if k0 == 0 else 0
                c = y + (row * p.outputs + col) * ACC_BYTES if k0 + k * config.dim >= p.depth else 0
                sizes = (i, j, k, pad_i, pad_j, pad_k)
                out.gemmini_loop_ws(
                    *(*sizes, a, b, bias, c, p.depth, p.outputs, 0, p.outputs, False, False),
                    *(True, False, True, 0, 0, 0, False),
                )
    out.gemmini_fence()
    return out


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """Compile a network; the program has one step per node, in order."""
    steps: list[Launch | HostStep] = []
    for site in graph.sites():
        found = plan(site, config)
        steps.append(HostStep(site.node.name, found) if isinstance(found, str) else _launch(site, found, config))
    return Program("gemmini", config.to_dict(), config.digest(), rounding_mode(rounding).name, graph, tuple(steps))


def _launch(site: Site, p: Plan, config: Config) -> Launch:
    weights = site.constant(1).reshape(p.outputs, p.depth).T
    offset = (-site.input(0).zero_point * weights.sum(axis=0, dtype=np.int64)).astype("<i4")
    behind = np.zeros((config.dim, p.outputs), np.int8)  # LOOP_WS reads whole blocks of weights
    data = {"w": np.concatenate([weights, behind]).astype(np.int8), "d": offset}
    sizes = {"x": p.rows * p.depth, "w": data["w"].nbytes, "d": offset.nbytes, "y": ACC_BYTES * p.rows * p.outputs}
    kinds = {"x": "input", "w": "const", "d": "const", "y": "output"}
    segments, address = [], BASE
    for name, size in sizes.items():
        segments.append(DramSegment(name, address, size, kinds[name]))
        address += -(-size // ALIGN) * ALIGN
    cmds = emit(p, config, *(segment.address for segment in segments)).array
    held = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in data.items()}
    return LaunchImage(raw(cmds), tuple(segments), held).launch(site.node.name, (site.node.name,), plan=str(p))


def pack(site: Site, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs of the launch of a node, {segment name: uint8 (S, bytes)}, for S samples."""
    codes = values[site.input(0).name]
    return {"x": np.ascontiguousarray(codes).reshape(codes.shape[0], -1).view(np.uint8)}


def unpack(site: Site, left: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """Return the output codes of the node, {tensor name: (S, *shape)}, from the sums that the launch stored."""
    op, sums = site.node.op, left["y"]
    assert isinstance(op, Linear)
    shaped = np.ascontiguousarray(sums).view("<i4").reshape(sums.shape[0], *site.output.shape)
    return {site.output.name: op.finish(site, shaped, rounding_mode(rounding))}
