"""The process of the command `tilewright` or `python -m tilewright`: it handles Ctrl-C and the standard streams.

Ctrl-C ends any command with one line and status 130, even while Python imports modules or shuts down. Therefore this
module imports little at the top, and imports the command line inside `main`.
"""

from __future__ import annotations

import os
import sys

if (
    __name__ == "__main__"
    and __spec__
    and not sys.flags.safe_path
    and sys.path[0] != os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
):
    # `python -m` searches the current folder first: a file in this folder could replace a module of the same name.
    del sys.path[0]

import signal
from contextlib import suppress
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

INTERRUPTED = 130
#: Seconds in which a second Ctrl-C is ignored: it would interrupt the clean-up that the first Ctrl-C started.
AGAIN = 1.0
#: Seconds until an interrupt that a library has swallowed is repeated.
SOON = 0.01


def main() -> int:
    _open_streams()
    # Under nohup, SIGINT is ignored, and stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    try:
        from tilewright.cli import main as run

        status = run()
    except KeyboardInterrupt:
        _say_interrupted()
        status = INTERRUPTED
    with suppress(KeyboardInterrupt):
        _flush()
    if status == INTERRUPTED:
        _end_now()
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _interrupt_end)
    return status


class _Pressed:
    last = -AGAIN


def _interrupt(number: int, frame: FrameType | None) -> None:
    before = _Pressed.last
    _Pressed.last = monotonic()
    if _Pressed.last - before > AGAIN:
        raise KeyboardInterrupt


def _interrupt_end(number: int, frame: FrameType | None) -> None:
    _say_interrupted()
    _end_now()


def _unraisable(caught: Any) -> None:
    """Repeat a Ctrl-C that arrived in code that cannot raise an exception, such as a destructor."""
    if not issubclass(caught.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(caught)
        return
    from threading import Timer, main_thread

    _Pressed.last = -AGAIN
    timer = Timer(SOON, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
    timer.daemon = True
    timer.start()


def _open_streams() -> None:
    """Connect closed streams to the null device, and replace unprintable characters in the output."""
    # The next opened file would get the descriptor of a closed stream, and printed text would end up in that file.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            if null != number:
                os.dup2(null, number)
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        if number:
            getattr(sys, name).reconfigure(errors="replace")


def _flush() -> None:
    for number, stream in enumerate((sys.stdout, sys.stderr), start=1):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Otherwise Python's own flush at exit would fail, and print an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _say_interrupted() -> None:
    with suppress(OSError):
        os.write(2, b"\n" * os.isatty(2) + b"tilewright: interrupted\n")  # on a terminal, the line already has ^C


def _end_now() -> None:
    import atexit
    from threading import Timer

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # From here on, no library may print text.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for child in _children():
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    # An exit function may wait forever for a child process that was just killed.
    timer = Timer(AGAIN, os._exit, (INTERRUPTED,))
    timer.daemon = True
    timer.start()
    with suppress(Exception):
        atexit._run_exitfuncs()
    os._exit(INTERRUPTED)


def _children() -> list[int]:
    """Return the descendants of this process from /proc, or an empty list on a system without /proc."""
    parents = dict[int, int]()
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    processes = [os.getpid()]
    for process in processes:
        processes += [child for child, parent in parents.items() if parent == process]
    return processes[1:]


if __name__ == "__main__":
    sys.exit(main())
