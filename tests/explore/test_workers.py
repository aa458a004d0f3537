"""Processes that measure machines may die at any moment: the study goes on, and ends with the same front."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.explore.processes import descendants
from tilewright.errors import InputError
from tilewright.explore import Space, Study, explore, study_of
from tilewright.explore.measure import Subject
from tilewright.explore.pool import DEATHS, STARTS, Processes
from tilewright.explore.trial import REFUSED, Trial

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
KEYS = {"LOG_INP_BUFF_SIZE": [13, 14, 15], "LOG_BUS_WIDTH": [6, 7]}
#: What a worker runs whose measurement of point 2 does what is in the place of DEED.
BEGIN = """
import json, os, signal, sys
sys.path[:] = json.loads(sys.argv[1])
from tilewright.explore import worker
def measured(subject, point, keys, real=worker.measured):
    if point == 2:
        DEED
    return real(subject, point, keys)
worker.measured = measured
worker.serve()
"""

pytestmark = pytest.mark.usefixtures("brief_search")


def study() -> Study:
    return study_of([DIGITS], "vta", Space.from_json({"keys": KEYS, "where": []}), ("cycles",))


class Killed(Processes):
    """Processes of which one is killed before the first trials that are waited for."""

    left = DEATHS

    def __init__(self, subject: Subject, rng: random.Random) -> None:
        super().__init__(subject, 2)
        self._rng = rng

    def ended(self) -> Trial:
        if self.left and self._running:
            self.left -= 1
            time.sleep(self._rng.uniform(0, 0.3))
            victim = self._rng.choice(sorted(self._running, key=id))
            os.kill(victim._process.pid, self._rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
        return super().ended()


def test_a_worker_that_is_killed_is_replaced() -> None:
    alone, killed = study(), study()
    explore(alone, grid=True, prune=False)
    seed = random.randrange(1 << 32)
    explore(killed, grid=True, prune=False, pool=lambda subject: Killed(subject, random.Random(seed)))
    shown = [{point: trial.values.get("cycles") for point, trial in each.trials.items()} for each in (alone, killed)]
    assert shown[0] == shown[1], f"seed {seed}"


@pytest.mark.parametrize("deed", ["os.abort()", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_machine_that_kills_its_workers_is_given_up(deed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.explore.worker._BEGIN", BEGIN.replace("DEED", deed))
    made = study()
    explore(made, grid=True, prune=False, workers=2)
    assert [trial.point for trial in made.trials.values() if trial.status == REFUSED] == [2]
    assert "process that measures it dies" in made.trials[2].reason and f"{DEATHS + 1} times" in made.trials[2].reason
    assert len(made.measured) == made.space.size - 1


def test_workers_that_cannot_start_end_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.explore.worker._BEGIN", "raise SystemExit(3)")
    with pytest.raises(InputError, match=rf"{STARTS + 1} processes in a row died as they started \(status 3\)"):
        explore(study(), grid=True, workers=2)


@pytest.mark.parametrize(
    ("deed", "error"),
    [("raise KeyError('gone')", RuntimeError), ("raise worker.InputError('a', 'b', 'c')", InputError)],
)
def test_an_error_of_a_worker_is_raised_here(
    deed: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.explore.worker._BEGIN", BEGIN.replace("DEED", deed))
    with pytest.raises(error, match="gone" if error is RuntimeError else "a: b; c"):
        explore(study(), grid=True, workers=2)


def waits_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def command(folder: Path, workers: int) -> list[str]:
    keys = "LOG_INP_BUFF_SIZE=13..15", "LOG_ACC_BUFF_SIZE=12..15", "LOG_BUS_WIDTH=6..8"
    vary = [part for key in keys for part in ("--vary", key)]
    fixed = ["-t", "vta", "--grid", "--no-prune", "--json", "--workers", str(workers), "-o", str(folder)]
    return [sys.executable, "-m", "tilewright", "explore", DIGITS, *vary, *fixed]


def test_workers_end_with_the_process_that_began_them(tmp_path: Path) -> None:
    with subprocess.Popen(command(tmp_path / "a", 2), stdout=subprocess.DEVNULL) as running:
        assert waits_for(lambda: len(descendants(running.pid)) == 2)
        workers = descendants(running.pid)
        running.kill()
    assert waits_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.5, 2.0])
def test_random_kills(tmp_path: Path, pause: float) -> None:
    seed = random.randrange(1 << 32)
    rng, kills, number, fronts = random.Random(seed), 0, 0, list[object]()
    while kills < 30:
        number += 1
        here = 0  # kills of this study: each machine may lose a few workers
        with subprocess.Popen(
            command(tmp_path / str(number), 8), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            while running.poll() is None and here < 5:
                time.sleep(rng.uniform(0, pause))
                if children := descendants(running.pid):
                    os.kill(rng.choice(children), rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
                    here += 1
            out, errors = running.communicate(timeout=200)
        kills += here
        assert (running.returncode, errors) == (0, ""), f"seed {seed}"
        found = json.loads(out)
        assert (found["trials"], found["refused"]) == (36, 0), f"seed {seed}"
        fronts.append([machine["config"] for machine in found["front"]])
    assert all(front == fronts[0] for front in fronts)
