"""Packets of GDB's remote serial protocol on a socket: framing, checksums, acknowledgements, escapes.

The rules are in GDB's manual, "Remote Serial Protocol: Overview". Received data is not trusted, so the size of a packet
is limited.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

#: The largest accepted packet, in bytes. The server reports this limit to GDB.
MAX_BYTES = 1 << 14
#: Seconds that `finish` waits for the client.
FAREWELL_SECONDS = 2
INTERRUPT = b"\x03"
ESCAPE = ord("}")
ESCAPED = b"#$}*"


class Connection:
    """A connection to a client. Packets are bytes without frame and escapes."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.acknowledges = True
        self._received = b""
        self._last = b""

    def receive(self) -> bytes | None:
        """Return the next packet, INTERRUPT if the client asks for a stop, or None if the connection has ended."""
        while True:
            packet = self._next()
            if packet is not None:
                return packet
            if not self._more():
                return None

    def interrupted(self) -> bool:
        """Return whether the client asks for a stop or has disconnected. Do not wait."""
        while select.select([self.client], [], [], 0)[0]:
            if not self._more():
                return True
        interrupts = INTERRUPT in self._received
        self._received = self._received.replace(INTERRUPT, b"")
        return interrupts

    def send(self, content: bytes) -> None:
        """Send a packet. If the client has disconnected, `receive` detects it."""
        escaped = b"".join(bytes((ESCAPE, byte ^ 32)) if byte in ESCAPED else bytes((byte,)) for byte in content)
        self._last = b"$%b#%02x" % (escaped, sum(escaped) & 255)
        self._write(self._last)

    def finish(self) -> None:
        """End the connection when the client has read all data: closing at once would discard the last packet."""
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_WR)
            self.client.settimeout(FAREWELL_SECONDS)
            while self.client.recv(MAX_BYTES):
                pass
        self.client.close()

    def _next(self) -> bytes | None:
        while self._received:
            first = self._received[:1]
            rest = self._received[1:]
            if first == INTERRUPT:
                self._received = rest
                return INTERRUPT
            if first != b"$":  # an acknowledgement, or noise
                self._received = rest
                if first == b"-":
                    self._write(self._last)
                continue
            end = rest.find(b"#")
            if end < 0 or len(rest) < end + 3:
                return None
            body = rest[:end]
            checksum = rest[end + 1 : end + 3]
            self._received = rest[end + 3 :]
            intact = checksum.lower() == b"%02x" % (sum(body) & 255)
            if self.acknowledges:
                self._write(b"+" if intact else b"-")
            if intact:
                return _unescaped(body)
        return None

    def _more(self) -> bool:
        """Receive bytes. Return False if the connection has ended, or if the data are too long for a packet."""
        try:
            data = self.client.recv(MAX_BYTES)
        except OSError:
            return False
        self._received += data
        return bool(data) and len(self._received) <= 4 * MAX_BYTES

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            self.client.sendall(data)


def _unescaped(body: bytes) -> bytes:
    first, *parts = body.split(bytes((ESCAPE,)))
    return first + b"".join(bytes((part[0] ^ 32,)) + part[1:] for part in parts if part)
