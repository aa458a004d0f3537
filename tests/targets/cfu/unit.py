"""The CFU model without a CPU: one command after the other, as fast as it takes them."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.state import Note, Reg, notes
from tilewright.targets.cfu.runtime.seam import ModelUnit

SET_A, SET_B, START, CHECK, GET, SET_SRDHM, GET_SRDHM, RDBPOT, CLAMP = range(9)


class Unit(ModelUnit):
    """State of one CFU; `cycle` is when it takes the next command."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        super().__init__(self.config)
        self.cycle = 0

    def op(self, funct7: int, a: int = 0, b: int = 0, funct3: int = 0) -> int:
        value, ready = self.execute(funct7, funct3, a, b, self.cycle)
        self.cycle = ready + 1
        return value

    @property
    def notes(self) -> list[Note]:
        return list(notes(self.regs))

    @property
    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]

    def rows(self, which: int, values: Array) -> None:
        """Write rows (count, lanes) of int8 to A (0) or B (1), from the first row on."""
        words = values.astype(np.int8).view(">i4").astype(np.int64).ravel().tolist()
        if self.config.transfer == "addressed":
            for address, word in enumerate(words):
                self.op(which, address, word)
        elif self.config.array == 4:
            for word in words:
                self.op(which, 0, word)
        else:
            for upper, lower in zip(words[::2], words[1::2], strict=True):
                self.op(which, upper, lower)

    def load(self, a: Array, b: Array) -> None:
        """Write a (M, K) and b (K, N) as the buffers hold them, the last tile filled up with ones."""
        n = self.config.array
        for which, matrix in ((SET_A, a), (SET_B, b.T)):
            tiles = -(-len(matrix) // n)
            padded = np.ones((tiles * n, matrix.shape[1]), np.int8)
            padded[: len(matrix)] = matrix
            rows = padded.reshape(tiles, n, -1).swapaxes(1, 2).reshape(-1, n)
            self.rows(which, np.ascontiguousarray(rows))

    def start(self, m: int, n: int, k: int, offset: int = 0, accumulate: bool = False) -> None:
        self.op(START, accumulate << 30 | m << 20 | n << 10 | k, offset)

    def wait(self) -> None:
        while self.op(CHECK):
            pass

    def sums(self, m: int, n: int) -> Array:
        """Read C (m, n)."""
        lanes = self.config.array
        if self.config.readout == "random":
            return np.array([[self.op(GET, i, j) for j in range(n)] for i in range(m)])
        tiles = -(-n // lanes)
        values = np.array([self.op(GET) for _ in range(tiles * m * lanes)])
        return values.reshape(tiles, m, lanes).swapaxes(0, 1).reshape(m, -1)[:, :n]

    @property
    def busy_cycles(self) -> int:
        return int(self.regs[Reg.BUSY_CYCLES])
