"""Loops compiled by Numba on first use. Compiled loops stay on disk, and later processes load them without Numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from threading import Thread, current_thread, main_thread
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast

from tilewright.sim import native
from tilewright.sim.native import Emit

P = ParamSpec("P")
R = TypeVar("R")

#: Microseconds that all loops together may run uncompiled in one process: the time of loading Numba. Compiling a loop
#: takes another second, once per installation.
PATIENCE = 300_000
#: The limit for a loop that is on disk: the time of loading LLVM and the loops, which is 60 to 100 ms.
PATIENCE_IF_ON_DISK = 100_000
#: Ctrl-C interrupts only long calls: those with an uncompiled time above this number of microseconds. A call of this
#: length takes 5 ms if compiled.
LONG = 1_000_000


@contextmanager
def in_parallel(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread while a `with` block runs; the block ends when both have ended.

    Compiled loops release Python's lock, so the thread and the block run in parallel. If both fail, the block's error
    is raised. Ctrl-C ends the block at once (see `interruptible`).
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


def interruptible(work: Callable[[], R]) -> R:
    """Return the result of `work`. Ctrl-C ends the wait for this result.

    `work` runs in another thread, so that the main thread can handle signals. After Ctrl-C, a compiled loop in `work`
    runs on until its end, or until the end of the process.
    """
    if current_thread() is not main_thread():
        return work()
    results: list[R] = []
    with in_parallel(lambda: results.append(work())):
        pass
    return results[0]


class Compiled(Generic[P, R]):
    """A function of arrays and numbers that runs compiled; `.python` is the same function, uncompiled.

    Its arguments are positional: arrays, numbers, and named tuples of these.
    """

    #: The uncompiled time of all calls so far, in microseconds, and of the calls that `expect` has announced.
    spent: ClassVar[int] = 0
    #: The time of the announced calls that have not been made yet, which is a part of `spent`.
    expected: ClassVar[int] = 0

    def __init__(self, python: Callable[P, R]) -> None:
        update_wrapper(self, python)
        self.python = python
        self._native: dict[str, native.Loop] = {}  # by the types of the arguments

    def due(self, microseconds: int) -> bool:
        """Return whether to use the compiled version for a call that takes about `microseconds` uncompiled.

        Calls stay in Python until their total time reaches the time of loading the compiled version.
        """
        announced = min(Compiled.expected, microseconds)  # already in `spent`
        Compiled.expected -= announced
        Compiled.spent += microseconds - announced
        return (
            bool(self._native)
            or Compiled.spent >= PATIENCE
            or (Compiled.spent >= PATIENCE_IF_ON_DISK and native.on_disk(self.python))
        )

    def of(self, microseconds: int) -> Callable[P, R]:
        """Return the function, compiled or not, for a call that takes about `microseconds` uncompiled."""
        if not self.due(microseconds):
            return self.python
        return self.interruptible if microseconds >= LONG else self

    def interruptible(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function. Ctrl-C ends the wait for its result, at a cost of 0.1 ms per call."""
        return interruptible(lambda: self(*args, **kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs, "a compiled loop takes its arguments by position"
        return cast(R, self.loaded(args)(*args))

    def loaded(self, args: tuple[Any, ...]) -> native.Loop:
        types = native.signature(args)
        if types not in self._native:
            self._native[types] = native.load(self.python, args)
        return self._native[types]


def expect(microseconds: int) -> None:
    """Announce calls with an uncompiled time of `microseconds`, so that all calls before them are compiled, too."""
    Compiled.spent += microseconds
    Compiled.expected += microseconds


def compiled(function: Callable[P, R]) -> Compiled[P, R]:
    """Return `function`, to be compiled on its first call (a decorator).

    The function returns an integer or None, and writes all other results to its array arguments. It must not allocate
    memory, or use a function of Numba's library, such as math.frexp. It may call other compiled functions, and use
    constants, from any file.
    """
    return Compiled(function)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that is always inlined in the compiled functions that call it (a decorator)."""
    native.INLINED.add(function)
    return function


def in_llvm(emit: Emit) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Mark a function whose LLVM code is written by `emit`, for calls from compiled functions (a decorator).

    The function returns None. The arguments of `emit` are llvmlite's IR builder, and for each argument of the function
    a width in `bits` and a value in `operands`. A number has its own width, and is extended to 64 bits. For an array,
    these are the width of an element, and the address of the first element.
    """

    def mark(function: Callable[P, None]) -> Callable[P, None]:
        native.EMITTED[function] = emit
        return function

    return mark
