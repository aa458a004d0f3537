"""Run compilers and other programs. No program outlives the command that started it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from tilewright.files import writable


@contextmanager
def started(
    command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a folder, and wait for it at the end of the `with` block. `extra` are environment variables.

    If the block raises an exception (for example, after Ctrl-C), the program and its child processes are killed. Raises
    OSError if the program cannot be started.
    """
    pipe = subprocess.PIPE
    environment = {**os.environ, **(extra or {})}
    # The program leads a process group of its own, so that `killpg` also reaches its child processes.
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            yield process
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def compiling(folder: Path) -> dict[str, str]:
    """Return environment variables that make a compiler write its temporary files to a folder."""
    # Zig hangs if it cannot write its cache.
    return {"TMPDIR": str(folder), **(cache_of("ZIG_GLOBAL_CACHE_DIR", "zig") if find_spec("ziglang") else {})}


def cache_of(variable: str, name: str) -> dict[str, str]:
    """Return the environment variable of a tool's cache folder, or of a temporary folder if the cache is unwritable."""
    return {variable: os.environ.get(variable) or str(writable(user_cache_path(name, appauthor=False)))}


def run(
    command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as `started` does, and return its status and output.

    Raises OSError if the program cannot be started, and subprocess.TimeoutExpired after `timeout` seconds.
    """
    with started(command, folder, extra) as process:
        said, errors = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, said, errors)
