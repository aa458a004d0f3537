"""What the compute core asks of its memories a cycle, what they give, and the intervals that follow."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.fields import AluOp

#: The key of each SRAM port, and its memory.
PORTS = {"inp_read_bits": "inp", "wgt_read_bits": "wgt", "acc_read_bits": "acc", "acc_write_bits": "acc"}


class Port(NamedTuple):
    """Bits a cycle: what one GEMM micro-op a cycle needs, and what the memory delivers or takes."""

    needed: int
    provided: int


class Intervals(NamedTuple):
    """Cycles from one micro-op to the next."""

    gemm: int
    alu: int
    alu_immediate: int
    requantise: int

    def of(self, op: AluOp | None, immediate: bool) -> int:
        """Of GEMM (`op` None) or an ALU operation."""
        if op is None:
            return self.gemm
        if op == AluOp.REQ:
            return self.requantise
        return self.alu_immediate if immediate else self.alu


def ports(config: Config) -> dict[str, Port]:
    """Each port by its key; unset ones give what is needed."""
    found = {}
    for key, name in PORTS.items():
        sram: Sram = getattr(config, name)
        needed, given = 8 * sram.tile_bytes, getattr(config, key)
        found[key] = Port(needed, needed if given is None else given)
    return found


def intervals(config: Config, gemm: int, alu: int, alu_immediate: int, requantise: int) -> Intervals:
    """The given ones, longer where ports or lanes are short.

    A tensor operation reads two accumulator tiles, its immediate form and REQ one; all write one.
    """

    known = ports(config)

    def cycles(key: str, tiles: int = 1) -> int:
        port = known[key]
        return -(-tiles * port.needed // port.provided)

    values = config.batch * config.block
    vectors = 1 if config.alu_lanes is None else -(-values // config.alu_lanes)
    write, read = cycles("acc_write_bits"), cycles("acc_read_bits")
    return Intervals(
        gemm=max(gemm, cycles("inp_read_bits"), cycles("wgt_read_bits"), read, write),
        alu=max(alu, vectors, write, cycles("acc_read_bits", 2)),
        alu_immediate=max(alu_immediate, vectors, write, read),
        requantise=max(requantise, vectors, write, read),
    )
