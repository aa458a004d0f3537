"""The requests of hosts in C, as tables. C gets the numbers from them, and Python the arguments and answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request. Its number is its place in the table of its library.

    `takes` are the words of its payload and `gives` those of the answer, as formats of the module `struct`: little
    endian, without padding. With `data`, bytes follow the words of the payload. An answer without words is bytes.
    """

    name: str
    takes: str = ""
    gives: str = ""
    data: bool = False

    def arguments(self, payload: bytes) -> tuple[Any, ...]:
        """Return the words of a payload, and (with `data`) a view of the bytes that follow."""
        words = struct.Struct(f"<{self.takes}")
        if self.data:
            return *words.unpack_from(payload), memoryview(payload)[words.size :]
        return words.unpack(payload)

    def answer(self, value: Any) -> bytes | bytearray:
        """Return the payload of the answer: of a number or a tuple of them, of bytes, or of None."""
        if self.gives:
            return struct.pack(f"<{self.gives}", *(value if isinstance(value, tuple) else (value,)))
        return value or b""


def header(requests: Sequence[Request]) -> str:
    """Return `requests.h`, which names the number of each request in capitals."""
    names = ", ".join(request.name.upper() for request in requests)
    return f"/* Made from the table of requests: do not edit. */\nenum {{ {names} }};\n"
