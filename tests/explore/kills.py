"""Studies on a real Dask scheduler and workers on the loopback interface, whose processes are killed at random.

A trial is finished once its line is in the study's journal. `lost` are finished trials that are missing later.
`repeated` are second lines of a point, and measurements that began when the point's line was there: the workers write
down the point of each measurement as it begins.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from tests.conftest import ROOT
from tilewright.explore.study import JOURNAL

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
KEYS = "LOG_INP_BUFF_SIZE=13..15", "LOG_ACC_BUFF_SIZE=13..15", "LOG_BUS_WIDTH=6..7"
POINTS = 18
VICTIMS = "scheduler", "worker 0", "worker 1", "client"
#: Seconds between two kills, and until what was killed is started again; the longest wait for a study, and for a kill.
PAUSE, DEAD, LONGEST, LONGER = (0.5, 6.0), (0.0, 1.0), 900.0, 20.0
#: The worker's module that writes down each measurement, and the file: one point a line.
PRELOAD = """
import os
from tilewright.explore import cluster, measure

def written(subject, point, keys):
    with open(os.environ["BEGUN"], "a") as file:
        file.write(f"{point}\\n")
    return measure.measured(subject, point, keys)

cluster.measured = written
"""


class Servers:
    """A scheduler and two workers, each a process of its own that can be killed and started again.

    `begun` is the file in which the workers write down the point of each measurement.
    """

    def __init__(self, folder: Path, *tls: str) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}"
        self.begun, preload = folder / "begun", folder / "write_points.py"
        self.begun.touch()
        preload.write_text(PRELOAD, encoding="utf-8")
        worker = ["distributed.cli.dask_worker", self.address, "--nthreads", "1", "--preload", str(preload)]
        self._commands = {
            "scheduler": ["distributed.cli.dask_scheduler", "--host", self.address, "--no-dashboard", *tls],
            **{f"worker {n}": [*worker, "--no-dashboard", "--no-nanny", *tls] for n in range(2)},
        }
        self._environment = {**os.environ, "BEGUN": str(self.begun)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for name in self._commands:
            self._start(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", *self._commands[name]]
        quiet = subprocess.DEVNULL
        self.running[name] = subprocess.Popen(command, env=self._environment, stdout=quiet, stderr=quiet)

    def revive(self) -> None:
        """Start again what has ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self._start(name)


class Kills(NamedTuple):
    """What random kills did: their number, the trials that ended, and those of them that were lost or repeated."""

    kills: int = 0
    trials: int = 0
    lost: int = 0
    repeated: int = 0


def killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def command(study: Path, address: str, keys: Sequence[str] = KEYS) -> list[str]:
    """Return the command that measures all points of the study on a cluster; it prints JSON."""
    vary = [part for key in keys for part in ("--vary", key)]
    fixed = ["-t", "vta", "--grid", "--no-prune", "--json", "-o", str(study), "--cluster", address]
    return [sys.executable, "-m", "tilewright", "explore", DIGITS, *vary, *fixed]


def points(study: Path) -> list[int]:
    """Return the points in a study's journal, in order; a torn last line does not count."""
    path = study / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["point"] for line in lines if line.endswith(b"\n")]


def kill_at_random(
    folder: Path, kills: int, rng: random.Random, progress: Callable[[int, int, str], None] | None = None
) -> Kills:
    """Run one study after the other, and kill a random process again and again, until there were `kills` of them.

    Raises AssertionError if a study fails, or does not end.
    """
    total = Kills()
    for number in count():
        if total.kills >= kills:
            break
        own = folder / f"study{number}"
        own.mkdir(parents=True)
        with Servers(own) as servers:
            made = _until_the_end(own / "study", servers, kills - total.kills, rng)
        total = Kills(*(a + b for a, b in zip(total, made, strict=True)))
        if progress:
            progress(total.kills, kills, f"{total.lost} lost, {total.repeated} repeated")
    return total


def _until_the_end(study: Path, servers: Servers, kills: int, rng: random.Random) -> Kills:
    """Run a study to its end, with at most `kills` kills on the way."""
    made, lost, repeated, known = 0, set[int](), 0, set[int]()
    begun = 0  # measurements that the workers had begun when the journal was last read
    client, until = _client(study, servers), time.monotonic() + LONGEST + LONGER * kills
    while True:
        ended = client.poll() is not None
        found, begins = points(study), [int(point) for point in servers.begun.read_text(encoding="utf-8").split()]
        repeated += sum(point in known for point in begins[begun:])
        lost |= known - set(found)
        known, begun = set(found), len(begins)
        if ended:
            break
        assert time.monotonic() < until, f"the study has {len(known)} trials, and does not end: {made} kills"
        time.sleep(rng.uniform(*PAUSE))
        if made < kills and client.poll() is None:
            victim = rng.choice(VICTIMS)
            killed(client if victim == "client" else servers.running[victim])
            made += 1
            time.sleep(rng.uniform(*DEAD))
            servers.revive()
            if victim == "client":
                client = _client(study, servers)
    errors = (study.parent / "client.err").read_text(encoding="utf-8")
    assert client.returncode == 0 and len(known) == 1 + POINTS, f"{len(known)} trials, {made} kills: {errors}"
    return Kills(made, len(known), len(lost), repeated + len(found) - len(known))


def _client(study: Path, servers: Servers) -> subprocess.Popen[bytes]:
    with (study.parent / "client.err").open("ab") as errors:
        return subprocess.Popen(command(study, servers.address), stdout=subprocess.DEVNULL, stderr=errors)
