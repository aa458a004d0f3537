"""The legal values of the configuration keys of one VTA machine, and the rules that several keys must obey together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.errors import ConfigError, one_of, shown
from tilewright.targets.vta.isa import own
from tilewright.targets.vta.isa.alu import ALUS, SEMANTICS
from tilewright.targets.vta.isa.fields import PAGE, SRAM_BASE_BITS, opcode_bits

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: Keys that set the sizes of upstream's memories.
BUFFERS = ("LOG_UOP_BUFF_SIZE", "LOG_INP_BUFF_SIZE", "LOG_WGT_BUFF_SIZE", "LOG_ACC_BUFF_SIZE")
#: Keys of the compute core, each a power of two. None: wide enough for one GEMM micro-op per cycle.
CORE_KEYS = ("alu_lanes", "inp_read_bits", "wgt_read_bits", "acc_read_bits", "acc_write_bits")
#: The smallest and largest value of each integer key, and the reason for these limits (or the key's unit).
RANGES = {
    "clock_mhz": (1, 5000, "clocks of chips"),
    **dict.fromkeys(("LOG_INP_WIDTH", "LOG_WGT_WIDTH"), (0, 4, "fsim handles 1, 2, 4, 8 and 16 bits")),
    "LOG_ACC_WIDTH": (3, 5, "fsim computes in 32 bits; below 8 no reference has been run"),
    **dict.fromkeys(("LOG_BATCH", "LOG_BLOCK"), (0, 12, f"a tile has at most {PAGE} bytes")),
    **dict.fromkeys(BUFFERS, (0, 30, "log2 bytes")),
    "LOG_BUS_WIDTH": (6, 10, "published designs use 64 to 512 bits, HLS allows 1024"),
    "dram_latency": (0, 1 << 20, "cycles"),
    "queue_depth": (1, 1 << 20, "instructions"),
    "token_depth": (1, 1 << 20, "tokens"),
    "burst_beats": (1, 256, "AXI4 has up to 256"),
    "uop_depth": (2, 1 << SRAM_BASE_BITS, "micro-ops"),
    "stages": (3, 4, "load, compute, store; or load, gemm, activate, store"),
    "acc_banks": (1, 16, "parts of acc"),
    **dict.fromkeys(("LOG_ALU_UOP_BUFF_SIZE", "LOG_PAR_BUFF_SIZE"), (3, 18, "log2 bytes")),
    **dict.fromkeys(CORE_KEYS, (1, 8 * PAGE, "at most one tile of 4096 bytes per cycle")),
    "acc_read_bits": (1, 16 * PAGE, "at most two tiles of 4096 bytes per cycle"),
}

#: The keys of hdl.multipliers.MULTIPLIERS. The keys are repeated here because a run imports no gateware modules.
MULTIPLIERS = ("single", "packed", "logic")
#: How DRAM answers in the timing model chisel: after `dram_latency` cycles, or as in upstream's tsim.
MEMORIES = ("delay", "tsim")


def check(c: Config) -> None:
    """Check a configuration. Raises ConfigError, which names the key and the rule, for an illegal machine."""

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
