"""The formats of commands: the position of each field in the registers `rs1` and `rs2`.

A command is (funct, rs1, rs2). Arrays of commands are uint64 [n, 3]. A launch stores them as uint8 [n, 24],
little-endian. Four mnemonics have funct 0 (config) and differ in rs1[1:0]. Each group of unused bits is a field whose
name has its register and first bit (`rs1_10`). The positions are those of GemminiISA.scala and LocalAddr.scala
(ucb-bar/gemmini at 8c3f992). The older layout of LOOP_CONV_WS in some builds of 2023 is not supported.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Field, Layout, Raw

#: The number of bytes of an encoded command.
NBYTES = 24


class Funct(IntEnum):
    """The `funct` of a command. FENCE stands for the CPU's fence instruction, which waits until the machine is idle."""

    CONFIG, MVIN2, MVIN, MVOUT, COMPUTE_PRELOADED, COMPUTE_ACCUMULATED, PRELOAD, FLUSH = range(8)
    LOOP_WS, LOOP_WS_BOUNDS, LOOP_WS_AB, LOOP_WS_DC, LOOP_WS_AB_STRIDES, LOOP_WS_DC_STRIDES = range(8, 14)
    MVIN3 = 14
    LOOP_CONV_WS, LOOP_CONV_WS_1, LOOP_CONV_WS_2, LOOP_CONV_WS_3, LOOP_CONV_WS_4, LOOP_CONV_WS_5, LOOP_CONV_WS_6 = (
        range(15, 22)
    )
    COUNTER = 126
    FENCE = 127


class ConfigUnit(IntEnum):
    """The unit that a config command configures: rs1[1:0]."""

    EX, LD, ST, NORM = range(4)


class BitField(NamedTuple):
    """The position of a field in a register."""

    name: str
    low: int
    width: int
    signed: bool = False


class Format(NamedTuple):
    """The fields of one mnemonic, in the order of the text form. `kind` is rs1[1:0] of a config command."""

    name: str
    funct: int
    rs1: tuple[BitField, ...] = ()
    rs2: tuple[BitField, ...] = ()
    kind: int | None = None

    @property
    def places(self) -> tuple[BitField, ...]:
        return *self.rs1, *self.rs2

    @property
    def fixed(self) -> dict[str, int]:
        return {"funct": self.funct} if self.kind is None else {"funct": self.funct, "kind": self.kind}


def _whole(name: str) -> tuple[BitField, ...]:
    return (BitField(name, 0, 64, signed=True),)


def _operand(name: str) -> tuple[BitField, ...]:
    """Return the fields of a register for a local operand: address, columns and rows."""
    prefix = "" if name == "local" else f"{name}_"
    return BitField(name, 0, 32), BitField(f"{prefix}cols", 32, 16), BitField(f"{prefix}rows", 48, 16)


def _halves(*names: str) -> tuple[BitField, ...]:
    return tuple(BitField(name, 16 * index, 16) for index, name in enumerate(names))


def _bits(*places: tuple[str, int, int]) -> tuple[BitField, ...]:
    return tuple(BitField(*place) for place in places)


_DRAM = _whole("dram")
_LOCAL = _operand("local")
_A = _operand("a")
_BD = _operand("bd")

