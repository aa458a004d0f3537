"""The machine: the footprint of each instruction (which memory it touches, without data), then its effect on data.

The memories are `buf` (bytes: inputs and weights) and `acc` (int32). All addresses are in the instructions: the machine
has no control state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.program.instruction import Column, rows
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, TokenQueue

from .config import Config
from .isa import ISA, UNIT, Opcode, Unit

#: Numbers of the memories in footprints. Elements are accumulators in ACC and bytes elsewhere. Each DRAM segment is a
#: memory of its own; DRAM is the number of the first.
BUF, ACC, DRAM = range(3)


def steps(columns: Mapping[str, Column], config: Config, dram: Dram) -> StepTable:
    """Return the step table: the unit, tokens and footprint of each instruction."""
    unit = np.array([UNIT[opcode] for opcode in Opcode], np.int64)[columns["opcode"]]
    depth, instructions = config.token_depth, rows(columns)
    on_chip = (
        Space("buf", config.buffer_bytes, scratchpad="buf"),
        Space("acc", config.accumulators, scratchpad="acc"),
    )
    return StepTable(
        units=("dma", "mac"),
        queues=(TokenQueue("dma->mac", Unit.DMA, Unit.MAC, depth), TokenQueue("mac->dma", Unit.MAC, Unit.DMA, depth)),
        spaces=(*on_chip, *(_space(segment) for segment in dram.segments)),
        unit=unit,
        pops=columns["pop"] << (1 - unit),  # bit 0 is the queue dma->mac, bit 1 mac->dma
        pushes=columns["push"] << unit,
        footprint=np.arange(len(unit)),
        footprints=Footprints.of([_touched(row, dram) for row in instructions]),
        describe=lambda step: ISA.notation.show(instructions[step]),
    )


def _touched(row: Mapping[str, int], dram: Dram) -> Array:
    """Return the footprint of an instruction: rows (memory, mode, first element, length, count 1, stride 0)."""
    index = max(0, sum(segment.address <= row["dram"] for segment in dram.segments) - 1)
    first = row["dram"] - dram.segments[index].address
    if row["opcode"] == Opcode.LOAD:
        touched = [(BUF, WRITE, row["buf"], row["length"]), (DRAM + index, READ, first, row["length"])]
    elif row["opcode"] == Opcode.STORE:
        touched = [(ACC, READ, row["acc"], row["count"]), (DRAM + index, WRITE, first, 4 * row["count"])]
    elif row["opcode"] == Opcode.DOT:
        touched = [
            (BUF, READ, row["buf"], row["length"]),
            (BUF, READ, row["wgt"], row["length"] * row["count"]),
            (ACC, WRITE if row["clear"] else READ | WRITE, row["acc"], row["count"]),
        ]
    else:
        raise NotImplementedError(f"the footprint of {Opcode(row['opcode']).name} is not defined")
    return np.array([(*touch, 1, 0) for touch in touched], np.int64)


def _space(segment: Segment) -> Space:
    size = segment.end - segment.address
    return Space(f"DRAM {segment.name}", size, ((0, size),) if segment.initialised else ())


class Machine:
    """The data memories of a machine that runs S samples at once: buf and acc are arrays (S, size)."""

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.dram, self.samples = dram, samples
        self.buf = np.zeros((samples, config.buffer_bytes), np.int8)
        self.acc = np.zeros((samples, config.accumulators), "<i4")

    def copy(self) -> Machine:
        """Return a copy; both share DRAM until one of them writes there."""
        made = copy(self)
        made.dram, made.buf, made.acc = self.dram.copy(), self.buf.copy(), self.acc.copy()
        return made

    def run(self, columns: Mapping[str, Column], sequence: Sequence[int]) -> None:
        """Execute the instructions in the order given by `sequence`."""
        instructions = rows({name: column[np.asarray(sequence, np.int64)] for name, column in columns.items()})
        meaning = {Opcode.LOAD: self._load, Opcode.DOT: self._dot, Opcode.STORE: self._store}
        for step, row in zip(sequence, instructions, strict=True):
            meaning[Opcode(row["opcode"])](row, f"instruction {step}")

    def _load(self, row: Mapping[str, int], where: str) -> None:
        data = self.dram.window(row["dram"], 1, row["length"], 0, where)[:, 0]
        self.buf[:, row["buf"] : row["buf"] + row["length"]] = data.view(np.int8)

    def _store(self, row: Mapping[str, int], where: str) -> None:
        acc = np.ascontiguousarray(self.acc[:, row["acc"] : row["acc"] + row["count"]])
        self.dram.writable(self.samples, row["dram"], 1, 4 * row["count"], 0, where)[:, 0] = acc.view(np.uint8)

    def _dot(self, row: Mapping[str, int], where: str) -> None:
        length, count = row["length"], row["count"]
        inputs = self.buf[:, row["buf"] : row["buf"] + length].astype(np.float32) - np.float32(row["zero"])
        weights = self.buf[:, row["wgt"] : row["wgt"] + length * count].reshape(self.samples, count, length)
        acc = self.acc[:, row["acc"] : row["acc"] + count]
        if row["clear"]:
            acc[:] = 0
        acc += exact_matmul(inputs[:, None], weights.swapaxes(1, 2), 255, 128)[:, 0]
