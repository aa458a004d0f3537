"""Reference interpreter of VTA instructions, written to be read: plain loops over tiles and micro-ops, one sample.

The simulator's fast paths are tested against it. It executes instruction records (fields by name) in any order,
under the semantics of the configuration, and records the elements that each instruction reads and writes.
Sources: upstream's three implementations, as `isa.alu.SEMANTICS` names them; docs/vta.md for our extensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import INT32_MAX, INT32_MIN
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp, Form
from tilewright.targets.vta.isa.fields import REGION_OF, UOP_MEMORIES, Memory, Opcode
from tilewright.targets.vta.isa.stream import pack_values, unpack_values

#: The memories whose LOADs honour padding under all semantics.
PADDED = (Memory.INP, Memory.ACC, Memory.ACC_8BIT)
#: The attribute of Interpreter that each data memory loads into.
NAMES = {Memory.INP: "inp", Memory.WGT: "wgt", Memory.ACC: "acc", Memory.ACC_8BIT: "acc", Memory.PAR: "par"}

#: An instruction's fields by name.
Record = dict[str, int]
#: A memory and the index of one of its elements: a tile, a micro-op, or a byte of DRAM.
Element = tuple[str, int]


class Interpreter:
    """Executes instruction records on the memories of one sample. On-chip memories have tiles; `dram` is uint8.

    `touched[i]` has two sets: the elements that record i reads, and those that it writes. Micro-ops are control state:
    LOADs of them read `uops` (int64 [m, 3], the micro-ops in DRAM from the base register on), and record no read of
    DRAM.
    """

    def __init__(
        self, config: Config, records: Sequence[Record], uops: Array, dram: Array, bases: Mapping[str, int]
    ) -> None:
        self.config, self.records, self.uops, self.dram, self.bases = config, records, uops, dram, bases
        self.rules, self.four = config.rules, config.stages == 4
        self.inp, self.wgt, self.acc, self.out, self.par = (
            np.zeros((sram.depth, *sram.shape), np.int64)
            for sram in (config.inp, config.wgt, config.acc, config.out, config.par)
        )
        most = max(config.uop.depth, config.alu_uop.depth)
        self.cache = {memory: np.zeros((most, 3), np.int64) for memory in UOP_MEMORIES}
        self.touched: dict[int, tuple[set[Element], set[Element]]] = {}
        #: By out tile that a reset wrote: the reset's reads, and the operands to add to them if a STORE reads the tile.
        self.behind: dict[int, tuple[set[Element], set[Element]]] = {}

    def run(self, order: Iterable[int]) -> None:
        """Execute the records with the indices `order`, in that order."""
        meaning = {Opcode.LOAD: self._load, Opcode.STORE: self._store, Opcode.GEMM: self._gemm, Opcode.ALU: self._alu}
        for index in order:
            self.reads: set[Element] = set()
            self.writes: set[Element] = set()
            record = self.records[index]
            if record["opcode"] != Opcode.FINISH:
                meaning[Opcode(record["opcode"])](record)
            self.touched[index] = self.reads, self.writes

    def _load(self, record: Record) -> None:
        """Load rows of tiles from DRAM into consecutive tiles of a memory, surrounded by zero tiles (padding)."""
        memory = Memory(record["memory_type"])
        if memory in UOP_MEMORIES:
            return self._load_uops(memory, record)
        if memory == Memory.OUT or (memory == Memory.ACC_8BIT and not self.rules.loads_acc_8bit):
            return None
        honoured = memory in PADDED or self.rules.full_loads
        top, bottom, left, right = (
            record.get(key, 0) if honoured else 0 for key in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        )
        rows, columns, at = record.get("y_size", 0), record.get("x_size", 0), record.get("sram_base", 0)
        if not columns and not self.rules.empty_loads_pad:
            return None
        chip, width = getattr(self, NAMES[memory]), 8 if memory == Memory.ACC_8BIT else self.config.sram(memory).width
        for y in range(-top, rows + bottom):
            for x in range(-left, columns + right):
                chip[at] = 0
                if 0 <= y < rows and 0 <= x < columns:
                    raw = self._bytes(memory, record, y, x, self.reads)
                    chip[at] = unpack_values(raw, width).reshape(chip[at].shape)
                self.writes.add((NAMES[memory], at))
                at += 1
        return None

    def _load_uops(self, memory: Memory, record: Record) -> None:
        """Load micro-ops, ignoring padding: one row, or y_size rows if Semantics.full_loads."""
        rows, columns, stride = (record.get(key, 0) for key in ("y_size", "x_size", "x_stride"))
        at, first = record.get("sram_base", 0), record.get("dram_base", 0)
        for y in range(rows if self.rules.full_loads else 1):
            for x in range(columns):
                self.cache[memory][at] = self.uops[first + y * stride + x]
                self.writes.add((f"cache{int(memory)}", at))
                at += 1

    def _store(self, record: Record) -> None:
        """Store consecutive tiles to rows of tiles in DRAM, with values truncated to the width of out."""
        name, held = ("out", self.out) if self.rules.out_memory else ("acc", self.acc)
        for y in range(record.get("y_size", 0)):
            for x in range(record.get("x_size", 0)):
                tile = record.get("sram_base", 0) + y * record["x_size"] + x
                self.reads.add((name, tile))
                if tile in self.behind:
                    reads, operands = self.behind[tile]
                    reads |= operands
                packed = pack_values(held[tile].reshape(-1), self.config.out.width)
                self._bytes(Memory.OUT, record, y, x, self.writes)[:] = packed

    def _bytes(self, memory: Memory, record: Record, y: int, x: int, touched: set[Element]) -> Array:
        """Return a view of the DRAM tile in row `y`, column `x` of a transfer, and add its bytes to `touched`."""
        size = self.config.dram_tile_bytes(memory)
        tile = record.get("dram_base", 0) + y * record.get("x_stride", 0) + x
        address = self.bases[REGION_OF[memory]] + tile * size
        touched.update(("DRAM", byte) for byte in range(address, address + size))
        return self.dram[address : address + size]

    def loops(self, record: Record) -> tuple[Sequence[int], int, int]:
        """Return the listed micro-ops of a GEMM or ALU instruction, and its outer and inner iterations."""
        begin, end = record.get("uop_bgn", 0), record.get("uop_end", 0)
        outer, inner = record.get("iter_out", 0), record.get("iter_in", 0)
        if not self.rules.counters_wrap:
            return range(begin, end), outer, inner
        # Counters count up until they reach end - 1, modulo their values.
        counts, depth = 2 << self.config.index_bits.uop, self.config.uop.depth
        uops = [(begin + i) % depth for i in range((end - begin) % counts or counts)]
        return uops, outer or 1 << 14, inner or 1 << 14

    def _micro_ops(self, record: Record, memory: Memory) -> Iterator[tuple[int, int, int, int]]:
        """Yield a tuple (dst, src, wgt, outer iteration) for each micro-op, in execution order."""
        uops, outer, inner = self.loops(record)
        self.reads.update((f"cache{int(memory)}", uop) for uop in uops)
        for o in range(outer):
            for i in range(inner):
                for uop in uops:
                    d, s, w = (
                        int(base) + o * record.get(f"{name}_factor_out", 0) + i * record.get(f"{name}_factor_in", 0)
                        for name, base in zip(("dst", "src", "wgt"), self.cache[memory][uop], strict=True)
                    )
                    yield d, s, w, o

    def _gemm(self, record: Record) -> None:
        """Execute `acc[dst] += inp[src] @ wgt[wgt].T` for each micro-op; or, with reset_reg, `acc[dst] = 0`."""
        width = self.config.acc.width
        for d, s, w, _ in self._micro_ops(record, Memory.UOP):
            total = (self.acc[d] + self.inp[s] @ self.wgt[w].T).astype(f"int{width}").astype(np.int64)
            operands = {("inp", s), ("wgt", w)}
            if not record.get("reset_reg"):
                self.reads |= operands | {("acc", d)}
                self._write(d, total, to_out=not self.four)
                continue
            if ("acc", d) not in self.writes:
                operands.add(("acc", d))
            self._write(d, 0 * total, to_out=False)
            if not self.four and self.rules.out_memory and self.rules.reset_writes_out:
                self._write_out(d, total)
                self.behind[d] = self.reads, operands

    def _alu(self, record: Record) -> None:
        """Execute `acc[dst] = op(acc[dst], second)` for each micro-op; `second` is acc[src] or the immediate."""
        opcode, field = record.get("alu_opcode", 0), record.get("imm", 0)
        own = next((item for item in self.config.own_alu if item.opcode == opcode), None)
        op, immediate = None if own else AluOp(opcode), field if record.get("use_imm") else None
        memory = Memory.ALU_UOP if self.four else Memory.UOP
        width, rules = self.config.acc.width, self.rules
        first = int(self.cache[memory][record.get("uop_bgn", 0), 2])
        last, before = -1, self.acc[0]
        for d, s, _, o in self._micro_ops(record, memory):
            source = before if rules.reads_stale and s == last else self.acc[s].copy()
            last, before = d, self.acc[d].copy()
            if op == AluOp.REQ:
                self.reads.add(("acc", d))
                self._write(d, self._requantised(d, s, first + field * o), to_out=True)
                continue
            left = s if immediate is not None and rules.immediate_reads_src else d
            self.reads |= {("acc", left)} if immediate is not None else {("acc", left), ("acc", s)}
            right = np.full_like(self.acc[d], immediate) if immediate is not None else source
            value = source if immediate is not None and rules.immediate_reads_src else self.acc[left]
            if own or op is None:
                assert own is not None
                self._write(d, own.on(value, right, field).astype(np.int64), to_out=True)
                continue
            pairs = zip(value.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True)
            form = Form(rules, 32 if rules.wide_alu else width, immediate is not None, field < 0)
            made = [evaluate(op, a, b, form) for a, b in pairs]
            value = np.array(made, np.int64).astype(f"int{width}").astype(np.int64)
            self._write(d, value.reshape(self.acc[d].shape), to_out=True)

    def _requantised(self, d: int, bias: int, factors: int) -> Array:
        """Return REQ of acc tile `d`. `bias` is the number of a tile in par, `factors` that of the first of three."""
        tiles = (bias, factors, factors + 1, factors + 2)
        self.reads |= {("par", tile) for tile in tiles}
        words = [self.par[tile].reshape(-1).tolist() for tile in tiles]
        result = partial(evaluate_req, is_float=self.config.alu == "float")
        return np.array([list(map(result, row, *words)) for row in self.acc[d].tolist()])

    def _write(self, tile: int, value: Array, to_out: bool) -> None:
        self.acc[tile] = value
        self.writes.add(("acc", tile))
        if self.four:  # gemm and activate may not write one bank at the same time
            self.writes.add(("acc bank", tile * self.config.acc_banks // self.config.acc.depth))
        if to_out:
            self._write_out(tile, value)

    def _write_out(self, tile: int, value: Array) -> None:
        if not self.rules.out_memory:
            return
        self.out[tile] = value
        self.behind.pop(tile, None)
        self.writes.add(("out", tile))


# Operations of the ALU on single integers


def evaluate(op: AluOp, a: int, b: int, form: Form) -> int:
    """Return the result of any ALU operation but REQ on operands `a` and `b`, in `form.width` bits."""
    if op == AluOp.MIN:
        return min(a, b)
    if op == AluOp.MAX:
        return max(a, b)
    if op == AluOp.ADD:
        return signed(a + b, form.width)
    if op == AluOp.SHR:
        return _shift(a, b, form)
    if op == AluOp.MUL:
        return signed(a * b, form.width) if form.rules.multiplies else a
    if op == AluOp.MULH:
        return high_mul(a, b << 16 if form.immediate else b)
    assert op == AluOp.RSHR
    amount = abs(b) % 32
    return signed(a << amount, 32) if b < 0 else divide_by_pot(a, amount)


def evaluate_req(acc: int, bias: int, multiplier: int, scaling: int, bounds: int, *, is_float: bool) -> int:
    """Return the result of REQ; operands as in alu.requantise, or alu.requantise_float if `is_float`."""
    total = signed(acc + bias, 32)
    if is_float:
        with np.errstate(over="ignore", invalid="ignore"):  # multipliers that occur in no real model
            product = np.float32(total) * np.int32(multiplier).view(np.float32)
        value = int(np.rint(np.clip(np.float64(product), INT32_MIN, INT32_MAX))) if np.isfinite(product) else INT32_MIN
    else:
        left, right = scaling & 31, scaling >> 8 & 31
        value = divide_by_pot(high_mul(signed(total << left, 32), multiplier), right)
    low, high = signed(bounds, 16), signed(bounds >> 16, 16)
    if low > high:  # no bounds
        low, high = INT32_MIN, INT32_MAX
    return max(low, min(high, value + signed(scaling >> 16, 16)))


def signed(value: int, bits: int) -> int:
    """Return the low `bits` bits of a value as a two's complement integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def high_mul(a: int, b: int) -> int:
    """Return gemmlowp's SaturatingRoundingDoublingHighMul: add a nudge by sign, then divide by 2**31 as C does."""
    if a == b == INT32_MIN:
        return INT32_MAX
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged >> 31 if nudged >= 0 else -(-nudged >> 31)


def divide_by_pot(x: int, exponent: int) -> int:
    """Return gemmlowp's RoundingDivideByPOT: a right shift rounded half away from zero."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def _shift(a: int, b: int, form: Form) -> int:
    """Return the result of SHR, with the amount that Semantics.shift defines."""
    rule, width = form.rules.shift, form.width
    if rule == "low_unsigned":
        amount = (-b if form.negative_field else b) & (width - 1)
        return signed(a << amount, width) if form.negative_field else a >> amount
    amount = signed(b, width.bit_length() - 1) if rule == "low_signed" else b
    if amount < 0:
        return signed(a << (-amount & (width - 1)), width)
    return a >> (amount & (width - 1))