FORMATS = (
    Format(
        "config_ex",
        Funct.CONFIG,
        _bits(
            *(("dataflow", 2, 1), ("activation", 3, 2), ("only_strides", 7, 1), ("transpose_a", 8, 1)),
            *(("transpose_b", 9, 1), ("a_stride", 16, 16), ("scale", 32, 32)),
        ),
        _bits(("shift", 0, 5), ("c_stride", 48, 16)),
        ConfigUnit.EX,
    ),
    Format(
        "config_ld",
        Funct.CONFIG,
        _bits(("shrunk", 2, 1), ("state", 3, 2), ("pixels", 8, 8), ("block_stride", 16, 16), ("scale", 32, 32)),
        _whole("stride"),
        ConfigUnit.LD,
    ),
    Format(
        "config_st",
        Funct.CONFIG,
        _bits(
            *(("activation", 2, 2), ("pool_stride", 4, 2), ("pool_size", 6, 2), ("upad", 8, 2), ("lpad", 10, 2)),
            *(("out_dim", 24, 8), ("porows", 32, 8), ("pocols", 40, 8), ("orows", 48, 8), ("ocols", 56, 8)),
        ),
        _bits(("stride", 0, 32), ("scale", 32, 32)),
        ConfigUnit.ST,
    ),
    Format(
        "config_norm",
        Funct.CONFIG,
        (
            *_bits(("stat", 8, 8), ("high", 16, 1), ("only_stat", 17, 1), ("inverse", 18, 1)),
            BitField("qln2", 32, 32, True),
        ),
        (BitField("qb", 0, 32, True), BitField("qc", 32, 32, True)),
        ConfigUnit.NORM,
    ),
    Format("mvin", Funct.MVIN, _DRAM, _LOCAL),
    Format("mvin2", Funct.MVIN2, _DRAM, _LOCAL),
    Format("mvin3", Funct.MVIN3, _DRAM, _LOCAL),
    Format("mvout", Funct.MVOUT, _DRAM, _LOCAL),
    Format("preload", Funct.PRELOAD, _operand("bd"), _operand("c")),
    Format("compute_preloaded", Funct.COMPUTE_PRELOADED, _A, _BD),
    Format("compute_accumulated", Funct.COMPUTE_ACCUMULATED, _A, _BD),
    Format("flush", Funct.FLUSH, _bits(("skip", 0, 1))),
    Format(
        "loop_ws",
        Funct.LOOP_WS,
        _bits(
            *(("ex_accumulate", 0, 1), ("full_c", 1, 1), ("low_d", 2, 1), ("activation", 8, 3)),
            *(("b_spad", 16, 2), ("a_spad", 18, 2)),
        ),
        _bits(("transpose_a", 0, 1), ("transpose_b", 1, 1), ("resadd", 2, 1)),
    ),
    Format("loop_ws_bounds", Funct.LOOP_WS_BOUNDS, _halves("pad_i", "pad_j", "pad_k"), _halves("i", "j", "k")),
    Format("loop_ws_ab", Funct.LOOP_WS_AB, _whole("a"), _whole("b")),
    Format("loop_ws_dc", Funct.LOOP_WS_DC, _whole("d"), _whole("c")),
    Format("loop_ws_ab_strides", Funct.LOOP_WS_AB_STRIDES, _whole("a_stride"), _whole("b_stride")),
    Format("loop_ws_dc_strides", Funct.LOOP_WS_DC_STRIDES, _whole("d_stride"), _whole("c_stride")),
    Format(
        "loop_conv_ws",
        Funct.LOOP_CONV_WS,
        _bits(
            *(("no_bias", 0, 1), ("rotate", 1, 1), ("out_1203", 2, 1), ("weight_1203", 3, 1), ("weight_0132", 4, 1)),
            *(("input_3120", 5, 1), ("depthwise", 6, 1), ("max_pixels", 8, 8), ("b_spad", 16, 2), ("a_spad", 18, 2)),
        ),
        _bits(("no_pool", 0, 1), ("downsample", 1, 1), ("input_dilated", 2, 1), ("activation", 3, 2)),
    ),
    Format(
        "loop_conv_ws_1",
        Funct.LOOP_CONV_WS_1,
        _halves("batch_size", "in_row_dim", "in_channels", "out_channels"),
        (
            *_halves("out_row_dim", "pool_out_row_dim", "out_col_dim"),
            *_bits(("conv_stride", 48, 8), ("padding", 56, 8)),
        ),
    ),
    Format(
        "loop_conv_ws_2",
        Funct.LOOP_CONV_WS_2,
        _bits(
            *(("pool_padding", 0, 8), ("pool_stride", 8, 8), ("pool_size", 16, 16)),
            *(("pool_out_col_dim", 32, 16), ("kernel_dim", 48, 16)),
        ),
        _halves("pochs", "pocols", "porows", "batches"),
    ),
    Format(
        "loop_conv_ws_3",
        Funct.LOOP_CONV_WS_3,
        _halves("lpad", "kchs", "kcols", "krows"),
        _bits(("in_col_dim", 0, 16), ("plpad", 16, 8), ("dpad", 24, 8), ("upad", 32, 16), ("rpad", 48, 16)),
    ),
    Format(
        "loop_conv_ws_4",
        Funct.LOOP_CONV_WS_4,
        _bits(
            *(("kernel_dilation", 0, 10), ("pdpad", 10, 11), ("pupad", 21, 11), ("prpad", 32, 16)),
            ("orows", 48, 16),
        ),
        _halves("ocols", "out_stride", "weight_stride", "in_stride"),
    ),
    Format("loop_conv_ws_5", Funct.LOOP_CONV_WS_5, _whole("weights"), _whole("output")),
    Format("loop_conv_ws_6", Funct.LOOP_CONV_WS_6, _whole("bias"), _whole("input")),
    Format(
        "counter",
        Funct.COUNTER,
        _bits(
            *(("reset", 0, 1), ("drop", 1, 1), ("snapshot", 2, 1), ("configure", 3, 1)),
            *(("index", 4, 3), ("event", 12, 6), ("external", 31, 1)),
        ),
    ),
    Format("fence", Funct.FENCE),
)
#: The code of each mnemonic, an index into FORMATS.
CODES = {form.name: code for code, form in enumerate(FORMATS)}
#: The code of each funct (config_ex for CONFIG), or -1 for an unknown funct, int64 [128].
_CODE_OF = np.full(128, -1, np.int64)
for _code in reversed(range(len(FORMATS))):
    _CODE_OF[FORMATS[_code].funct] = _code


