"""The configuration of one VTA machine: upstream's keys and ours, the sizes derived from them, and the legality rules.

Field names are the keys of upstream's JSON (apache/tvm-vta at d4a15f627d5c, config/*.json); upstream's files load
unchanged. Upstream's legality checks are spread over several files; docs/vta.md gives the source of each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.errors import ConfigError, one_of, option, shown
from tilewright.fields import read
from tilewright.targets import given
from tilewright.targets.vta.isa import own
from tilewright.targets.vta.isa.alu import ALUS, RESCALING, SEMANTICS, AluOp, Semantics
from tilewright.targets.vta.isa.fields import (
    INSN_BYTES,
    OPCODE_BITS,
    PAGE,
    PIPELINES,
    SRAM_BASE_BITS,
    UOP_BYTES,
    Formats,
    IndexBits,
    Memory,
    Pipeline,
    formats,
    opcode_bits,
)
from tilewright.targets.vta.isa.own import FIRST_OWN, OwnOperation
from tilewright.targets.vta.keys import BUFFERS, CORE_KEYS, MEMORIES, MULTIPLIERS, RANGES


class Board(NamedTuple):
    """The numbers of a TARGET in upstream's tools: DMA bus width (log2 bits), clock (MHz), HLS period goal (ns)."""

    log_bus_width: int
    clock_mhz: int
    hls_period_ns: int


#: Source: config/pkg_config.py. The file does not name sim, tsim and intelfocl, which get the numbers of pynq. Upstream
#: notes that its Chisel gateware does not use the numbers of de10nano.
BOARDS = {
    "pynq": Board(6, 100, 7),
    "ultra96": Board(7, 333, 2),
    "zcu104": Board(7, 333, 2),
    "de10nano": Board(6, 100, 2),
    "intelfocl": Board(6, 100, 7),
    "sim": Board(6, 100, 7),
    "tsim": Board(6, 100, 7),
}


#: The values of TARGET whose flow in upstream's tools builds or simulates the Chisel design.
CHISEL_FLOWS = ("tsim", "de10nano")
#: The on-chip memory of each memory id.
_SRAM_OF = ("uop", "wgt", "inp", "acc", "out", "acc", "alu_uop", "par")


class Sram(NamedTuple):
    """One on-chip memory: 2^`index_bits` tiles of `shape` (rows, columns), whose values have `width` bits."""

    name: str
    index_bits: int
    shape: tuple[int, int]
    width: int

    @property
    def depth(self) -> int:
        return 1 << max(self.index_bits, 0)

    @property
    def tile_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.width // 8


def timed(default: int | None = None) -> Any:
    """Declare a key that only changes the cycles of a compiled program."""
    return field(default=default, metadata=given.ONLY_TIME)


class Restriction(NamedTuple):
    """The reason why an implementation of upstream's (`reference`: hls, chisel, opencl or all) cannot run a machine."""

    reference: str
    reason: str


