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
One = TypeVar("One")


def _serve(cases: Sequence[One], start: Callable[[], Callable[[One], Any]], pipe: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    run = start()
    for case in cases:
        signal.alarm(PATIENCE)
        found = run(case)
        signal.alarm(0)
        data = pickle.dumps(found)
        with os.fdopen(os.dup(pipe), "wb") as file:
            file.write(struct.pack("<q", len(data)) + data)


def served(cases: Sequence[One], start: Callable[[], Callable[[One], Any]]) -> Iterator[Any]:
    """Yield the result of each case, or None if the library refuses it: it ended its process, or hangs.

    `start` runs in the other process, and returns the function that runs a case. After a refusal it runs again.
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
        with os.fdopen(here, "rb") as file:
            while head := file.read(8):
                data = file.read(struct.unpack("<q", head)[0])
                yield pickle.loads(data)
                done += 1
        os.waitpid(child, 0)
        if done < len(cases):
            yield None
            done += 1
