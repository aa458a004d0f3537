"""The custom-0 instructions (number, name, operands, purpose and meaning), and the CFU that executes them.

CFU-Playground's macro is `cfu_op(funct3, funct7, a, b)`. funct3 is 0; the RTL ignores it. The CFU is the function
`execute(regs, buffers, ram, funct7, funct3, a, b, cycle) -> (value, ready cycle)`. Values and cycles equal those of the
author's cfu.v, even if a program misuses the CFU. The answer is ready in the cycle after the command unless the meaning
sets Reg.READY. The CPU loop gives no new command before the last answer is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import EXTENSIONS
from tilewright.targets.cfu.jit import callee

from . import coupled, dma, gemm
from .state import Misuse, Reg, note


class Role(StrEnum):
    """The purpose of a CFU instruction: it moves data, waits for the array, or post-processes sums."""

    TRANSFER = "transfer"
    WAIT = "waiting for the array"
    POST = "post-processing"


class Custom(NamedTuple):
    """A CFU instruction. `meaning` takes (regs, buffers, ram, a, b, cycle). It needs one of `extensions`, if any."""

    name: str
    operands: str
    role: Role
    about: str
    meaning: Callable[[Array, Array, Array, int, int, int], None]
    extensions: tuple[str, ...] = ()


SET_A, SET_B, START, CHECK, GET, SET_SRDHM, GET_SRDHM, RDBPOT, OFF_MAXMIN = range(9)
(
    PUT,
    PUSH_IMAGE,
    GET_IMAGE,
    PUSH_CHANNEL,
    PUSH_SHIFT,
    START_CONV,
    START_ADD,
    START_POOL,
    FETCH,
    DOT,
    FETCH_IMAGE,
    FETCH_CHANNELS,
) = range(16, 28)
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
#: By funct7, a mask of extensions (bits of Reg.EXTENSIONS). The machine must have one of them.
NEEDS = np.array(
    [
        sum(1 << EXTENSIONS.index(key) for key in CUSTOM[code].extensions) if code in CUSTOM else 0
        for code in range(128)
    ],
    np.int64,
)


def name(function: int) -> str:
    """Return the name of the CFU instruction with the number `function`, which is `funct7 << 3 | funct3`."""
    known = CUSTOM.get(function >> 3)
    return known.name if known and not function & 7 else f"custom0.{function >> 3}.{function & 7}"


def make_execute(build: int, beyond: Callable[..., bool]) -> Callable[..., tuple[int, int]]:
    """Return the CFU's function, uncompiled. `build` is `jit.version()`; `beyond` is `extended` or `absent`."""

    def execute(
        regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
    ) -> tuple[int, int]:
        """Execute the command that the CFU takes in `cycle`. Return the answer and the cycle in which it is ready."""
        _ = build
        regs[Reg.FUNCT7], regs[Reg.READY] = funct7, cycle + 1
        gemm.settle(regs, buffers, cycle)
        known = True
        if funct7 == SET_A:
            gemm.set_a(regs, buffers, ram, a, b, cycle)
        elif funct7 == SET_B:
            gemm.set_b(regs, buffers, ram, a, b, cycle)
        elif funct7 == START:
            gemm.start(regs, buffers, ram, a, b, cycle)
        elif funct7 == CHECK:
            gemm.check(regs, buffers, ram, a, b, cycle)
        elif funct7 == GET:
            gemm.get(regs, buffers, ram, a, b, cycle)
        elif funct7 == SET_SRDHM:
            gemm.set_srdhm(regs, buffers, ram, a, b, cycle)
        elif funct7 == GET_SRDHM:
            gemm.get_srdhm(regs, buffers, ram, a, b, cycle)
        elif funct7 == RDBPOT:
            gemm.rdbpot(regs, buffers, ram, a, b, cycle)
        elif funct7 == OFF_MAXMIN:
            gemm.off_maxmin(regs, buffers, ram, a, b, cycle)
        else:
            known = beyond(regs, buffers, ram, funct7, a, b, cycle)
        if funct3 or not known:
            note(regs, Misuse.UNKNOWN, cycle, funct7 << 3 | funct3)
        return regs[Reg.ANSWER], regs[Reg.READY]

    # Numba names machine code after the function, and a process may hold both kinds.
    execute.__qualname__ = f"execute_{beyond.__name__}"
    return execute


@callee
def extended(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
    """Execute a CFU instruction of the machine's extensions. Return False if `funct7` is not one of them, else True."""
    if not NEEDS[funct7] & regs[Reg.EXTENSIONS]:
        return False
    if funct7 == PUT:
        coupled.put(regs, buffers, ram, a, b, cycle)
    elif funct7 == PUSH_IMAGE:
        coupled.push_image(regs, buffers, ram, a, b, cycle)
    elif funct7 == GET_IMAGE:
        coupled.get_image(regs, buffers, ram, a, b, cycle)
    elif funct7 == PUSH_CHANNEL:
        coupled.push_channel(regs, buffers, ram, a, b, cycle)
    elif funct7 == PUSH_SHIFT:
        coupled.push_shift(regs, buffers, ram, a, b, cycle)
    elif funct7 == START_CONV:
        coupled.start_conv(regs, buffers, ram, a, b, cycle)
    elif funct7 == START_ADD:
        coupled.start_add(regs, buffers, ram, a, b, cycle)
    elif funct7 == START_POOL:
        coupled.start_pool(regs, buffers, ram, a, b, cycle)
    elif funct7 == FETCH:
        dma.fetch(regs, buffers, ram, a, b, cycle)
    elif funct7 == FETCH_IMAGE:
        dma.fetch_image(regs, buffers, ram, a, b, cycle)
    elif funct7 == FETCH_CHANNELS:
        dma.fetch_channels(regs, buffers, ram, a, b, cycle)
    else:
        coupled.dot(regs, buffers, ram, a, b, cycle)
    return True


@callee
def absent(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
    """Stand in for `extended` in a machine without extensions: execute nothing and return False."""
    return False
