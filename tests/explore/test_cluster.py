"""Studies on a real Dask scheduler and workers, on the loopback interface: equal results, and random kills."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explore.kills import DIGITS, POINTS, Servers, command, kill_at_random
from tilewright.errors import InputError
from tilewright.explore.cluster import opener
from tilewright.explore.measure import Model

pytest.importorskip("distributed")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with Servers(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_a_cluster_finds_what_one_process_finds(tmp_path: Path, servers: Servers) -> None:
    done = subprocess.run(command(tmp_path / "a", servers.address), capture_output=True, text=True, check=True)
    alone = list(command(tmp_path / "b", "")[:-2])
    other = subprocess.run(alone, capture_output=True, text=True, check=True)
    found, expected = json.loads(done.stdout), json.loads(other.stdout)
    assert found["front"] == expected["front"]
    assert found["trials"] == expected["trials"] == POINTS


@pytest.mark.slow
def test_kills_lose_no_finished_trial_and_repeat_none(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    made = kill_at_random(tmp_path, 25, random.Random(seed))
    assert (made.kills, made.lost, made.repeated) == (25, 0, 0), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl: apt-get install openssl")
def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    options = "--tls-ca-file", str(certificate), "--tls-cert", str(certificate), "--tls-key", str(key)
    files = {"CA_FILE": certificate, "CLIENT__KEY": key, "CLIENT__CERT": certificate}
    environment = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in files.items()}
    with Servers(tmp_path, *options) as servers:
        study = command(tmp_path / "study", servers.address)
        done = subprocess.run(study, capture_output=True, text=True, check=True, env={**os.environ, **environment})
        assert json.loads(done.stdout)["trials"] == POINTS
        refused = subprocess.run(
            command(tmp_path / "other", servers.address), capture_output=True, text=True, check=False, timeout=300
        )
        assert refused.returncode == 2
        assert "no certificates" in refused.stderr and len(refused.stderr.splitlines()) == 1


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


def listening(process: int) -> set[int]:
    """The TCP ports at which a process and its descendants listen, by /proc."""
    processes, sockets = [process], set[str]()
    for each in processes:
        children = Path(f"/proc/{each}/task").glob("*/children")
        processes += [int(number) for path in children for number in path.read_text().split()]
        sockets |= {str(file.readlink()) for file in Path(f"/proc/{each}/fd").iterdir() if file.is_symlink()}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def over_http(port: int, path: str) -> bytes:
    """What a port answers to a plain HTTP request, without the head; nothing for an error."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as asked:
        try:
            asked.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            answer = b"".join(iter(lambda: asked.recv(1 << 16), b""))
        except OSError:  # a port of TLS closes the connection
            return b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if head.split()[1:2] not in ([b"404"], []) else b""


async def over_dask(port: int) -> object:
    """What a port answers to a Dask client without a certificate."""
    from distributed.core import rpc

    async with rpc(f"tcp://127.0.0.1:{port}", timeout=0.5) as asked:
        try:
            return await asyncio.wait_for(asked.identity(), 5)
        except (OSError, TimeoutError):
            return None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_a_local_cluster_answers_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONSAFEPATH", "PYTHONHASHSEED"):  # Dask sets them for its workers in this process, and leaves them
        monkeypatch.setenv(name, "0")
    before = listening(os.getpid())
    opened = opener("local:2")(60)
    try:
        opened.client.wait_for_workers(2, timeout=60)
        ports = listening(os.getpid()) - before
        assert len(ports) == 5  # of the scheduler, two workers, and the two processes that watch over them
        for port in ports:
            for path in ("/health", "/json/identity.json", "/metrics", "/info/main/workers.html", "/sitemap.json"):
                assert over_http(port, path) == b"", (port, path)
            assert asyncio.run(over_dask(port)) is None, port
        assert opened.client.submit(os.getpid).result(timeout=60) != os.getpid()
        paths, modes = opened.client.submit(_searched).result(timeout=60)
        assert "" not in paths and not any(mode & 0o022 for mode in modes), (paths, modes)
    finally:
        opened.client.close()
        opened.cluster.close()


def _searched() -> tuple[list[str], list[int]]:
    """The places where a worker looks for modules, and the permissions of those in folders for temporary files."""
    paths = [path for path in sys.path if path.startswith(tempfile.gettempdir())]
    return sys.path, [Path(path).stat().st_mode for path in paths if Path(path).exists()]


@pytest.mark.parametrize("where", ["", "local", "local:0", "tcp://host", "udp://host:1", "slurm", "cloud:3"])
def test_no_cluster(where: str) -> None:
    with pytest.raises(InputError, match=r"^cluster"):
        opener(where)
