"""The loop of a process that holds a device for a host in C (c/connection.h)."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from threading import Thread

from tilewright.errors import TilewrightError

HEAD = struct.Struct("<2I")

#: Answers a request: (kind, payload) -> (status, payload); status 0 is a success.
Answer = Callable[[int, bytes], tuple[int, bytes | bytearray]]


def serve(connection: int, start: Callable[[], Answer], refused: int) -> None:
    """Answer the requests that come from a socket (its file descriptor), until it is closed.

    If `start` raises a TilewrightError, its text is the answer to every request, with the status `refused`.
    """
    with socket.socket(fileno=connection) as host, host.makefile("rb") as requests:
        os.set_inheritable(connection, False)
        Thread(target=_end_with, args=(host, _process_of(host)), daemon=True).start()
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


def _process_of(host: socket.socket) -> int:
    """Return the number of the host's process; it may have ended already, where the system tells who made a socket."""
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
