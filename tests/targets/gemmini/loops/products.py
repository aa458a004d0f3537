"""Random legal programs of LOOP_WS, with their results by NumPy's matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.targets.gemmini.loops.machine import (
    BASE,
    FENCE,
    Memory,
    bits,
    config_execute,
    config_load,
    config_store,
    leaving,
    matrix,
)
from tilewright.array import Array
from tilewright.targets.gemmini.config import Config

Commands = list[tuple[int, int, int]]


@dataclass
class Case:
    """A program, DRAM before it, and the bytes of results by address."""

    commands: Commands
    dram: Array
    results: dict[int, Array]

    def wrong(self, after: Array) -> list[int]:
        """Return the addresses of results that differ; also those of bytes outside the results that changed."""
        expected = self.dram.copy()
        for address, values in self.results.items():
            raw = np.ascontiguousarray(values).view(np.uint8).ravel()
            expected[address - BASE : address - BASE + len(raw)] = raw
        return (BASE + np.flatnonzero(expected != after)).tolist()


def loop(
    i: int,
    j: int,
    k: int,
    pads: tuple[int, ...],
    addresses: dict[str, int],
    strides: dict[str, int],
    rs1: int,
    rs2: int,
) -> Commands:
    """Return a LOOP_WS with its configuration; strides in elements."""
    at = {"a": 0, "b": 0, "c": 0, "d": 0} | addresses
    by = {"a": 0, "b": 0, "c": 0, "d": 0} | strides
    return [
        (9, bits(*zip(pads, (0, 16, 32), strict=True)), bits((i, 0), (j, 16), (k, 32))),
        (10, at["a"], at["b"]),
        (11, at["d"], at["c"]),
        (12, by["a"], by["b"]),
        (13, by["d"], by["c"]),
        (8, rs1, rs2),
    ]


def product(rng: np.random.Generator, config: Config) -> Case:
    """Return a random program of a few products, each of one or more loops that accumulate over k."""
    memory, commands, results = Memory(rng), Commands(), dict[int, Array]()
    for number in range(int(rng.integers(1, 4))):
        if number and rng.random() < 0.5:
            commands.append(FENCE)
        _product(rng, config, memory, commands, results)
    commands.append(FENCE)
    return Case(commands, memory.whole(), results)


def _sizes(rng: np.random.Generator, config: Config) -> Iterator[int]:
    """Yield blocks i, j, k of a legal loop."""
    while True:
        i, j, k = rng.integers(1, 7, 3).tolist()
        fits = (i * k + k * j) * config.dim <= config.all_spad_rows // 2 and i * j * config.dim <= config.acc_rows // 2
        if fits:
            yield from (i, j, k)
            return


def _product(
    rng: np.random.Generator, config: Config, memory: Memory, commands: Commands, results: dict[int, Array]
) -> None:
    dim = config.dim
    i, j, k = _sizes(rng, config)
    pads = rng.integers(0, dim, 3).tolist()
    rows, columns = i * dim - pads[0], j * dim - pads[1]
    transposes = [(0, 0), (1, 0), (0, 1)][rng.integers(3)]
    full, relu, scale = rng.random() < 0.3, bool(rng.random() < 0.5), float(rng.choice([1.0, 0.25, 0.0371, 2.5]))
    total, d_wide = np.zeros((rows, columns), np.int64), None
    kind = str(rng.choice(["none", "full", "repeated", "low"]))
    strides = {}
    if kind != "none":
        d, d_wide = matrix(rng, 1 if kind == "repeated" else rows, columns, np.int8 if kind == "low" else np.int32, 100)
        total, strides["d"] = total + d, 0 if kind == "repeated" else d_wide.shape[1]
    _, c_wide = matrix(rng, rows, columns, np.int32 if full else np.int8, 100)
    c_address = memory.put(c_wide)
    d_address = 0 if d_wide is None else memory.put(d_wide)
    d_size = 1 if kind == "low" else 4
    strides["c"] = c_wide.shape[1]
    commands += [
        config_execute(*transposes),
        config_store(strides["c"] * (4 if full else 1), scale, int(relu)),
        config_load(2, strides.get("d", 0) * d_size, int(kind == "low"), dim),
    ]
    steps = int(rng.integers(1, 4))
    for step in range(steps):
        pad_k = pads[2] if step == steps - 1 else 0
        depth = k * dim - pad_k
        a, a_wide = matrix(rng, *((depth, rows) if transposes[0] else (rows, depth)))
        b, b_wide = matrix(rng, *((columns, depth) if transposes[1] else (depth, columns)))
        strides |= {"a": a_wide.shape[1], "b": b_wide.shape[1]}
        total = total + (a.T if transposes[0] else a).astype(np.int64) @ (b.T if transposes[1] else b).astype(np.int64)
        addresses = {"a": memory.put(a_wide), "b": memory.put(b_wide)}
        addresses |= {"c": c_address} if step == steps - 1 else {}
        addresses |= {"d": d_address} if step == 0 else {}
        commands += [config_load(0, strides["a"], 0, dim), config_load(1, strides["b"], 0, dim)]
        flags = (int(step > 0 or kind != "none"), 0), (int(full), 1), (int(kind == "low"), 2), (int(relu), 8)
        commands += loop(
            i,
            j,
            k,
            (pads[0], pads[1], pad_k),
            addresses,
            strides,
            bits(*flags),
            bits((transposes[0], 0), (transposes[1], 1)),
        )
    stored = c_wide.copy()
    stored[:, :columns] = total.astype(np.int32) if full else leaving(total, scale, relu)
    results[c_address] = stored


def residual(rng: np.random.Generator, config: Config) -> Case:
    """Return a random residual addition: int8 matrices, each multiplied by 1, added, and scaled on the way out."""
    dim, memory = config.dim, Memory(rng)
    while True:
        i, j = rng.integers(1, 7, 2).tolist()
        if i * j * dim <= config.acc_rows // 2:
            break
    pads = rng.integers(0, dim, 2).tolist()
    rows, columns = i * dim - pads[0], j * dim - pads[1]
    relu, scale = bool(rng.random() < 0.5), float(rng.choice([1.0, 0.5, 0.171]))
    # B is loaded in whole rows of blocks: the pad is read as well.
    (a, a_wide), (b, b_wide), (_, c_wide) = (matrix(rng, size, columns, limit=100) for size in (rows, i * dim, rows))
    addresses = {name: memory.put(wide) for name, wide in (("a", a_wide), ("b", b_wide), ("c", c_wide))}
    strides = {"a": a_wide.shape[1], "b": b_wide.shape[1], "c": c_wide.shape[1]}
    commands = [
        config_execute(),
        config_store(strides["c"], scale, int(relu)),
        config_load(0, strides["a"], 1, dim),
        config_load(1, strides["b"], 1, dim),
        *loop(i, j, 0, (pads[0], pads[1], 0), addresses, strides, bits((int(relu), 8)), bits((1, 2))),
        FENCE,
    ]
    stored = c_wide.copy()
    stored[:, :columns] = leaving(a.astype(np.int64) + b[:rows], scale, relu)
    return Case(commands, memory.whole(), {addresses["c"]: stored})
