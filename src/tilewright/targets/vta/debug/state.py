"""The state of a VTA in the debugger: the value pass's memories, and the micro-op caches.

Instructions run by the value pass's own plan, one or many at a time, so a long jump costs as much as a run.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.program.launch_image import Dram
from tilewright.sim.walk import State, Walk
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated, fill
from tilewright.targets.vta.values.actions import Action, plan
from tilewright.targets.vta.values.machine import Machine, matrices

#: Micro-ops of an instruction that is worth a plan of its own.
MANY = 1000


class VtaState(State):
    """The memories of one VTA after some instructions of a launch (see sim.walk.State)."""

    machine: Machine

    def __init__(self, walk: Walk, program: Elaborated, dram: Dram) -> None:
        config = program.config
        super().__init__(walk, Machine(config, dram, 1))
        self._program = program
        self._caches = {memory: np.zeros((config.sram(memory).depth, 3), np.int64) for memory in UOP_MEMORIES}
        # Every reset is executed in full: unlike a run, the debugger shows the out memory even where no STORE reads it.
        # One whose operands leave their memories has no sum.
        _, inp, wgt = program.kernels.spans[1]
        resets = program.kernels.resets & (inp <= config.inp.depth) & (wgt <= config.wgt.depth)
        every = config.gemm_writes_out and config.rules.reset_writes_out and resets.any()
        self._resets = np.append(resets, False)[program.kernel] if every else np.zeros(len(program.kernel), np.bool_)

    def execute(self, steps: Array) -> None:
        program, moves = self._program, self._program.moves
        for step in steps[moves.of_uops[steps]].tolist():
            (move,) = moves.of(np.array([step]))
            fill(self._caches[Memory(move.memory)], program.config, self.machine.dram, move, step)
        with one_thread():
            if len(steps) == 1 and program.micro_ops[steps[0]] < MANY:
                self._one(int(steps[0]))
            elif len(steps):
                stored = dict.fromkeys(steps[self._resets[steps]].tolist(), np.zeros(0, np.int64))
                self.machine.run(plan(program, steps, stored, 1))

    def _one(self, step: int) -> None:
        """Execute one instruction. The plan of a single instruction would take longer than the instruction."""
        program = self._program
        kernel = int(program.kernel[step])
        if kernel >= 0:
            work = program.kernels[kernel]
            if not (work.is_alu or work.size):
                return
            self.machine.run([Action(work, f"instruction {step}", bool(self._resets[step]))])
        elif program.moves.memory[step] >= 0 and not program.moves.of_uops[step]:
            self.machine.run([Action(program.moves.of(np.array([step]))[0], f"instruction {step}")])

    def copy(self) -> Self:
        made = super().copy()
        made._caches = {memory: cache.copy() for memory, cache in self._caches.items()}
        return made

    def memory(self, name: str) -> Array:
        machine, config = self.machine, self._program.config
        match name:
            case "uop" | "alu_uop":
                return self._caches[Memory.UOP if name == "uop" else Memory.ALU_UOP]
            case "inp":
                return machine.inp[0, : config.inp.depth]
            case "wgt":
                return matrices(machine.wgt)[0].swapaxes(-1, -2)
            case "out":
                return machine.stored_tiles()[0].astype(f"int{config.out.width}")
            case "acc":
                return machine.acc[0]
            case _:
                return machine.par[0]
