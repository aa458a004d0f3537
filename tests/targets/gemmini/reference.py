"""A second model of the commands, for tests: one at a time, from the text of the reference, in plain NumPy.

Commands are (mnemonic, fields) as a test writes them, not encoded; it shares no code with the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import Array

Fields = dict[str, Any]
NOTHING = 0xFFFF_FFFF


def scaled(values: Array, scale: float) -> Array:
    """Return int32 times float32, half to even, saturated to int8."""
    product = values.astype(np.float32) * np.float32(scale)
    return np.clip(np.round(product), -128, 127).astype(np.int64)


def wrapped(values: Array, bits: int) -> Array:
    half = 1 << (bits - 1)
    return (values.astype(np.int64) + half) % (2 * half) - half


@dataclass
class Plain:
    """The memories of one machine, without samples. `rtl`: the semantics of the RTL, else of libgemmini."""

    dim: int
    spad_rows: int
    acc_rows: int
    dram: Array  # uint8, byte 0 at address `base`
    base: int
    rtl: bool = True
    loads: dict[int, Fields] = field(default_factory=dict)
    ex: Fields = field(default_factory=dict)
    st: Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spad = np.zeros((self.spad_rows, self.dim), np.int64)
        self.acc = np.zeros((self.acc_rows, self.dim), np.int64)
        self.array = np.zeros((self.dim, self.dim), np.int64)
        self.pending: Fields = {}

    def run(self, program: list[tuple[str, Fields]]) -> None:
        for name, f in program:
            getattr(self, name, lambda _: None)(f)

    def config_ex(self, f: Fields) -> None:
        strides = {"a_stride", "c_stride"}
        self.ex |= {key: value for key, value in f.items() if not f.get("only_strides") or key in strides}

    def config_ld(self, f: Fields) -> None:
        self.loads[f["state"]] = f

    def config_st(self, f: Fields) -> None:
        self.st = f

    def _bytes(self, address: int, count: int) -> Array:
        return self.dram[address - self.base : address - self.base + count]

    def mvin(self, f: Fields, state: int = 0) -> None:
        own, dim = self.loads[state], self.dim
        local, wide = f["local"], f["local"] >> 31 and not own.get("shrunk")
        for r in range(f["rows"]):
            address = f["dram"] + r * own["stride"]
            if not f["dram"]:
                line = np.zeros(f["cols"], np.int64)
            elif wide:
                line = self._bytes(address, 4 * f["cols"]).copy().view("<i4").astype(np.int64)
            else:
                line = scaled(self._bytes(address, f["cols"]).view(np.int8).astype(np.int64), own["scale_value"])
            for first in range(0, f["cols"], dim):
                part = line[first : first + dim]
                row = (local & 0xFFFFFF) + r + first // dim * own["block_stride"]
                if local >> 31:
                    target = self.acc[row]
                    target[: len(part)] = wrapped(part + (target[: len(part)] if local >> 30 & 1 else 0), 32)
                else:
                    half = self.spad_rows // 2
                    floor = half if self.rtl and row >= half else 0
                    for copy in range(min(own["pixels"], row - floor + 1)):
                        self.spad[row - copy, copy * f["cols"] : copy * f["cols"] + len(part)] = part

    def mvin2(self, f: Fields) -> None:
        self.mvin(f, 1)

    def mvin3(self, f: Fields) -> None:
        self.mvin(f, 2)

    def preload(self, f: Fields) -> None:
        self.pending = f

    def _operand(self, f: Fields, name: str, transposed: bool, stride: int = 1) -> Array:
        """Return an operand, int64 [dim, dim] with zeros around it."""
        matrix = np.zeros((self.dim, self.dim), np.int64)
        if f[name] == NOTHING:
            return matrix
        rows, cols = f[f"{name}_rows"], f[f"{name}_cols"]
        for i in range(rows):
            for k in range(cols):
                matrix[i, k] = self.spad[f[name] + stride * k, i] if transposed else self.spad[f[name] + stride * i, k]
        return matrix

    def compute_preloaded(self, f: Fields) -> None:
        self._compute(f, True)

    def compute_accumulated(self, f: Fields) -> None:
        self._compute(f, False)

    def _compute(self, f: Fields, fresh: bool) -> None:
        ex, own, dim = self.ex, self.pending, self.dim
        weights, bits = ex["dataflow"], 20 if self.rtl else 32
        if fresh:
            self.array = self._operand(own, "bd", bool(weights and ex["transpose_b"]))
        a = self._operand(f, "a", bool(ex["transpose_a"]), ex["a_stride"])
        if weights:
            held = wrapped(self.array, 8) if self.rtl else self.array  # sums of OS may be wider than weights
            result = wrapped(self._operand(f, "bd", False) + a @ held, bits)
        else:
            self.array = wrapped(self.array + a @ self._operand(f, "bd", bool(ex["transpose_b"])), bits)
            result = self.array
        if own["c"] == NOTHING:
            return
        shift = 0 if weights else ex["shift"]
        moved = np.round(result / 2.0**shift).astype(np.int64)  # half to even
        for i in range(own["c_rows"]):
            row, cols = (own["c"] & 0xFFFFFF) + ex["c_stride"] * i, own["c_cols"]
            if own["c"] >> 31:
                line = (moved if self.rtl else result)[i, :cols]
                self.acc[row, :cols] = wrapped(line + (self.acc[row, :cols] if own["c"] >> 30 & 1 else 0), 32)
            else:
                line = np.clip(moved[i, :cols], -128, 127)
                self.spad[row, :cols] = np.maximum(line, 0) if ex["activation"] == 1 else line
        assert dim >= own["c_rows"]

    def _left(self, local: int, row: int, col: int) -> int:
        """Return an element as it leaves the machine as int8."""
        if not local >> 31:
            return int(self.spad[row, col])
        value, relu = self.acc[row, col], self.st["activation"] == 1
        if relu and self.rtl:
            value = max(value, 0)
        code = int(scaled(np.array([value]), self.st["scale_value"])[0])
        return max(code, 0) if relu and not self.rtl else code

    def mvout(self, f: Fields) -> None:
        st, local, base = self.st, f["local"], f["local"] & 0xFFFFFF
        if st["pool_stride"]:
            self._pool(f)
            return
        for r in range(f["rows"]):
            at = f["dram"] + r * st["stride"] - self.base
            for c in range(f["cols"]):
                row, col = base + r + c // self.dim * self.dim, c % self.dim
                if local >> 29 & 1:
                    word = int(self.acc[row, col]).to_bytes(4, "little", signed=True)
                    self.dram[at + 4 * c : at + 4 * c + 4] = np.frombuffer(word, np.uint8)
                else:
                    self.dram[at + c] = self._left(local, row, col) & 255

    def _pool(self, f: Fields) -> None:
        st = self.st
        for y in range(st["porows"]):
            for x in range(st["pocols"]):
                for c in range(f["cols"]):
                    most = -128
                    for wy in range(st["pool_size"]):
                        for wx in range(st["pool_size"]):
                            down, across = (
                                y * st["pool_stride"] + wy - st["upad"],
                                x * st["pool_stride"] + wx - st["lpad"],
                            )
                            inside = 0 <= down < st["orows"] and 0 <= across < st["ocols"]
                            row = (f["local"] & 0xFFFFFF) + down * st["ocols"] + across
                            most = max(most, self._left(f["local"], row, c) if inside else 0)
                    self.dram[f["dram"] + (y * st["out_dim"] + x) * st["stride"] + c - self.base] = most & 255
