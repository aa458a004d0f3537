"""Upstream's Chisel design stepped cycle by cycle, register by register: slow, and written from its sources only.

Files of apache/tvm-vta, hardware/chisel/src/main/scala, are named at each part. What it shares with the timing model,
for want of another source: a GEMM has the tensor ALU's pipeline (specification: N + 7 cycles), and the fetch of a
256-bit bus and wider is not here. An instruction's `end` is the cycle after its done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.targets.vta.chisel_memory import Engine, Memory, Writer
from tests.targets.vta.chisel_units import ACC, INP, UOP, WGT, Core, Loader, Record, Storer

LOAD, STORE, GEMM, FINISH = range(4)


@dataclass
class Machine:
    beat: int  # bytes
    tile: dict[int, int]  # bytes of a tile by memory id, 4: out
    bases: dict[int, int]
    len_bits: int
    delay: int
    depth: int
    records: list[Record]
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)

    def run(self, limit: int = 200_000) -> None:
        count = len(self.records)
        self.start, self.end = [-1] * count, [-1] * count
        memory, engine, writer = Memory(self.delay), Engine(), Writer()
        modules = [Module(self, name) for name in ("load", "compute", "store")]
        fetch = (Fetch64 if self.beat == 8 else FetchWide)(self, modules)
        counters = [0, 0, 0, 0]  # load->compute, compute->load, compute->store, store->compute
        now = 0
        while min(self.end) < 0:
            assert now < limit, "the reference hangs"
            last = memory.last
            data = engine.data  # the client that sees a beat, or -1
            loaders = [loader for module in modules for loader in module.loaders.values()]
            clients = {loader.client: loader for loader in loaders}
            wanted = {loader.client: beats for loader in loaders if (beats := loader.command())}
            if beats := fetch.command():
                wanted[0] = beats
            fired = {client for client in wanted if engine.slots[client] is None}
            # Modules: combinational start, done and posts of this cycle.
            posts, waits = [False] * 4, [False] * 4
            starts: dict[str, int] = {}
            for module in modules:
                module.cycle(now, counters, posts, waits, starts, writer)
            # Registers.
            request = engine.clock(memory, last, wanted, fired)
            memory.clock(request)
            for client, loader in clients.items():
                loader.clock(client in fired, data == client, starts.get(loader.name, -1))
            fetch.clock(0 in fired, data == 0, now)
            writer.clock()
            for q in range(4):
                if posts[q] and not waits[q]:
                    if counters[q] == 255:
                        self.lost.add(q)
                    else:
                        counters[q] += 1
                elif waits[q] and not posts[q]:
                    counters[q] -= 1
            now += 1


class Module:
    """core/Load.scala, Compute.scala, Store.scala: one instruction at a time."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        self.queue: deque[int] = deque()
        self.state = "idle"
        memories = {"load": (INP, WGT), "compute": (UOP, ACC), "store": ()}[name]
        self.loaders = {memory: Loader(machine, memory) for memory in memories}
        self.core, self.storer = Core(), Storer(machine)
        # (token bit, counter) that it pops and pushes.
        self.pops = {"load": (("pop_next", 1),), "compute": (("pop_prev", 0), ("pop_next", 3))}.get(
            name, (("pop_prev", 2),)
        )
        self.pushes = {"load": (("push_next", 0),), "compute": (("push_prev", 1), ("push_next", 2))}.get(
            name, (("push_prev", 3),)
        )
        self.full = 0  # the queue's count, as registered: what fetch sees

    def cycle(
        self,
        now: int,
        counters: list[int],
        posts: list[bool],
        waits: list[bool],
        starts: dict[str, int],
        writer: Writer,
    ) -> None:
        self.full = len(self.queue)
        done = start = False
        step = self.queue[0] if self.queue else -1
        insn: Record = self.machine.records[step] if self.queue else {}
        opcode = insn.get("opcode", -1)
        sync = opcode in (LOAD, STORE) and insn["x_size"] == 0
        core_start = False
        was = self.state
        if self.state == "idle":
            if step >= 0 and all(counters[q] for bit, q in self.pops if insn[bit]):
                start = True
                self.machine.start[step] = now
                for bit, q in self.pops:
                    waits[q] |= bool(insn[bit])
                self.state = "sync" if sync else "exe"
                if not sync and opcode == LOAD:
                    starts[self.loaders[insn["memory_type"]].name] = step
                core_start = opcode in (GEMM, 4)
        elif self.state == "sync" or opcode == FINISH:
            done = True
        elif opcode == LOAD:
            done = self.loaders[insn["memory_type"]].done
        elif opcode in (GEMM, 4):
            done = self.core.done
        if self.name == "store" and was == "exe":
            done = self.storer.cycle(writer)
        if start and opcode == STORE and not sync:
            self.storer.begin(insn)
        uops = (insn.get("uop_end", 0) - insn.get("uop_bgn", 0)) * insn.get("iter_out", 0) * insn.get("iter_in", 0)
        self.core.clock(core_start, uops, opcode == 4 and not insn.get("use_imm"))
        if done:
            self.machine.end[step] = now + 1
            for bit, q in self.pushes:
                posts[q] |= bool(insn[bit])
            self.queue.popleft()
            self.state = "idle"


