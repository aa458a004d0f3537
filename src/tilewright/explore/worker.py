"""A worker: a process of this computer that measures machines, one after the other.

A worker and its parent process exchange lines of JSON through pipes. The worker sends an empty line when it has
started. A worker has its own session, so that Ctrl-C reaches only the parent process. It ends when the parent process
ends.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from threading import Thread, main_thread
from time import sleep
from typing import IO, Any

from tilewright.errors import InputError, TilewrightError
from tilewright.explore.measure import Subject, measured
from tilewright.explore.trial import Trial

#: A worker uses one thread, because the workers share the cores.
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: The Python code of a worker. It imports modules from the same folders as its parent; -P excludes the current folder.
_BEGIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tilewright.explore.worker import serve; serve()"
#: The garbage collector runs after this number of machines.
UNCOLLECTED = 64
#: The time limit of a worker's clean-up, in seconds.
PATIENCE = 1.0
_MEASURED = count()


class Worker:
    """A worker, as its parent process sees it. `task` is the machine that the worker measures at the moment."""

    def __init__(self, subject: Mapping[str, Any]) -> None:
        self.task: tuple[int, Mapping[str, str]] | None = None
        self.started = False
        self._text = b""
        pipe = subprocess.PIPE
        null = subprocess.DEVNULL
        command = [sys.executable, "-P", "-c", _BEGIN, json.dumps(sys.path)]
        environment = {**os.environ, **_THREADS}
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True
        )
        self._send(subject)

    def fileno(self) -> int:
        """Return a file descriptor that is readable when the worker has sent a line or has ended."""
        return self._pipe(self._process.stdout).fileno()

    def measure(self, point: int, keys: Mapping[str, str]) -> None:
        self.task = point, keys
        self._send([point, dict(keys)])

    def said(self) -> Iterator[Trial]:
        """Yield the received trials. Raises EOFError if the worker has ended. An error in the worker is raised here."""
        part = os.read(self.fileno(), 1 << 16)
        if not part:
            raise EOFError(self._end())
        # The last part is the beginning of the next line.
        *lines, self._text = (self._text + part).split(b"\n")
        for line in lines:
            if not line:
                self.started = True
                continue
            answer = json.loads(line)
            if "refused" in answer:
                raise InputError(*answer["refused"])
            if "failed" in answer:
                raise RuntimeError(f"a worker failed:\n{answer['failed']}")
            self.task = None
            yield Trial.from_json(answer)

    def leave(self) -> None:
        """Ask the worker to end, without waiting for its end."""
        with suppress(OSError):
            self._pipe(self._process.stdin).close()

    def close(self) -> None:
        self.leave()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * PATIENCE)
        self._end()
        self._pipe(self._process.stdout).close()

    def _end(self) -> str:
        """Kill the worker and its child processes. Return the cause of its end, a signal or a status."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        return signal.Signals(-status).name if status < 0 else f"status {status}"

    def _send(self, data: Any) -> None:
        with suppress(OSError):  # if the worker has ended, `said` raises EOFError
            pipe = self._pipe(self._process.stdin)
            pipe.write(json.dumps(data).encode() + b"\n")
            pipe.flush()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


def collecting(subject: Subject, point: int, keys: Mapping[str, str]) -> Trial:
    """Measure a machine. The garbage collector must be disabled, and runs here after UNCOLLECTED machines."""
    # An enabled collector would scan all objects twice per machine, which takes a tenth of the time.
    if next(_MEASURED) % UNCOLLECTED == UNCOLLECTED - 1:
        gc.collect()
    return measured(subject, point, keys)


def serve() -> None:
    """Measure the machines that arrive on stdin, until stdin is closed."""
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print to stderr from here on, so that stdout only has answers
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = SimpleQueue[bytes]()
    Thread(target=_listen, args=(asked,), daemon=True).start()
    gc.disable()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        subject = Subject.from_json(json.loads(asked.get()))
        os.write(answers, b"\n")
        while True:
            line = json.dumps(_answer(subject, *json.loads(asked.get()))).encode() + b"\n"
            while line:
                line = line[os.write(answers, line) :]
    os._exit(0)


def _listen(asked: SimpleQueue[bytes]) -> None:
    """Forward the lines of stdin. At its end, interrupt the main thread, and kill the session soon afterwards."""
    for line in sys.stdin.buffer:
        asked.put(line)
    signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
    sleep(PATIENCE)
    os.killpg(0, signal.SIGKILL)


def _answer(subject: Subject, point: int, keys: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        return collecting(subject, point, keys).to_json()
    except TilewrightError as error:
        return {"refused": [error.where, error.reason, error.remedy]}
    except Exception:
        return {"failed": traceback.format_exc()}
