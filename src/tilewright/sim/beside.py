"""Work in a thread of its own: beside other work, or for Ctrl-C, which reaches the main thread while it only waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from typing import TypeVar

R = TypeVar("R")


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread beside a `with` block, which ends when both have ended.

    Compiled loops release Python's lock, so both advance. An error of the block is raised before one of `work`. Ctrl-C
    ends the block at once (see `apart`).
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # raised again below, in the caller's thread
            raised.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        thread.join()
        raise
    thread.join()
    if raised:
        raise raised[0]


def apart(work: Callable[[], R]) -> R:
    """Return the result of `work`, which the main thread runs in another one, and leaves at once on Ctrl-C.

    A compiled loop sees no signal: after Ctrl-C it goes on until it ends, or until the process does.
    """
    if current_thread() is not main_thread():
        return work()
    results: list[R] = []
    with beside(lambda: results.append(work())):
        pass
    return results[0]
