"""The main loop of a process that simulates a device. The host is a C program (c/connection.h)."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Thread
from typing import BinaryIO, ClassVar

from tilewright.errors import TilewrightError

HEAD = struct.Struct("<2I")
#: The status of a failed request. Status 1 means that the process has ended.
FAILED = 2
Answer = tuple[int, bytes | bytearray]


class Server:
    """Answers the requests of one host.

    Request number i calls the method `requests[i]`. The method gets the payload of the request, and returns the payload
    of the answer. If the method raises a TilewrightError, the answer is the text of the error.
    """

    requests: ClassVar[Sequence[str]]

    def answer(self, kind: int, payload: bytes) -> Answer:
        """Return the answer to a request: a status (0: success) and a payload."""
        method: Callable[[bytes], bytes | bytearray] = getattr(self, self.requests[kind])
        try:
            return 0, method(payload)
        except TilewrightError as error:
            return self.status_of(error), str(error).encode()

    def status_of(self, error: TilewrightError) -> int:
        """Return the status of a request that failed with an error."""
        return FAILED

    def end(self) -> None:
        """Clean up after the host has closed the connection. If this raises a TilewrightError, its text is printed."""


def shown(lines: Iterable[object]) -> str:
    return "".join(f"tilewright: {line}\n" for line in lines)


def serve(connection: int, start: Callable[[], Server], refused: int = FAILED) -> None:
    """Answer requests until the host closes the connection, the file descriptor of a socket.

    If `start` raises a TilewrightError, every request is answered with the text of this error and the status `refused`,
    so that the host can print the reason.
    """
    server = Server()
    refusal = None
    with suppress(ConnectionError), socket.socket(fileno=connection) as host, host.makefile("rb") as requests:
        # A child process must not keep the connection open.
        os.set_inheritable(connection, False)
        Thread(target=_end_with, args=(host, _process_of(host)), daemon=True).start()
        try:
            server = start()
        except TilewrightError as error:
            refusal = refused, str(error).encode()
        for kind, payload in _received(requests):
            status, text = refusal or server.answer(kind, payload)
            host.sendall(HEAD.pack(status, len(text)))
            host.sendall(text)
    try:
        server.end()
    except TilewrightError as error:
        print(shown([error]), end="", file=sys.stderr)


def _received(requests: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        kind, size = HEAD.unpack(head)
        payload = requests.read(size)
        if len(payload) < size:
            return
        yield kind, payload


def _process_of(host: socket.socket) -> int:
    """Return the process id of the host."""
    # On Linux, the socket knows the process id even if the host has already ended. On other systems, the host is the
    # parent of this process.
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getppid()
    number: int = struct.unpack("3i", host.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return number


def _end_with(host: socket.socket, process: int) -> None:
    """End this process when the host ends, even in the middle of a request."""
    ended = select.poll()
    ended.register(host, 0)  # poll always reports the end of the connection
    ended.poll()
    while os.getppid() == process:  # the host has closed the connection, and waits for this process
        time.sleep(0.1)
    os._exit(1)