@dataclass(frozen=True)
class Config:
    """The configuration of one VTA machine. A LOG_ key is log2 of a size. Raises ConfigError for an illegal machine."""

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
    HW_VER: str = "0.0.2"  # as in most of upstream's samples; upstream does not require the key
    # Our own keys, which upstream's files do not need. `to_dict` omits a key whose value is the default.
    LOG_BUS_WIDTH: int | None = timed()  # DMA bus, bits; upstream's macro VTA_LOG_BUS_WIDTH; None: by TARGET
    dram_latency: int = timed(16)  # cycles, as in the memory model of upstream's tsim
    queue_depth: int = timed(512)  # instructions per unit; HLS and Chisel
    burst_beats: int = timed(256)  # beats of the longest burst of upstream's Chisel design: its LOG_BURST; see timing
    memory_model: str = field(default="delay", metadata=given.ONLY_TIME)  # "tsim": the memory of upstream's tsim
    token_depth: int = timed(1024)  # tokens per queue; HLS on Zynq (its C model declares 8, Chisel counts to 255)
    uop_depth: int | None = None  # micro-ops in the micro-op memory; None: as many as the micro-op fields can address
    semantics: str = "hls"  # the upstream implementation to follow where several differ: isa/alu.py, SEMANTICS
    stages: int = 3  # 4: the tensor ALU is a unit of its own, with its own micro-ops
    acc_banks: int = 4  # four stages only: banks of acc, each used by one unit at a time
    LOG_ALU_UOP_BUFF_SIZE: int = 12  # bytes; four stages only: the ALU's micro-op memory
    alu: str = "upstream"  # "rounding" adds MULH and RSHR; "fused" adds REQ as well; "float" has REQ in float32
    LOG_PAR_BUFF_SIZE: int = 14  # bytes; ALUs with REQ only: its parameter memory
    alu_lanes: int | None = timed()  # values that the tensor ALU processes per cycle; None: a tile. See timing/model.py
    # Bits per cycle of each SRAM port; None: enough for one GEMM micro-op per cycle.
    inp_read_bits: int | None = timed()
    wgt_read_bits: int | None = timed()
    acc_read_bits: int | None = timed()
    acc_write_bits: int | None = timed()
    multipliers: str = "single"  # gateware, see hdl/mac.py; "packed": two products a DSP block; "logic": no DSP blocks
    own_alu: tuple[OwnOperation, ...] = ()  # the user's ALU operations
    clock_mhz: int | None = timed()  # None: by TARGET

    def __post_init__(self) -> None:
        if not isinstance(self.TARGET, str) or self.TARGET not in BOARDS:
            raise ConfigError("VTA config", f"unknown TARGET {shown(self.TARGET)}", one_of(self.TARGET, BOARDS))
        _check(self)

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """Return the configuration that `source` describes, with the keys in `overrides` (values as text) replaced.

        `source` is a preset's name, the path of a JSON file or its content; None selects pynq.
        Raises ConfigError if there is no such preset, or the file or a key is illegal.
        """
        if isinstance(source, str) and not source.endswith(".json"):
            given.preset_named(PRESETS, source, option("--config"))
            return PRESETS[source].with_overrides(overrides)
        return (PRESETS["pynq"] if source is None else cls.from_json(source)).with_overrides(overrides)

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> Config:
        """Return the configuration in a JSON file or parsed JSON. Raises ConfigError for an illegal configuration."""
        where = "VTA config"
        data = source
        folder = None
        if not isinstance(source, Mapping):  # only a file of the user's may name code that is not known yet
            where = str(source)
            data = read(source, ConfigError, given.FORM)
            folder = Path(source).parent
        assert isinstance(data, Mapping)
        # The keys of a preset come first; the file's own keys replace them.
        data = given.on_preset(PRESETS, data, where)
        given.refuse_unknown(where, cls, [key for key in data if key not in DERIVED])
        if missing := [f.name for f in fields(cls) if f.default is MISSING and f.name not in data]:
            raise ConfigError(
                where, f"keys {', '.join(missing)} are missing", 'start from a preset: {"preset": "pynq", ...}'
            )
        values = {key: value for key, value in data.items() if key not in DERIVED}
        config = cls(**values | {"own_alu": own.read(data.get("own_alu", ()), folder)})
        for key, value in data.items():
            if key in DERIVED and value != (follows := DERIVED[key](config)):
                raise ConfigError(
                    where, f"{key} is {shown(value)}, but the other keys imply {follows}", f"leave {key} out"
                )
        return config

    def with_overrides(self, overrides: Mapping[str, Any]) -> Config:
        """Return a copy with some keys replaced; values may be text, as `--set key=value` gives them."""
        given.refuse_unknown("VTA config", type(self), overrides)
        values: dict[str, Any] = {
            key: given.integer("VTA config", key, value) if key in RANGES and isinstance(value, str) else value
            for key, value in overrides.items()
        }
        return replace(self, **values | ({"own_alu": own.read(values["own_alu"], None)} if "own_alu" in values else {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration by key: all of upstream's keys, and our own keys that differ from their defaults.

        A key that is added to this class with a default therefore leaves the digests of existing machines unchanged.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.own_alu:
            values["own_alu"] = [operation.to_data() for operation in self.own_alu]
        return {key: value for key, value in values.items() if key not in OPTIONAL or value != OPTIONAL[key]}

    @cached_property
    def plain(self) -> Config:
        """This machine, with fixed values for the keys that affect neither programs nor cycles."""
        return replace(
            self,
            TARGET="pynq",
            HW_VER="0.0.2",
            LOG_BUS_WIDTH=self.bus_bits.bit_length() - 1,
            clock_mhz=None,
            multipliers="single",
            own_alu=tuple(replace(operation, lane="") for operation in self.own_alu),
        )

    def difference(self, other: Config) -> str:
        """Return, as text, the first key for which programs of another machine differ; "" if there is none."""
        mine = self.plain.to_dict()
        theirs = other.plain.to_dict()
        for key in {**mine, **theirs}:
            if mine.get(key) != theirs.get(key):
                return f"{key} is {mine.get(key)} in the program, {theirs.get(key)} in the file"
        return ""

    def digest(self) -> str:
        return given.digest(self.to_dict())

    @property
    def batch(self) -> int:
        return 1 << self.LOG_BATCH

    @property
    def block(self) -> int:
        """The columns of an inp tile, and the rows and columns of a wgt tile (upstream's BLOCK_IN and BLOCK_OUT)."""
        return 1 << self.LOG_BLOCK

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of one GEMM micro-op; the core starts one micro-op per cycle."""
        return self.batch * self.block * self.block

    @property
    def bus_bits(self) -> int:
        log = self.LOG_BUS_WIDTH
        return 1 << (BOARDS[self.TARGET].log_bus_width if log is None else log)

    @property
    def mhz(self) -> int:
        return self.clock_mhz or BOARDS[self.TARGET].clock_mhz

    @property
    def bitstream(self) -> str:
        """Upstream's name for an FPGA build with this machine's sizes, such as 1x16_i8w8a32_15_15_18_17."""
        widths = f"i{self.inp.width}w{self.wgt.width}a{self.acc.width}"
        return f"{self.batch}x{self.block}_{widths}_" + "_".join(str(getattr(self, key)) for key in BUFFERS)

    @cached_property
    def index_bits(self) -> IndexBits:
        """The number of bits of a tile index into each memory: log2(buffer bits / tile bits)."""
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
        return formats(self.index_bits, max(OPCODE_BITS, max(self.opcodes).bit_length()))

    @cached_property
    def uop(self) -> Sram:
        bits = self.index_bits.uop if self.uop_depth is None else self.uop_depth.bit_length() - 1
        return Sram("uop", bits, (1, 1), 8 * UOP_BYTES)

    @cached_property
    def inp(self) -> Sram:
        return Sram("inp", self.index_bits.inp, (self.batch, self.block), 1 << self.LOG_INP_WIDTH)

    @cached_property
    def wgt(self) -> Sram:
        return Sram("wgt", self.index_bits.wgt, (self.block, self.block), 1 << self.LOG_WGT_WIDTH)

    @cached_property
    def acc(self) -> Sram:
        return Sram("acc", self.index_bits.acc, (self.batch, self.block), 1 << self.LOG_ACC_WIDTH)

    @cached_property
    def out(self) -> Sram:
        """The out memory: it has the depth of `acc`, and the width of `inp`."""
        return Sram("out", self.index_bits.acc, (self.batch, self.block), 1 << self.LOG_INP_WIDTH)

    @cached_property
    def alu_uop(self) -> Sram:
        """The micro-op memory of the unit `activate`, which only a machine with four stages has."""
        return self.uop._replace(name="alu_uop", index_bits=self.LOG_ALU_UOP_BUFF_SIZE - 2)

    @cached_property
    def par(self) -> Sram:
        """The memory of parameters of the ALU operation REQ. A tile has one 32-bit word for each of its channels."""
        return Sram("par", self.LOG_PAR_BUFF_SIZE - 2 - self.LOG_BLOCK, (1, self.block), 32)

    @cached_property
    def pipeline(self) -> Pipeline:
        return PIPELINES[self.stages]

    @property
    def gemm_writes_out(self) -> bool:
        """Whether GEMM writes its results to acc and to the out memory; with four stages, GEMM only writes acc."""
        return self.rules.out_memory and self.stages == 3

    @property
    def rules(self) -> Semantics:
        """The semantics that the key `semantics` selects for instructions on which upstream's versions differ."""
        return SEMANTICS[self.semantics]

    @cached_property
    def memories(self) -> tuple[Memory, ...]:
        """The memory ids that LOAD and STORE may name."""
        absent = {Memory.ALU_UOP: self.stages == 3, Memory.PAR: not self.has_parameters}
        return tuple(memory for memory in Memory if not absent.get(memory))

    @property
    def alu_ops(self) -> tuple[AluOp, ...]:
        return ALUS[self.alu]

    @cached_property
    def opcodes(self) -> dict[int, str]:
        """The name, in lower case, of each opcode of the ALU."""
        own_names = {operation.opcode: operation.name for operation in self.own_alu}
        return {int(op): op.name.lower() for op in self.alu_ops} | own_names

    @cached_property
    def own_numbers(self) -> dict[int, int]:
        """The number (FIRST_OWN and up) that replaces each opcode of an own operation in decoded programs."""
        return {operation.opcode: FIRST_OWN + index for index, operation in enumerate(self.own_alu)}

    def name_of(self, number: int) -> str:
        return self.own_alu[number - FIRST_OWN].name if number >= FIRST_OWN else AluOp(number).name.lower()

    @property
    def rescales(self) -> bool:
        """Whether the ALU has rescaling operations (MULH, RSHR or REQ)."""
        return any(op in RESCALING for op in self.alu_ops)

    @property
    def has_parameters(self) -> bool:
        """Whether the ALU has REQ. Only machines with REQ have a parameter memory."""
        return AluOp.REQ in self.alu_ops

    def sram(self, memory: Memory) -> Sram:
        """Return the on-chip memory with the id `memory`. ACC and ACC_8BIT are both `acc`."""
        sram: Sram = getattr(self, _SRAM_OF[memory])
        return sram

    def dram_tile_bytes(self, memory: Memory) -> int:
        """Return the bytes of one tile in DRAM: as on chip, but an ACC_8BIT tile has a quarter of an acc tile."""
        return self.acc.tile_bytes // 4 if memory == Memory.ACC_8BIT else self.sram(memory).tile_bytes

    @property
    def chips(self) -> list[Sram]:
        extensions = [self.sram(memory) for memory in (Memory.ALU_UOP, Memory.PAR) if memory in self.memories]
        return [self.uop, self.inp, self.wgt, self.acc, self.out, *extensions]

    @property
    def storage(self) -> dict[str, int]:
        """The on-chip bytes by name: each memory, all command queues, and all token queues (one bit per token)."""
        units = len(self.pipeline.units)
        return {
            **{chip.name: chip.depth * chip.tile_bytes for chip in self.chips},
            "command queues": units * self.queue_depth * INSN_BYTES,
            "token queues": 2 * (units - 1) * self.token_depth // 8,
        }

    @property
    def restrictions(self) -> Iterator[Restriction]:
        """The reasons why hls, chisel or opencl (upstream's implementations) cannot run this machine: docs/vta.md."""
        bits = self.index_bits
        if self.uop_depth is not None:
            yield Restriction("hls", "has a micro-op memory of as many entries as the micro-op fields can address")
        if (self.stages, self.alu, self.own_alu) != (3, "upstream", ()):
            yield Restriction("all", "upstream has three stages and an ALU of five operations")
        if bits.acc > bits.inp:
            reason = "reads a micro-op's src with inp's index bits, too few here: acc is deeper than inp"
            yield Restriction("hls", reason)
        for sram in (self.inp, self.wgt, self.acc, self.out):
            if sram.tile_bytes * 8 % self.bus_bits:
                yield Restriction("hls", f"an {sram.name} tile is not a multiple of the {self.bus_bits}-bit bus")
        if bits != IndexBits(uop=13, inp=11, wgt=10, acc=11):
            yield Restriction("chisel", "decodes only the field widths of the default memory depths")
        if self.batch > 1:
            yield Restriction("chisel", "the ALU handles batch row 0 only")
        if {layout.offsets["dst_factor_out"] for layout in (self.formats.gemm, self.formats.alu)} != {64}:
            yield Restriction("opencl", "takes dst_factor_out from bit 64, the C struct puts it elsewhere")

    @property
    def is_chisel(self) -> bool:
        """Whether upstream's flow for this machine is its Chisel design, and the design can run the machine."""
        restricted = {restriction.reference for restriction in self.restrictions}
        return self.TARGET in CHISEL_FLOWS and not restricted & {"all", "chisel"}


#: Our own keys and their defaults.
OPTIONAL = {f.name: f.default for f in fields(Config) if f.default is not MISSING and f.name != "HW_VER"}
#: Keys that upstream derives and its tools write to the file; accepted if they agree with the other keys.
DERIVED: dict[str, Callable[[Config], int]] = {
    "LOG_BLOCK_IN": lambda c: c.LOG_BLOCK,
    "LOG_BLOCK_OUT": lambda c: c.LOG_BLOCK,
    "LOG_OUT_WIDTH": lambda c: c.LOG_INP_WIDTH,
    "LOG_OUT_BUFF_SIZE": lambda c: c.LOG_ACC_BUFF_SIZE + c.LOG_INP_WIDTH - c.LOG_ACC_WIDTH,
}


def _check(c: Config) -> None:

    def refuse(reason: str, remedy: str = "") -> None:
        raise ConfigError("VTA config", reason, remedy)

    if not isinstance(c.HW_VER, str):
        refuse(f"HW_VER is {shown(c.HW_VER)}, not text")
    for key, words in {
        "semantics": SEMANTICS,
        "multipliers": MULTIPLIERS,
        "alu": ALUS,
        "memory_model": MEMORIES,
    }.items():
        if (value := getattr(c, key)) not in tuple(words):
            refuse(f"{key} is {shown(value)}", one_of(value, words))
    for key, (low, high, reason) in RANGES.items():
        value = getattr(c, key)
        if value is None and key in ("LOG_BUS_WIDTH", "clock_mhz", "uop_depth", *CORE_KEYS):
            continue
        if type(value) is not int or not low <= value <= high:
            refuse(f"{key} is {shown(value)}, not an integer in {low}..{high} ({reason})")
        if key in ("uop_depth", *CORE_KEYS) and value & (value - 1):
            refuse(f"{key} is {value}, not a power of two", "memories and lanes are built in powers of two")
    for key in ("LOG_INP_WIDTH", "LOG_WGT_WIDTH"):
        if getattr(c, key) > c.LOG_ACC_WIDTH:
            reason = "an accumulator is at least as wide as the factors of its products"
            refuse(f"{key} is {getattr(c, key)}, above LOG_ACC_WIDTH {c.LOG_ACC_WIDTH}: {reason}")
    # Depths are derived from bytes and tile sizes, so a legal size may still give an illegal depth.
    for name, bits in c.index_bits._asdict().items():
        key = f"LOG_{name.upper()}_BUFF_SIZE"
        if not 1 <= bits <= SRAM_BASE_BITS:
            depths = f"2^1 (an index has at least one bit) to 2^{SRAM_BASE_BITS} (sram_base has {SRAM_BASE_BITS} bits)"
            refuse(f"the {name} memory has 2^{bits} tiles, not {depths}", f"change {key}")
    if c.uop_depth is not None and c.uop_depth > 1 << c.index_bits.uop:
        limit = f"the 2^{c.index_bits.uop} micro-ops that the fields can address"
        refuse(f"uop_depth is {c.uop_depth}, above {limit}", "increase LOG_UOP_BUFF_SIZE, or decrease uop_depth")
    for sram in (c.inp, c.wgt, c.acc, c.out):
        bits = sram.shape[0] * sram.shape[1] * sram.width
        if bits % 8 or bits // 8 > PAGE:
            reason = f"it must be whole bytes, at most {PAGE} (a page of upstream's allocators)"
            refuse(f"{sram.name}: a tile has {bits} bits; {reason}", "change LOG_BATCH, LOG_BLOCK or a width")
    _check_extensions(c, refuse)
    try:
        _ = c.formats
    except ConfigError as error:
        widths = ", ".join(f"{name} {bits}" for name, bits in c.index_bits._asdict().items())
        refuse(f"with index bits {widths}, {error.where}: {error.reason}", "use smaller memories")


def _check_extensions(c: Config, refuse: Callable[[str, str], None]) -> None:
    """Check the rules of extensions (four stages, rescaling ALUs, own operations). `refuse(reason, remedy)` raises."""
    if (c.stages, c.alu, c.own_alu) != (3, "upstream", ()) and c.semantics != "hls":
        refuse(f"semantics {c.semantics} supports three stages and the upstream ALU only", "set semantics to hls")
    if (c.alu != "upstream" or c.own_alu) and c.acc.width != 32:
        name = "own_alu" if c.own_alu else f"alu {c.alu}"
        refuse(f"{name} computes in 32 bits; the accumulators have {c.acc.width}", "set LOG_ACC_WIDTH to 5")
    if c.own_alu:
        own.check(c.own_alu, {int(op): f"{op.name} of alu={c.alu}" for op in c.alu_ops}, opcode_bits(c.index_bits))
    if c.has_parameters and not 1 <= c.par.index_bits <= min(c.index_bits.acc, c.index_bits.wgt):
        limit = f"2 to 2^{min(c.index_bits.acc, c.index_bits.wgt)} (micro-ops index them with their src and wgt fields)"
        refuse(f"there are 2^{c.par.index_bits} parameter tiles, not {limit}", "change LOG_PAR_BUFF_SIZE")
    if c.stages == 4 and c.alu == "rounding":
        refuse("stages=4 does not support alu rounding, whose constants lie in gemm's part of acc", "set alu to fused")
    if c.stages == 4:
        # Both units share the instruction formats, whose fields are only wide enough for the micro-op memory of GEMM.
        if c.alu_uop.index_bits > c.index_bits.uop:
            limit = f"2^{c.index_bits.uop}, the most that an instruction can address (LOG_UOP_BUFF_SIZE)"
            refuse(f"alu_uop holds 2^{c.alu_uop.index_bits} micro-ops, above {limit}", "decrease LOG_ALU_UOP_BUFF_SIZE")
        if c.acc_banks & (c.acc_banks - 1) or c.acc_banks > c.acc.depth:
            refuse(f"acc_banks is {c.acc_banks}, not a power of two up to {c.acc.depth} tiles", "set it to 2")


#: Upstream's config/<name>_sample.json: int8, int32 sums, tiles of 1x16 and 16x16. fsim's TARGET is "sim".
PRESETS = {
    name: Config("sim" if name == "fsim" else name, 3, 3, 5, 0, 4, 15, 15, 18, 17)
    for name in ("pynq", "ultra96", "zcu104", "de10nano", "intelfocl", "fsim", "tsim")
}
PRESETS |= {name: replace(PRESETS[name], HW_VER="0.0.1") for name in ("zcu104", "intelfocl")}
# Upstream's build DefaultDe10Config, which tsim uses by default (hardware/chisel/Makefile:35). Depth of the micro-op
# memory: core/Configs.scala:42. Bursts: shell/Configs.scala:75.
PRESETS |= {name: replace(PRESETS[name], uop_depth=2048, burst_beats=16) for name in CHISEL_FLOWS}
PRESETS["tsim"] = replace(PRESETS["tsim"], memory_model="tsim")
