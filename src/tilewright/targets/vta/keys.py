"""The legal values of the configuration keys of a VTA machine."""

from __future__ import annotations

from tilewright.targets.vta.isa.fields import PAGE, SRAM_BASE_BITS

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
