"""The data memories of the machine, and the effect of each instruction on them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.array import exact_matmul
from tilewright.program.launch_image import Dram

from .config import Config
from .isa import Opcode


class Machine:
    """The data memories for S samples that run at once: `buf` int8 (S, bytes) and `acc` int32 (S, accumulators)."""

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.dram = dram
        self.samples = samples
        self.buf = np.zeros((samples, config.buffer_bytes), np.int8)
        self.acc = np.zeros((samples, config.accumulators), "<i4")

    def execute(self, row: Mapping[str, int], where: str) -> None:
        """Execute one decoded instruction. `where` names the instruction in errors."""
        {Opcode.LOAD: self._load, Opcode.DOT: self._dot, Opcode.STORE: self._store}[Opcode(row["opcode"])](row, where)

    def _load(self, row: Mapping[str, int], where: str) -> None:
        data = self.dram.window(row["dram"], 1, row["length"], 0, where)[:, 0]
        self.buf[:, row["buf"] : row["buf"] + row["length"]] = data.view(np.int8)

    def _store(self, row: Mapping[str, int], where: str) -> None:
        acc = np.ascontiguousarray(self.acc[:, row["acc"] : row["acc"] + row["count"]])
        self.dram.writable(self.samples, row["dram"], 1, 4 * row["count"], 0, where)[:, 0] = acc.view(np.uint8)

    def _dot(self, row: Mapping[str, int], where: str) -> None:
        length = row["length"]
        count = row["count"]
        # int8 minus a zero point needs 9 bits, which float32 holds exactly.
        inputs = self.buf[:, row["buf"] : row["buf"] + length].astype(np.float32) - np.float32(row["zero"])
        weights = self.buf[:, row["wgt"] : row["wgt"] + length * count].reshape(self.samples, count, length)
        acc = self.acc[:, row["acc"] : row["acc"] + count]
        if row["clear"]:
            acc[:] = 0
        acc += exact_matmul(inputs[:, None], weights.swapaxes(1, 2), 255, 128)[:, 0]
