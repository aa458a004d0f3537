"""Count the FPGA resources of a CFU system from its configuration, and check whether it fits the document's board.

Nothing is synthesised. Block RAMs and multipliers of the CFU follow Yosys's rules (synth_xilinx). LUTs and flip-flops
are estimated by formulas, with terms from the structure and terms fitted to Yosys's counts. Tests and
docs/gateware-cfu.md compare these estimates with Yosys.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.cfu.config import IMAGE_BYTES, Config
from tilewright.targets.rams import Ram

#: The board of the document, Nexys4 DDR with an Artix-7 100T (DS180): block RAMs of 36 Kbit, multipliers (DSP48E1).
BOARD = "xc7a100t of the Nexys4 DDR"
BUDGET = {"bram36": 135, "dsp": 240, "lut": 63_400, "ff": 126_800}
BLOCK = 4096  # bytes of a block RAM, without its parity bits
PRODUCT = 4  # multipliers of a 32 x 32 bit product: the CPU has one, SRDHM another
#: Multipliers of each extension. scaling: four requantisation lanes, for `im2col` and `add`; im2col: products for the
#: addresses of windows; add: the size of a tensor; add4: a product of 12 x 32 bits per lane; dot: four products of 8 x
#: 8 bits.
_MULTIPLIERS = {"scaling": 4 * PRODUCT, "im2col": 6, "add": 2, "add4": 4 * 2, "dot": 4}

#: LUTs of a CFU without its array; per lane; per element (a part of the multiplexer that reads a row of sums); per
#: product in logic. The last number is Yosys's count, and the other numbers are fitted.
LUTS = 566
LANE_LUTS = 94
ELEMENT_LUTS = 8
LOGIC_LUTS = 181
#: Flip-flops of a CFU without its array (fitted), and per sum outside of its multiplier block. In the array, a value of
#: A has 9 bits and a value of B has 8 bits. Multiplier blocks contain the registers at the array's edges.
FLIP_FLOPS = 210
SUM_FLIP_FLOPS = 32
VALUES = 9 + 8
#: LUTs and flip-flops of each extension, fitted to presets. Estimates for other sets of extensions are less accurate.
#: With only `dot` or `resident`, a CFU has just an image memory.
_LUTS = {"scaling": 1_900, "im2col": 5_900, "add": 1_700, "pool": 666, "dma": 228}
_FLIP_FLOPS = {"scaling": 300, "im2col": 2_270, "add": 500, "pool": 435, "dma": 63}


#: From this number of rows of C on, Yosys uses a multiplier for row numbers: a product of 9 bits.
SMALLEST = 1 << 9


class Copies(NamedTuple):
    """The copies of the image memory: the number of copies, and the total number of read ports."""

    number: int
    ports: int


def copies(config: Config) -> Copies:
    """Return the copies of the image memory in the gateware. Each reader has its own port.

    A copy has a read port and a write port. While the array works, the write port can read too.
    """
    if "im2col" in config.extension_names:
        # With `overlap`, lanes read in the cycles in which results are written.
        number = config.array if "overlap" in config.extension_names else config.array // 2
        return Copies(number, config.array)
    if "add" in config.extension_names:
        return Copies(2, 2)
    return Copies(1, int("pool" in config.extension_names))


def fetches(config: Config) -> bool:
    """Return whether the CFU has a DMA with a bus master port."""
    return bool({"dma", "stream"} & set(config.extension_names))


def rams(config: Config) -> tuple[Ram, ...]:
    """Return the memories of the CFU's gateware."""
    words = config.array // 4 if config.transfer == "addressed" else 1
    halves = max(2, words) if fetches(config) else words  # a fetch writes half a row of B
    operands = (
        Ram(name, 1, config.buffer_rows, parts, 8 * config.array // parts)
        for name, parts in (("A", words), ("B", halves))
    )
    return *operands, Ram("C", 1, config.buffer_rows, 1, 32 * config.array)


def bill(config: Config) -> dict[str, float]:
    """Return the FPGA resources of a configuration by name. Nothing is synthesised.

    `bram36`: block RAMs of the system, without LiteX's boot ROM and SRAM; a half block has 18 Kbit. `dsp_beside_array`:
    multipliers outside of the array, including the CPU's multipliers. `products_in_logic`: products of the
    array that must be made of logic cells, because the board has too few multipliers. `cfu_bram36`, `cfu_dsp`,
    `cfu_lut`, `cfu_ff`: the share of the CFU. LUTs and flip-flops are estimates.
    """
    names = config.extension_names
    buffers = rams(config)
    halves = sum(ram.halves for ram in buffers)
    cfu_bram = halves / 2 if halves % 2 else halves // 2
    if {"add", "im2col"} & set(names):
        names = (*names, "scaling")
    if names:  # the channel tables of im2col are made of LUTs
        cfu_bram += copies(config).number * (IMAGE_BYTES // BLOCK)
    caches = (config.icache_bytes, config.dcache_bytes, config.l2_bytes)
    outside_array = 2 * PRODUCT + sum(_MULTIPLIERS.get(name, 0) for name in set(names))
    outside_array += config.readout == "random" and config.buffer_rows >= SMALLEST  # a product of M for the row of C
    lanes = config.array
    products = config.array**2
    # The board has too few multipliers for an array of 32 x 32: the other products are made of LUTs.
    in_logic = max(0, products - (BUDGET["dsp"] - outside_array))
    # Registers of values in transit: lane r is delayed by r cycles (n (n - 1) / 2 registers in all), and n - 1 elements
    # of each row have a register for the next element. Multiplier blocks contain the registers of the n values at the
    # edge.
    value_registers = VALUES * (lanes * (lanes - 1) * 3 // 2 - lanes)
    counts = {
        "bram36": cfu_bram + sum(-(-size // BLOCK) for size in caches),
        "dsp_beside_array": outside_array,
        "products_in_logic": in_logic,
        "cfu_bram36": cfu_bram,
        "cfu_dsp": products - in_logic + outside_array - PRODUCT,
    }
    counts["cfu_lut"] = LUTS + LANE_LUTS * lanes + ELEMENT_LUTS * products + LOGIC_LUTS * in_logic
    counts["cfu_lut"] += sum(ram.luts for ram in buffers) + sum(_LUTS.get(name, 0) for name in set(names))
    counts["cfu_ff"] = FLIP_FLOPS + value_registers + SUM_FLIP_FLOPS * in_logic
    counts["cfu_ff"] += sum(_FLIP_FLOPS.get(name, 0) for name in set(names))
    # The read data of a memory made of LUTs are in flip-flops.
    counts["cfu_ff"] += sum(ram.number * ram.parts * ram.bits for ram in buffers if ram.luts)
    return counts


def excess(config: Config) -> str:
    """Return the reason why the CFU does not fit the document's board, and a remedy; "" if it fits.

    LUTs and flip-flops are counted only for the CFU; CPU and SoC need additional ones.
    """
    counts = bill(config)
    takes = {"bram36": counts["bram36"], "lut": counts["cfu_lut"], "ff": counts["cfu_ff"]}
    names = {"bram36": "RAMB36", "lut": "LUT", "ff": "flip-flops"}
    over = [f"{count:,.10g} {names[key]} of {BUDGET[key]:,}" for key, count in takes.items() if count > BUDGET[key]]
    if not over:
        return ""
    all_ = f"{counts['cfu_dsp']:g} DSP48, {counts['products_in_logic']:g} products in logic"
    remedy = "array=16" if config.array > 16 else "a smaller buffer_rows"
    if copies(config).number > 1:
        remedy += ", leave out the extensions (they need copies of the image memory), or use a larger FPGA"
    return f"takes {', '.join(over)} ({all_}): too many for the {BOARD}; set {remedy}"
