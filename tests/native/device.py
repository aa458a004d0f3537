"""A device for hosts in C that adds numbers, for tests. Its process is the function `main`."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from tilewright.errors import InputError, MachineError, TilewrightError
from tilewright.native import serve

REQUESTS = ("reset", "add", "total", "append", "text", "refuse")


class Device(serve.Server):
    """Adds numbers, and keeps a text."""

    requests = REQUESTS

    def __init__(self, machine: str) -> None:
        self._log = Path(machine)
        if not self._log.parent.is_dir():
            raise InputError(machine, "has no folder")
        self._total = 0
        self._text = bytearray()

    def reset(self, _: bytes) -> bytes:
        self._total = 0
        return b""

    def add(self, payload: bytes) -> bytes:
        times, number = struct.unpack("<IQ", payload)
        self._total += times * number
        return b""

    def total(self, _: bytes) -> bytes:
        return struct.pack("<Q", self._total)

    def append(self, payload: bytes) -> bytes:
        self._text += payload[0] * payload[1:]
        return b""

    def text(self, _: bytes) -> bytearray:
        return self._text

    def refuse(self, payload: bytes) -> bytes:
        number = struct.unpack("<I", payload)[0]
        raise MachineError(f"number {number}", "is refused") if number else InputError("zero", "is refused")

    def status_of(self, error: TilewrightError) -> int:
        return 7 if isinstance(error, MachineError) else super().status_of(error)

    def end(self) -> None:
        if self._text == b"damaged":
            raise InputError("text", "is damaged")
        self._log.write_text(f"ended with {self._total} {self._text.decode()}", encoding="utf-8")


def main(connection: int, machine: str) -> None:
    """Answer requests; errors of the start have the status 9."""
    serve.serve(connection, lambda: Device(machine), refused=9)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
