"""Studies on a real Dask scheduler and workers, on the loopback interface: equal results, and random kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tilewright.errors import InputError
from tilewright.explore.cluster import opener
from tilewright.explore.measure import Model
from tilewright.explore.study import JOURNAL

pytest.importorskip("distributed")
DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
KEYS = "LOG_INP_BUFF_SIZE=13..15", "LOG_ACC_BUFF_SIZE=12..15", "LOG_BUS_WIDTH=6..8"
POINTS = 36


class Servers:
    """A scheduler and two workers, each a process of its own that can be killed and started again."""

    def __init__(self, *tls: str, environment: dict[str, str] | None = None) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}"
        self._commands = {
            "scheduler": ["distributed.cli.dask_scheduler", "--host", self.address, "--no-dashboard", *tls],
            **{
                f"worker {n}": [
                    *("distributed.cli.dask_worker", self.address, "--nthreads", "1"),
                    *("--no-dashboard", "--no-nanny", *tls),
                ]
                for n in range(2)
            },
        }
        self._environment = {**os.environ, **(environment or {})}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for name in self._commands:
            self.start(name)

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", *self._commands[name]]
        quiet = subprocess.DEVNULL
        self.running[name] = subprocess.Popen(command, env=self._environment, stdout=quiet, stderr=quiet)

    def revive(self) -> None:
        """Start again what has ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.stop()


def command(study: Path, address: str) -> list[str]:
    vary = [part for key in KEYS for part in ("--vary", key)]
    fixed = ["-t", "vta", "--grid", "--no-prune", "--json", "-o", str(study), "--cluster", address]
    return [sys.executable, "-m", "tilewright", "explore", DIGITS, *vary, *fixed]


def points(study: Path) -> list[int]:
    """Return the points in a study's journal, in order; a torn last line does not count."""
    path = study / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["point"] for line in lines if line.endswith(b"\n")]


@pytest.mark.slow
def test_a_cluster_finds_what_one_process_finds(tmp_path: Path, servers: Servers) -> None:
    done = subprocess.run(command(tmp_path / "a", servers.address), capture_output=True, text=True, check=True)
    alone = list(command(tmp_path / "b", "")[:-2])
    other = subprocess.run(alone, capture_output=True, text=True, check=True)
    found, expected = json.loads(done.stdout), json.loads(other.stdout)
    assert found["front"] == expected["front"]
    assert found["trials"] == expected["trials"] == POINTS


@pytest.mark.slow
def test_kills_lose_no_finished_trial_and_repeat_none(tmp_path: Path, servers: Servers) -> None:
    seed = random.randrange(1 << 32)
    rng, kills, kept = random.Random(seed), 0, list[int]()
    client = subprocess.Popen(command(tmp_path, servers.address), stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 900
    while client.poll() is None and time.monotonic() < until:
        time.sleep(rng.uniform(1, 4))
        victim = rng.choice(["scheduler", "worker 0", "worker 1", "client"])
        if victim == "client":
            client.kill()
            client.wait()
        else:
            servers.kill(victim)
        kills += 1
        now = points(tmp_path)
        assert now[: len(kept)] == kept, f"seed {seed}: a finished trial is lost"
        kept = now
        time.sleep(rng.uniform(0, 1))
        servers.revive()
        if victim == "client":
            client = subprocess.Popen(command(tmp_path, servers.address), stdout=subprocess.PIPE, text=True)
        if kills >= 25:
            break
    servers.revive()
    out = client.communicate(timeout=600)[0]
    found = points(tmp_path)
    assert len(found) == len(set(found)) == 1 + POINTS, f"seed {seed}, {kills} kills"
    assert json.loads(out)["trials"] == POINTS


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl: apt-get install openssl")
def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    options = "--tls-ca-file", str(certificate), "--tls-cert", str(certificate), "--tls-key", str(key)
    files = {
        "CA_FILE": certificate,
        **{f"{role}__{kind}": path for role in ("CLIENT",) for kind, path in (("KEY", key), ("CERT", certificate))},
    }
    environment = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in files.items()}
    servers = Servers(*options)
    try:
        study = command(tmp_path / "study", servers.address)
        done = subprocess.run(study, capture_output=True, text=True, check=True, env={**os.environ, **environment})
        assert json.loads(done.stdout)["trials"] == POINTS
        refused = subprocess.run(
            command(tmp_path / "other", servers.address), capture_output=True, text=True, check=False, timeout=300
        )
        assert refused.returncode == 2
    finally:
        servers.stop()


def test_a_worker_refuses_other_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    model = Model.of(DIGITS)._replace(path="/nowhere/digits.tflite")
    assert not model.here
    with pytest.raises(InputError, match="not the file"):
        model.load()
    data = Path(DIGITS).read_bytes()
    with pytest.raises(InputError, match="not the model's"):
        model.keep(data[:-1] + b"x")
    assert not model.here
    model.keep(data)
    assert model.here
    assert len(model.load().nodes) > 3


@pytest.mark.parametrize("where", ["", "local", "local:0", "tcp://host", "udp://host:1", "slurm", "cloud:3"])
def test_no_cluster(where: str) -> None:
    with pytest.raises(InputError, match="--cluster"):
        opener(where)
