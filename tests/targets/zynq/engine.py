"""The document's engine, register by register and cycle by cycle: the slow machine that closed forms are compared with.

One output at a time, one block a store. Blocks are whatever the PS puts into the stores; addresses are formed here, not
taken from the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import Requant
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.isa.layer import RULES, Kind, Layer

IDLE, REQUEST, LOAD, DELAY, ACC, WRITE, POOL, TAIL, FLUSH = range(9)


@dataclass
class Registers:
    """All state of the state machines; the stores' words are apart."""

    stage: int = IDLE
    column: int = 0  # oc, or the FC output
    position: int = 0
    times: int = 0
    lane: int = 0
    delay: int = 0
    element: int = 0
    written: int = 0
    acc: int = 0
    unit: int = 0  # the unit's output register
    data: list[int] = field(default_factory=lambda: [0] * 144)  # being filled
    weight: list[int] = field(default_factory=lambda: [0] * 144)
    presented: int = 0  # the sum of products of the operands that the unit has
    cache: list[int] = field(default_factory=list)  # the pool's shift register


class Miss(Exception):
    """An access to a block that is not there: the FSM does not move this cycle."""


class Engine:
    """One layer from IDLE to IDLE. `request` is (store, block, write) while `waiting`."""

    def __init__(self, layer: Layer, factor: Array) -> None:
        self.layer, self.config = layer, layer.config
        self.factor = factor
        self.regs = Registers(stage=POOL if layer.kind == Kind.POOL else self._first())
        self.tag: dict[str, int | None] = dict.fromkeys(STORES)
        self.words = {
            store: np.zeros(self.config.block_words(store), np.int32 if store == "bias" else np.uint8)
            for store in STORES
        }
        self.request: tuple[str, int, bool] | None = None
        self.size = {store: len(words) for store, words in self.words.items()}
        self.rate = min(self.config.fetch_bytes("data"), self.config.fetch_bytes("weight"))
        self.moved = 0  # cycles in which the state machines moved
        self.served: dict[str, int] = dict.fromkeys(STORES, 0)
        self.lanes = layer.config.fc_lanes if layer.kind == Kind.FC else 144

    @property
    def waiting(self) -> bool:
        return self.request is not None

    @property
    def idle(self) -> bool:
        return self.regs.stage == IDLE

    def done(self) -> None:
        """The PS's pulse: the block of the request has been moved."""
        assert self.request is not None
        store, block, writes = self.request
        self.tag[store] = None if writes else block
        self.served[store] += 1
        self.request = None

    def tick(self) -> None:
        """One clock edge; nothing moves while `waiting`."""
        if self.waiting:
            return
        if self.regs.stage == FLUSH:
            self._flush()
            return
        try:
            self._step()
            self.moved += 1
        except Miss:
            pass

    def _first(self) -> int:
        return REQUEST if self.config.control == "states" else LOAD

    def _read(self, store: str, address: int) -> int:
        block, offset = divmod(address, self.size[store])
        if self.tag[store] != block:
            self.request = (store, block, False)
            raise Miss
        return int(self.words[store][offset])

    def _store(self, value: int) -> None:
        block, offset = divmod(self.regs.written, self.config.block_words("result"))
        if self.tag["result"] not in (None, block):
            self.request = ("result", int(self.tag["result"] or 0), True)
            raise Miss
        self.tag["result"] = block
        self.words["result"][offset] = value & 255
        self.regs.written += 1

    def _step(self) -> None:
        regs = self.regs
        if regs.stage in (REQUEST, LOAD) and regs.times == 0 and regs.lane == 0:
            regs.acc = self._read("bias", regs.column)
        before = regs.presented
        if regs.stage == REQUEST:
            regs.stage = LOAD
        elif regs.stage == LOAD:
            self._load()
        elif regs.stage == DELAY:
            regs.stage = ACC
        elif regs.stage == ACC:
            regs.acc += regs.unit
            regs.times += 1
            regs.stage = self._first() if regs.times < self.layer.depth else WRITE
        elif regs.stage == WRITE:
            self._store(self._requantised())
            self._next()
        elif regs.stage == POOL:
            self._pool()
        elif regs.stage == TAIL:
            regs.element += 1
            regs.stage = FLUSH if regs.element == 2 else TAIL
        # One cycle after operands are stable their sum is there.
        regs.unit = before

    def _flush(self) -> None:
        """The last result block leaves; that takes no cycle of the engine."""
        if self.tag["result"] is None:
            self.regs.stage = IDLE
        else:
            self.request = ("result", self.tag["result"], True)

    def _next(self) -> None:
        regs, layer = self.regs, self.layer
        regs.times, regs.stage = 0, self._first()
        regs.position += 1
        if regs.position == (layer.positions if layer.conv else 1):
            regs.position, regs.column = 0, regs.column + 1
        if regs.column == layer.channels:
            regs.stage = FLUSH

    def _load(self) -> None:
        """As many lanes as a store gives in a cycle; a miss leaves the rest for the retry."""
        regs = self.regs
        stop = min(144, (regs.lane // self.rate + 1) * self.rate)
        while regs.lane < stop:
            regs.data[regs.lane], regs.weight[regs.lane] = self._operands(regs.lane)
            regs.lane += 1
        if regs.lane == 144:
            regs.lane = 0
            regs.presented = sum(a * b for a, b in zip(regs.data, regs.weight, strict=True))
            regs.stage = DELAY if self.config.lat_use else ACC

    def _operands(self, lane: int) -> tuple[int, int]:
        """Data and weight of a lane, their zero points subtracted; (0, 0) where the lane has none."""
        layer, regs = self.layer, self.regs
        if layer.kind == Kind.FC:
            k = regs.times * self.lanes + lane
            if lane >= self.lanes or k >= layer["r"]:
                return 0, 0
            return self._centred("data", k, "x"), self._centred("weight", regs.column * layer["r"] + k, "w")
        channel, tap = divmod(lane, 9) if self.config.layout == "chw" else divmod(lane, min(16, layer["ic"]))[::-1]
        channel += 16 * regs.times
        if tap > 8 or channel >= layer["ic"]:
            return 0, 0
        y, x = regs.position // layer["cols"] + tap // 3 - 1, regs.position % layer["cols"] + tap % 3 - 1
        weight = self._centred("weight", self._weight(channel, tap), "w")
        if not (0 <= y < layer["rows"] and 0 <= x < layer["cols"]):
            return 0, weight
        return self._centred("data", self._pixel(y, x, channel), "x"), weight

    def _pixel(self, y: int, x: int, channel: int) -> int:
        layer = self.layer
        if self.config.layout == "chw":
            return (channel * layer["rows"] + y) * layer["cols"] + x
        row = layer["cols"] * layer["ic"]
        inside = x * layer["ic"] + channel
        if self.config.layout == "hwc":
            return y * row + inside
        words = self.config.block_words("data")
        if row * layer["rows"] <= words:
            return y * row + inside
        fit = words // row  # rows of a block: those that it serves, one above, one below
        block = self.regs.position // layer["cols"] // (fit - 2)
        return block * words + (y + 1 - block * (fit - 2)) * row + inside

    def _weight(self, channel: int, tap: int) -> int:
        layer, kernel = self.layer, 9 * self.layer["ic"]
        if self.config.layout == "chw":
            return self.regs.column * kernel + channel * 9 + tap
        group = min(16, layer["ic"])
        inside = channel // group * 9 * group + tap * group + channel % group
        if self.config.layout == "hwc":
            return self.regs.column * kernel + inside
        words = self.config.block_words("weight")
        block, place = divmod(self.regs.column, words // kernel)
        return block * words + place * kernel + inside

    def _centred(self, store: str, address: int, operand: str) -> int:
        word = self._read(store, address)
        return (word - 256 if word > 127 and self.layer[f"{operand}_signed"] else word) - self.layer[f"z{operand}"]

    def _requantised(self) -> int:
        layer, total = self.layer, max(self.regs.acc, 0) if self.layer["relu"] else self.regs.acc
        factor = self.factor[self.regs.column : self.regs.column + 1] if len(self.factor) > 1 else self.factor
        requant = Requant(factor, factor.astype(np.float32), layer["zy"], layer["low"], layer["high"], "int64")
        return int(requant.apply(np.array([total]), RULES[layer["rule"]])[0])

    def _pool(self) -> None:
        """A register of two rows: the new element and its three neighbours sit at both ends of it."""
        layer, regs = self.layer, self.regs
        word = self._read("data", regs.element)
        value = word - 256 if word > 127 and layer["x_signed"] else word
        row, column = divmod(regs.element, layer["cols"])
        if row % 2 and column % 2:
            four = (value, regs.cache[-1], regs.cache[-layer["cols"]], regs.cache[-layer["cols"] - 1])
            self._store(min(max(*four, layer["low"]), layer["high"]))
        regs.cache = [*regs.cache, value][-2 * layer["cols"] :]
        regs.element += 1
        if regs.element == layer.inputs:
            regs.element, regs.stage = 0, TAIL
