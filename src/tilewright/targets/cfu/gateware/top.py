"""The CFU: its port to the CPU and its instructions; and the files of a design for a board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl import board
from tilewright.hdl.modules import verilog_files
from tilewright.hdl.parts import Part, add, expose, latch
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa import custom
from tilewright.targets.cfu.isa.custom import CUSTOM, Custom

from .coupled import COMMANDS, CoupledUnit
from .dma import BusMaster
from .gemm import MatrixUnit
from .image import DotProduct
from .results import HighProduct, OffsetClamp, RoundingShift


def instructions(config: Config) -> dict[int, Custom]:
    names = set(config.extension_names)
    return {code: row for code, row in CUSTOM.items() if not row.extensions or set(row.extensions) & names}


class Cfu(Part):
    """The custom function unit, with CFU-Playground's ports. The function is funct7 << 3 | funct3.

    The CFU accepts a command in a cycle in which cmd_valid and cmd_ready are high. The next command must wait until the
    CPU has accepted the answer. The answer usually comes in the next cycle. The answers of get_matrixC with
    readout=random and of set_SRDHM with srdhm=single come a cycle later. With start=blocking, start_GEMM answers in the
    last cycle of the launch. Unknown instructions and instructions without a result repeat the previous answer. funct3
    is ignored.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            cmd_valid=In(1),
            cmd_ready=Out(1),
            cmd_payload_function_id=In(10),
            cmd_payload_inputs_0=In(32),
            cmd_payload_inputs_1=In(32),
            rsp_valid=Out(1),
            rsp_ready=In(1),
            rsp_payload_outputs_0=Out(32),
            **{"dma": Out(BusMaster())} if bill.fetches(config) else {},
        )

    def define(self, m: Module) -> None:
        config = self.config
        first = self.cmd_payload_inputs_0
        second = self.cmd_payload_inputs_1
        answer = self.rsp_payload_outputs_0
        waits = Signal(name="waits")
        taken = Signal(name="taken")
        m.d.comb += [self.cmd_ready.eq(~self.rsp_valid & ~waits), taken.eq(self.cmd_valid & self.cmd_ready)]
        commands = {number: Signal(name=f"is_{row.name}") for number, row in instructions(config).items()}
        funct7 = self.cmd_payload_function_id[3:]
        m.d.comb += [command.eq(taken & (funct7 == number)) for number, command in commands.items()]

        start = commands[custom.START]
        works = Signal(name="works")  # a command on the image memory runs
        fetching = Signal(name="fetching")  # the DMA runs
        if config.extensions:
            start = start & ~works & ~fetching
        set_a, set_b, get = (commands[number] for number in (custom.SET_A, custom.SET_B, custom.GET))
        operands = {"first": first, "second": second}
        gemm = add(m, "gemm", MatrixUnit(config), set_a=set_a, set_b=set_b, get=get, start=start, **operands)
        srdhm = add(m, "srdhm", HighProduct(), set=commands[custom.SET_SRDHM], a=first, b=second)
        results: dict[int, Any] = {
            custom.CHECK: gemm.busy | works,
            custom.GET: gemm.sum,
            custom.GET_SRDHM: srdhm.high,
            custom.RDBPOT: add(m, "rdbpot", RoundingShift(), x=first, exponent=second).result,
            custom.OFF_MAXMIN: add(m, "off_maxmin", OffsetClamp(), x=first, offset=second).result,
        }
        results |= self._extensions(m, commands, gemm, works, fetching)
        late = {}  # the results of instructions that answer a cycle later
        if config.readout == "random":
            late[custom.GET] = results.pop(custom.GET)
        if config.srdhm == "single":
            late[custom.SET_SRDHM] = srdhm.high

        # The answer is a register. It is valid from the cycle after the command until the CPU accepts it. If the result
        # is late, the answer becomes valid a cycle later, and `waits` delays the next command.
        latch(m, self.rsp_valid, taken, self.rsp_ready)
        for number, result in results.items():
            with m.If(commands[number]):
                m.d.sync += answer.eq(result)
        for number, result in late.items():
            again = Signal(name=f"was_{CUSTOM[number].name}")
            m.d.sync += again.eq(commands[number])
            with m.If(commands[number]):
                m.d.sync += [waits.eq(1), self.rsp_valid.eq(0)]
            with m.If(again):
                m.d.sync += [waits.eq(0), self.rsp_valid.eq(1), answer.eq(result)]
        if config.start == "blocking":
            with m.If(start):
                m.d.sync += [waits.eq(1), self.rsp_valid.eq(0)]
            with m.If(gemm.last):
                m.d.sync += [waits.eq(0), self.rsp_valid.eq(1)]

    def _extensions(
        self, m: Module, commands: Mapping[int, Signal], gemm: MatrixUnit, works: Signal, fetching: Signal
    ) -> dict[int, Any]:
        operands = {"first": self.cmd_payload_inputs_0, "second": self.cmd_payload_inputs_1}
        results: dict[int, Any] = {number: 0 for number in commands if number >= custom.PUT}
        if custom.PUT in commands:
            named = {CUSTOM[number].name: command for number, command in commands.items()}
            named = {name: command for name, command in named.items() if name in COMMANDS}
            unit = add(m, "coupled", CoupledUnit(self.config), **operands, **named, array_busy=gemm.busy)
            m.d.comb += [works.eq(unit.busy), gemm.other_busy.eq(unit.busy)]
            if gemm.convolves:
                wiring.connect(m, unit.array, gemm.convolution)
                m.d.comb += unit.sums.eq(gemm.sums)
            if unit.fetches:
                expose(m, unit.bus, self.dma)
                wiring.connect(m, unit.filled, gemm.filled)
                m.d.comb += [fetching.eq(unit.fetching), gemm.fetching.eq(unit.fetching)]
            results[custom.GET_IMAGE] = unit.word
        if custom.DOT in commands:
            dot = add(m, "dot", DotProduct(), **operands, dot=commands[custom.DOT], put=commands[custom.PUT])
            results[custom.DOT] = dot.total
        return results


TOP = "Cfu"
RESET = "reset"


def board_files(config: Config) -> dict[str, str]:
    counts = bill.bill(config)
    excess = bill.excess(config)
    keys = ["array", "buffer_rows", "transfer", "readout", "start", "srdhm"] + ["extensions"] * bool(config.extensions)
    names = {
        "clock": "clk",
        "machine": ", ".join(f"{key}={config.to_dict()[key]}" for key in keys),
        "instructions": "\n".join(
            f"| {code} | `{row.name}` | {row.operands} | {row.about} |" for code, row in instructions(config).items()
        ),
        "counts": ", ".join(
            f"{counts[key]:,.10g} {text}"
            for key, text in (("cfu_dsp", "DSP48E1"), ("cfu_bram36", "RAMB36E1"), ("cfu_lut", "LUT"), ("cfu_ff", "FF"))
        ),
        "fits": f"**This design does not fit its board.** It {excess}." if excess else f"It fits the {bill.BOARD}.",
    }
    return board.board_files(config, verilog_files(Cfu(config), TOP, RESET), TOP, TOP, Path(__file__).parent, names)
