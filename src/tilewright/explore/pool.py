"""Pools that measure machines: in this process, or in several processes of this computer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import ExitStack
from select import POLLIN, poll
from types import TracebackType
from typing import Any, Protocol, Self

from tilewright.array import uncollected
from tilewright.errors import InputError, option
from tilewright.explore.measure import Subject
from tilewright.explore.trial import REFUSED, Trial
from tilewright.explore.worker import Worker, collecting

#: A machine is abandoned if more workers than this die while they measure it.
DEATHS = 3
#: The study is abandoned if more workers than this die one after the other while they start.
STARTS = 20
#: A machine to measure: its point, and its varying keys.
Task = tuple[int, Mapping[str, str]]


class Pool(Protocol):
    """A pool of workers that measure machines."""

    @property
    def workers(self) -> int:
        """The number of machines that can be measured at a time."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None: ...

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        """Submit a machine for measurement."""

    def ended(self) -> Trial:
        """Wait until a submitted machine is measured, and return its trial."""


class InProcess:
    """A pool that measures machines in this process, one after another."""

    workers = 1

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._paused = ExitStack()
        self._waiting = deque[Task]()

    def __enter__(self) -> Self:
        self._paused.enter_context(uncollected())
        return self

    def __exit__(self, *error: object) -> None:
        self._paused.close()

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        self._waiting.append((point, keys))

    def ended(self) -> Trial:
        return collecting(self._subject, *self._waiting.popleft())


class Processes:
    """A pool of processes on this computer. A process that dies is replaced, and its machine is measured again."""

    def __init__(self, subject: Subject, workers: int) -> None:
        self.workers = workers
        self._given = subject.to_json()
        self._running = set[Worker]()
        self._waiting = deque[Task]()
        self._done = deque[Trial]()
        self._deaths = Counter[int]()
        self._failed_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._running:
            worker.leave()
        for worker in self._running:
            worker.close()

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        self._waiting.append((point, keys))
        self._give()

    def ended(self) -> Trial:
        while not self._done:
            talking = {worker.fileno(): worker for worker in self._running}
            ready = poll()
            for number in talking:
                ready.register(number, POLLIN)
            for number, _ in ready.poll():
                self._hear(talking[number])
            self._give()
        return self._done.popleft()

    def _give(self) -> None:
        idle = [worker for worker in self._running if not worker.task]
        while self._waiting and (idle or len(self._running) < self.workers):
            try:
                worker = idle.pop() if idle else Worker(self._given)
            except OSError:  # the system allows no more processes or open files
                if not self._running:
                    raise
                return
            self._running.add(worker)
            worker.measure(*self._waiting.popleft())

    def _hear(self, worker: Worker) -> None:
        """Receive the trials of a worker. If the worker has died, its machine is submitted again or abandoned."""
        try:
            self._done.extend(worker.said())
        except EOFError as cause:
            self._running.remove(worker)
            worker.close()
            self._lost(worker, str(cause))
        else:
            self._failed_starts = 0

    def _lost(self, worker: Worker, cause: str) -> None:
        # A process that dies before it has started got no machine, so no machine is the cause.
        if not worker.started:
            self._failed_starts += 1
            if self._failed_starts > STARTS:
                reason = f"{self._failed_starts} processes in a row died as they started ({cause})"
                raise InputError(option("--workers"), reason, "give fewer workers; a single one shows its errors")
        elif worker.task:
            self._deaths[worker.task[0]] += 1
        if not worker.task:
            return
        point, keys = worker.task
        if self._deaths[point] > DEATHS:
            reason = f"the process that measures it dies ({cause}, {self._deaths[point]} times)"
            self._done.append(Trial(point, keys, REFUSED, reason=reason))
        else:
            self._waiting.append((point, keys))
