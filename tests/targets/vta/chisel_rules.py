"""Upstream's Chisel VTA, cycle by cycle: a second transcription of its rules, which shares no code with the package.

It takes encoded instructions of the default memory sizes. Cycle 0 is the first one in which the launch bit is set.
`Machine.run` fills `start` (the cycle in which an instruction takes its tokens) and `done` (in which it gives tokens).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

LOAD, STORE, GEMM, FINISH, ALU = range(5)
UOP, WGT, INP, ACC, OUT = range(5)
TILE = {UOP: 4, WGT: 256, INP: 16, ACC: 64, OUT: 16}
#: Of each memory: its base register after that of the instructions, and its place among the read ports after fetch.
BASE = {UOP: 0, INP: 1, WGT: 2, ACC: 3, OUT: 4}
PORT = {UOP: 1, INP: 2, WGT: 3, ACC: 4}
LOADS, COMPUTES, STORES = range(3)
#: The token queue, as (giver, taker), of each token bit of each unit.
POPS = {
    LOADS: {"pop_next": (COMPUTES, LOADS)},
    COMPUTES: {"pop_prev": (LOADS, COMPUTES), "pop_next": (STORES, COMPUTES)},
    STORES: {"pop_prev": (COMPUTES, STORES)},
}
PUSHES = {
    LOADS: {"push_next": (LOADS, COMPUTES)},
    COMPUTES: {"push_prev": (COMPUTES, LOADS), "push_next": (COMPUTES, STORES)},
    STORES: {"push_prev": (STORES, COMPUTES)},
}
#: Instructions that a unit's queue takes, read bursts in flight, and the start-up count of tsim's memory.
QUEUE = 511
IN_FLIGHT = 16
TSIM_COUNT = 16

Fields = dict[str, int]


@dataclass(frozen=True)
class Build:
    """A build of the RTL: bytes of a beat, beats of the longest burst, the memory's latency or upstream's tsim."""

    bus: int = 8
    burst: int = 256
    latency: int = 16
    tsim: bool = False

    @property
    def wide(self) -> bool:
        return self.bus >= 16


def decoded(raw: npt.NDArray[np.uint8]) -> Fields:
    low, high = (int.from_bytes(part.tobytes(), "little") for part in (raw[:8], raw[8:]))

    def cut(word: int, **widths: int) -> Iterator[tuple[str, int]]:
        for name, width in widths.items():
            yield name, word & (1 << width) - 1
            word >>= width

    fields = dict(cut(low, op=3, pop_prev=1, pop_next=1, push_prev=1, push_next=1))
    if fields["op"] in (LOAD, STORE):
        fields |= cut(low >> 7, memory=3, sram=16, dram=32)
        fields |= cut(high, rows=16, columns=16, stride=16, top=4, bottom=4, left=4, right=4)
    elif fields["op"] in (GEMM, ALU):
        fields |= cut(low >> 7, reset=1, first=13, end=14, outer=14, inner=14)
        fields |= cut(high, factors=44, operation=3, immediate=1)
    return fields


def unit_of(item: Fields) -> int:
    if item["op"] == STORE:
        return STORES
    return LOADS if item["op"] == LOAD and item["memory"] in (INP, WGT) else COMPUTES


@dataclass
class Burst:
    """A read burst: `first` is the cycle of its first beat on the bus, 0 while it is not known."""

    beats: int
    first: int = 0

    @property
    def last(self) -> int:
        return self.first + self.beats - 1


@dataclass
class Port:
    """The command queue of a read client, of one entry. It takes a command in a cycle after the last one has left."""

    waiting: Burst | None = None
    since: int = 0
    left: int = -1

    def offer(self, burst: Burst, cycle: int) -> bool:
        if self.waiting is not None or self.left >= cycle:
            return False
        self.waiting, self.since = burst, cycle
        return True


@dataclass
class Unit:
    queue: deque[tuple[int, int]] = field(default_factory=deque)  # instruction, cycle from which it is visible
    busy: Callable[[int], bool] | None = None  # called in each cycle: whether the instruction is done in it
    running: int = -1
    free: int = 0


class Machine:
    def __init__(self, insns: npt.NDArray[np.uint8], bases: list[int], build: Build) -> None:
        self.insns = [decoded(row) for row in insns]
        self.bases = bases
        self.build = build
        self.start = [-1] * len(insns)
        self.done = [-1] * len(insns)
        self.units = [Unit(), Unit(), Unit()]
        self.tokens = dict.fromkeys([queue for unit in POPS.values() for queue in unit.values()], 0)
        self.ports = [Port() for _ in range(5)]
        self.open: deque[Burst] = deque()
        self.queued: deque[tuple[int, Burst]] = deque()  # tsim: cycle of the command, burst
        self.count = 0
        self.bus_free = 0
        self.batch: Burst | None = None
        self.batch_left = 0
        self.requested = self.delivered = 0
        self.next_request = 1

    def run(self, limit: int) -> None:
        for cycle in range(1, limit):
            if self.build.tsim:
                self.tsim(cycle)
            self.issue(cycle)
            given = [queue for unit in (LOADS, COMPUTES, STORES) for queue in self.unit(unit, cycle)]
            self.fetch(cycle)
            for queue in given:
                self.tokens[queue] = min(255, self.tokens[queue] + 1)
            if self.delivered == len(self.insns) and min(self.done) >= 0:
                return
        raise AssertionError(f"no end within {limit} cycles")

    def issue(self, cycle: int) -> None:
        """Send one read command: no more than IN_FLIGHT are open, and none is sent in the cycle of a last beat."""
        while self.open and self.open[0].first and self.open[0].last < cycle:
            self.open.popleft()
        if len(self.open) >= IN_FLIGHT or any(burst.first and burst.last == cycle for burst in self.open):
            return
        for port in self.ports:
            if port.waiting is not None and port.since < cycle:
                burst, port.waiting, port.left = port.waiting, None, cycle
                self.open.append(burst)
                if self.build.tsim:
                    self.queued.append((cycle, burst))
                else:
                    burst.first = max(cycle + self.build.latency, self.bus_free)
                    self.bus_free = burst.last + 1
                return

    def tsim(self, cycle: int) -> None:
        """Let the head of the memory's queue go when the count is complete and no other burst is in progress."""
        if not self.queued or self.queued[0][0] >= cycle:
            self.count = 0
            return
        if self.count == TSIM_COUNT and cycle >= self.bus_free - 1:
            burst = self.queued.popleft()[1]
            burst.first = cycle + 1
            self.bus_free = burst.last + 1
        self.count = min(TSIM_COUNT, self.count + 1)

    def fetch(self, cycle: int) -> None:
        wide, total = self.build.wide, len(self.insns)
        if not self.batch_left and self.requested < total and cycle >= self.next_request:
            count = min(self.build.burst * self.build.bus // 16, total - self.requested)
            burst = Burst(count * 16 // self.build.bus)
            if self.ports[0].offer(burst, cycle):
                self.batch, self.batch_left = burst, count
                self.requested += count
        if self.batch_left and self.batch and self.batch.first and cycle >= self.batch.last + (4 if wide else 2):
            queue = self.units[unit_of(self.insns[self.delivered])].queue
            if len(queue) < QUEUE:
                queue.append((self.delivered, cycle + (2 if wide else 1)))
                self.delivered += 1
                self.batch_left -= 1
                self.next_request = cycle + (3 if wide else 2)

    def unit(self, number: int, cycle: int) -> list[tuple[int, int]]:
        """Go on with a unit for one cycle, and return the token queues that it gives a token to."""
        unit = self.units[number]
        if unit.busy is not None:
            if not unit.busy(cycle):
                return []
            unit.busy, unit.free = None, cycle + 1
            self.done[unit.running] = cycle
            return [queue for bit, queue in PUSHES[number].items() if self.insns[unit.running][bit]]
        if unit.queue and unit.queue[0][1] <= cycle and cycle >= unit.free:
            index = unit.queue[0][0]
            pops = [queue for bit, queue in POPS[number].items() if self.insns[index][bit]]
            if all(self.tokens[queue] for queue in pops):
                for queue in pops:
                    self.tokens[queue] -= 1
                unit.queue.popleft()
                unit.running, self.start[index] = index, cycle
                unit.busy = self.work(self.insns[index], cycle)
        return []

    def work(self, item: Fields, start: int) -> Callable[[int], bool]:
        if item["op"] in (GEMM, ALU):
            count = max(0, item["end"] - item["first"]) * item["outer"] * item["inner"]
            twice = item["op"] == ALU and not item["immediate"]
            return lambda cycle: cycle == start + 6 + count * (2 if twice else 1)
        if item["op"] == FINISH or item["columns"] == 0:
            return lambda cycle: cycle == start + 1
        return self.store(item, start) if item["op"] == STORE else self.load(item, start)

    def bursts(self, item: Fields, whole_beats: bool) -> Iterator[int]:
        """Yield the beats of each burst: a row is cut at multiples of the longest burst."""
        beat, size = self.build.bus, TILE[item["memory"]]
        base = self.bases[BASE[item["memory"]]] | item["dram"] * size
        for row in range(item["rows"]):
            low = base + row * item["stride"] * size
            high = low + item["columns"] * size
            if whole_beats:
                low, high = low // beat * beat, -(-high // beat) * beat
            while low < high:
                edge = min(high, (low // (self.build.burst * beat) + 1) * self.build.burst * beat)
                yield (edge - low) // beat
                low = edge

    def load(self, item: Fields, start: int) -> Callable[[int], bool]:
        wide = item["memory"] == UOP or TILE[item["memory"]] <= self.build.bus
        delay = 1 if wide else 2  # from a beat on the bus to the cycle in which no padding is written
        commands = deque(Burst(beats) for beats in self.bursts(item, wide))
        sent: list[Burst] = []
        width = item["left"] + item["columns"] + item["right"]
        sides = item["left"] + item["right"]
        between = [True] * sides if sides else [False] * (item["bottom"] > 0)
        padding = [*[True] * item["top"] * width, *between * item["rows"], *[True] * item["bottom"] * width]
        left = deque(padding)  # False: a cycle without a tile, which nothing delays
        padded = start

        def busy(cycle: int) -> bool:
            nonlocal padded
            due = start + 1 + item["top"] if not sent else start
            if commands and cycle >= due and self.ports[PORT[item["memory"]]].offer(commands[0], cycle):
                sent.append(commands.popleft())
            if left and cycle >= start + delay:
                on_bus = any(burst.first and burst.first <= cycle - delay <= burst.last for burst in sent)
                if not (left[0] and on_bus):
                    left.popleft()
                    padded = cycle
            if commands or left or not all(burst.first for burst in sent):
                return False
            last = max((burst.last for burst in sent), default=0)
            return cycle >= max(last + (2 if wide else 3), padded + 1, start + 1)

        return busy

    def store(self, item: Fields, start: int) -> Callable[[int], bool]:
        bursts = deque(self.bursts(item, False))
        beats_a_tile = TILE[OUT] // self.build.bus
        command, answer = start + 1, 0

        def busy(cycle: int) -> bool:
            nonlocal command, answer
            if bursts and cycle == command:
                beats = bursts.popleft()
                gaps = beats // beats_a_tile - 1 if beats_a_tile > 1 else 0
                last = cycle + (3 if self.build.tsim else 2) + beats + gaps - 1
                answer = last + (1 if self.build.tsim else self.build.latency)
                command = answer + 1
                return False
            return not bursts and cycle == answer

        return busy
