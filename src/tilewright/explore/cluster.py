"""Measure machines on a Dask cluster. Workers, the scheduler or the client may be killed at any moment.

If a worker dies, Dask gives its machine to another worker. If the scheduler dies, the client connects again and submits
all unfinished machines again. Received results are already in the study's journal (study.py). Arguments and results of
tasks are JSON texts. A worker identifies a model file by its hash, and refuses a file with another hash.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import re
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from importlib.util import find_spec
from multiprocessing import resource_tracker
from queue import Empty, Queue
from shutil import rmtree
from tempfile import mkdtemp
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tilewright.errors import InputError, option
from tilewright.explore.measure import Model, Subject, measured
from tilewright.explore.trial import REFUSED, Trial
from tilewright.files import regular
from tilewright.install import hint

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as Task

#: Dask's settings for a scheduler or workers that Tilewright starts. The settings disable Dask's HTTP pages, because
#: the pages need no login, and import `dask_setup` of this module, which closes the HTTP ports. PYTHONSAFEPATH prevents
#: imports from the current folder. Workers inherit the settings.
SETTINGS = {
    **{f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")},
    **{f"distributed.{role}.preload": [__name__] for role in ("scheduler", "worker")},
    "distributed.nanny.pre-spawn-environ.PYTHONSAFEPATH": "1",
}
#: The time limit, in seconds, for a scheduler to start or to return, and the pause between two attempts to connect.
PATIENCE = 120.0
PAUSE = 1.0
#: While waiting for a task, the connection is checked after each LOOK seconds.
LOOK = 5.0


class Connections(NamedTuple):
    """A connection to a cluster. If Tilewright started the cluster, `cluster` is closed with the connection."""

    client: Client
    cluster: Any

    def close(self) -> None:
        for connection in self:
            if connection is not None:
                with suppress(OSError, RuntimeError, TimeoutError):
                    connection.close(timeout=LOOK)


class Cluster:
    """A pool that measures machines on the workers of a Dask cluster; `where` is the value of `--cluster`."""

    def __init__(self, subject: Subject, where: str) -> None:
        opened = opener(where)
        self._open = lambda: _shielded(lambda: opened(PATIENCE))
        self._models = subject.models
        self._given = json.dumps(subject.to_json())
        self._waiting: dict[Task[Any], tuple[int, Mapping[str, str]]] = {}
        self._lost: list[tuple[int, Mapping[str, str]]] = []
        self._done: Queue[Task[Any]] = Queue()

    def __enter__(self) -> Self:
        self._opened = self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    @property
    def workers(self) -> int:
        """The number of machines that the cluster can measure at a time, at least 1. Workers may come and go."""
        try:
            return max(1, sum(self._opened.client.nthreads().values()))
        except (OSError, RuntimeError, TypeError):  # the scheduler is gone: `ended` connects again
            return 1

    def submit(self, point: int, keys: Mapping[str, str]) -> None:
        try:
            asked = json.dumps([point, dict(keys)])
            future = self._opened.client.submit(_measure, self._given, asked, key=f"machine-{point}-{monotonic()}")
            future.add_done_callback(self._done.put)
            self._waiting[future] = point, keys
        except (OSError, RuntimeError):  # the scheduler is gone
            self._lost.append((point, keys))

    def ended(self) -> Trial:
        while True:
            # A dead scheduler does not wake up Dask's futures, so wait in short intervals and check the connection.
            if self._lost or not self._connected:
                self._reconnect()
            with suppress(Empty):
                trial = self._trial(self._done.get(timeout=LOOK))
                if trial:
                    return trial

    def _trial(self, future: Task[Any]) -> Trial | None:
        """Return the trial of a finished task, or None if the machine was submitted again."""
        from distributed.scheduler import KilledWorker

        if future not in self._waiting:
            return None  # a future of an earlier connection, whose machine was already submitted again
        point, keys = self._waiting.pop(future)
        try:
            answer = json.loads(future.result(timeout=LOOK))
        except KilledWorker:
            return Trial(point, keys, REFUSED, reason="the worker that measures this machine dies")
        except (OSError, TimeoutError, CancelledError):
            self._lost.append((point, keys))
            return None
        if "failed" in answer:
            raise InputError(
                option("--cluster"), f"a worker failed: {answer['failed']}", "measure with workers to see where"
            )
        if "missing" not in answer:
            return Trial.from_json(answer)
        # The worker has no copy of a model: send the file, then submit the machine again.
        self._give(answer["missing"], answer["worker"])
        self.submit(point, keys)
        return None

    @property
    def _connected(self) -> bool:
        return self._opened.client.status == "running" and not any(
            future.status in ("lost", "cancelled") for future in self._waiting
        )

    def _reconnect(self) -> None:
        lost = [*self._lost, *self._waiting.values()]
        self._waiting.clear()
        self._lost.clear()
        self._opened.close()
        self._opened = self._open()
        for point, keys in lost:
            self.submit(point, keys)

    def _give(self, digests: list[str], worker: str) -> None:
        for model in self._models:
            if model.digest in digests:
                data = regular(model.path).read_bytes()
                with suppress(OSError, RuntimeError):
                    self._opened.client.run(_keep, tuple(model), data, workers=[worker])


def opener(where: str) -> Callable[[float], Connections]:
    """Return a function(seconds) that connects to a cluster within a time limit. `where` is ADDRESS or KIND:WORKERS.

    Raises InputError if `where` is malformed, or if a package is not installed.
    """
    try:
        import distributed
    except ImportError:
        remedy = f"{hint('cluster')}, or use processes: {option('--workers', '`workers`')}"
        raise InputError(option("--cluster"), "needs Dask", remedy) from None
    for name in logging.root.manager.loggerDict:
        if name.startswith("distributed"):  # Dask would print tracebacks about a dead scheduler
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if re.match(r"(tcp|tls)://.+:\d+$", where):
        return lambda seconds: _connect(where, seconds)
    kind, _, number = where.partition(":")
    if kind not in ("local", "slurm", "kubernetes") or not re.fullmatch(r"[1-9]\d{0,4}", number):
        remedy = "give tcp://HOST:PORT, tls://HOST:PORT, local:N, slurm:N or kubernetes:N"
        raise InputError(option("--cluster"), f"'{where}' is not the address or kind of a cluster", remedy)
    count = int(number)
    if kind == "local":
        if find_spec("cryptography") is None:
            raise InputError(option("--cluster"), "needs cryptography, for certificates", hint("cluster"))
        # Without certificates, all users of this computer could run code in the scheduler and the workers.
        options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
        options |= {"n_workers": count, "threads_per_worker": 1, "security": True, "local_directory": _private()}
        return lambda _: _launched(lambda: distributed.LocalCluster(**options))
    package, name = {
        "slurm": ("dask_jobqueue", "SLURMCluster"),
        "kubernetes": ("dask_kubernetes.operator", "KubeCluster"),
    }[kind]
    try:
        launcher = getattr(__import__(package, fromlist=[name]), name)
    except ImportError:
        missing = package.partition(".")[0].replace("_", "-")
        raise InputError(option("--cluster"), f"{kind} needs {missing}", f"pip install {missing}") from None

    secure = {"security": True} if kind == "slurm" else {}  # for slurm, the scheduler runs here and listens on a port

    def launch() -> Any:
        cluster = launcher(**secure)  # the user's Dask configuration sets the memory, the queue and the image
        cluster.scale(count)
        return cluster

    return lambda _: _launched(launch)


def dask_setup(server: Any) -> None:
    """Close the HTTP port that Dask always opens. Dask calls this function when a scheduler or worker starts."""
    server.http_server.stop()


def _private() -> str:
    """Return a new folder that only this user may write. The folder is deleted when this process ends."""
    # Workers import modules from their folder, and Dask's default folder is shared by all users of a computer.
    folder = mkdtemp(prefix="tilewright-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def _shielded(start: Callable[[], Connections]) -> Connections:
    """Call `start` in a thread that blocks Ctrl-C. After a Ctrl-C, close the cluster as soon as it is open."""
    opened = Future[Connections]()
    context = copy_context()
    # Python starts the resource tracker at first use, and then unblocks SIGINT, so it is started before the thread.
    resource_tracker.ensure_running()

    def work() -> None:
        # Child processes inherit the blocked signal, and so print no tracebacks on Ctrl-C.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            opened.set_result(context.run(start))
        except BaseException as error:
            opened.set_exception(error)

    Thread(target=work, daemon=True).start()
    try:
        return opened.result()
    except KeyboardInterrupt:
        opened.add_done_callback(lambda done: done.exception() or done.result().close())
        raise


def _launched(start: Callable[[], Any]) -> Connections:
    import dask
    from distributed import Client

    with dask.config.set(SETTINGS):
        cluster = start()
    return Connections(Client(cluster, set_as_default=False), cluster)


def _connect(address: str, seconds: float) -> Connections:
    """Connect to a scheduler. Raises InputError after a timeout, or if certificates are missing."""
    from distributed import Client

    until = monotonic() + seconds
    while True:
        try:
            asyncio.run(_reached(address))
            return Connections(Client(address, timeout=LOOK, set_as_default=False), None)
        except TypeError:  # Dask's error for a tls:// address without certificates
            remedy = "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, __CLIENT__CERT and __CLIENT__KEY, see docs/explore.md"
            raise InputError(option("--cluster"), f"no certificates are configured for {address}", remedy) from None
        except (OSError, TimeoutError) as error:
            if monotonic() > until:
                reason = f"cannot reach the scheduler {address}: {error}"
                raise InputError(option("--cluster"), reason, "start it, then resume the study") from None
            sleep(PAUSE)


async def _reached(address: str) -> None:
    """Try to reach a scheduler. A Dask client that fails to connect would print a traceback later."""
    from distributed import Security
    from distributed.comm.core import connect

    comm = await connect(address, timeout=LOOK, **Security().get_connection_args("client"))
    await comm.close()


def _measure(subject: str, asked: str) -> str:
    """Measure a machine on a worker. Return the trial, the missing models, or an error, as JSON."""
    parsed = Subject.from_json(json.loads(subject))
    point, keys = json.loads(asked)
    if missing := [model.digest for model in parsed.models if not model.here]:
        from distributed import get_worker

        return json.dumps({"missing": missing, "worker": get_worker().address})
    try:
        return json.dumps(measured(parsed, point, keys).to_json())
    except Exception as error:
        # As text: Dask would pickle an exception, and a client that cannot unpickle the exception would wait forever.
        return json.dumps({"failed": f"{type(error).__name__}: {error}"})


def _keep(model: tuple[Any, ...], data: bytes) -> None:
    Model(*model).keep(data)
