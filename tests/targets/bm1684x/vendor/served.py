"""Run the vendor's libraries in a process of their own.

An assertion of theirs ends their process. Loading the estimator makes the processor take subnormal floats as zero,
which would change the results of NumPy in this process.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

#: Seconds after which a case counts as refused: some assertions hang.
PATIENCE = 20
Case = TypeVar("Case")


def _serve(cases: Sequence[Case], start: Callable[[], Callable[[Case], Any]], pipe: int) -> None:
    """Send the result of each case, after a first message that says that the library has started.

    A Python error is sent in the place of a result.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)

    def send(result: Any) -> None:
        data = pickle.dumps(result)
        with os.fdopen(os.dup(pipe), "wb") as file:
            file.write(struct.pack("<q", len(data)) + data)

    try:
        run = start()
        send(None)
        for case in cases:
            signal.alarm(PATIENCE)
            result = run(case)
            signal.alarm(0)
            send(result)
    except Exception as error:
        send(error)


def served(cases: Sequence[Case], start: Callable[[], Callable[[Case], Any]]) -> Iterator[Any]:
    """Yield the result of each case, or None if the library refuses it: it ended its process, or hangs.

    `start` runs in the other process, and returns the function that runs a case. After a refusal it runs again. Raises
    RuntimeError if the library does not start, and the error of a case that is not called as the library demands.
    """
    done = 0
    while done < len(cases):
        here, there = os.pipe()
        child = os.fork()
        if not child:
            try:
                _serve(cases[done:], start, there)
            finally:
                os._exit(0)
        os.close(there)
        started = False
        with os.fdopen(here, "rb") as file:
            while head := file.read(8):
                result = pickle.loads(file.read(struct.unpack("<q", head)[0]))
                if isinstance(result, Exception):
                    raise result
                if started:
                    yield result
                    done += 1
                started = True
        os.waitpid(child, 0)
        if not started:
            raise RuntimeError("the vendor's library did not start")
        if done < len(cases):
            yield None
            done += 1
