"""Random sequences of CFU commands: most of them meaningful, some misuses of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.isa.custom import (
    CHECK,
    CUSTOM,
    DOT,
    FETCH,
    FETCH_CHANNELS,
    FETCH_IMAGE,
    GET,
    GET_IMAGE,
    GET_SRDHM,
    OFF_MAXMIN,
    PUSH_CHANNEL,
    PUSH_IMAGE,
    PUSH_SHIFT,
    PUT,
    RDBPOT,
    SET_A,
    SET_B,
    SET_SRDHM,
    START,
    START_ADD,
    START_CONV,
    START_POOL,
)  # fmt: skip
from tilewright.targets.cfu.isa.state import FIELDS
from tilewright.targets.cfu.runtime.seam import Unit


class Command(NamedTuple):
    """A command of a sequence: it is given `wait` cycles after the CFU can take it.

    With `polls`, check_GEMM follows as often as it answers 1, but at most POLLS times.
    """

    funct7: int
    funct3: int
    a: int
    b: int
    wait: int
    polls: bool = False


#: Most questions after such a command; words that are read back after one that computes.
POLLS, READS = 2000, 10
#: How often a random sequence has an instruction. 9, 99: unknown ones.
OFTEN = {
    **{
        SET_A: 6,
        SET_B: 6,
        START: 3,
        CHECK: 3,
        GET: 6,
        SET_SRDHM: 2,
        GET_SRDHM: 2,
        RDBPOT: 2,
        OFF_MAXMIN: 2,
        9: 1,
        99: 1,
    },
    **{PUT: 4, PUSH_IMAGE: 4, GET_IMAGE: 4, DOT: 4},
}
#: The same with extensions that compute, where layer registers must be set.
COUPLED_OFTEN = {PUT: 25, PUSH_IMAGE: 8, GET_IMAGE: 10, PUSH_CHANNEL: 4, PUSH_SHIFT: 4} | dict.fromkeys(
    (START_CONV, START_ADD, START_POOL), 4
)
FETCHES = (FETCH, FETCH_IMAGE, FETCH_CHANNELS)
#: Bytes of the main memory that random fetches read; a few lie outside.
RAM_BYTES = 4096
#: The values that a sequence puts into layer registers, from the first to before the last; others may have any value.
USUAL = {
    **dict.fromkeys(("IN_H", "IN_W", "OUT_H", "OUT_W"), (1, 7)),
    **dict.fromkeys(("IN_C", "OUT_C"), (1, 40)),
    **dict.fromkeys(("KERNEL_H", "KERNEL_W", "STRIDE_H", "STRIDE_W", "PAD_H", "PAD_W"), (1, 4)),
    **dict.fromkeys(("INPUT", "INPUT2", "OUTPUT", "POINTER"), (-64, 512)),
    **dict.fromkeys(("INPUT_SHIFT", "OUTPUT_SHIFT"), (-20, 4)),
    **dict.fromkeys(("INPUT_MULTIPLIER", "OUTPUT_MULTIPLIER"), (1 << 30, (1 << 31) - 1)),
    **{"LOW": (-128, -60), "HIGH": (60, 128), "ROW": (-2, 8), "FETCH_ROW": (-2, 8), "TABLE": (-2, 24)},
}
#: Registers that must not have any value: a command would run for ever, or compute for too long.
SIZES = ("IN_H", "IN_W", "OUT_H", "OUT_W", "IN_C", "OUT_C", "KERNEL_H", "KERNEL_W")


def random_commands(config: Config, rng: np.random.Generator, count: int) -> Iterator[Command]:
    """Yield `count` random commands.

    Launches are at most three tiles high and wide. None is endless with start=blocking: the CPU would wait for ever.
    With extensions that compute, the layer registers and a part of the image memory are filled first.
    """
    names = set(config.extension_names)
    computes = bool(names - {"resident", "dot"})
    often = OFTEN | COUPLED_OFTEN if computes else OFTEN
    if names & {"dma", "stream"}:
        often = often | dict.fromkeys(FETCHES, 5)
    often = {code: weight for code, weight in often.items() if code < PUT or code not in CUSTOM or config.extensions}
    output, polled = 0, True
    if computes:
        yield from _filled(config, rng)
    weights = np.array(list(often.values()), np.float64)
    for funct7 in rng.choice(list(often), count, p=weights / weights.sum()).tolist():
        a, b = _operands(config, rng, funct7)
        starts = funct7 in (START_CONV, START_ADD, START_POOL)
        wait = int(rng.integers(1, 40 * config.array)) if rng.random() < 0.05 else int(rng.integers(0, 3))
        if funct7 in FETCHES and not polled:
            # What a fetch does to weights in use depends on cycles: it is not modelled.
            yield Command(CHECK, 0, 0, 0, 0, True)
            polled = True
        if funct7 == START_CONV and "overlap" in names:
            # An output that overlaps the input depends on cycles: it is not modelled.
            output = int(rng.integers(4096, 4200))
            yield Command(PUT, 0, FIELDS["OUTPUT"], output, 0)
            yield Command(PUT, 0, FIELDS["INPUT"], int(rng.integers(512)), 0)
        polls = starts and rng.random() < 0.7
        polled = (polled and funct7 != START_CONV) or polls
        yield Command(funct7, int(rng.integers(8)), a, b, wait, polls)
        if funct7 == PUT and a == FIELDS["OUTPUT"]:
            output = b
        if polls:  # look at the results
            yield Command(PUT, 0, FIELDS["POINTER"], output + int(rng.integers(100)), 0)
            yield from [Command(GET_IMAGE, 0, 0, 0, 0)] * READS


def _filled(config: Config, rng: np.random.Generator) -> Iterator[Command]:
    """Yield commands that fill the layer registers, a part of the image memory and, with im2col, tables and weights."""
    for name in FIELDS:
        yield Command(PUT, 0, *_put(rng, name), 0)
    yield Command(PUT, 0, FIELDS["POINTER"], -64, 0)
    for _ in range(72):
        yield Command(PUSH_IMAGE, 0, *_words(rng), 0)
    for code in (SET_B, SET_B, PUSH_CHANNEL, PUSH_SHIFT) * 64 if "im2col" in config.extension_names else ():
        yield Command(code, 0, *_operands(config, rng, code), 0)


def _words(rng: np.random.Generator) -> tuple[int, int]:
    a, b = rng.integers(-(1 << 31), 1 << 31, 2).tolist()
    return a, b


def _put(rng: np.random.Generator, name: str) -> tuple[int, int]:
    """Return operands that put a value into the register `name`."""
    usual = USUAL.get(name, (-(1 << 31), 1 << 31))
    if name in SIZES and rng.random() < 0.02:
        return FIELDS[name], 0
    if name not in SIZES and rng.random() < 0.1:
        usual = (-(1 << 31), 1 << 31)
    return FIELDS[name], int(rng.integers(*usual))


def _operands(config: Config, rng: np.random.Generator, funct7: int) -> tuple[int, int]:
    """Return the operands of a random command, likely ones in most cases."""
    a, b = _words(rng)
    likely = rng.random() < 0.8
    least = 1 if config.start == "blocking" else 0
    if funct7 == START:
        m, n, k = rng.integers(least if rng.random() < 0.1 else 1, 3 * config.array, 3).tolist()
        a = int(rng.integers(2)) << 30 | m << 20 | n << 10 | k
        b = int(rng.integers(-256, 256)) if likely else b
    elif funct7 == RDBPOT:
        b = int(rng.integers(0, 33)) if likely else b
    elif funct7 in (SET_A, SET_B) and config.transfer == "addressed" and likely:
        a = int(rng.integers(config.buffer_rows * config.array // 4))
    elif funct7 == PUT and likely:
        a, b = _put(rng, str(rng.choice(list(FIELDS))))
    elif funct7 == PUT:
        a = int(rng.choice([-1, 28, 30, 32, 1 << 20]))
    elif funct7 in FETCHES and (likely or rng.random() < 0.5):
        a = RAM_BASE + int(rng.integers(-20, RAM_BYTES + 20 if likely else RAM_BYTES - 600))
        b = int(rng.integers(-1, 20 if funct7 == FETCH_CHANNELS else 300))
    elif funct7 == PUSH_SHIFT and likely:
        a = int(rng.integers(-10, 3))
    elif funct7 == PUSH_CHANNEL and likely:
        a = int(rng.integers(-9000, 9000))
    elif funct7 == GET and likely:
        a, b = rng.integers(0, 3 * config.array, 2).tolist()
    elif not likely:
        a, b = rng.choice([-(1 << 31), (1 << 31) - 1, 0, -1, 1 << 30], 2).tolist()
    return a, b


def run(unit: Unit, commands: Iterable[Command]) -> int:
    """Give a CFU commands from cycle 0 on, each when it can take it and its wait is over. Return the cycles."""
    cycle = 0
    for command in commands:
        _, ready = unit.execute(*command[:4], cycle + command.wait)
        cycle, polls = ready + 1, POLLS if command.polls else 0
        while polls:
            works, ready = unit.execute(CHECK, 0, 0, 0, cycle)
            cycle, polls = ready + 1, polls - 1 if works else 0
    return cycle
