"""The custom-0 instructions (number, name, operands, purpose and meaning), and the CFU that executes them.

CFU-Playground's macro is `cfu_op(funct3, funct7, a, b)`. funct3 is 0, and the RTL ignores it. The CFU is the function
`execute(regs, buffers, ram, function, a, b, cycle)`, with `function = funct7 << 3 | funct3`. It writes the answer to
Reg.ANSWER, and the cycle of the answer to Reg.READY. This is the cycle after the command unless the meaning of the
instruction sets Reg.READY. The CPU sends no command before the previous answer is accepted. Values and cycles equal
the author's cfu.v, even if a program misuses the CFU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import Compiled, compiled, part
from tilewright.targets.cfu.config import EXTENSIONS

from . import coupled, dma, gemm
from .state import Misuse, Reg, note


class Role(StrEnum):
    """The purpose of a CFU instruction: to move data, to wait for the array, or to post-process sums."""

    TRANSFER = "transfer"
    WAIT = "waiting for the array"
    POST = "post-processing"


#: Executes one instruction: (regs, buffers, ram, a, b, cycle).
Meaning = Callable[[Array, Array, Array, int, int, int], None]
#: Executes an instruction (regs, buffers, ram, funct7, a, b, cycle). Returns False if the instruction is unknown.
Dispatch = Callable[[Array, Array, Array, int, int, int, int], bool]


class Custom(NamedTuple):
    """A CFU instruction. If `extensions` is not empty, the machine must have one of them."""

    name: str
    operands: str
    role: Role
    about: str
    meaning: Meaning
    extensions: tuple[str, ...] = ()


SET_A, SET_B, START, CHECK, GET, SET_SRDHM, GET_SRDHM, RDBPOT, OFF_MAXMIN = range(9)
PUT, PUSH_IMAGE, GET_IMAGE, PUSH_CHANNEL, PUSH_SHIFT, START_CONV, START_ADD, START_POOL = range(16, 24)
FETCH, DOT, FETCH_IMAGE, FETCH_CHANNELS = range(24, 28)
TRANSFER, WAIT, POST = Role
IM2COL = ("im2col",)

#: Instructions by funct7. Instructions without extensions are in the document.
CUSTOM: dict[int, Custom] = {
    SET_A: Custom(
        "set_matrixA", "upper, lower", TRANSFER, "the next 8 bytes of A, lane 0 in the high byte of upper", gemm.set_a
    ),
    SET_B: Custom("set_matrixB", "upper, lower", TRANSFER, "the next 8 bytes of B", gemm.set_b),
    START: Custom(
        "start_GEMM", "accumulate << 30, M << 20, N << 10, K; offset of A", WAIT, "starts the array", gemm.start
    ),
    CHECK: Custom("check_GEMM", "", WAIT, "1 while the array works", gemm.check),
    GET: Custom(
        "get_matrixC", "", TRANSFER, "the next sum of C; with readout=random the sum in row a, column b", gemm.get
    ),
    SET_SRDHM: Custom(
        "set_SRDHM",
        "a, b",
        POST,
        "latches a * b; with srdhm=single also returns the rounded doubled high half",
        gemm.set_srdhm,
    ),
    GET_SRDHM: Custom("get_SRDHM", "", POST, "the rounded doubled high half of the latched product", gemm.get_srdhm),
    RDBPOT: Custom("RDBPOT", "x, exponent", POST, "x / 2^exponent, to nearest, ties away from zero", gemm.rdbpot),
    OFF_MAXMIN: Custom("off_maxmin", "x, offset", POST, "x + offset, clamped to int8", gemm.off_maxmin),
    PUT: Custom(
        "put", "register, value", WAIT, "sets one of the registers that describe a layer", coupled.put, EXTENSIONS
    ),
    PUSH_IMAGE: Custom(
        "push_image", "first, second", TRANSFER, "8 bytes to image memory", coupled.push_image, EXTENSIONS
    ),
    GET_IMAGE: Custom("get_image", "", TRANSFER, "4 bytes of image memory", coupled.get_image, EXTENSIONS),
    PUSH_CHANNEL: Custom(
        "push_channel", "bias, multiplier", TRANSFER, "a channel's bias and multiplier", coupled.push_channel, IM2COL
    ),
    PUSH_SHIFT: Custom("push_shift", "shift", TRANSFER, "a channel's shift", coupled.push_shift, IM2COL),
    START_CONV: Custom("start_conv", "", WAIT, "starts a convolution on image memory", coupled.start_conv, IM2COL),
    START_ADD: Custom("start_add", "", WAIT, "starts an addition on image memory", coupled.start_add, ("add",)),
    START_POOL: Custom("start_pool", "", WAIT, "starts a pooling on image memory", coupled.start_pool, ("pool",)),
    FETCH: Custom("fetch", "address, bytes", TRANSFER, "rows of B by DMA from RAM", dma.fetch, ("dma",)),
    DOT: Custom(
        "dot",
        "codes, weights",
        POST,
        "adds four products of (code + 128) and weight to the register DOT, and answers with it",
        coupled.dot,
        ("dot",),
    ),
    FETCH_IMAGE: Custom(
        "fetch_image", "address, bytes", TRANSFER, "image memory by DMA from RAM", dma.fetch_image, ("stream",)
    ),
    FETCH_CHANNELS: Custom(
        "fetch_channels",
        "address, channels",
        TRANSFER,
        "bias, multiplier and shift of channels by DMA from RAM",
        dma.fetch_channels,
        ("stream",),
    ),
}
#: For each funct7, a mask of extensions (bits of Reg.EXTENSIONS), of which the machine must have at least one.
NEEDS = np.array(
    [
        sum(1 << EXTENSIONS.index(key) for key in CUSTOM[code].extensions) if code in CUSTOM else 0
        for code in range(128)
    ],
    np.int64,
)


def name(function: int) -> str:
    custom = CUSTOM.get(function >> 3)
    return custom.name if custom and not function & 7 else f"custom0.{function >> 3}.{function & 7}"


def _dispatched(codes: Iterable[int]) -> Dispatch:
    # Compiled code cannot have a table of functions, so the functions form a chain. Each function compares `funct7`
    # with its own number, and calls the next function if the numbers differ. LLVM inlines the whole chain.

    def nothing(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
        return False

    chain: Dispatch = nothing
    for code in reversed([*codes]):
        chain = _or_else(code, CUSTOM[code].meaning, chain)
    return chain


def _or_else(code: int, meaning: Meaning, others: Dispatch) -> Dispatch:
    def dispatch(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
        if funct7 == code:
            meaning(regs, buffers, ram, a, b, cycle)
            return True
        return others(regs, buffers, ram, funct7, a, b, cycle)

    dispatch.__qualname__ = f"dispatch_{CUSTOM[code].name}"  # a unique name, which Numba uses in the machine code
    return part(dispatch)


_documented = _dispatched(code for code, custom in CUSTOM.items() if not custom.extensions)
_extended = _dispatched(code for code, custom in CUSTOM.items() if custom.extensions)


@compiled
def execute(regs: Array, buffers: Array, ram: Array, function: int, a: int, b: int, cycle: int) -> None:
    """Execute a command in `cycle`, in a CFU without extensions: custom-0 with `funct7 << 3 | funct3`."""
    begin(regs, buffers, function, cycle)
    executed = _documented(regs, buffers, ram, function >> 3, a, b, cycle)
    if function & 7 or not executed:
        note(regs, Misuse.UNKNOWN, cycle, function)


@compiled
def execute_extended(regs: Array, buffers: Array, ram: Array, function: int, a: int, b: int, cycle: int) -> None:
    begin(regs, buffers, function, cycle)
    executed = _documented(regs, buffers, ram, function >> 3, a, b, cycle)
    if not executed and NEEDS[function >> 3] & regs[Reg.EXTENSIONS]:
        executed = _extended(regs, buffers, ram, function >> 3, a, b, cycle)
    if function & 7 or not executed:
        note(regs, Misuse.UNKNOWN, cycle, function)


def begin(regs: Array, buffers: Array, function: int, cycle: int) -> None:
    """Do the work of the CFU in all earlier cycles, and record the command in the registers."""
    regs[Reg.FUNCT7] = function >> 3
    regs[Reg.READY] = cycle + 1
    gemm.settle(regs, buffers, cycle)


def model(regs: Array) -> Compiled[[Array, Array, Array, int, int, int, int], None]:
    return execute_extended if regs[Reg.EXTENSIONS] else execute
