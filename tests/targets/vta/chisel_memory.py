"""The memory side of chisel_reference.py: upstream's memory engine and its simulated memory."""

from __future__ import annotations

from collections import deque


class Memory:
    """dpi/VTAMemDPI.scala, VTAMemDPIToAXI and the DPI call behind it."""

    def __init__(self, delay: int) -> None:
        self.queue: deque[tuple[int, int]] = deque()  # (len, id), len one less than beats
        self.delay, self.counter, self.reading, self.ar_len = delay, 0, False, 0
        self.left, self.serving = 0, 0  # the DPI function's own state
        self.valid, self.id = False, 0  # its registered outputs

    @property
    def last(self) -> bool:
        return self.valid and self.ar_len == 0

    def clock(self, request: tuple[int, int] | None) -> None:
        waiting = bool(self.queue)
        dequeue = waiting and not self.reading and self.counter == self.delay
        ar_len, reading = self.ar_len, self.reading
        if dequeue:
            length, identity = self.queue.popleft()
            ar_len = length
            reading = length != 0
            self.left, self.serving = length + 1, identity
        elif self.reading and self.valid:
            if self.ar_len == 1:
                reading = False
            if self.ar_len:
                ar_len -= 1
        self.counter = 0 if not waiting else min(self.delay, self.counter + 1)
        self.valid, self.id = self.left > 0, self.serving
        self.left = max(0, self.left - 1)
        self.ar_len, self.reading = ar_len, reading
        if request:
            assert len(self.queue) < 256
            self.queue.append(request)


class Engine:
    """shell/VME.scala, the read side."""

    def __init__(self) -> None:
        self.slots: list[int | None] = [None] * 5
        self.available = [True] * 16
        self.client_of = [0] * 16
        self.data = -1

    def clock(self, memory: Memory, last: bool, wanted: dict[int, int], fired: set[int]) -> tuple[int, int] | None:
        request = None
        valid = [client for client in range(5) if self.slots[client] is not None]
        if valid and any(self.available) and not last:
            client, tag = valid[0], self.available.index(True)
            beats = self.slots[client]
            assert beats is not None
            request = (beats - 1, tag)
            self.slots[client] = None
            self.available[tag], self.client_of[tag] = False, client
        self.data = self.client_of[memory.id] if memory.valid else -1
        if last:
            self.available[memory.id] = True
        for client in fired:
            self.slots[client] = wanted[client]
        return request


class Writer:
    """shell/VME.scala, the write side, and the write side of VTAMemDPIToAXI."""

    def __init__(self) -> None:
        self.state, self.memory = "idle", "idle"
        self.count = self.length = 0
        self.command: int | None = None
        self.offered = False

    @property
    def ready(self) -> bool:
        return self.state == "idle"

    @property
    def data_ready(self) -> bool:
        return self.state == "data" and self.memory == "data"

    @property
    def ack(self) -> bool:
        return self.state == "resp" and self.memory == "resp"

    def clock(self) -> None:
        state, memory = self.state, self.memory
        fire = self.data_ready and self.offered
        final = fire and self.count == self.length
        if self.state == "idle" and self.command is not None:
            state, self.length = "addr", self.command
        elif self.state == "addr" and self.memory == "addr":
            state = "data"
        elif final:
            state = "resp"
        elif self.ack:
            state = "idle"
        if self.memory == "idle" and self.state == "addr":
            memory = "addr"
        elif self.memory == "addr":
            memory = "data"
        elif final:
            memory = "resp"
        elif self.ack:
            memory = "idle"
        self.count = 0 if self.state == "idle" else self.count + fire
        self.state, self.memory, self.command, self.offered = state, memory, None, False
