"""What makes a VTA configuration legal, and which legal ones single reference implementations cannot run.

Upstream checks none of this in one place; docs/vta.md says where each rule comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tilewright.errors import ConfigError
from tilewright.targets.vta.isa.fields import SRAM_BASE_BITS, IndexBits
from tilewright.targets.vta.isa.semantics import SEMANTICS

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: pages of upstream's DRAM allocators; a tile above it breaks the runtime's address arithmetic
MAX_TILE_BYTES = 4096

#: Smallest and largest value of each integer key, and why.
RANGES = {
    "LOG_INP_WIDTH": (0, 4, "fsim handles 1, 2, 4, 8 and 16 bits"),
    "LOG_WGT_WIDTH": (0, 4, "fsim handles 1, 2, 4, 8 and 16 bits"),
    "LOG_ACC_WIDTH": (3, 5, "fsim computes in 32 bits; below 8 no reference has been run"),
    "LOG_BATCH": (0, 12, f"a tile has at most {MAX_TILE_BYTES} bytes"),
    "LOG_BLOCK": (0, 12, f"a tile has at most {MAX_TILE_BYTES} bytes"),
    "LOG_UOP_BUFF_SIZE": (0, 30, "log2 bytes"),
    "LOG_INP_BUFF_SIZE": (0, 30, "log2 bytes"),
    "LOG_WGT_BUFF_SIZE": (0, 30, "log2 bytes"),
    "LOG_ACC_BUFF_SIZE": (0, 30, "log2 bytes"),
    "LOG_BUS_WIDTH": (6, 10, "published designs use 64 to 512 bits, HLS allows 1024"),
    "dram_latency": (0, 1 << 20, "cycles"),
    "queue_depth": (1, 1 << 20, "instructions"),
    "token_depth": (1, 1 << 20, "tokens"),
    "stages": (3, 4, "load, compute, store; or load, gemm, activate, store"),
    "acc_banks": (1, 16, "parts of acc"),
    "LOG_ALU_UOP_BUFF_SIZE": (3, 18, "log2 bytes"),
    "LOG_PAR_BUFF_SIZE": (3, 18, "log2 bytes"),
}

#: Keys of the compute core, powers of two; None: as much as a GEMM micro-op a cycle asks for.
CORE_KEYS = ("alu_lanes", "inp_read_bits", "wgt_read_bits", "acc_read_bits", "acc_write_bits")
RANGES |= dict.fromkeys(CORE_KEYS, (1, 8 * MAX_TILE_BYTES, "at most a tile of 4096 bytes a cycle"))
RANGES["acc_read_bits"] = (1, 16 * MAX_TILE_BYTES, "at most two tiles of 4096 bytes a cycle")


ALUS = ("upstream", "rounding", "fused", "float")
#: hdl.mac.MULTIPLIERS, which only needs Amaranth.
MULTIPLIERS = ("single", "packed", "logic")


class Restriction(NamedTuple):
    """Why one reference implementation cannot run a configuration that another can."""

    reference: str
    reason: str


def check(c: Config) -> None:
    """Every rule that all references share; raises ConfigError for the first that is broken."""

    def refuse(reason: str, remedy: str = "") -> None:
        raise ConfigError("VTA config", reason, remedy)

    if not isinstance(c.HW_VER, str):
        refuse(f"HW_VER is {c.HW_VER!r}, not text")
    if not isinstance(c.semantics, str) or c.semantics not in SEMANTICS:
        refuse(f"semantics is {c.semantics!r}", f"choose one of {', '.join(SEMANTICS)}")
    for key, (low, high, reason) in RANGES.items():
        value = getattr(c, key)
        if value is None and key in ("LOG_BUS_WIDTH", *CORE_KEYS):
            continue
        if type(value) is not int or not low <= value <= high:
            refuse(f"{key} is {value!r}, not an integer in {low}..{high} ({reason})")
        if key in CORE_KEYS and value & (value - 1):
            refuse(f"{key} is {value}, not a power of two", "memories and lanes are built in powers of two")
    if c.multipliers not in MULTIPLIERS:
        refuse(f"multipliers is {c.multipliers!r}", f"choose one of {', '.join(MULTIPLIERS)}")
    if c.alu not in ALUS:
        refuse(f"alu is {c.alu!r}", f"choose one of {', '.join(ALUS)}")
    for key in ("LOG_INP_WIDTH", "LOG_WGT_WIDTH"):
        if getattr(c, key) > c.LOG_ACC_WIDTH:
            refuse(f"{key} is {getattr(c, key)}, above LOG_ACC_WIDTH {c.LOG_ACC_WIDTH} (sums hold factors)")
    for name, bits in c.index_bits._asdict().items():
        key = f"LOG_{name.upper()}_BUFF_SIZE"
        if not 1 <= bits <= SRAM_BASE_BITS:
            depths = f"2^1 (an index has a bit or more) to 2^{SRAM_BASE_BITS} (sram_base's bits)"
            refuse(f"the {name} memory has 2^{bits} tiles, not {depths}", f"change {key}")
    for sram in (c.inp, c.wgt, c.acc, c.out):
        bits = sram.shape[0] * sram.shape[1] * sram.width
        if bits % 8 or bits // 8 > MAX_TILE_BYTES:
            reason = f"a tile is whole bytes, at most {MAX_TILE_BYTES} (the page of upstream's allocators)"
            refuse(f"{sram.name}: a tile has {bits} bits; {reason}", "change LOG_BATCH, LOG_BLOCK or a width")
    _check_extensions(c, refuse)
    try:
        _ = c.formats
    except ConfigError as error:
        refuse(f"index widths {c.index_bits._asdict()}: {error.where}: {error.reason}", "use smaller buffers")


def _check_extensions(c: Config, refuse: Callable[[str, str], None]) -> None:
    """Machines that upstream does not have."""
    if (c.stages, c.alu) != (3, "upstream") and c.semantics != "hls":
        refuse(f"semantics {c.semantics} has no other stages or ALU operations than upstream's", "leave it at hls")
    if c.alu != "upstream" and c.acc.width != 32:
        refuse(f"alu {c.alu} computes with 32 bits; the accumulators have {c.acc.width}", "set LOG_ACC_WIDTH to 5")
    if c.has_parameters and not 1 <= c.par.index_bits <= min(c.index_bits.acc, c.index_bits.wgt):
        limit = f"2 to 2^{min(c.index_bits.acc, c.index_bits.wgt)} (a micro-op's acc and wgt fields name them)"
        refuse(f"there are 2^{c.par.index_bits} parameter tiles, not {limit}", "change LOG_PAR_BUFF_SIZE")
    if c.stages == 4 and c.alu == "rounding":
        refuse("four stages have no place for this ALU's constants: acc is used by parts", "set alu to fused")
    if c.stages == 4:
        if c.alu_uop.index_bits > c.index_bits.uop:
            limit = f"2^{c.index_bits.uop}, the most that an instruction can name (LOG_UOP_BUFF_SIZE)"
            refuse(f"the ALU has 2^{c.alu_uop.index_bits} micro-ops, above {limit}", "change LOG_ALU_UOP_BUFF_SIZE")
        if c.acc_banks & (c.acc_banks - 1) or c.acc_banks > c.acc.depth:
            refuse(f"acc_banks is {c.acc_banks}, not a power of two up to {c.acc.depth} tiles", "set it to 2")


def restrictions(c: Config) -> Iterator[Restriction]:
    """In the order hls, chisel, opencl; docs/vta.md has the evidence."""
    bits = c.index_bits
    if (c.stages, c.alu) != (3, "upstream"):
        yield Restriction("all", "upstream has three stages and an ALU of five operations")
    if bits.acc > bits.inp:
        yield Restriction("hls", "slices micro-ops with a src of inp index bits; acc is deeper than inp")
    for sram in (c.inp, c.wgt, c.acc, c.out):
        if sram.tile_bytes * 8 % c.bus_bits:
            yield Restriction("hls", f"an {sram.name} tile is not a multiple of the {c.bus_bits}-bit bus")
    if bits != IndexBits(uop=13, inp=11, wgt=10, acc=11):
        yield Restriction("chisel", "decodes the field widths of the default depths only")
    if c.batch > 1:
        yield Restriction("chisel", "the ALU handles batch row 0 only")
    if c.formats.gemm.offsets["dst_factor_out"] != 64 or c.formats.alu.offsets["dst_factor_out"] != 64:
        yield Restriction("opencl", "takes dst_factor_out from bit 64, the C struct puts it elsewhere")
