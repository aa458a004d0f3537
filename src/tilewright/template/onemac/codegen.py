"""The compiler, in three steps: a plan (tile sizes), a schedule (the order of work), code (instructions and tokens)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Conv2D, FullyConnected, OnnxOp, Window
from tilewright.graph.takes import Takes
from tilewright.program.instruction import Raw
from tilewright.program.launch_image import LaunchImage, in_a_row
from tilewright.program.program import Launch
from tilewright.schedule import TokenStream

from .config import Config
from .isa import LAYOUT, UNIT, Opcode

#: The machine stores sums, which the host requantises, and treats a batch as additional rows.
TAKES = Takes(stores=False, batch=True)


@dataclass(frozen=True)
class Plan:
    """The tiling of a matrix product (rows, depth) times (depth, outputs): `group` outputs, `chunk` inputs per tile."""

    rows: int
    depth: int
    outputs: int
    group: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.depth} x {self.outputs}: {self.group} outputs, {self.chunk} inputs at a time"


def plan(site: Site, config: Config) -> Plan | str:
    """Return the tiling of the matrix product that a node becomes, or the reason why the node runs on the host."""
    op = site.node.op
    if not isinstance(op, FullyConnected | Conv2D):
        return OnnxOp.real(site) or f"{op.label} is not supported: onemac computes only matrix products"
    if isinstance(op, Conv2D):
        for name in ("kernel", "stride", "padding"):
            value = getattr(op.window, name)
            only = getattr(Window(), name)
            if value != only:
                return f"{name}={value} is not supported: only a convolution with {name}={only} is a matrix product"
    if reason := op.refusal(site, TAKES):
        return reason
    x = site.input(0)
    w = site.input(1)
    outputs = w.shape[0]
    depth = w.shape[-1]
    # Double buffering: each memory has two slots, and the DMA fills one slot while the other is in use. A slot holds
    # `chunk` inputs and chunk * group weights. The depth is cut into as few pieces as possible, of about equal length.
    slot = config.buffer_bytes // 2
    group = min(outputs, config.accumulators // 2, slot - 1)
    pieces = -(-depth // (slot // (1 + group)))
    return Plan(x.size // depth, depth, outputs, group, chunk=-(-depth // pieces))


class Job(NamedTuple):
    """One DOT instruction."""

    row: int  # the row of inputs
    out: int  # the first output
    outs: int  # the number of outputs
    k: int  # the first input in the row
    length: int  # the number of inputs
    wgt: int  # the first byte of the weights in the weight image


def schedule(p: Plan) -> Iterator[Job]:
    """Yield a Job for each DOT instruction, in order of execution. The weights have the same order in DRAM."""
    for row in range(p.rows):
        wgt = 0
        for out in range(0, p.outputs, p.group):
            outs = min(p.group, p.outputs - out)
            for k in range(0, p.depth, p.chunk):
                length = min(p.chunk, p.depth - k)
                yield Job(row, out, outs, k, length, wgt)
                wgt += outs * length


def weight_image(p: Plan, weights: Array) -> Raw:
    """Return int8 weights (outputs, depth) as bytes, in the order in which the LOADs of one input row read them."""
    parts = [
        weights[j.out : j.out + j.outs, j.k : j.k + j.length].ravel()
        for j in schedule(Plan(1, p.depth, p.outputs, p.group, p.chunk))
    ]
    return np.concatenate(parts).view(np.uint8)


def emit(p: Plan, config: Config, zero: int, x: int, w: int, acc: int) -> Raw:
    """Return a layer's encoded instructions. `x`, `w` and `acc` are DRAM addresses of inputs, weights and sums."""
    stream = TokenStream(UNIT)
    slot = config.buffer_bytes // 2
    jobs = list(schedule(p))

    def load(index: int) -> None:
        job = jobs[index]
        base = index % 2 * slot
        place = ("buf", index % 2)
        stream.add(Opcode.LOAD, place, buf=base, dram=x + job.row * p.depth + job.k, length=job.length)
        stream.add(Opcode.LOAD, place, buf=base + p.chunk, dram=w + job.wgt, length=job.length * job.outs)

    # The operands of the next DOT are loaded while this DOT runs. TokenStream derives the tokens between the units from
    # the slots that each instruction uses.
    load(0)
    groups = 0
    for index, job in enumerate(jobs):
        if index + 1 < len(jobs):
            load(index + 1)  # before the STORE below, because a STORE blocks the DMA unit until this DOT ends
        half = groups % 2
        base = index % 2 * slot
        operands = {"buf": base, "wgt": base + p.chunk, "length": job.length, "zero": zero}
        sums = {"acc": half * (config.accumulators // 2), "count": job.outs}
        stream.add(Opcode.DOT, ("buf", index % 2), ("acc", half), **operands, **sums, clear=int(job.k == 0))
        if job.k + job.length == p.depth:
            stream.add(Opcode.STORE, ("acc", half), dram=acc + 4 * (job.row * p.outputs + job.out), **sums)
            groups += 1
    return LAYOUT.encode_rows(stream.rows)


def lower(site: Site, config: Config) -> Launch | str:
    """Return the launch that computes a node, or the reason why the node runs on the host."""
    p = plan(site, config)
    if isinstance(p, str):
        return p
    weights = weight_image(p, site.constant(1).reshape(p.outputs, p.depth))
    x = p.rows * p.depth
    acc = 4 * p.rows * p.outputs
    segments = in_a_row(("x", "input", x), ("w", "const", len(weights)), ("acc", "output", acc))
    insns = emit(p, config, site.input(0).zero_point, *(segment.address for segment in segments))
    return LaunchImage(insns, segments, {"w": weights}).launch(site.node.name, (site.node.name,), plan=str(p))
