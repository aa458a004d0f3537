"""Random programs of primitive commands, as (mnemonic, fields), whose operands lie inside the memories."""

from __future__ import annotations

import numpy as np

from tests.targets.gemmini.reference import NOTHING, Fields
from tilewright.array import Array
from tilewright.sim.findings import Finding
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import fields
from tilewright.targets.gemmini.passes import Passes

BASE = 0x8000_0000
ACC, ADD, FULL = 1 << 31, 1 << 30, 1 << 29
#: Rows of each memory that random programs use: few, so that commands meet.
ROWS = 96
Program = list[tuple[str, Fields]]


def dumped(config: Config) -> int:
    """Return the bytes that `Writer.dump` stores."""
    return ROWS * config.dim * 5


def bits(scale: float) -> int:
    return int(np.float32(scale).view(np.uint32))


def encoded(program: Program) -> Array:
    """Return commands as uint64 [n, 3]."""
    words = []
    for name, values in program:
        names = fields.LAYOUTS[fields.CODES[name]].by_name
        words.append(fields.encode(name, **{key: value for key, value in values.items() if key in names}))
    return np.array(words, np.uint64)


class Writer:
    """A program that grows by random commands; `size` bytes of DRAM begin at BASE."""

    def __init__(self, rng: np.random.Generator, config: Config, size: int) -> None:
        self.rng, self.config, self.size = rng, config, size
        self.program: Program = []

    def pick(self, *values: float) -> float:
        return values[int(self.rng.integers(len(values)))]

    def below(self, high: int) -> int:
        return int(self.rng.integers(high))

    def upto(self, high: int) -> int:
        return 1 + self.below(high)

    def add(self, name: str, **own: float) -> None:
        self.program.append((name, own))

    def load(self) -> None:
        """Add a config_ld and an mvin: data or zeros, into the scratchpad or the accumulator."""
        dim, state = self.config.dim, self.below(3)
        acc, zeros = self.rng.random() < 0.4, self.rng.random() < 0.1
        shrunk = int(acc and not zeros and self.rng.random() < 0.5)
        wide = acc and not shrunk
        blocks = self.upto(self.config.acc_blocks if wide else self.config.spad_blocks)
        rows, cols = self.upto(dim), (blocks - 1) * dim + self.upto(dim)
        scale = float(self.pick(1.0, 1.0, 0.5, -1.75))
        stride, pixels = int(self.pick(0, 17, 64, 100)), 1
        if not acc and self.rng.random() < 0.2:
            pixels = self.upto(3)
            cols = self.upto(dim // pixels)
        self.add(
            "config_ld", state=state, pixels=pixels, block_stride=dim, shrunk=shrunk, stride=stride, scale=bits(scale),
            scale_value=1.0 if wide else scale,
        )  # fmt: skip
        local = self.below(ROWS - blocks * dim) | (ACC | ADD * int(self.rng.random() < 0.5) if acc else 0)
        room = self.size - (rows * stride + cols * (4 if wide else 1))
        dram = 0 if zeros else BASE + self.below(room)
        self.add(("mvin", "mvin2", "mvin3")[state], dram=dram, local=local, cols=cols, rows=rows)

    def store(self, pooled: bool = False) -> None:
        """Add a config_st and an mvout to the second half of DRAM."""
        dim, kind = self.config.dim, self.below(3)  # spad, acc, acc in full
        cols = self.upto(dim) if kind == 2 or pooled else self.upto(2 * dim)
        rows, stride, scale = self.upto(dim), 64, float(self.pick(1.0, 0.01, -0.03))
        pool: Fields = dict.fromkeys(("pool_stride", "pool_size", "upad", "lpad", "out_dim", "porows", "pocols"), 0)
        pool |= {"orows": 0, "ocols": 0}
        if pooled and kind < 2:
            size, step = self.upto(3), self.upto(2)
            pad = self.below(size)
            pool = {"pool_stride": step, "pool_size": size, "upad": pad, "lpad": self.below(size), "out_dim": 3}
            pool |= {"porows": 2, "pocols": 3, "orows": 3, "ocols": 4}
        self.add("config_st", activation=self.below(2), stride=stride, scale=bits(scale), **pool, scale_value=scale)
        local = self.below(ROWS - 2 * dim) | (0, ACC, ACC | FULL)[kind]
        dram = BASE + self.size // 2 + self.below(self.size // 2 - dim * stride - 8 * dim)
        self.add("mvout", dram=dram, local=local, cols=cols, rows=rows)

    def dump(self) -> None:
        """Add stores of all rows of both memories behind the other bytes of DRAM."""
        dim, at = self.config.dim, BASE + self.size
        none = dict.fromkeys(("pool_stride", "pool_size"), 0)
        for local, stride in ((0, dim), (ACC | FULL, 4 * dim)):
            self.add("config_st", activation=0, stride=stride, scale=bits(1.0), **none, scale_value=1)
            for row in range(0, ROWS, dim):
                self.add("mvout", dram=at, local=local + row, cols=dim, rows=dim)
                at += dim * stride

    def row(self) -> int:
        """Return a row with room for two blocks."""
        return self.below(ROWS - 2 * self.config.dim)

    def compute(self) -> None:
        """Add a config_ex at times, a preload and a compute."""
        dim = self.config.dim
        if not any(name == "config_ex" for name, _ in self.program) or self.rng.random() < 0.3:
            ws = int(self.rng.random() < 0.6)
            flags = [(0, 0), (1, 0), (0, 1)] if ws else [(0, 0), (1, 0), (1, 1)]
            a, b = flags[self.below(3)]
            own = {"transpose_a": a, "transpose_b": b, "shift": self.below(8), "activation": self.below(2)}
            self.add("config_ex", dataflow=ws, a_stride=self.upto(2), c_stride=1, only_strides=0, **own)
        rows, depth, cols = self.upto(dim), self.upto(dim), self.upto(dim)
        state = next(own for name, own in reversed(self.program) if name == "config_ex")
        fresh = self.rng.random() < 0.6
        c = (self.row(), self.row() | ACC, self.row() | ACC | ADD, NOTHING)[self.below(4)]
        bd_rows = (depth if state["dataflow"] else rows) if fresh else dim
        bd = self.row() if fresh and self.rng.random() < 0.8 else NOTHING
        self.add("preload", bd=bd, bd_cols=cols, bd_rows=bd_rows, c=c, c_cols=cols, c_rows=rows)
        d_rows = rows if state["dataflow"] else depth
        d = self.row() if not state["dataflow"] or self.rng.random() < 0.5 else NOTHING
        name = "compute_preloaded" if fresh else "compute_accumulated"
        self.add(name, a=self.row(), a_cols=depth, a_rows=rows, bd=d, bd_cols=cols, bd_rows=d_rows)


def program(rng: np.random.Generator, config: Config, size: int, length: int) -> Program:
    """Return a random program of about `length` moves and computes."""
    writer = Writer(rng, config, size)
    for _ in range(6):
        writer.load()
    for _ in range(length):
        choice = rng.random()
        if choice < 0.35:
            writer.load()
        elif choice < 0.7:
            writer.compute()
        else:
            writer.store(pooled=bool(rng.random() < 0.3))
    writer.dump()
    return writer.program


#: Commands of the tests of hazards.
FENCE: Program = [("fence", {})]
LOAD: Program = [("config_ld", {"state": 0, "pixels": 1, "block_stride": 16, "stride": 16, "scale": bits(1.0)})]
STORE: Program = [("config_st", {"stride": 16, "scale": bits(1.0)})]
WS: Program = [("config_ex", {"dataflow": 1, "a_stride": 1, "c_stride": 1})]
OS: Program = [("config_ex", {"dataflow": 0, "a_stride": 1, "c_stride": 1})]


def mvin(row: int, dram: int = BASE, rows: int = 16, **own: int) -> Program:
    return [("mvin", {"dram": dram, "local": row, "cols": 16, "rows": rows, **own})]


def mvout(row: int, dram: int = BASE + 1024, **own: int) -> Program:
    return [("mvout", {"dram": dram, "local": row, "cols": 16, "rows": 16, **own})]


def pair(a: int, c: int, w: int = NOTHING, rows: int = 16, d: int = NOTHING, **own: int) -> Program:
    """Return a preload and a compute, which keeps the weights if `w` is NOTHING."""
    name = "compute_accumulated" if w == NOTHING else "compute_preloaded"
    sizes = {"bd_cols": 16, "bd_rows": 16}
    first = {"bd": w, **sizes, "c": c, "c_cols": 16, "c_rows": rows, **own}
    second = {"a": a, "a_cols": 16, "a_rows": rows, "bd": d, "bd_cols": 16, "bd_rows": rows}
    return [("preload", first), (name, second)]


def findings(commands: Program, **keys: str) -> tuple[Finding, ...]:
    return Passes(encoded(commands), Config.read(None, keys)).hazards.findings
