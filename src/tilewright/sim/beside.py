"""Work beside other work: a compiled loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread beside a `with` block, which ends when both have ended.

    Compiled loops release Python's lock, so both advance. An error of the block is raised before one of `work`.
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
    finally:
        thread.join()
    if raised:
        raise raised[0]
