"""The numbers of one VTA machine: upstream's configuration file, what follows from it, and what is legal.

Field names are the keys of upstream's JSON (apache/tvm-vta at d4a15f627d5c, config/*.json); its files load
unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.errors import ConfigError
from tilewright.targets import given
from tilewright.targets.vta import rules
from tilewright.targets.vta.isa.fields import INSN_BYTES, UOP_BYTES, AluOp, Formats, IndexBits, Memory, formats
from tilewright.targets.vta.isa.pipeline import PIPELINES, Pipeline
from tilewright.targets.vta.isa.semantics import SEMANTICS


class Board(NamedTuple):
    """What upstream derives from TARGET: DMA bus width (log2 bits), clock (MHz), HLS period goal (ns)."""

    log_bus_width: int
    clock_mhz: int
    hls_period_ns: int


#: config/pkg_config.py. Names without a branch of their own there (sim, tsim, intelfocl) get pynq's numbers;
#: de10nano's are marked upstream as not passed on to its Chisel gateware.
BOARDS = {
    "pynq": Board(6, 100, 7),
    "ultra96": Board(7, 333, 2),
    "zcu104": Board(7, 333, 2),
    "de10nano": Board(6, 100, 2),
    "intelfocl": Board(6, 100, 7),
    "sim": Board(6, 100, 7),
    "tsim": Board(6, 100, 7),
}


#: The on-chip memory of each memory id.
_SRAM_OF = ("uop", "wgt", "inp", "acc", "out", "acc", "alu_uop", "par")


class Sram(NamedTuple):
    """One on-chip memory: `depth` tiles of `shape` (rows, columns), each value `width` bits."""

    name: str
    depth: int
    shape: tuple[int, int]
    width: int
    tile_bytes: int
    index_bits: int


@dataclass(frozen=True)
class Config:
    """One VTA machine; sizes are log2, as upstream's. Raises ConfigError naming the rule that is broken."""

    TARGET: str  # board or simulator: bus width and clock, see BOARDS
    LOG_INP_WIDTH: int  # bits of an input (and output) value
    LOG_WGT_WIDTH: int  # bits of a weight
    LOG_ACC_WIDTH: int  # bits of an accumulator
    LOG_BATCH: int  # rows of an input tile
    LOG_BLOCK: int  # columns of an input tile; rows and columns of a weight tile
    LOG_UOP_BUFF_SIZE: int  # bytes
    LOG_INP_BUFF_SIZE: int  # bytes
    LOG_WGT_BUFF_SIZE: int  # bytes
    LOG_ACC_BUFF_SIZE: int  # bytes
    HW_VER: str = "0.0.2"  # all samples but zcu104's and intelfocl's; upstream does not require the key
    # Keys of our own. An upstream file need not have them, and `to_dict` leaves them out at their defaults.
    LOG_BUS_WIDTH: int | None = None  # DMA bus, bits; upstream's macro VTA_LOG_BUS_WIDTH; None: by TARGET
    dram_latency: int = 16  # cycles; the delay counter of upstream's tsim memory model
    queue_depth: int = 512  # instructions per unit; HLS and Chisel
    token_depth: int = 1024  # tokens per queue; HLS on Zynq (its C model declares 8, Chisel counts to 255)
    semantics: str = "hls"  # whose meaning of instructions, where upstream's implementations differ: semantics.py
    stages: int = 3  # 4: the tensor ALU is a unit of its own, with its own micro-ops
    acc_banks: int = 4  # of four stages: parts of acc, each used by one unit at a time
    LOG_ALU_UOP_BUFF_SIZE: int = 12  # bytes, of four stages: the ALU's micro-ops
    alu: str = "upstream"  # "rounding": with MULH and RSHR; "fused": with REQ as well; "float": REQ in float32
    LOG_PAR_BUFF_SIZE: int = 14  # bytes, of a fused ALU: its parameters
    alu_lanes: int | None = None  # values that the tensor ALU processes a cycle; None: a tile. See ports.py
    inp_read_bits: int | None = None  # bits a cycle of each SRAM port; None: what a GEMM micro-op a cycle needs
    wgt_read_bits: int | None = None
    acc_read_bits: int | None = None
    acc_write_bits: int | None = None
    multipliers: str = "single"  # of the gateware: "packed": two products a block; "logic": no blocks. hdl/mac.py

    def __post_init__(self) -> None:
        if not isinstance(self.TARGET, str) or self.TARGET not in BOARDS:
            raise ConfigError("VTA config", f"unknown TARGET {self.TARGET!r}", f"choose one of {', '.join(BOARDS)}")
        rules.check(self)

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """A preset's name, a JSON file or its content (None: the first preset), then single keys as text."""
        if isinstance(source, str) and not source.endswith(".json"):
            if source not in PRESETS:
                raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(PRESETS)}")
            return PRESETS[source].with_overrides(overrides)
        return (PRESETS["pynq"] if source is None else cls.from_json(source)).with_overrides(overrides)

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> Config:
        """Load upstream's JSON, a file or parsed. Raises ConfigError for what is unreadable or illegal."""
        if isinstance(source, Mapping):
            return cls._from_keys("VTA config", source)
        return cls._from_keys(str(source), given.json_file(source))

    @classmethod
    def _from_keys(cls, where: str, data: Mapping[str, Any]) -> Config:
        given.refuse_unknown(where, cls, [key for key in data if key not in DERIVED])
        if missing := [f.name for f in fields(cls) if f.default is MISSING and f.name not in data]:
            raise ConfigError(where, f"{', '.join(missing)} missing", "start from a preset and override keys")
        config = cls(**{key: value for key, value in data.items() if key not in DERIVED})
        for key, value in data.items():
            if key in DERIVED and value != (follows := DERIVED[key](config)):
                raise ConfigError(where, f"{key} is {value}, other keys make it {follows}", "leave it out")
        return config

    def with_overrides(self, overrides: Mapping[str, Any]) -> Config:
        """A copy with some keys replaced; values may be text, as `--set key=value` gives them."""
        given.refuse_unknown("VTA config", type(self), overrides)
        return replace(self, **{key: _number(key, value) for key, value in overrides.items()})

    def to_dict(self) -> dict[str, Any]:
        """Upstream's keys, and our own where they differ from the default: digests outlive new keys."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {key: value for key, value in values.items() if key not in OPTIONAL or value != OPTIONAL[key]}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def digest(self) -> str:
        return given.digest(self.to_dict())

    @property
    def batch(self) -> int:
        return 1 << self.LOG_BATCH

    @property
    def block(self) -> int:
        """BLOCK_IN and BLOCK_OUT, which upstream makes equal."""
        return 1 << self.LOG_BLOCK

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of one GEMM micro-op, one a cycle."""
        return self.batch * self.block * self.block

    @property
    def bus_bits(self) -> int:
        log = self.LOG_BUS_WIDTH
        return 1 << (BOARDS[self.TARGET].log_bus_width if log is None else log)

    @property
    def clock_mhz(self) -> int:
        return BOARDS[self.TARGET].clock_mhz

    @property
    def bitstream(self) -> str:
        """Upstream's name for a build of these sizes."""
        widths = f"i{self.inp.width}w{self.wgt.width}a{self.acc.width}"
        sizes = (
            self.LOG_UOP_BUFF_SIZE,
            self.LOG_INP_BUFF_SIZE,
            self.LOG_WGT_BUFF_SIZE,
            self.LOG_ACC_BUFF_SIZE,
        )
        return f"{self.batch}x{self.block}_{widths}_" + "_".join(map(str, sizes))

    @cached_property
    def index_bits(self) -> IndexBits:
        """Bits of an index into each memory: log2 of buffer bits over tile bits."""
        tile = self.LOG_BATCH + self.LOG_BLOCK
        return IndexBits(
            uop=self.LOG_UOP_BUFF_SIZE - 2,
            inp=self.LOG_INP_BUFF_SIZE + 3 - tile - self.LOG_INP_WIDTH,
            wgt=self.LOG_WGT_BUFF_SIZE + 3 - 2 * self.LOG_BLOCK - self.LOG_WGT_WIDTH,
            acc=self.LOG_ACC_BUFF_SIZE + 3 - tile - self.LOG_ACC_WIDTH,
        )

    @cached_property
    def formats(self) -> Formats:
        """The bit layouts of this machine's instructions and micro-ops."""
        return formats(self.index_bits)

    @cached_property
    def uop(self) -> Sram:
        return Sram("uop", 1 << self.index_bits.uop, (1, 1), 8 * UOP_BYTES, UOP_BYTES, self.index_bits.uop)

    @cached_property
    def inp(self) -> Sram:
        return _sram("inp", self.index_bits.inp, (self.batch, self.block), self.LOG_INP_WIDTH)

    @cached_property
    def wgt(self) -> Sram:
        return _sram("wgt", self.index_bits.wgt, (self.block, self.block), self.LOG_WGT_WIDTH)

    @cached_property
    def acc(self) -> Sram:
        return _sram("acc", self.index_bits.acc, (self.batch, self.block), self.LOG_ACC_WIDTH)

    @cached_property
    def out(self) -> Sram:
        """As deep as `acc`, values as wide as `inp`."""
        return _sram("out", self.index_bits.acc, (self.batch, self.block), self.LOG_INP_WIDTH)

    @cached_property
    def alu_uop(self) -> Sram:
        """The micro-ops of an `activate` stage."""
        bits = self.LOG_ALU_UOP_BUFF_SIZE - 2
        return self.uop._replace(name="alu_uop", depth=1 << bits, index_bits=bits)

    @cached_property
    def par(self) -> Sram:
        """Parameters of REQ: one 32-bit word a channel."""
        bits = self.LOG_PAR_BUFF_SIZE - 2 - self.LOG_BLOCK
        return Sram("par", 1 << max(bits, 0), (1, self.block), 32, 4 * self.block, bits)

    @cached_property
    def pipeline(self) -> Pipeline:
        return PIPELINES[self.stages]

    @property
    def gemm_writes_out(self) -> bool:
        """Whether GEMM writes the out memory too: with four stages `activate` alone does."""
        return SEMANTICS[self.semantics].out_memory and self.stages == 3

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """The ids that LOAD may name."""
        absent = {Memory.ALU_UOP: self.stages == 3, Memory.PAR: not self.has_parameters}
        return tuple(memory for memory in Memory if not absent.get(memory))

    @cached_property
    def alu_ops(self) -> tuple[AluOp, ...]:
        last = {"upstream": AluOp.MUL, "rounding": AluOp.RSHR}.get(self.alu, AluOp.REQ)
        return tuple(op for op in AluOp if op <= last)

    @property
    def has_parameters(self) -> bool:
        """Whether there is REQ and the memory that it reads."""
        return self.alu in ("fused", "float")

    def sram(self, memory: Memory) -> Sram:
        """The on-chip memory that an id names; ACC_8BIT loads into `acc`."""
        sram: Sram = getattr(self, _SRAM_OF[memory])
        return sram

    def dram_tile_bytes(self, memory: Memory) -> int:
        """Bytes of one tile in DRAM: as on chip, but a quarter of an acc tile for ACC_8BIT."""
        return self.acc.tile_bytes // 4 if memory == Memory.ACC_8BIT else self.sram(memory).tile_bytes

    @property
    def storage(self) -> dict[str, int]:
        """Bytes on chip: the memories, command queues, and token queues (a bit a token)."""
        chips = [self.uop, self.inp, self.wgt, self.acc, self.out]
        chips += [self.sram(memory) for memory in (Memory.ALU_UOP, Memory.PAR) if memory in self.memories]
        units = len(self.pipeline.units)
        return {
            **{chip.name: chip.depth * chip.tile_bytes for chip in chips},
            "command queues": units * self.queue_depth * INSN_BYTES,
            "token queues": 2 * (units - 1) * self.token_depth // 8,
        }

    @property
    def restrictions(self) -> tuple[rules.Restriction, ...]:
        """What keeps single reference implementations from running this machine as specified."""
        return tuple(rules.restrictions(self))


