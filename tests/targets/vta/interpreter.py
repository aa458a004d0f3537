"""A second VTA, from specs/vta.md and docs/vta.md: loops over micro-ops in Python integers, no matrix forms.

It runs instruction records (fields by name) in any order given, on machines of three or four stages with any ALU,
semantics hls, and notes what each instruction touches: the oracle of values, of races and of unwritten reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.config import Config

LOAD, STORE, GEMM, FINISH, ALU = range(5)
UOP, WGT, INP, ACC, OUT, ACC_8BIT, ALU_UOP, PAR = range(8)
MIN, MAX, ADD, SHR, MUL, MULH, RSHR, REQ = range(8)
#: The control register that each memory id is addressed from.
REGISTER = ("uop", "wgt", "inp", "acc", "out", "acc", "uop", "acc")

Record = dict[str, int]
Element = tuple[str, int]


def wrap(value: int) -> int:
    """Two's complement of 32 bits."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def high_mul(a: int, b: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul: a nudge by the product's sign, then C's division by 2**31."""
    if a == b == -(1 << 31):
        return (1 << 31) - 1
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged >> 31 if nudged >= 0 else -(-nudged >> 31)


def divide_by_pot(x: int, exponent: int) -> int:
    """gemmlowp's RoundingDivideByPOT: the remainder's mask against a threshold."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def low_bits(value: int, bits: int) -> int:
    """The low bits, signed."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def operate(op: int, a: int, b: int, is_imm: bool) -> int:
    """One value of MIN..RSHR."""
    if op in (MIN, MAX):
        return (min if op == MIN else max)(a, b)
    if op == ADD:
        return wrap(a + b)
    if op == SHR:  # HLS: five bits, signed
        amount = low_bits(b, 5)
        return wrap(a << -amount) if amount < 0 else a >> amount
    if op == MULH:
        return high_mul(a, b << 16 if is_imm else b)
    assert op == RSHR
    amount = abs(b) % 32
    return wrap(a << amount) if b < 0 else divide_by_pot(a, amount)


def requantise(acc: int, bias: int, multiplier: int, scaling: int, bounds: int) -> int:
    """REQ, one value; a result beyond 32 bits saturates."""
    left, right, zero_point = scaling & 31, scaling >> 8 & 31, low_bits(scaling >> 16, 16)
    value = divide_by_pot(high_mul(wrap(wrap(acc + bias) << left), multiplier), right) + zero_point
    low, high = low_bits(bounds, 16), low_bits(bounds >> 16, 16)
    if low > high:
        low, high = -(1 << 31), (1 << 31) - 1
    return max(low, min(high, value))


def unit_of(record: Record, stages: int) -> int:
    """load 0, compute 1, store 2; or load, gemm, activate, store."""
    opcode, memory = record["opcode"], record.get("memory_type", 0)
    if opcode == STORE:
        return stages - 1
    if opcode == LOAD and memory in (INP, WGT, PAR):
        return 0
    on_alu = opcode in (ALU, FINISH) or (opcode == LOAD and memory == ALU_UOP)
    return 2 if on_alu and stages == 4 else 1


