"""The process that runs a host's instructions: which allocations a run uses, what is initialised, and any bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.native.serve import FAILED
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory, Opcode
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.native.serve import RUN, Region, Server

CONFIG = TARGET.config("pynq", {})
PAGE, CODE = 4096, 1 << 20
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the memory is a file in memory of Linux")


@pytest.fixture
def server() -> Iterator[Server]:
    file = os.memfd_create("vta")
    os.ftruncate(file, 1 << 32)
    yield Server(CONFIG, file)
    os.close(file)


def request(server: Server, code: bytes, regions: list[Region]) -> tuple[int, str]:
    """Run instructions; returns the status and the text of the answer."""
    os.pwrite(server.file, code, CODE)
    regions = [*regions, Region(CODE, 1 << 16, 99)]
    listed = b"".join(np.array(region, "<u8").tobytes() for region in regions)
    status, text = server.answer(0, RUN.pack(CODE, 0, len(code) // INSN_BYTES, 0) + listed)
    return status, text.decode()


def move(opcode: Opcode, memory: Memory, tile: int, rows: int, columns: int, stride: int) -> dict[str, int]:
    return {
        "opcode": opcode,
        "memory_type": memory,
        "dram_base": tile,
        "y_size": rows,
        "x_size": columns,
        "x_stride": stride,
    }


def test_a_run_uses_the_allocations_that_its_transfers_touch(server: Server) -> None:
    seed = 11
    rng = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(200):
        starts = sorted(rng.sample(range(1, 40), rng.randint(1, 6)))
        gaps = zip(starts, [*starts[1:], 41], strict=True)
        regions = [Region(PAGE * a, rng.randint(1, PAGE * (b - a)), n) for n, (a, b) in enumerate(gaps)]
        moves = [
            move(
                rng.choice((Opcode.LOAD, Opcode.STORE)),
                Memory.INP,
                rng.randrange(41 * PAGE // 16),
                rng.randrange(4),
                rng.randrange(4),
                rng.randrange(300),
            )
            for _ in range(rng.randint(1, 5))
        ]
        for item in moves:
            item["memory_type"] = Memory.INP if item["opcode"] == Opcode.LOAD else Memory.OUT
        found = server._moved(encode(moves, CONFIG), regions)
        for opcode, mine in zip((Opcode.LOAD, Opcode.STORE), found, strict=True):
            spans = [
                (16 * m["dram_base"], 16 * (m["dram_base"] + (m["y_size"] - 1) * m["x_stride"] + m["x_size"]))
                for m in moves
                if m["opcode"] == opcode and m["x_size"] and m["y_size"]
            ]
            expected = [any(low < r.end and r.address < high for low, high in spans) for r in regions]
            assert mine.tolist() == expected


def test_an_untouched_allocation_is_uninitialised(server: Server) -> None:
    regions = [Region(PAGE, PAGE, 0), Region(2 * PAGE, 2 * PAGE, 1)]
    load = move(Opcode.LOAD, Memory.INP, 2 * PAGE // 16, 1, 4, 4)
    code = encode([load, {"opcode": Opcode.FINISH}], CONFIG).tobytes()
    os.pwrite(server.file, b"1", PAGE)  # beside it
    assert "uninitialised in launch0: #0 load" in request(server, code, regions)[1]
    os.pwrite(server.file, b"1", 4 * PAGE - 1)
    assert request(server, code, regions) == (0, "")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_any_bytes_end_in_a_report(server: Server, seed: int) -> None:
    print(f"seed {seed}")
    rng, ended = random.Random(seed), {0: 0, FAILED: 0}
    for _ in range(60):
        words = [bytearray(rng.randbytes(INSN_BYTES)) for _ in range(rng.randint(1, 6))]
        for word in words:
            opcode = rng.choice((0, 0, 1, 2, 4, 4))
            word[0] = opcode | (rng.choice((2, 3, 4)) << 7 & 0x80)  # no tokens: most programs end
            if opcode < 2:  # small transfers near the allocations
                word[3:8], word[8:12] = rng.randbytes(1) + bytes(4), bytes([rng.randrange(4), 0, rng.randrange(4), 0])
            else:  # short loops
                word[4:8] = bytes(4)
        code = b"".join(map(bytes, words)) + bytes([Opcode.FINISH]) + bytes(INSN_BYTES - 1)
        status, text = request(server, code, [Region(PAGE, 8 * PAGE, 0)])
        ended[status] += 1
        assert status == 0 or text
    assert min(ended.values()) > 3
