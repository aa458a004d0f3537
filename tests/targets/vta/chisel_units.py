"""The units of chisel_reference.py: what loads, stores and computes inside a module."""

from __future__ import annotations

from typing import Protocol

from tests.targets.vta.chisel_memory import Writer

Record = dict[str, int]
UOP, WGT, INP, ACC = range(4)
CLIENT = {UOP: 1, INP: 2, WGT: 3, ACC: 4}


class About(Protocol):
    """What the units ask of the machine."""

    beat: int
    tile: dict[int, int]
    bases: dict[int, int]
    len_bits: int
    records: list[Record]


class Loader:
    """core/TensorLoadNarrowVME.scala and TensorLoadWideVME.scala: commands, data, zeros."""

    def __init__(self, machine: About, memory: int) -> None:
        self.machine, self.memory, self.client = machine, memory, CLIENT[memory]
        self.name = f"load {memory}"
        self.tile, self.beat = machine.tile[memory], machine.beat
        self.narrow = self.tile > self.beat
        self.busy = False
        self.commands_done = True
        self.in_flight = 0
        self.pipe = False  # RegNext of the data, in the narrow one
        self.zero = "idle"
        self.zero_row = self.zero_column = 0
        self.zero_start = -1
        self.insn: Record = {}

    def begin(self, insn: Record) -> None:
        self.insn = insn
        self.row, self.current = 0, 0
        self.address = self.row_address = self.machine.bases[self.memory] + insn["dram_base"] * self.tile
        self.blocks, self.in_flight = 0, 0
        self.commands_done, self.busy = False, True

    def _row_blocks(self) -> int:
        size = self.insn["x_size"] * self.tile
        return -(-(self.row_address % self.beat + size) // self.beat)

    def _length(self) -> int:
        most = 1 << self.machine.len_bits
        if self.blocks == 0:
            page = most * self.beat
            most = (page - self.row_address // self.beat * self.beat % page) // self.beat
        return min(self._row_blocks() - self.blocks, most)

    def command(self) -> int:
        """Beats of the command that is offered; 0: none."""
        top = self.insn.get("y_pad_0", 0)
        if not self.busy or self.commands_done or not top <= self.current < top + self.insn["y_size"]:
            return 0
        return self._length()

    def fires(self, data: bool) -> bool:
        return self.pipe if self.narrow else data

    @property
    def done(self) -> bool:
        return self.busy and self.in_flight == 0 and self.commands_done and self.zero == "idle"

    def clock(self, fired: bool, data: bool, start: int) -> None:
        fire, done = self.fires(data), self.done
        self._zeros(not fire)
        if self.zero_start == 1:
            self._zeros_begin()
            self.zero_start = -1
        if self.busy:
            stride = False
            if fired:
                length = self._length()
                self.in_flight += length
                self.blocks += length
                if self.blocks == self._row_blocks():
                    if self.row == self.insn["y_size"] - 1:
                        self.commands_done = True
                    else:
                        stride = True
            self.in_flight -= fire
            if self.current < self.insn["y_pad_0"] or stride:
                self.current += 1
            if stride:
                self.row += 1
                self.blocks = 0
                self.row_address += self.insn["x_stride"] * self.tile
            if done:
                self.busy = False
        self.pipe = data
        if start >= 0:
            self.begin(self.machine.records[start])
            if self.narrow:
                self.zero_start = 1
            else:
                self._zeros_begin()

    def _zeros_begin(self) -> None:
        i = self.insn
        self.zero_row, self.zero_column = 0, 0
        if i["y_pad_0"]:
            self.zero = "top"
        else:
            self._sides()

    def _sides(self) -> None:
        i = self.insn
        if i["x_pad_0"] or i["x_pad_1"]:
            self.zero = "sides"
            self.zero_column = 0 if i["x_pad_0"] else i["x_size"]
        else:
            self.zero = "skip" if i["y_pad_1"] else "idle"

    def _zeros(self, can_write: bool) -> None:
        if self.zero == "idle" or not (can_write or self.zero == "skip"):
            return
        i = self.insn
        width = i["x_pad_0"] + i["x_size"] + i["x_pad_1"]
        rows = {"top": i["y_pad_0"], "bottom": i["y_pad_0"] + i["y_size"] + i["y_pad_1"]}
        last_row = rows.get(self.zero, i["y_pad_0"] + i["y_size"]) - 1
        last_column = {"sides": (width if i["x_pad_1"] else i["x_pad_0"]) - 1, "skip": 0}.get(self.zero, width - 1)
        if self.zero_column < last_column:
            self.zero_column += 1
            if self.zero == "sides" and self.zero_column == i["x_pad_0"]:
                self.zero_column += i["x_size"]
            return
        ended = self.zero_row == last_row
        self.zero_row += 1
        self.zero_column = i["x_size"] if self.zero == "sides" and not i["x_pad_0"] else 0
        if ended:
            if self.zero == "top":
                self.zero_column = 0
                self._sides()
            elif self.zero in ("sides", "skip"):
                self.zero_column = 0
                self.zero = "bottom" if i["y_pad_1"] else "idle"
            else:
                self.zero = "idle"


class Storer:
    """core/TensorStoreNarrowVME.scala and TensorStoreWideVME.scala."""

    def __init__(self, machine: About) -> None:
        self.machine, self.tile, self.beat = machine, machine.tile[4], machine.beat
        self.blocks_per_tile = self.tile // self.beat if self.tile > self.beat else 0
        self.state = "idle"
        self.insn: Record = {}

    def begin(self, insn: Record) -> None:
        self.insn, self.state, self.row = insn, "cmd", 0
        self.row_address = self.machine.bases[4] + insn["dram_base"] * self.tile
        self._row()

    def _row(self) -> None:
        first = self.row_address // self.beat
        end = -(-(self.row_address + self.insn["x_size"] * self.tile) // self.beat)
        self.address, self.left = first, end - first
        self._cut()

    def _cut(self) -> None:
        longest = 1 << self.machine.len_bits
        self.length = min(self.left, longest - self.address % longest)
        self.left -= self.length
        self.address += self.length
        self.sent = self.tag = 0

    def cycle(self, writer: Writer) -> bool:
        """One cycle, its outputs to the writer and its registers; whether it is done in it."""
        if self.state == "cmd":
            writer.command = self.length - 1
            if writer.ready:
                self.state = "data"
        elif self.state == "data":
            writer.offered = True
            if writer.data_ready:
                self.sent += 1
                if self.sent == self.length:
                    self.state = "ack"
                elif self.blocks_per_tile and self.tag == self.blocks_per_tile - 1:
                    self.state, self.tag = "read", 0
                else:
                    self.tag += 1
        elif self.state == "read":
            self.state = "data"
        elif self.state == "ack" and writer.ack:
            self.state = "cmd"
            if self.left:
                self._cut()
            elif self.row == self.insn["y_size"] - 1:
                self.state = "idle"
                return True
            else:
                self.row += 1
                self.row_address += self.insn["x_stride"] * self.tile
                self._row()
        return False


class Core:
    """core/TensorAlu.scala, TensorAluPipelined, and its index generator."""

    def __init__(self) -> None:
        self.state, self.running, self.stutter, self.start = "idle", False, False, False
        self.valid = [False] * 4
        self.inflight = self.left = 0
        self.paired = False

    @property
    def done(self) -> bool:
        return self.state == "wait" and self.inflight == 0

    def clock(self, start: bool, uops: int, paired: bool) -> None:
        advance = not self.paired or self.stutter
        valid = self.running and advance
        last = valid and self.left == 1
        state = self.state
        if self.state == "idle" and self.start:
            state = "run"
        elif self.state == "run" and last:
            state = "wait"
        elif self.done:
            state = "idle"
        self.inflight += valid - self.valid[3]
        if not self.running and self.start:
            self.running = True
        elif self.running and not advance:
            self.stutter = True
        elif valid:
            self.left -= 1
            self.running, self.stutter = not last, False
        self.valid = [valid, *self.valid[:3]]
        self.state, self.start = state, start
        if start:
            self.left, self.paired = uops, paired
