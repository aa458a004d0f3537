"""Find instructions on which upstream's implementations disagree, and the portability rules that they break."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import PORTABILITY, WRITE_DISTANCE, Finding
from tilewright.targets.vta.isa.alu import LARGEST_SHIFT, WRITE_BACK, AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.steps.elaborate import Elaborated, endless
from tilewright.targets.vta.steps.micro_kernel import Kernels

#: The maximum number of findings of one rule that a report lists.
LISTED = 8


def portability(program: Elaborated, sequence: Array) -> list[Finding]:
    """Return findings for each rule: the first LISTED steps that break the rule. `sequence`: a legal order of steps."""
    elsewhere = [kernel.imm is not None and not np.array_equal(kernel.dst, kernel.src) for kernel in program.kernels]
    rules = {
        **dict(_fields(program)),
        "has an immediate, and src differs from dst: chisel reads acc[src], hls and fsim read acc[dst]": np.flatnonzero(
            np.array([*elsewhere, False])[program.kernel]
        ),
        "stores a tile whose value differs between hls (out memory) and fsim (accumulator): "
        "the last write of a stored tile must be a GEMM that adds or an ALU operation": _stale_stores(
            program, sequence
        ),
    }
    findings: list[Finding] = []
    for rule, steps in rules.items():
        for step in steps[:LISTED].tolist():
            message = f"#{step} {program.table.describe(step)} {rule}"
            findings.append(Finding(PORTABILITY, message, (step,)))
    return sorted(findings, key=lambda finding: finding.steps)


def _fields(program: Elaborated) -> Iterator[tuple[str, Array]]:
    """Yield (description of the violation, the violating instructions) for each rule on single fields."""
    stream = program.stream
    mem = program.stream.mem
    alu = program.stream.alu
    load = stream.opcode == Opcode.LOAD
    store = stream.opcode == Opcode.STORE
    kind = mem.memory_type
    moves = mem.x_size > 0
    padded = (mem.y_pad_0 | mem.y_pad_1 | mem.x_pad_0 | mem.x_pad_1) > 0
    uop = load & (kind == Memory.UOP)
    wgt = load & (kind == Memory.WGT)

    def at(mask: Array) -> Array:
        return np.flatnonzero(mask)

    yield "pads micro-ops or weights, which hls ignores", at((uop | wgt) & padded)
    yield "loads micro-ops with y_size other than 1: hls always loads one row", at(uop & moves & (mem.y_size != 1))
    yield "has padding but x_size 0: hls writes zeros, fsim and chisel write nothing", at(load & ~moves & padded)
    yield "pads a STORE, which fsim refuses", at(store & padded)
    yield "stores from a memory other than out, which fsim refuses", at(store & moves & (kind != Memory.OUT))
    yield "loads out, which fsim refuses", at(load & moves & (kind == Memory.OUT))
    yield "loads 8-bit accumulators, which hls ignores; chisel stops there", at(load & (kind == Memory.ACC_8BIT))
    unit = program.table.unit
    line = program.config.pipeline
    unused = (unit == line.load) & ((stream.pop_prev | stream.push_prev) > 0)
    unused |= (unit == line.store) & ((stream.pop_next | stream.push_next) > 0)
    yield "sets a token bit for a neighbour that its unit does not have, on which fsim crashes", at(unused)
    operates = stream.opcode == Opcode.ALU
    yield "multiplies, which hls does not; chisel stops there", at(operates & (alu.alu_opcode == AluOp.MUL))
    wide = operates & (alu.alu_opcode == AluOp.SHR) & (alu.use_imm == 1) & (np.abs(alu.imm) > LARGEST_SHIFT)
    yield f"shifts by more than {LARGEST_SHIFT}, which hls reads as five signed bits", at(wide)
    gemm = stream.gemm
    runs = (gemm.uop_end + alu.uop_end > gemm.uop_bgn + alu.uop_bgn) & (gemm.iter_out + alu.iter_out > 0)
    runs &= gemm.iter_in + alu.iter_in > 0
    empty = (operates | (stream.opcode == Opcode.GEMM)) & ~runs
    yield "runs no micro-op, but on chisel as many as its counters have values", at(empty)
    yield "loads no rows, which chisel never ends", at(endless(stream))


def _stale_stores(program: Elaborated, sequence: Array) -> Array:
    """Return the STORE steps of tiles without a writer, or with a reset GEMM or a LOAD as the last writer.

    With four stages, GEMMs and LOADs do not change the out memory; only ALU operations write it.
    """
    fresh = np.zeros(program.config.acc.depth, np.bool_)
    stale = []
    moves = program.moves.as_list
    kernel = program.kernel.tolist()
    one_unit = program.config.stages == 3
    for step in sequence.tolist():
        if kernel[step] >= 0:
            item = program.kernels[kernel[step]]
            if not (item.is_alu or one_unit):
                continue
            fresh[item.written] = not item.reset  # a reset leaves 0 in acc, and in hls another value in the out memory
        elif moves[step].memory in (Memory.ACC, Memory.ACC_8BIT):
            # With three stages, a LOAD of acc makes the tiles of out stale.
            fresh[moves[step].base : moves[step].end] &= not one_unit
        elif moves[step].memory == Memory.OUT and not fresh[moves[step].base : moves[step].end].all():
            stale.append(step)
    return np.array(sorted(stale), np.int64)


def write_distance(program: Elaborated) -> list[Finding]:
    """Return findings for instructions that reuse an accumulator tile before the pipeline has written it back.

    Upstream's HLS design ignores this dependence (pragma DEPENDENCE): software must respect it. Upstream's C model and
    this simulator do not reproduce the wrong values.
    """
    # Upstream's runtime (VerifyDep) forbids an early write of the tile, which includes a read of the tile as dst. This
    # check also covers an ALU operation that reads the tile as src. Resets are exempt, because a reset depends on no
    # earlier value.
    near = _near(program.kernels)
    findings: list[Finding] = []
    for step in np.flatnonzero(program.kernel >= 0).tolist():
        place = near.get(int(program.kernel[step]))
        if place and len(findings) < LISTED:
            verb, tile, distance = place
            stale = distance == 1 and bool(program.kernels[program.kernel[step]].follows.any())
            message = (
                f"#{step} {program.table.describe(step)} {verb} acc[{tile}] {distance} micro-op(s) after writing it; "
                f"the HLS pipeline needs {WRITE_BACK}{', the Chisel ALU 2' if stale else ''}: put other tiles between"
            )
            findings.append(Finding(WRITE_DISTANCE, message, (step,), "acc", tile, tile + 1))
    return findings


def _near(kernels: Kernels) -> dict[int, tuple[str, int, int]]:
    """Return each kernel's first early reuse of a tile: ("reads" or "writes", tile, micro-ops since the last write)."""
    if not len(kernels):
        return {}
    sizes = [kernel.dst.size for kernel in kernels]
    owner = np.repeat(np.arange(len(kernels)), sizes)
    dst, src = (np.concatenate([getattr(kernel, name) for kernel in kernels]) for name in ("dst", "src"))
    updates = np.array([not kernel.reset for kernel in kernels])
    sources = np.array([kernel.reads_source for kernel in kernels])
    near: dict[int, tuple[str, int, int]] = {}
    # The micro-ops of all kernels are joined. A pair of micro-ops only counts if both belong to the same kernel.
    for distance in range(1, WRITE_BACK):
        written = dst[:-distance]
        mine = owner[distance:]
        same = mine == owner[:-distance]
        for verb, then, which in (("writes", dst, updates), ("reads", src, sources)):
            early = np.flatnonzero(same & which[mine] & (then[distance:] == written))
            first = np.unique(mine[early], return_index=True)[1]
            for place in early[first].tolist():
                near.setdefault(int(mine[place]), (verb, int(written[place]), distance))
    return near
