"""ELF files made by hand, for tests."""

from __future__ import annotations

import struct

from tilewright.targets.cfu.config import RAM_BASE

RISCV, EXECUTABLE = 243, 2


def tiny(**changes: int) -> bytes:
    """A file of one segment that halts with code 7, built by hand; `changes` to its headers."""
    values = {
        "machine": RISCV, "type": EXECUTABLE, "entry": RAM_BASE, "phoff": 52, "phnum": 1, "offset": 84,
        "address": RAM_BASE, "filesz": 20, "memsz": 20, "flags": 5, "klass": 1,
    } | changes  # fmt: skip
    v = values
    ident = b"\x7fELF" + bytes([v["klass"], 1, 1]) + bytes(9)
    header = struct.pack(
        "<HHIIIIIHHHHHH", v["type"], v["machine"], 1, v["entry"], v["phoff"], 0, 0, 52, 32, v["phnum"], 40, 0, 0
    )
    segment = struct.pack("<8I", 1, v["offset"], v["address"], v["address"], v["filesz"], v["memsz"], v["flags"], 4)
    code = struct.pack("<5I", 0x00700513, 0xF0002FB7, 0x00AFA023, 0x0000006F, 0x13)
    return ident + header + segment + code


def file_of(words: list[int]) -> bytes:
    """A file of one segment with these instructions."""
    size = 4 * len(words) + 4
    start = tiny(filesz=size, memsz=size)[: 52 + 32]
    return start + struct.pack(f"<{len(words) + 1}I", *words, 0x13)
