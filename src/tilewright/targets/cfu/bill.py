"""Count the FPGA resources of a CFU system from its configuration, and check whether it fits the document's board.

Nothing is synthesised. Block RAMs and multipliers of the CFU are computed by Yosys's rules (synth_xilinx). The formulas
for LUTs and flip-flops are estimates: some of their terms follow from the structure, and some are fitted to Yosys's
counts. Tests and docs/gateware-cfu.md compare the estimates with Yosys.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.cfu.config import IMAGE_BYTES, Config
from tilewright.targets.rams import Ram

#: The board of the document, Nexys4 DDR with an Artix-7 100T (DS180): block RAMs of 36 Kbit, multipliers (DSP48E1).
BOARD = "xc7a100t of the Nexys4 DDR"
BUDGET = {"bram36": 135, "dsp": 240, "lut": 63_400, "ff": 126_800}
BLOCK = 4096  # bytes of a block RAM, without its parity bits
PRODUCT = 4  # multipliers for a product of 32 x 32 bits; the CPU and SRDHM have one such product each
#: Multipliers of each extension. scaling: four requantisation lanes, for `im2col` and `add`; im2col: products for the
#: addresses of windows; add: a product for the size of a tensor; add4: a product of 12 x 32 bits for each lane; dot:
#: four products of 8 x 8 bits.
_MULTIPLIERS = {"scaling": 4 * PRODUCT, "im2col": 6, "add": 2, "add4": 4 * 2, "dot": 4}

LUTS = 566  # of a CFU without its array (fitted)
LANE_LUTS = 94  # for each lane (fitted)
ELEMENT_LUTS = 8  # for each element, a share of the multiplexer that selects a row of sums (fitted)
LOGIC_LUTS = 181  # for each product without a multiplier block (counted by Yosys)
FLIP_FLOPS = 210  # of a CFU without its array (fitted)
SUM_FLIP_FLOPS = 32  # for each sum without a multiplier block
VALUES = 9 + 8  # in the array, a value of A has 9 bits and a value of B has 8 bits
#: LUTs and flip-flops of each extension, fitted to presets. Estimates for other sets of extensions are less accurate.
#: The extension `resident` adds only the image memory, and `dot` only four multipliers and the image memory.
_LUTS = {"scaling": 1_900, "im2col": 5_900, "add": 1_700, "pool": 666, "dma": 228}
_FLIP_FLOPS = {"scaling": 300, "im2col": 2_270, "add": 500, "pool": 435, "dma": 63}


#: If C has this number of rows or more, a row number has 9 bits, and Yosys computes it with a multiplier.
SMALLEST = 1 << 9


class Copies(NamedTuple):
    """The number of copies of the image memory, and the total number of their read ports."""

    number: int
    ports: int


def copies(config: Config) -> Copies:
    """Return the number of copies of the image memory in the gateware, so that each reader has its own port.

    A copy has a read port and a write port. While the array works, the write port can also read.
    """
    if "im2col" in config.extension_names:
        # With `overlap`, results are written in the cycles in which the lanes read. So each lane needs its own copy.
        number = config.array if "overlap" in config.extension_names else config.array // 2
        return Copies(number, config.array)
    if "add" in config.extension_names:
        return Copies(2, 2)
    return Copies(1, int("pool" in config.extension_names))


def fetches(config: Config) -> bool:
    return bool({"dma", "stream"} & set(config.extension_names))


def rams(config: Config) -> tuple[Ram, ...]:
    words = config.array // 4 if config.transfer == "addressed" else 1
    halves = max(2, words) if fetches(config) else words  # a fetch writes half a row of B
    operands = (
        Ram(name, 1, config.buffer_rows, parts, 8 * config.array // parts)
        for name, parts in (("A", words), ("B", halves))
    )
    return *operands, Ram("C", 1, config.buffer_rows, 1, 32 * config.array)


def bill(config: Config) -> dict[str, float]:
    """Return the FPGA resources of a configuration by name.

    `bram36` counts the block RAMs of the system, without LiteX's boot ROM and SRAM; a half block has 18 Kbit.
    `dsp_beside_array` counts the multipliers outside of the array, including those of the CPU. `products_in_logic`
    counts the array's products that are made of LUTs, because the board has too few multipliers. `cfu_bram36`,
    `cfu_dsp`, `cfu_lut` and `cfu_ff` are the resources of the CFU alone. LUTs and flip-flops are estimates.
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
    outside_array += config.readout == "random" and config.buffer_rows >= SMALLEST  # multiplies M for a row of C
    lanes = config.array
    products = config.array**2
    # An array of 32 x 32 has more products than the board has multipliers. The other products are made of LUTs.
    in_logic = max(0, products - (BUDGET["dsp"] - outside_array))
    # The registers for values that move through the array. The delay of lane r needs r registers, n (n - 1) / 2 in all.
    # In each row, n - 1 elements have a register for their neighbour. Subtract n for the values at the edge, because
    # these registers are inside multiplier blocks.
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
    # A memory made of LUTs has flip-flops for its read data.
    counts["cfu_ff"] += sum(ram.number * ram.parts * ram.bits for ram in buffers if ram.luts)
    return counts


def excess(config: Config) -> str:
    """Return the reason why the CFU does not fit the document's board, and a remedy; "" if it fits.

    LUTs and flip-flops of the CPU and the SoC are not counted.
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
