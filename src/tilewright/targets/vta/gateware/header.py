"""The C header of a configuration, with upstream's macros and structures, for gateware, drivers and runtimes.

The header replaces include/vta/hw_spec.h, hw_spec_const.h and the -D flags that config/vta_config.py prints
(apache/tvm-vta at d4a15f627d5c). Numbers come from `Config`, bit positions from the layouts that encode and decode
instructions. `MAP` lists the control registers of this package's gateware, for the header, the RTL and its README.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.program.header import Group, Macros, header, structure
from tilewright.program.instruction import Layout
from tilewright.targets.vta.config import BOARDS, DERIVED, OPTIONAL, Config, Sram
from tilewright.targets.vta.isa.fields import INSN_BYTES, ITER_BITS, REGIONS, SRAM_BASE_BITS, UOP_BYTES, Opcode

#: The address window of the block on AXI4-Lite: the smallest window that interconnects map.
WINDOW_BITS = 12


class Register(NamedTuple):
    """A 32-bit control register at byte `offset` of the register block; the host may write it if `written`."""

    offset: int
    name: str
    written: bool
    meaning: str

    @property
    def access(self) -> str:
        return "write, read" if self.written else "read"


#: Offsets as in upstream's Chisel design (shell/VCR.scala, 32-bit addresses), but status is a separate register instead
#: of bit 1 of control.
MAP = (
    Register(0x00, "control", True, "bit 0: launch"),
    Register(0x04, "cycles", False, "cycles from the launch to the end of FINISH"),
    Register(0x08, "insn_count", True, "number of instructions, 16 bytes each"),
    Register(0x0C, "insn_base", True, "address of the first instruction"),
    *(
        Register(0x10 + 4 * number, f"{name}_base", True, f"address of {name} tile 0")
        for number, name in enumerate(REGIONS)
    ),
    Register(0x28, "status", False, "bit 0: done"),
)

#: Register blocks of upstream's HLS build, 4 KiB each, and the address of the first (config/pkg_config.py). A board
#: that is not listed gets the value of pynq.
BLOCKS = ("FETCH", "LOAD", "COMPUTE", "STORE")
FETCH_ADDRESS = {"pynq": 0x43C00000, "ultra96": 0xA0000000, "zcu104": 0xA0000000, "de10nano": 0xFF220000}
BLOCK_RANGE = 0x1000
#: Offsets of registers in bytes from the address of their block (config/pkg_config.py).
HLS_REGISTERS = {
    "FETCH_INSN_COUNT": 16,
    "FETCH_INSN_ADDR": 24,
    "LOAD_INP_ADDR": 16,
    "LOAD_WGT_ADDR": 24,
    "COMPUTE_DONE_WR": 16,
    "COMPUTE_DONE_RD": 24,
    "COMPUTE_UOP_ADDR": 32,
    "COMPUTE_BIAS_ADDR": 40,
    "STORE_OUT_ADDR": 16,
}
#: Upstream's HLS build has another register map. Drivers of this build define this macro before the #include.
HLS_MAP = "VTA_UPSTREAM_HLS_REGISTERS"
#: Numbers of bits in hw_spec_const.h that are fixed, and do not belong to a field.
PAD_VALUE_BITS = 2
MUL_BITS = 8
#: Upstream's field names that differ from ours.
TOKENS = {name: f"{name}_dep" for name in ("pop_prev", "pop_next", "push_prev", "push_next")}
INDICES = {name: f"{name}_idx" for name in ("dst", "src", "wgt")}
FLAGS = {*TOKENS, "reset_reg", "use_imm"}
STRUCTURES = {"plain": "VTAGenericInsn", "mem": "VTAMemInsn", "gemm": "VTAGemInsn", "alu": "VTAAluInsn"}


def text(config: Config) -> str:
    """Return the C header, which has an #error for builds whose upstream -D flags differ."""
    layouts = config.formats
    tiles = (config.inp, config.wgt, config.acc, config.out)
    board: Macros = {"VTA_LOG_BUS_WIDTH": config.bus_bits.bit_length() - 1, "VTA_COHERENT_ACCESSES": "true"}
    registers = {f"VTA_REG_{register.name.upper()}": f"0x{register.offset:02X}" for register in MAP}
    build: Macros = {
        "VTA_BITSTREAM": f'"{config.bitstream}"',
        "VTA_CLOCK_MHZ": config.mhz,
        "VTA_HLS_PERIOD_NS": BOARDS[config.TARGET].hls_period_ns,
        "VTA_STAGES": config.stages,
    }
    ratios = {f"{chip.name.upper()}_MAT_AXI_RATIO": 8 * chip.tile_bytes // config.bus_bits for chip in tiles}
    codes = {f"VTA_OPCODE_{code.name}": int(code) for code in Opcode}
    codes |= {f"VTA_ALU_OPCODE_{name.upper()}": code for code, name in config.opcodes.items()}
    codes |= {f"VTA_MEM_ID_{code.name}": int(code) for code in config.memories}
    groups = [
        Group("vta_config.json, as the -D flags of vta_config.py", _keys(config), given=True),
        Group("the board, from TARGET (pkg_config.py)", board, given=True),
        Group(
            "control registers of the gateware that `tilewright rtl vta` writes (one block)",
            {"VTA_REG_RANGE": f"0x{1 << WINDOW_BITS:X}", **registers},
        ),
        Group(
            f"control registers of upstream's HLS build (four blocks); define {HLS_MAP} to use them",
            _hls_registers(config),
            given=True,
            only_with=HLS_MAP,
        ),
        Group("the build; upstream has no such macros", build),
        Group("widths in bits, tile shape", _widths(config, tiles)),
        Group("memories: size and element in bytes, depth in elements", _memories(config)),
        Group("bus beats per element", ratios),
        Group("codes of instructions, ALU operations and memories", codes),
        Group("widths of instruction fields in bits", _fields(config)),
        Group(
            "bit ranges of LOAD and STORE: _0 first, _1 last bit, as in older releases", _bits("INSN_MEM", layouts.mem)
        ),
        Group("bit ranges of GEMM", _bits("INSN_GEM", layouts.gemm)),
        Group(
            "bit ranges of ALU; upstream takes A to D from GEMM, which is wrong if inp and acc differ",
            _bits("INSN_ALU", layouts.alu),
        ),
        Group(
            "bit ranges of micro-ops; upstream's HLS slices src as for inp, which is wrong if acc is deeper",
            {**_bits("UOP_GEM", layouts.uop, 3), **_bits("UOP_ALU", layouts.uop, 2)},
        ),
    ]
    return header("VTA_HW_SPEC_H_", f"VTA {config.bitstream} for {config.TARGET}.", groups, list(_code(config)))


def _keys(config: Config) -> dict[str, int | str]:
    """Return the macros VTA_<KEY> for upstream's configuration keys and derived keys."""
    keys = {key: value for key, value in config.to_dict().items() if key not in OPTIONAL}
    if not re.fullmatch(r"[\w.+-]+", config.HW_VER, re.ASCII):
        keys["HW_VER"] = json.dumps(config.HW_VER)
    derived = {key: follows(config) for key, follows in DERIVED.items()}
    return {f"VTA_{key}": value for key, value in (keys | derived).items()}


def _hls_registers(config: Config) -> dict[str, int | str]:
    first = FETCH_ADDRESS.get(config.TARGET, FETCH_ADDRESS["pynq"])
    blocks = {f"VTA_{name}_ADDR": f"0x{first + index * BLOCK_RANGE:X}" for index, name in enumerate(BLOCKS)}
    return {
        "VTA_IP_REG_MAP_RANGE": f"0x{BLOCK_RANGE:X}",
        **blocks,
        **{f"VTA_{name}_OFFSET": offset for name, offset in HLS_REGISTERS.items()},
    }


def _widths(config: Config, tiles: Sequence[Sram]) -> Macros:
    return {
        "VTA_BUS_WIDTH": config.bus_bits,
        "VTA_LOG_INS_WIDTH": (8 * INSN_BYTES).bit_length() - 1,
        "VTA_INS_WIDTH": 8 * INSN_BYTES,
        "VTA_LOG_UOP_WIDTH": (8 * UOP_BYTES).bit_length() - 1,
        "VTA_UOP_WIDTH": 8 * UOP_BYTES,
        **{f"VTA_{chip.name.upper()}_WIDTH": chip.width for chip in (config.wgt, config.inp, config.out, config.acc)},
        "VTA_BATCH": config.batch,
        "VTA_BLOCK_IN": config.block,
        "VTA_BLOCK_OUT": config.block,
        **{f"VTA_{chip.name.upper()}_MATRIX_WIDTH": 8 * chip.tile_bytes for chip in tiles},
    }


def _memories(config: Config) -> dict[str, int | str]:
    macros: dict[str, int | str] = {"VTA_INS_ELEM_BYTES": INSN_BYTES}
    if config.uop_depth is not None:
        macros["VTA_UOP_DEPTH"] = config.uop_depth
    # Upstream takes the widths of micro-op fields from VTA_LOG_UOP_BUFF_DEPTH, even if the memory has fewer entries.
    addressed = config.uop._replace(index_bits=config.index_bits.uop)
    for chip in (addressed, *config.chips[1:]):
        name = f"VTA_{{}}{chip.name.upper()}_{{}}"
        macros[name.format("", "ELEM_BYTES")] = chip.tile_bytes
        macros[name.format("", "BUFF_SIZE")] = chip.depth * chip.tile_bytes
        macros[name.format("", "BUFF_DEPTH")] = chip.depth
        macros[name.format("LOG_", "BUFF_DEPTH")] = chip.index_bits
    return macros


def _fields(config: Config) -> dict[str, int | str]:
    mem = config.formats.mem.by_name
    alu = config.formats.alu.by_name
    return {
        "VTA_OPCODE_BIT_WIDTH": mem["opcode"].width,
        "VTA_ALU_OPCODE_BIT_WIDTH": alu["alu_opcode"].width,
        "VTA_MEMOP_ID_BIT_WIDTH": mem["memory_type"].width,
        "VTA_MEMOP_SRAM_ADDR_BIT_WIDTH": SRAM_BASE_BITS,
        "VTA_MEMOP_DRAM_ADDR_BIT_WIDTH": mem["dram_base"].width,
        "VTA_MEMOP_SIZE_BIT_WIDTH": mem["x_size"].width,
        "VTA_MEMOP_STRIDE_BIT_WIDTH": mem["x_stride"].width,
        "VTA_MEMOP_PAD_BIT_WIDTH": mem["x_pad_0"].width,
        "VTA_MEMOP_PAD_VAL_BIT_WIDTH": PAD_VALUE_BITS,
        "VTA_LOOP_ITER_WIDTH": ITER_BITS,
        "VTA_ALUOP_IMM_BIT_WIDTH": alu["imm"].width,
        "VTA_SHR_ARG_BIT_WIDTH": config.LOG_ACC_WIDTH,
        "VTA_MUL_ARG_BIT_WIDTH": MUL_BITS,
    }


def _bits(name: str, layout: Layout, count: int | None = None) -> dict[str, int | str]:
    """Return bit macros for the first `count` fields: the first and last bit of a field, or the bit of a flag."""
    macros: dict[str, int | str] = {}
    # In older releases of upstream, the fields of a format have one-digit numbers.
    for number, field in zip("0123456789ABCDEFG", layout.fields[:count], strict=False):
        low = layout.offsets[field.name]
        flag = field.name in FLAGS
        ends = {"": low} if flag else {"_0": low, "_1": low + field.width - 1}
        macros |= {f"VTA_{name}_{number}{end}": bit for end, bit in ends.items()}
    return macros


def _code(config: Config) -> Iterator[str]:
    """Yield lines of C: the structures, and static assertions that check the layout with any compiler."""
    for limit in config.restrictions:
        yield f"/* {limit.reference} does not run this machine as specified: {limit.reason} */"
    yield "/* upstream's own headers add nothing after this one */"
    yield "#ifdef VTA_HW_SPEC_CONST_H_"
    yield '#error "include this header before vta/hw_spec.h, or instead of it"'
    yield "#endif"
    yield "#define VTA_HW_SPEC_CONST_H_"
    yield ""
    for form, layout in config.formats.by_name.items():
        yield from structure(STRUCTURES[form], layout, TOKENS)
    members = (("generic", "plain"), ("mem", "mem"), ("gemm", "gemm"), ("alu", "alu"))
    yield "union VTAInsn {"
    yield from (f"  {STRUCTURES[form]} {member};" for member, form in members)
    yield "};"
    yield f'TILEWRIGHT_ASSERT(sizeof(union VTAInsn) == {INSN_BYTES}, "an instruction has {8 * INSN_BYTES} bits");'
    yield ""
    yield from structure("VTAUop", config.formats.uop, INDICES)