def _layout(form: Format) -> Layout:
    """Return the layout of a format, in which each gap between fields is an additional field."""
    fields = [Field("funct", 7), Field("funct_7", 57)]
    kind = (BitField("kind", 0, 2),) if form.kind is not None else ()
    for register, places in (("rs1", (*kind, *form.rs1)), ("rs2", form.rs2)):
        # A field has at most 63 bits, so an unused register becomes two fields.
        bit = 0
        for place in (*places, BitField("", 64, 0)):
            for low in (bit, bit + 32) if place.low - bit > 63 else (bit,) if place.low > bit else ():
                fields.append(Field(f"{register}_{low}", 32 if place.low - bit > 63 else place.low - bit))
            if place.name:
                fields.append(Field(place.name, place.width, place.signed))
            bit = place.low + place.width
    return Layout(form.name, tuple(fields), word_bits=64, words=3)


#: The layout of each format, by command code.
LAYOUTS = tuple(_layout(form) for form in FORMATS)


def commands(raw: Raw) -> Array:
    """Decode commands from uint8 [n, NBYTES] to uint64 [n, 3]."""
    return np.ascontiguousarray(raw).view("<u8").reshape(-1, 3).astype(np.uint64, copy=False)


def raw(cmds: Array) -> Raw:
    """Encode commands from uint64 [n, 3] to uint8 [n, NBYTES]."""
    return np.ascontiguousarray(cmds, "<u8").view(np.uint8).reshape(-1, NBYTES)


def codes(cmds: Array) -> Array:
    """Return the code of each command's mnemonic, int64 [n]. Raises ProgramError for an unknown funct."""
    funct = np.minimum(cmds[:, 0], 127).astype(np.int64)
    code = np.where(cmds[:, 0] > 127, -1, _CODE_OF[funct])
    for row in np.flatnonzero(code < 0)[:1].tolist():
        functs = ", ".join(str(int(funct)) for funct in Funct)
        raise ProgramError(f"command {row}", f"there is no funct {cmds[row, 0]}", f"the functs are {functs}")
    kind: Array = (cmds[:, 1] & np.uint64(3)).astype(np.int64)
    return code + kind * (code == CODES["config_ex"])


def fields(cmds: Array, code: int) -> dict[str, Array]:
    """Return {field name: int64 [n]} for commands that all have the code `code`."""
    return LAYOUTS[code].decode(raw(cmds))


def encode(name: str, **values: int) -> tuple[int, int, int]:
    """Return one command (funct, rs1, rs2). Raises ProgramError if a value does not fit its field."""
    form = FORMATS[CODES[name]]
    layout = LAYOUTS[CODES[name]]
    funct, rs1, rs2 = commands(layout.encode_rows([form.fixed | values]))[0].tolist()
    return funct, rs1, rs2


def rows_of(name: str, **columns: Array) -> Array:
    """Return n commands of one mnemonic, uint64 [n, 3]. Each argument has the values of one field, int64 [n].

    All other fields are 0. Raises ProgramError if a value does not fit its field.
    """
    form = FORMATS[CODES[name]]
    layout = LAYOUTS[CODES[name]]
    none = np.zeros(len(next(iter(columns.values()))), np.int64)
    values = {name: none + value for name, value in form.fixed.items()} | columns
    return commands(layout.encode({field: values.get(field, none) for field in layout.by_name}))
