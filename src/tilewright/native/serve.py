"""The loop of a process that holds a device for a host in C (c/connection.h)."""

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
#: The status of an answer that is not a success. 1 stands for a process that has ended.
FAILED = 2
Answer = tuple[int, bytes | bytearray]


class Server:
    """Answers the requests of one host.

    The number of a request is its index in `requests`, which has the name of the method that answers it. The method
    takes and returns a payload. If it raises a TilewrightError, the answer is the text of the error.
    """

    requests: ClassVar[Sequence[str]]

    def answer(self, kind: int, payload: bytes) -> Answer:
        """Return the answer to a request: its status, which is 0 for a success, and its payload."""
        method: Callable[[bytes], bytes | bytearray] = getattr(self, self.requests[kind])
        try:
            return 0, method(payload)
        except TilewrightError as error:
            return self.status_of(error), str(error).encode()

    def status_of(self, error: TilewrightError) -> int:
        """Return the status of a request that ended with an error."""
        return FAILED

    def end(self) -> None:
        """Finish when the host has closed the connection. The text of a TilewrightError is printed."""


def shown(lines: Iterable[object]) -> str:
    """Return lines as text for the host's stderr."""
    return "".join(f"tilewright: {line}\n" for line in lines)


def serve(connection: int, start: Callable[[], Server], refused: int = FAILED) -> None:
    """Answer the requests that come from a socket (its file descriptor), until it is closed.

    If `start` raises a TilewrightError, its text is the answer to every request, with the status `refused`.
    """
    # If the device cannot start, the host must still get the reason: every request is answered with it.
    server = Server()
    refusal = None
    with suppress(ConnectionError), socket.socket(fileno=connection) as host, host.makefile("rb") as requests:
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
    """Return the number of the host's process.

    On Linux the socket has it, even if the host has ended already. Elsewhere it is the parent of this process.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getppid()
    number: int = struct.unpack("3i", host.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return number


def _end_with(host: socket.socket, process: int) -> None:
    """End this process when the host has ended without waiting for it, even in the middle of a request."""
    ended = select.poll()
    ended.register(host, 0)  # an end of the connection is always reported
    ended.poll()
    while os.getppid() == process:  # the host waits for the last report
        time.sleep(0.1)
    os._exit(1)