#: Our own keys and their defaults.
OPTIONAL = {f.name: f.default for f in fields(Config) if f.default is not MISSING and f.name != "HW_VER"}
#: Keys that upstream derives and its tools write out; accepted when they agree.
DERIVED: dict[str, Callable[[Config], int]] = {
    "LOG_BLOCK_IN": lambda c: c.LOG_BLOCK,
    "LOG_BLOCK_OUT": lambda c: c.LOG_BLOCK,
    "LOG_OUT_WIDTH": lambda c: c.LOG_INP_WIDTH,
    "LOG_OUT_BUFF_SIZE": lambda c: c.LOG_ACC_BUFF_SIZE + c.LOG_INP_WIDTH - c.LOG_ACC_WIDTH,
}


def _sram(name: str, index_bits: int, shape: tuple[int, int], log_width: int) -> Sram:
    width = 1 << log_width
    return Sram(name, 1 << index_bits, shape, width, shape[0] * shape[1] * width // 8, index_bits)


def _number(key: str, value: Any) -> Any:
    """`value`, read as an integer when it is text for an integer key."""
    if key not in rules.RANGES or not isinstance(value, str):
        return value
    return given.integer("VTA config", key, value)


def _preset(target: str, version: str) -> Config:
    """The numbers that all eight shipped samples have: 1x16x16, int8 with int32 sums, 32/32/256/128 KiB."""
    return Config(target, 3, 3, 5, 0, 4, 15, 15, 18, 17, HW_VER=version)


#: config/<name>_sample.json. fsim's TARGET is "sim".
PRESETS = {
    "pynq": _preset("pynq", "0.0.2"),
    "ultra96": _preset("ultra96", "0.0.2"),
    "zcu104": _preset("zcu104", "0.0.1"),
    "de10nano": _preset("de10nano", "0.0.2"),
    "intelfocl": _preset("intelfocl", "0.0.1"),
    "fsim": _preset("sim", "0.0.2"),
    "tsim": _preset("tsim", "0.0.2"),
}
