"""The CFU: its port to the CPU, and the instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.modules import part
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.custom import (
    CHECK,
    CUSTOM,
    DOT,
    GET,
    GET_IMAGE,
    GET_SRDHM,
    OFF_MAXMIN,
    PUSH_IMAGE,
    PUT,
    RDBPOT,
    SET_A,
    SET_B,
    SET_SRDHM,
    START,
)  # fmt: skip

from .gemm import MatrixUnit
from .image import DotProduct, ImageMemory
from .post import HighProduct, OffsetClamp, RoundingShift


class Cfu(wiring.Component):
    """The custom function unit, with CFU-Playground's ports. The function is funct7 << 3 | funct3.

    The CFU takes a command in a cycle in which cmd_valid and cmd_ready are high, and no other one until its answer is
    taken. The answer comes in the next cycle, except: a cycle later for get_matrixC with readout=random and for
    set_SRDHM with srdhm=single, and in the last cycle of the launch for start_GEMM with start=blocking. Instructions
    without a result, and unknown ones, repeat the previous answer; funct3 is ignored.
    """

    def __init__(self, config: Config) -> None:
        bill.require(config)
        self.config = config
        super().__init__(
            {
                "cmd_valid": In(1),
                "cmd_ready": Out(1),
                "cmd_payload_function_id": In(10),
                "cmd_payload_inputs_0": In(32),
                "cmd_payload_inputs_1": In(32),
                "rsp_valid": Out(1),
                "rsp_ready": In(1),
                "rsp_payload_outputs_0": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        first, second, answer = self.cmd_payload_inputs_0, self.cmd_payload_inputs_1, self.rsp_payload_outputs_0
        waits, taken = Signal(name="waits"), Signal(name="taken")
        m.d.comb += [self.cmd_ready.eq(~self.rsp_valid & ~waits), taken.eq(self.cmd_valid & self.cmd_ready)]
        beyond = [PUT, PUSH_IMAGE, GET_IMAGE] if config.extensions else []
        beyond += [DOT] if "dot" in config.extension_names else []
        numbers = (SET_A, SET_B, START, CHECK, GET, SET_SRDHM, GET_SRDHM, RDBPOT, OFF_MAXMIN, *beyond)
        commands = {number: Signal(name=f"is_{CUSTOM[number].name}") for number in numbers}
        funct7 = self.cmd_payload_function_id[3:]
        m.d.comb += [command.eq(taken & (funct7 == number)) for number, command in commands.items()]

        gemm, srdhm, rdbpot, clamp = MatrixUnit(config), HighProduct(), RoundingShift(), OffsetClamp()
        m.submodules.gemm = part(gemm, "MatrixUnit")
        m.submodules.srdhm = part(srdhm, "HighProduct")
        m.submodules.rdbpot = part(rdbpot, "RoundingShift")
        m.submodules.off_maxmin = part(clamp, "OffsetClamp")
        m.d.comb += [
            gemm.set_a.eq(commands[SET_A]),
            gemm.set_b.eq(commands[SET_B]),
            gemm.start.eq(commands[START]),
            gemm.get.eq(commands[GET]),
            gemm.first.eq(first),
            gemm.second.eq(second),
            srdhm.set.eq(commands[SET_SRDHM]),
            srdhm.a.eq(first),
            srdhm.b.eq(second),
            rdbpot.x.eq(first),
            rdbpot.exponent.eq(second),
            clamp.x.eq(first),
            clamp.offset.eq(second),
        ]
        results = {CHECK: gemm.busy, GET: gemm.sum, GET_SRDHM: srdhm.high, RDBPOT: rdbpot.result}
        results[OFF_MAXMIN] = clamp.result
        results |= self._extensions(m, commands)
        late = {}  # instructions that answer a cycle later, with their results
        if config.readout == "random":
            late[GET] = results.pop(GET)
        if config.srdhm == "single":
            late[SET_SRDHM] = srdhm.high

        with m.If(self.rsp_ready):
            m.d.sync += self.rsp_valid.eq(0)
        with m.If(taken):
            m.d.sync += self.rsp_valid.eq(1)
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
            with m.If(commands[START]):
                m.d.sync += [waits.eq(1), self.rsp_valid.eq(0)]
            with m.If(gemm.last):
                m.d.sync += [waits.eq(0), self.rsp_valid.eq(1)]
        return m

    def _extensions(self, m: Module, commands: Mapping[int, Signal]) -> dict[int, Any]:
        """Add the blocks of the extensions. Return the results of their instructions: 0 for those that have none."""
        blocks = list[Any]()
        results: dict[int, Any] = {}
        if PUT in commands:
            image = ImageMemory()
            m.submodules.image = part(image, "ImageMemory")
            m.d.comb += [image.push.eq(commands[PUSH_IMAGE]), image.get.eq(commands[GET_IMAGE])]
            blocks.append(image)
            results |= {PUT: 0, PUSH_IMAGE: 0, GET_IMAGE: image.word}
        if DOT in commands:
            dot = DotProduct()
            m.submodules.dot = part(dot, "DotProduct")
            m.d.comb += dot.dot.eq(commands[DOT])
            blocks.append(dot)
            results[DOT] = dot.total
        for block in blocks:
            m.d.comb += [block.put.eq(commands[PUT])]
            m.d.comb += [block.first.eq(self.cmd_payload_inputs_0), block.second.eq(self.cmd_payload_inputs_1)]
        return results
