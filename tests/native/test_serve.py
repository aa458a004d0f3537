"""The loop of a device's process: answers, failures, a refused start, and the end of the connection."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.native.device import REQUESTS
from tilewright.native.serve import HEAD, shown

NUMBERS = {name: number for number, name in enumerate(REQUESTS)}


class Host:
    """The host's end of a connection."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[str]) -> None:
        self.connection = connection
        self.process = process

    def send(self, name: str, payload: bytes = b"") -> None:
        self.connection.sendall(HEAD.pack(NUMBERS[name], len(payload)) + payload)

    def ask(self, name: str, payload: bytes = b"") -> tuple[int, bytes]:
        self.send(name, payload)
        status, size = HEAD.unpack(self._read(HEAD.size))
        return status, self._read(size)

    def ended(self) -> str:
        """Close the connection, and return what the process prints on stderr. It ends without an error."""
        self.connection.close()
        stderr = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0
        return stderr

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            assert part, "the process has ended"
            data += part
        return data


@contextmanager
def device(machine: Path) -> Iterator[Host]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    command = [sys.executable, "-m", "tests.native.device", str(theirs.fileno()), str(machine)]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    theirs.close()
    try:
        yield Host(ours, process)
    finally:
        ours.close()
        process.kill()
        process.communicate()


def test_each_request_is_answered_by_its_method(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with device(log) as host:
        for _ in range(2):
            assert host.ask("add", struct.pack("<IQ", 3, 1 << 40)) == (0, b"")
        assert host.ask("total") == (0, struct.pack("<Q", 6 << 40))
        assert host.ask("append", b"\2abc") == (0, b"")
        assert host.ask("text") == (0, b"abcabc")
        assert not log.exists()
        assert host.ended() == ""
    assert log.read_text() == f"ended with {6 << 40} abcabc"


def test_a_failure_has_a_status_and_a_reason_and_the_device_goes_on(tmp_path: Path) -> None:
    with device(tmp_path / "log") as host:
        assert host.ask("refuse", struct.pack("<I", 5)) == (7, b"number 5: is refused")
        assert host.ask("refuse", struct.pack("<I", 0)) == (2, b"zero: is refused")
        assert host.ask("total") == (0, bytes(8))
        assert host.ended() == ""


def test_a_device_that_does_not_start_says_so_at_each_request(tmp_path: Path) -> None:
    machine = tmp_path / "missing" / "log"
    with device(machine) as host:
        for name in ("total", "reset"):
            assert host.ask(name) == (9, f"{machine}: has no folder".encode())
        assert host.ended() == ""


def test_an_error_at_the_end_is_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with device(log) as host:
        host.ask("append", b"\1damaged")
        assert host.ended() == "tilewright: text: is damaged\n"
    assert not log.exists()


@pytest.mark.parametrize("cut", [b"\2\0\0", HEAD.pack(NUMBERS["append"], 5) + b"\1abc"])
def test_half_a_request_is_the_end(tmp_path: Path, cut: bytes) -> None:
    log = tmp_path / "log"
    with device(log) as host:
        host.ask("add", struct.pack("<IQ", 1, 2))
        host.connection.sendall(cut)
        assert host.ended() == ""
    assert log.read_text() == "ended with 2 "


def test_an_answer_that_nobody_reads_is_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with device(log) as host:
        host.ask("append", b"\xff" + bytes(1 << 16))  # 17 MB, more than a socket holds
        host.send("text")
        assert host.ended() == ""
    assert log.exists()


def test_lines_for_the_host_have_the_package_in_front() -> None:
    assert shown(["a", 1]) == "tilewright: a\ntilewright: 1\n"
    assert shown([]) == ""
