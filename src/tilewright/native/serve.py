"""The loop of a process that holds a device for a host in C (c/connection.h)."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable

from tilewright.errors import TilewrightError

HEAD = struct.Struct("<2I")

#: Answers a request: (kind, payload) -> (status, payload); status 0 is a success.
Answer = Callable[[int, bytes], tuple[int, bytes | bytearray]]


def serve(connection: int, start: Callable[[], Answer], refused: int) -> None:
    """Answer the requests that come from a socket (its file descriptor), until it is closed.

    If `start` raises a TilewrightError, its text is the answer to every request, with the status `refused`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the host, which closes the connection
    with socket.socket(fileno=connection) as host, host.makefile("rb") as requests:
        os.set_inheritable(connection, False)
        answer = _started(start, refused)
        while len(head := requests.read(HEAD.size)) == HEAD.size:
            kind, size = HEAD.unpack(head)
            payload = requests.read(size)
            if len(payload) < size:
                return
            status, text = answer(kind, payload)
            try:
                host.sendall(HEAD.pack(status, len(text)))
                host.sendall(text)
            except ConnectionError:
                return


def _started(start: Callable[[], Answer], refused: int) -> Answer:
    try:
        return start()
    except TilewrightError as error:
        refusal = refused, str(error).encode()
    return lambda kind, payload: refusal
