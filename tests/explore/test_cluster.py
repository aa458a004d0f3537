"""Studies on a real Dask scheduler and workers, on the loopback interface: equal results, and random kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
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


@pytest.mark.parametrize("where", ["", "local", "local:0", "tcp://host", "udp://host:1", "slurm", "cloud:3"])
def test_no_cluster(where: str) -> None:
    with pytest.raises(InputError, match=r"^cluster"):
        opener(where)