class _Fetch:
    def __init__(self, machine: Machine, modules: list[Module]) -> None:
        self.machine, self.modules = machine, modules
        self.state = "launch"
        self.remaining = deque(range(len(machine.records)))
        self.queue: deque[int] = deque()

    def module(self, step: int) -> Module:
        insn = self.machine.records[step]
        load = insn["opcode"] == LOAD and insn["memory_type"] in (INP, WGT)
        return self.modules[0 if load else 2 if insn["opcode"] == STORE else 1]

    def accepts(self, step: int) -> bool:
        return self.module(step).full < self.machine.depth


class Fetch64(_Fetch):
    """core/FetchVME64.scala."""

    half = False

    def command(self) -> int:
        return 2 * self.size if self.state == "cmd" else 0

    def clock(self, fired: bool, data: bool, now: int) -> None:
        if self.state == "launch":
            self._next()
        elif self.state == "cmd":
            if fired:
                self.state = "read"
        elif self.state == "read":
            if data:
                if self.half:
                    self.queue.append(self.remaining.popleft())
                    if len(self.queue) == self.size:
                        self.state = "drain"
                self.half = not self.half
        elif self.state == "drain":
            if not self.queue:
                self._next()
            elif self.accepts(self.queue[0]):
                step = self.queue.popleft()
                self.module(step).queue.append(step)

    def _next(self) -> None:
        self.size = min(len(self.remaining), 1 << self.machine.len_bits - 1)
        self.state = "cmd" if self.size else "idle"


class FetchWide(_Fetch):
    """core/FetchWideVME.scala for 128 bits: an instruction a beat."""

    pipe = False
    flight = 0
    commands_done = False

    def __init__(self, machine: Machine, modules: list[Module]) -> None:
        super().__init__(machine, modules)
        self.ready = True
        self.out: deque[int] = deque()

    def command(self) -> int:
        return self.size if self.state == "read" and self.ready and not self.commands_done else 0

    def clock(self, fired: bool, data: bool, now: int) -> None:
        deliver = self.out[0] if self.out and self.accepts(self.out[0]) else -1
        room = len(self.out) < 2
        if self.state == "launch":
            self._next(ready=True)
        elif self.state == "read":
            if not self.ready:  # vmeStart
                self.ready = True
            else:
                if self.commands_done and self.flight == 0:
                    self.state = "drain"
                if fired:
                    self.flight += self.size
                    self.commands_done = True
                if self.pipe:
                    self.flight -= 1
                    self.queue.append(self.remaining.popleft())
        elif self.state == "drain":
            if not self.queue:
                self._next(ready=False)
            elif room:
                self.out.append(self.queue.popleft())
        if deliver >= 0:
            self.out.popleft()
            self.module(deliver).queue.append(deliver)
        self.pipe = data

    def _next(self, ready: bool) -> None:
        self.size = min(len(self.remaining), 1 << self.machine.len_bits)
        self.state = "read" if self.size else "idle"
        self.ready, self.commands_done = ready, False


_NAMES = ("pop_prev", "pop_next", "push_prev", "push_next", "memory_type", "x_size", "y_size", "x_stride", "dram_base")
_PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


def reference(records: list[Record], **about: Any) -> Machine:
    """The machine, before its run."""
    return Machine(records=[dict.fromkeys((*_NAMES, *_PADS), 0) | record for record in records], **about)
