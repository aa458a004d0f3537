"""The ports that the user's Verilog of the machine may have, and launches by registers on AXI4-Lite.

`Vta` shows the start and end of each instruction. Through the other ports only the bus is visible: the data of STOREs,
the cycle in which each STORE ends, and the addresses of LOADs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.hdl.axi import LITE_ADDRESS_BITS
from tilewright.hdl.model import Model, RtlHangs, RtlStopped, Wave
from tilewright.hdl.verilog import Form, axi, axi_lite, chisel, clocking, plain, same_pins
from tilewright.hdl.verilog import read_register as read
from tilewright.hdl.verilog import write_register as write
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.header import MAP
from tilewright.targets.vta.gateware.top import Vta, VtaSystem
from tilewright.targets.vta.isa.fields import INSN_BYTES
from tilewright.targets.vta.steps.elaborate import Elaborated

OFFSET = {register.name: register.offset for register in MAP}
#: Cycles from the write of the launch bit to cycle 0 of a Trace: the bit, and the cycle in which the launch begins.
LAUNCHES = 2
#: Cycles of a register access, and cycles between two looks at the status.
ACCESS = 1000
POLL = 50


@dataclass(frozen=True)
class Shell:
    """A machine with registers and its timing model. Bit `done_bit` of register `status` is 1 after FINISH."""

    status: str
    done_bit: int
    timing: str

    def launch(self, model: Model, arguments: Mapping[str, int], limit: int, wave: Wave | None) -> tuple[int, int, str]:
        """Run a program. Return the model's cycle 0, the cycles to the end of FINISH, and why the run was stopped."""
        zero = 0
        try:
            for name, value in arguments.items():
                write(model, OFFSET[name], value, ACCESS)
            if wave:
                model.wave(wave.path, max(0, wave.first), wave.last + LAUNCHES + 1)
            zero = write(model, OFFSET["control"], 1, ACCESS) + LAUNCHES
            while not read(model, OFFSET[self.status], ACCESS) >> self.done_bit & 1:
                if model.cycle - zero > limit:
                    return zero, model.cycle - zero, f"is not done after {limit} cycles"
                model.step(POLL)
            cycles = read(model, OFFSET["cycles"], ACCESS)
            model.step(ACCESS)  # STOREs that FINISH does not wait for
        except (RtlHangs, RtlStopped) as error:
            return zero, model.cycle - zero, error.reason
        return zero, cycles, ""


OURS = Shell("status", 0, "tilewright")
UPSTREAM = Shell("control", 1, "chisel")
#: The machines with registers by the name of their form; `Vta` has none.
SHELLS = {"VtaSystem": OURS, "vta_axi": OURS, "VTAShell": UPSTREAM, "XilinxShell": UPSTREAM}

#: By timing model, the cycles from a STORE's last beat to its end, in addition to the memory's delay.
STORED = {"tilewright": 2, "chisel": 1}


def forms(config: Config) -> list[Form]:
    """Return the ports that a top module may have: our own modules, and upstream's shells."""
    shells = (
        ("vta_axi", clocking("aclk", "aresetn", True), plain("s_axi"), plain("m_axi")),
        ("VTAShell", clocking("clock", "reset"), chisel("io_host"), chisel("io_mem")),
        ("XilinxShell", clocking("ap_clk", "ap_rst_n", True), plain("s_axi_control", True), plain("m_axi_gmem", True)),
    )
    return [
        *(Form(type(component).__name__, same_pins(component)) for component in (Vta(config), VtaSystem(config))),
        *(
            Form(name, [*pins, *axi_lite(host, "control", LITE_ADDRESS_BITS), *axi(memory, "bus", config.bus_bits)])
            for name, pins, host, memory in shells
        ),
    ]


def strange_read(program: Elaborated, reads: Array, base: int) -> tuple[int, str] | None:
    """Return the cycle and a message for the first read burst that belongs neither to a LOAD nor to the instructions.

    `reads` are the bursts on the bus (see RtlRun), and `base` is the address of the first instruction. The fetch unit
    and each unit with LOADs read their bytes in order, but in any order among each other. So the search follows all
    ways to assign the bursts to these readers. A way has the row and the address that each reader reads next.
    """
    beat = program.config.bus_bits // 8
    end = base + -(len(program.moves.memory) * INSN_BYTES // -beat) * beat
    readers = [
        [(-1, base, end)],
        *filter(None, (_rows(program, unit, beat) for unit in range(len(program.table.units)))),
    ]
    ways = {tuple((0, rows[0][1]) for rows in readers)}
    for cycle, address, beats in reads.tolist():
        following = set()
        for way in ways:
            for number, (row, place) in enumerate(way):
                rows = [*readers[number], (-1, -1, -1)]
                after = address + beats * beat
                if place == address and after <= rows[row][2]:
                    moved = (row, after) if after < rows[row][2] else (row + 1, rows[row + 1][1])
                    following.add((*way[:number], moved, *way[number + 1 :]))
        if not following:
            awaited = {
                rows[at[0]][0] for way in ways for rows, at in zip(readers, way, strict=True) if at[0] < len(rows)
            }
            step = min(awaited - {-1}, default=-1)
            name = f"#{step} {program.table.describe(step)}" if step >= 0 else "fetch"
            text = f"reads {beats} beats at {address:#x} in cycle {cycle}, which is no next read of a LOAD or of fetch"
            return cycle, f"{name}: bus__ar__payload {text}"
        ways = following
    return None


def _rows(program: Elaborated, unit: int, beat: int) -> list[tuple[int, int, int]]:
    """Return the rows that a unit's LOADs read: the step, and the first and last address, in whole beats."""
    loads = program.moves.transfers & ~program.moves.stores & (program.table.unit == unit)
    steps = np.flatnonzero(loads)
    return [
        (step, first // beat * beat, -(-(first + move.row_bytes) // beat) * beat)
        for step, move in zip(steps.tolist(), program.moves.of(steps), strict=True)
        for first in range(move.address, move.address + move.rows * max(1, move.stride), max(1, move.stride))
    ]
