"""A device for hosts in C that adds numbers, for tests. Its process is the function `main`."""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.errors import InputError, MachineError, TilewrightError
from tilewright.native import serve
from tilewright.native.requests import Request

REQUESTS = (
    Request("reset"),
    Request("add", "IQ"),
    Request("total", gives="Q"),
    Request("both", "I", "IQ"),
    Request("append", "H", data=True),
    Request("text"),
    Request("refuse", "I"),
)


class Device(serve.Server):
    """Adds numbers, and keeps a text."""

    requests = REQUESTS

    def __init__(self, machine: str) -> None:
        self._log = Path(machine)
        if not self._log.parent.is_dir():
            raise InputError(machine, "has no folder")
        self._total = 0
        self._text = bytearray()

    def reset(self) -> None:
        self._total = 0

    def add(self, times: int, number: int) -> None:
        self._total += times * number

    def total(self) -> int:
        return self._total

    def both(self, number: int) -> tuple[int, int]:
        return number, self._total

    def append(self, times: int, text: memoryview) -> None:
        self._text += times * bytes(text)

    def text(self) -> bytearray:
        return self._text

    def refuse(self, number: int) -> None:
        raise MachineError(f"number {number}", "is refused") if number else InputError("zero", "is refused")

    def status_of(self, error: TilewrightError) -> int:
        return 7 if isinstance(error, MachineError) else super().status_of(error)

    def end(self) -> None:
        if self._text == b"damaged":
            raise InputError("text", "is damaged")
        self._log.write_text(f"ended with {self._total}", encoding="utf-8")


def main(connection: int, machine: str) -> None:
    """Answer requests; errors of the start have the status 9."""
    serve.serve(connection, lambda: Device(machine), refused=9)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
