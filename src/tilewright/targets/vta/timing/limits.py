"""Lower bounds for any schedule of a program's instructions: the work of each unit and of the DRAM port (`Limits`).

`arguments` proves that a layer cannot take fewer cycles: the unit that computes the layer never waits, and each step
takes its minimum time. A unit runs its steps one by one, so in any order the steps of a layer occupy the unit for at
least the sum of their minimum times (sim.costs.least). The own cycles of a layer are the time of its steps on the unit,
plus the waits before these steps. The own cycles of all layers add up to the cycles of the launch. If a layer's own
cycles equal the sum of the minimum times, no order of the same instructions takes fewer cycles. For the first layer,
the minimum includes the wait for the first instruction; for the last layer, the final store.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.costs import Simulated, data_cycles, least_cycles
from tilewright.sim.steps import Trace
from tilewright.targets.vta.isa.fields import INSN_BYTES, Opcode
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.timing.model import compute


class Limits(NamedTuple):
    """The minimum cycles of one layer on each resource: GEMM, ALU, and the DRAM port's read and write bus."""

    gemm: int
    alu: int
    read: int
    write: int
    shared: bool  # one unit runs GEMM and ALU

    @property
    def compute(self) -> int:
        """The cycles of GEMM plus ALU if one unit runs both, else the larger of the two."""
        return self.gemm + self.alu if self.shared else max(self.gemm, self.alu)

    @property
    def dram(self) -> int:
        return max(self.read, self.write)

    @property
    def bound(self) -> int:
        return max(self.compute, self.dram)


def summed(parts: Collection[Limits]) -> Limits:
    gemm, alu, read, write = (sum(column) for column in zip(*(part[:4] for part in parts), strict=True))
    return Limits(gemm, alu, read, write, all(part.shared for part in parts))


def of_layers(program: Elaborated, layer: Array | None, count: int, timing: str) -> list[Limits]:
    """Return the limits of each of a launch's `count` layers (0: of the whole launch) under a timing model.

    `layer` int64 [n]: the layer of each instruction; None if there is one layer.
    """
    mine = np.zeros(len(program.stream), np.int64) if layer is None else layer
    columns = [np.bincount(mine, column, max(1, count)).astype(int).tolist() for column in _columns(program, timing)]
    shared = program.config.pipeline.gemm == program.config.pipeline.alu
    return [Limits(gemm, alu, read, write, shared) for gemm, alu, read, write in zip(*columns, strict=True)]


def _columns(program: Elaborated, timing: str) -> tuple[Array, Array, Array, Array]:
    """Return each instruction's cycles on four resources: GEMM, ALU, read bus (fetch included), and write bus.

    In a model without a shared DRAM port (ideal), the read bus only has the reads of `load`.
    """
    model = MODELS[timing]
    moved = program.moves
    opcode = program.stream.opcode
    busy = compute(program, model) - np.where(program.kernel >= 0, model.pipeline, 0)
    beat = program.config.bus_bits // 8
    beats = np.where(moved.transfers, moved.rows * -(-moved.row_bytes // beat), 0)
    write = np.where(moved.stores, beats, 0)
    read = beats - write + INSN_BYTES / beat
    # Without a shared port, each unit has a separate bus; only the reads of the load unit are counted.
    if model.channel(program.config).burst == 0:
        read = np.where(program.table.unit == program.config.pipeline.load, beats, 0)
    return np.where(opcode == Opcode.GEMM, busy, 0), np.where(opcode == Opcode.ALU, busy, 0), read, write


def arguments(program: Elaborated, trace: Trace, layer: Array | None, count: int, timing: str) -> list[str]:
    """Return, for each of a launch's `count` layers, a proof that no order of its instructions takes fewer cycles.

    The text is empty if there is no proof. `layer` int64 [n]: the layer of each instruction; None if there is one
    layer.
    """
    mine = np.zeros(len(program.stream), np.int64) if layer is None else layer
    line = program.config.pipeline
    simulated = MODELS[timing].simulated(program, MODELS[timing])
    needed = least_cycles(simulated)
    texts = [""] * count
    spent = {unit: _occupancy(trace, unit) for unit in {line.gemm, line.alu}}
    for index in range(count):
        work = {unit: int(needed[steps[mine[steps] == index]].sum()) for unit, (steps, _) in spent.items()}
        # The proof can only succeed for the unit that the layer occupies for the most cycles.
        unit = max(work, key=lambda unit: work[unit])
        steps, cycles = spent[unit]
        of_layer = mine[steps] == index
        if not program.micro_ops[steps[of_layer]].any():
            continue
        # The first layer also waits for the first instruction, and the last layer for the last store.
        ends = delivered(simulated) * bool(of_layer[0]) + drain(program, simulated, int(steps[-1])) * bool(of_layer[-1])
        total = int(cycles[of_layer].sum())
        if total == work[unit] + ends:
            texts[index] = _text(program, steps[of_layer], needed, line.units[unit], total, ends)
    return texts


def delivered(simulated: Simulated) -> int:
    """Return the earliest cycle in which an instruction can reach a unit."""
    channel = simulated.channel
    fetch = simulated.fetch
    if not fetch.depth:
        return 0
    first = 1 if fetch.unpack < 0 else min(fetch.batch, len(simulated.costs.lead))
    beats = -(-first * fetch.insn_bytes // channel.beat_bytes)
    return fetch.lead + channel.latency + beats + max(0, fetch.unpack) + fetch.delay


def drain(program: Elaborated, simulated: Simulated, last: int) -> int:
    """Return the minimum cycles from a unit's last micro-op to the end of the launch. `last`: the unit's last step."""
    costs = simulated.costs
    store = program.moves.stores
    # FINISH is the last step in any order, and the launch ends when FINISH has left the unit.
    finish = int(costs.tail[last]) if program.stream.opcode[last] == Opcode.FINISH else 0
    if not store.any() or not program.micro_ops.any():
        return finish
    # In any order, the result of the last micro-op must still be stored.
    ends = costs.lead + data_cycles(simulated) + np.maximum(costs.busy, costs.settle)
    return int(costs.tail[program.micro_ops > 0].min() + ends[store].min()) + finish


def _occupancy(trace: Trace, unit: int) -> tuple[Array, Array]:
    """Return a unit's steps in order, and each step's own cycles: its wait, then the time until the next wait."""
    first, steps = trace.table.by_unit
    mine = steps[first[unit] : first[unit + 1]]
    begin = (trace.start - trace.wait)[mine]
    return mine, np.diff(begin, append=trace.cycles)  # the last step's cycles end with the launch


def _text(program: Elaborated, steps: Array, needed: Array, unit: str, cycles: int, ends: int) -> str:
    opcode = program.stream.opcode[steps]
    parts = []
    # The kernel of other instructions is -1, which selects the appended value.
    products = np.append(program.kernels.accumulates, False)[program.kernel[steps]]
    kinds = {
        "products": products,
        "clearing sums": (opcode == Opcode.GEMM) & ~products,
        "ALU operations": opcode == Opcode.ALU,
        "its own loads": opcode == Opcode.LOAD,
        "other instructions": ~np.isin(opcode, (Opcode.GEMM, Opcode.ALU, Opcode.LOAD)),
    }
    for name, of_kind in kinds.items():
        if spent := int(needed[steps[of_kind]].sum()):
            parts.append(f"{spent:,} for {name}")
    if ends:
        parts.append(f"{ends:,} to fill and drain the machine")
    return f"no order of its instructions takes fewer cycles: {unit} needs all of its {cycles:,}, {', '.join(parts)}"
