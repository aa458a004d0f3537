"""The registers of the two loop unrollers: which command sets which field, and where the field lies.

Source: LoopMatmul.scala and LoopConv.scala (ucb-bar/gemmini at 8c3f992). The build `both` of the golden vectors has an
older layout of LOOP_CONV_WS, with which no program of the vectors ran.
"""

from __future__ import annotations

from typing import NamedTuple

#: Numbers of commands: the two that start a loop, and primitive commands that loops issue.
CONFIG, MVIN2, MVIN, MVOUT, COMPUTE_PRELOADED, COMPUTE_ACCUMULATED, PRELOAD, MVIN3 = 0, 1, 2, 3, 4, 5, 6, 14
LOOP_WS, LOOP_CONV_WS = 8, 15
#: Commands that never reach the reservation station: flush, counter access, fence.
FLUSH, COUNTER, FENCE = 7, 126, 127
#: The unrollers. HOST marks primitive commands of the program itself.
HOST, MATMUL, CONV = 0, 1, 2
ADDRESS_BITS = 40  # of a DRAM address or stride in a register (coreMaxAddrBits of both generated builds)


class Field(NamedTuple):
    """A register of an unroller: `bits` bits of word `word` (1: rs1, 2: rs2) of a command, from bit `low` on."""

    name: str
    word: int
    low: int
    bits: int


def _halves(word: int, *names: str) -> tuple[Field, ...]:
    """Return fields of 16 bits, the lowest first."""
    return tuple(Field(name, word, 16 * place, 16) for place, name in enumerate(names))


def _pair(first: str, second: str) -> tuple[Field, ...]:
    """Return two fields that each fill a word, of which the hardware keeps the bits of an address."""
    return Field(first, 1, 0, ADDRESS_BITS), Field(second, 2, 0, ADDRESS_BITS)


def _flags(word: int, low: int, *names: str) -> tuple[Field, ...]:
    return tuple(Field(name, word, low + place, 1) for place, name in enumerate(names))


#: The fields of each command of LOOP_WS, by the command's number.
MATMUL_FIELDS: dict[int, tuple[Field, ...]] = {
    9: (*_halves(1, "pad_i", "pad_j", "pad_k"), *_halves(2, "i", "j", "k")),
    10: _pair("a", "b"),
    11: _pair("d", "c"),
    12: _pair("a_stride", "b_stride"),
    13: _pair("d_stride", "c_stride"),
    LOOP_WS: (
        *_flags(1, 0, "accumulate", "full_c", "low_d"),
        Field("activation", 1, 8, 3),
        Field("b_half", 1, 16, 2),
        Field("a_half", 1, 18, 2),
        *_flags(2, 0, "a_transposed", "b_transposed", "residual"),
    ),
}

#: The fields of each command of LOOP_CONV_WS, by the command's number.
CONV_FIELDS: dict[int, tuple[Field, ...]] = {
    16: (
        *_halves(1, "batch_size", "in_row_dim", "in_channels", "out_channels"),
        *_halves(2, "out_row_dim", "pool_out_row_dim", "out_col_dim"),
        Field("stride", 2, 48, 8),
        Field("padding", 2, 56, 8),
    ),
    17: (
        Field("pool_padding", 1, 0, 8),
        Field("pool_stride", 1, 8, 8),
        Field("pool_size", 1, 16, 16),
        Field("pool_out_col_dim", 1, 32, 16),
        Field("kernel_dim", 1, 48, 16),
        *_halves(2, "pochs", "pocols", "porows", "batches"),
    ),
    18: (
        *_halves(1, "lpad", "kchs", "kcols", "krows"),
        Field("in_col_dim", 2, 0, 16),
        Field("plpad", 2, 16, 8),
        Field("dpad", 2, 24, 8),
        Field("upad", 2, 32, 16),
        Field("rpad", 2, 48, 16),
    ),
    19: (
        Field("dilation", 1, 0, 10),
        Field("pdpad", 1, 10, 11),
        Field("pupad", 1, 21, 11),
        Field("prpad", 1, 32, 16),
        Field("orows", 1, 48, 16),
        *_halves(2, "ocols", "out_stride", "weight_stride", "in_stride"),
    ),
    20: _pair("weights", "output"),
    21: _pair("bias", "input"),
    LOOP_CONV_WS: (
        *_flags(1, 0, "no_bias", "rotate", "out_1203", "weight_1203", "weight_0132", "in_3120", "depthwise"),
        Field("pixels", 1, 8, 8),
        Field("b_half", 1, 16, 2),
        Field("a_half", 1, 18, 2),
        *_flags(2, 0, "no_pool", "downsample", "dilated"),
        Field("activation", 2, 3, 2),
    ),
}

#: The unroller that a command configures or starts, by the command's number.
UNROLLER = dict.fromkeys(MATMUL_FIELDS, MATMUL) | dict.fromkeys(CONV_FIELDS, CONV)
FIELDS = MATMUL_FIELDS | CONV_FIELDS


def read(funct: int, rs1: int, rs2: int) -> dict[str, int]:
    """Return the registers that a command sets, by name."""
    return {name: ((rs1, rs2)[word - 1] >> low) & ((1 << bits) - 1) for name, word, low, bits in FIELDS[funct]}
