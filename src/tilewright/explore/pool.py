"""Where machines are measured: in this process, or in several processes of this computer."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from itertools import count
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Protocol, Self

from tilewright.array import uncollected
from tilewright.explore.measure import Subject, measured
from tilewright.explore.trial import REFUSED, Trial

#: A machine whose worker dies this often is given up.
DEATHS = 2
#: One thread a worker: the workers share the cores.
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_THREADS["PYTHONSAFEPATH"] = "1"  # the workers must not import modules from the current folder
#: How many machines are measured between two runs of the garbage collector.
UNCOLLECTED = 64
_MEASURED = count()


class Pool(Protocol):
    """Measures machines."""

    @property
    def workers(self) -> int:
        """How many machines can be measured at a time."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None: ...

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        """Have a machine measured."""

    def ended(self) -> Trial:
        """Wait for the next of the submitted machines to be measured, and return its trial."""


class Here:
    """Measures machines in this process, in order."""

    workers = 1

    def __init__(self, subject: Subject) -> None:
        self._subject, self._paused = subject, ExitStack()
        self._waiting: deque[tuple[int, Mapping[str, str]]] = deque()

    def __enter__(self) -> Self:
        self._paused.enter_context(uncollected())
        return self

    def __exit__(self, *error: object) -> None:
        self._paused.close()

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        self._waiting.append((point, keys))

    def ended(self) -> Trial:
        point, keys = self._waiting.popleft()
        return collecting(self._subject, point, keys)


class Processes:
    """Measures machines in processes of this computer. A process that dies is replaced, and its machine tried again."""

    def __init__(self, subject: Subject, workers: int) -> None:
        self.workers = workers
        self._given = (subject.to_json(),)
        self._waiting: dict[Future[dict[str, Any]], tuple[int, Mapping[str, str]]] = {}
        self._deaths: dict[int, int] = {}

    def __enter__(self) -> Self:
        before = {name: os.environ.get(name) for name in _THREADS}
        self._before = before
        os.environ.update(_THREADS)
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def _start(self) -> None:
        context = get_context("spawn")
        self._executor = ProcessPoolExecutor(self.workers, context, initializer=_begin, initargs=self._given)

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        self._waiting[self._executor.submit(_measure, point, dict(keys))] = (point, keys)

    def ended(self) -> Trial:
        while True:
            done, _ = wait(self._waiting, return_when=FIRST_COMPLETED)
            future = done.pop()
            point, keys = self._waiting.pop(future)
            try:
                return Trial.from_json(future.result())
            except BrokenProcessPool:
                lost = [(point, keys), *self._waiting.values()]
                self._waiting.clear()
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._start()
                given_up: Trial | None = None
                for each, own in lost:  # nobody knows which of them ended the process
                    self._deaths[each] = self._deaths.get(each, 0) + 1
                    if self._deaths[each] > DEATHS and given_up is None:
                        given_up = Trial(each, own, REFUSED, reason="the process that measures it dies")
                    else:
                        self.submit(each, own)
                if given_up:
                    return given_up


def collecting(subject: Subject, point: int, keys: Mapping[str, str]) -> Trial:
    """Measure a machine, and run the garbage collector now and then, which is off while machines are measured.

    It would scan everything twice for each machine, a tenth of the time.
    """
    if next(_MEASURED) % UNCOLLECTED == UNCOLLECTED - 1:
        gc.collect()
    return measured(subject, point, keys)


_OWN: list[Subject] = []


def _begin(subject: dict[str, Any]) -> None:
    """Take the subject of a worker process."""
    gc.disable()
    _OWN[:] = [Subject.from_json(subject)]


def _measure(point: int, keys: dict[str, str]) -> dict[str, Any]:
    return collecting(_OWN[0], point, keys).to_json()
