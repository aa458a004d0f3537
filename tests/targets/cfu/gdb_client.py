"""A client of GDB's remote serial protocol, for tests: it shares no code with the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from tests.targets.cfu.running import run
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime.core import Run
from tilewright.targets.cfu.runtime.elf import Executable
from tilewright.targets.cfu.runtime.gdb.server import Server

TIMEOUT = 60


def connected(port: int) -> socket.socket:
    """A connection to a port, which is refused until the process is ready."""
    end = monotonic() + TIMEOUT
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), TIMEOUT)
        except ConnectionRefusedError:
            if monotonic() > end:
                raise
            sleep(0.01)


class Client:
    """A connection that asks with `ask`, without acknowledgements after `quiet`. `text` is what the program printed."""

    def __init__(self, port: int) -> None:
        self.socket = connected(port)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.text, self.quiet, self._bytes = "", False, self._stream()

    def _stream(self) -> Iterator[int]:
        while data := self.socket.recv(4096):
            yield from data

    def send(self, content: bytes, checksum: int | None = None) -> None:
        total = sum(content) % 256 if checksum is None else checksum
        self.socket.sendall(b"$" + content + b"#" + f"{total:02x}".encode())

    def byte(self) -> str:
        return chr(next(self._bytes, 0))

    def receive(self) -> str:
        """The next packet that is no text of the program; "" at the end of the connection, too."""
        while True:
            while (first := self.byte()) != "$":
                if first == "\0":
                    return ""
            content = bytearray()
            while (byte := next(self._bytes)) != ord("#"):
                content.append(byte)
            assert int(self.byte() + self.byte(), 16) == sum(content) % 256
            if not self.quiet:
                self.socket.sendall(b"+")
            if content[:1] != b"O" or content == b"OK":
                return content.decode("latin-1")
            self.text += bytes.fromhex(content[1:].decode()).decode()

    def ask(self, content: str) -> str:
        self.send(content.encode("latin-1"))
        return self.receive()

    def register(self, number: int) -> int:
        return int.from_bytes(bytes.fromhex(self.ask(f"p{number:x}")), "little")

    def monitor(self, command: str) -> str:
        self.text = ""
        assert self.ask("qRcmd," + command.encode().hex()) == "OK"
        return self.text


class Debugged:
    """A run on another thread, with a client at its server. `end` returns the run."""

    def __init__(self, image: Executable, config: Config, **options: Any) -> None:
        self._server, self._found = Server(0), list[Run]()

        def serve() -> None:
            self._found.append(run(image, config, drive=self._server.drive, **options))

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        self.client = Client(self._server.port)

    def end(self) -> Run:
        self.client.socket.close()
        self._thread.join(TIMEOUT)
        self._server.close()
        return self._found[0]


@contextmanager
def debugged(image: Executable, config: Config | None = None, **options: Any) -> Iterator[Debugged]:
    """A run under a client; if the test has not ended it, it is killed."""
    one = Debugged(image, config or Config(), **options)
    try:
        yield one
    finally:
        one.client.socket.close()
        one._thread.join(TIMEOUT)
        one._server.close()