class Interpreter:
    """The memories of one sample. `dram` uint8 is changed; `touched[i]` are (reads, writes) of the i-th record."""

    def __init__(
        self, config: Config, records: Sequence[Record], uops: Array, dram: Array, bases: dict[str, int]
    ) -> None:
        self.config, self.records, self.dram, self.bases = config, records, dram, bases
        self.uops = uops  # the program's micro-ops, int64 [m, 3], as they lie in DRAM from the register on
        rows, columns = 1 << config.LOG_BATCH, 1 << config.LOG_BLOCK
        self.four = config.stages == 4
        self.inp = np.zeros((config.inp.depth, rows, columns), np.int64)
        self.wgt = np.zeros((config.wgt.depth, columns, columns), np.int64)
        self.acc = np.zeros((config.acc.depth, rows, columns), np.int64)
        self.out = np.zeros((config.acc.depth, rows, columns), np.int64)
        self.par = np.zeros((config.par.depth, columns), np.int64)
        self.cache = {UOP: np.zeros((config.uop.depth, 3), np.int64)}
        self.cache[ALU_UOP] = np.zeros((config.alu_uop.depth, 3), np.int64)
        self.touched: dict[int, tuple[set[Element], set[Element]]] = {}
        #: Of out tiles that a reset wrote: its reads, and those that count where the tile is stored.
        self.behind: dict[int, tuple[set[Element], set[Element]]] = {}

    def run(self, order: Iterable[int]) -> None:
        for index in order:
            self.reads: set[Element] = set()
            self.writes: set[Element] = set()
            record = {
                name: value for name, value in self.records[index].items() if not name.startswith(("pop", "push"))
            }
            opcode = record.pop("opcode")
            if opcode == LOAD:
                self._load(**record)
            elif opcode == STORE:
                self._store(**record)
            elif opcode == GEMM:
                self._gemm(**record)
            elif opcode == ALU:
                self._alu(**record)
            self.touched[index] = self.reads, self.writes

    def _bytes(self, address: int, count: int, touched: set[Element]) -> Array:
        touched.update(("DRAM", byte) for byte in range(address, address + count))
        return self.dram[address : address + count]

    def _load(
        self, memory_type: int, sram_base: int = 0, dram_base: int = 0, y_size: int = 0, x_size: int = 0,
        x_stride: int = 0, y_pad_0: int = 0, y_pad_1: int = 0, x_pad_0: int = 0, x_pad_1: int = 0,
    ) -> None:  # fmt: skip
        if memory_type in (OUT, ACC_8BIT):
            return
        if memory_type in (UOP, ALU_UOP):  # one row, no padding; control state, so its DRAM is not checked
            self.cache[memory_type][sram_base : sram_base + x_size] = self.uops[dram_base : dram_base + x_size]
            self.writes.update((f"cache{memory_type}", sram_base + k) for k in range(x_size))
            return
        if memory_type not in (INP, ACC):
            y_pad_0 = y_pad_1 = x_pad_0 = x_pad_1 = 0
        name = {INP: "inp", WGT: "wgt", ACC: "acc", PAR: "par"}[memory_type]
        chip = getattr(self, name)
        tile_bytes = chip[0].size * (1 if memory_type in (INP, WGT) else 4)
        at = sram_base
        for y in range(-y_pad_0, y_size + y_pad_1):
            for x in range(-x_pad_0, x_size + x_pad_1):
                chip[at] = 0
                if 0 <= y < y_size and 0 <= x < x_size:
                    address = self.bases[REGISTER[memory_type]] + (dram_base + y * x_stride + x) * tile_bytes
                    raw = self._bytes(address, tile_bytes, self.reads).tobytes()
                    kind = np.int8 if memory_type in (INP, WGT) else np.int32
                    chip[at] = np.frombuffer(raw, kind).reshape(chip[at].shape)
                self.writes.add((name, at))
                at += 1

    def _store(
        self, memory_type: int, sram_base: int = 0, dram_base: int = 0, y_size: int = 0, x_size: int = 0,
        x_stride: int = 0,
    ) -> None:  # fmt: skip
        tile_bytes = self.out[0].size
        for y in range(y_size):
            for x in range(x_size):
                tile = sram_base + y * x_size + x
                self.reads.add(("out", tile))
                if tile in self.behind:
                    reads, operands = self.behind[tile]
                    reads |= operands
                address = self.bases["out"] + (dram_base + y * x_stride + x) * tile_bytes
                self._bytes(address, tile_bytes, self.writes)[:] = (self.out[tile].reshape(-1) & 255).astype(np.uint8)

    def _write(self, tile: int, value: Array, and_out: bool) -> None:
        self.acc[tile] = value
        self._bank(tile)
        self.writes.add(("acc", tile))
        if and_out:
            self._out(tile, value)

    def _out(self, tile: int, value: Array) -> None:
        self.out[tile] = value
        self.behind.pop(tile, None)
        self.writes.add(("out", tile))

    def _bank(self, tile: int) -> None:
        if self.four:
            self.writes.add(("acc bank", tile * self.config.acc_banks // self.config.acc.depth))

    def _gemm(
        self, uop_bgn: int = 0, uop_end: int = 0, iter_out: int = 0, iter_in: int = 0, dst_factor_out: int = 0,
        dst_factor_in: int = 0, src_factor_out: int = 0, src_factor_in: int = 0, wgt_factor_out: int = 0,
        wgt_factor_in: int = 0, reset_reg: int = 0,
    ) -> None:  # fmt: skip
        self.reads.update((f"cache{UOP}", uop) for uop in range(uop_bgn, uop_end))
        for o in range(iter_out):
            for i in range(iter_in):
                for uop in range(uop_bgn, uop_end):
                    d, s, w = self.cache[UOP][uop].tolist()
                    d += o * dst_factor_out + i * dst_factor_in
                    s += o * src_factor_out + i * src_factor_in
                    w += o * wgt_factor_out + i * wgt_factor_in
                    total = (self.acc[d] + self.inp[s] @ self.wgt[w].T).astype(np.int32).astype(np.int64)
                    operands = {("inp", s), ("wgt", w)}
                    if reset_reg:
                        if ("acc", d) not in self.writes:
                            operands.add(("acc", d))
                        self._write(d, 0 * total, False)
                        if not self.four:
                            self._out(d, total)
                            self.behind[d] = self.reads, operands
                    else:
                        self.reads |= operands | {("acc", d)}
                        self._write(d, total, not self.four)

    def _alu(
        self, alu_opcode: int, uop_bgn: int = 0, uop_end: int = 0, iter_out: int = 0, iter_in: int = 0,
        dst_factor_out: int = 0, dst_factor_in: int = 0, src_factor_out: int = 0, src_factor_in: int = 0,
        use_imm: int = 0, imm: int = 0,
    ) -> None:  # fmt: skip
        memory = ALU_UOP if self.four else UOP
        self.reads.update((f"cache{memory}", uop) for uop in range(uop_bgn, uop_end))
        first = int(self.cache[memory][uop_bgn, 2])
        for o in range(iter_out):
            for i in range(iter_in):
                for uop in range(uop_bgn, uop_end):
                    d, s, _ = self.cache[memory][uop].tolist()
                    d += o * dst_factor_out + i * dst_factor_in
                    s += o * src_factor_out + i * src_factor_in
                    self.reads.add(("acc", d))
                    if alu_opcode == REQ:
                        result = self._requantised(d, s, first + imm * o)
                    else:
                        if not use_imm:
                            self.reads.add(("acc", s))
                        second = np.full_like(self.acc[d], imm) if use_imm else self.acc[s]
                        pairs = zip(self.acc[d].reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True)
                        result = np.array([operate(alu_opcode, a, b, bool(use_imm)) for a, b in pairs])
                    self._write(d, result.reshape(self.acc[d].shape), True)

    def _requantised(self, d: int, bias: int, factors: int) -> Array:
        self.reads |= {("par", tile) for tile in (bias, factors, factors + 1, factors + 2)}
        columns = [self.par[tile].tolist() for tile in (bias, factors, factors + 1, factors + 2)]
        rows = self.acc[d].tolist()
        return np.array(
            [[requantise(value, *words) for value, *words in zip(row, *columns, strict=True)] for row in rows]
        )
