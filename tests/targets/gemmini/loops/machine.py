"""Programs for tests: command words by hand, DRAM with operands, and a run of the value pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import work
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.values.machine import Machine, plan

BASE = 0x8000_0000
FENCE = (127, 0, 0)


def bits(*fields: tuple[int, int]) -> int:
    """Return a word from values and their first bits."""
    return sum(int(value) << low for value, low in fields)


def single(value: float) -> int:
    """Return the bits of a float32."""
    return int(np.float32(value).view(np.uint32))


def config_load(state: int, stride: int, shrunk: int = 0, block_stride: int = 16) -> tuple[int, int, int]:
    return 0, bits((1, 0), (shrunk, 2), (state, 3), (1, 8), (block_stride, 16), (single(1.0), 32)), stride


def config_store(stride: int, scale: float, activation: int) -> tuple[int, int, int]:
    return 0, bits((2, 0), (activation, 2)), bits((stride, 0), (single(scale), 32))


def config_execute(
    transpose_a: int = 0, transpose_b: int = 0, a_stride: int = 1, c_stride: int = 1
) -> tuple[int, int, int]:
    fields = (1, 2), (transpose_a, 8), (transpose_b, 9), (a_stride, 16), (single(1.0), 32)
    return 0, bits(*fields), bits((c_stride, 48))


@dataclass
class Memory:
    """DRAM that is filled from the start; operands are apart by random gaps."""

    rng: np.random.Generator
    data: list[Array] = field(default_factory=list)
    end: int = 0

    def put(self, values: Array) -> int:
        """Store an array and return its address."""
        gap = int(self.rng.integers(0, 40))
        content = np.concatenate(
            [self.rng.integers(0, 256, gap, np.uint8), np.ascontiguousarray(values).view(np.uint8).ravel()]
        )
        self.data.append(content)
        self.end += len(content)
        return BASE + self.end - values.nbytes

    def whole(self) -> Array:
        """Return all bytes, uint8; behind the last operand lie some that a loop may read beyond it."""
        return np.concatenate([*self.data, np.zeros(4096, np.uint8)])


def matrix(
    rng: np.random.Generator, rows: int, columns: int, dtype: type = np.int8, limit: int = 8
) -> tuple[Array, Array]:
    """Return random integers (rows, columns) below `limit`, and a wider array of which they are the left columns."""
    wide: Array = rng.integers(-limit, limit, (rows, columns + int(rng.integers(0, 9)))).astype(dtype)
    return wide[:, :columns], wide


def executed(commands: list[tuple[int, int, int]], config: Config, dram: Array) -> Array:
    """Return DRAM after a program, uint8."""
    expansion = expand(np.array(commands, np.uint64), config)
    return executed_in(expansion.prims[expansion.order], config, dram)


def executed_in(prims: Array, config: Config, dram: Array) -> Array:
    """Return DRAM after primitive commands one after the other, uint8."""
    memory = Dram([Segment("dram", BASE, dram.reshape(1, -1).copy())])
    Machine(config, memory, 1).run(plan(work(prims, config), config), np.arange(len(prims)))
    return memory["dram"][0]


def leaving(total: Array, scale: float, relu: bool) -> Array:
    """Return what leaves the accumulator as int8: ReLU, then scaled in float32, rounded half to even, saturated."""
    kept = np.maximum(total, 0) if relu else total
    return np.clip(np.rint(kept.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)
