"""Recording micro-op kernels: what one instruction can run, and errors that name call and field."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.instructions import ONCE, Loop
from tilewright.targets.vta.runtime.uop_kernels import UopKernel, UopRecorder

Record = Callable[[UopRecorder], object]


def record(callback: Record, mode: str = "gemm") -> UopKernel:
    recorder = UopRecorder(PRESETS["pynq"])
    callback(recorder)
    return recorder.kernel(f"push_{mode}", mode)


def looped(count: int, opcode: AluOp | None = None) -> Record:
    def callback(k: UopRecorder) -> None:
        for extent in range(2, 2 + count):
            k.uop_loop_begin(extent, dst=1, src=2)
        k.uop_push(3, 4, opcode=opcode)
        for _ in range(count):
            k.uop_loop_end()

    return callback


def test_a_single_loop_is_the_outer_one_of_gemm_and_the_inner_one_of_alu() -> None:
    one, two = Loop(2, 1, 2), Loop(3, 1, 2)
    assert [record(looped(n)).nest for n in range(3)] == [(ONCE, ONCE), (one, ONCE), (one, two)]
    alu = [record(looped(n, opcode=AluOp.ADD), "alu").nest for n in range(3)]
    assert alu == [(ONCE, ONCE), (ONCE, one), (one, two)]


def test_what_is_recorded() -> None:
    def callback(k: UopRecorder) -> None:
        with k.uop_loop(4, dst=8, src=9, wgt=10):
            for n in range(3):
                k.uop_push(n, 5, 6 + n, reset=True)

    kernel = record(callback)
    np.testing.assert_array_equal(kernel.uops, [[0, 1, 2], [5, 5, 5], [6, 7, 8]])
    assert kernel.loops == (Loop(4, 8, 9, 10),)
    assert kernel.op == (None, None, True, False)
    assert record(lambda k: k.uop_push(1, 1, opcode=AluOp.SHR, imm=-8), "alu").op == (AluOp.SHR, -8, False, True)


def end_then_push(k: UopRecorder) -> None:
    with k.uop_loop(2, 1, 1):
        k.uop_push(0, 0)
    k.uop_push(1, 1)


def push_then_begin(k: UopRecorder) -> None:
    k.uop_push(0, 0)
    k.uop_loop_begin(2, 1, 1)


def alu(k: UopRecorder, *ops: AluOp, imms: tuple[int | None, ...] = (1, 1)) -> None:
    for tile, (op, imm) in enumerate(zip(ops, imms, strict=True)):
        k.uop_push(tile, tile, opcode=op, imm=imm)


def sums(k: UopRecorder, *tiles: int) -> None:
    for tile in tiles:
        k.uop_push(tile, 0)


def then_reset(k: UopRecorder) -> None:
    k.uop_push(0, 0)
    k.uop_push(1, 1, reset=True)


def then_alu(k: UopRecorder) -> None:
    k.uop_push(0, 0)
    k.uop_push(1, 1, opcode=AluOp.ADD, imm=1)


def unended(k: UopRecorder) -> None:
    k.uop_loop_begin(2, 1, 1)
    k.uop_push(0, 0)


@pytest.mark.parametrize(
    ("callback", "mode", "message"),
    [
        (lambda k: None, "gemm", "push_gemm: its kernel records no micro-op"),
        (lambda k: k.uop_push(0, 0), "alu", "push_alu: its kernel has gemm micro-ops; use push_gemm"),
        (lambda k: alu(k, AluOp.ADD, AluOp.MAX), "alu", "uop_push: opcode is MAX, but ADD in the kernel so far"),
        (lambda k: alu(k, AluOp.ADD, AluOp.ADD, imms=(1, 2)), "alu", "uop_push: imm is 2, but 1"),
        (lambda k: alu(k, AluOp.ADD, AluOp.ADD, imms=(1, None)), "alu", "uop_push: imm is None, but 1"),
        (then_reset, "gemm", "uop_push: reset is True, but False"),
        (then_alu, "gemm", "uop_push: opcode is ADD, but None"),
        (lambda k: k.uop_push(0, 0, imm=1), "gemm", "uop_push: imm is 1; give imm to ALU"),
        (lambda k: k.uop_push(0, 0, opcode=AluOp.ADD, imm=1 << 15), "alu", "uop_push: imm is 32768; .* -32768..32767"),
        (looped(3), "gemm", "uop_loop_begin: an instruction has at most 2 loops"),
        (push_then_begin, "gemm", "uop_loop_begin: is called after uop_push"),
        (end_then_push, "gemm", "uop_push: is called after uop_loop_end"),
        (lambda k: k.uop_loop_end(), "gemm", "uop_loop_end: no loop is open"),
        (unended, "gemm", r"push_gemm: its kernel leaves 1 loop\(s\)"),
        (lambda k: k.uop_loop_begin(0, 1, 1), "gemm", r"uop_loop_begin: extent is 0, outside 1\.\.16383"),
        (lambda k: sums(k, 7, 8, 7), "gemm", "uop_push: dst 7 was written by"),
        (
            lambda k: k.uop_push(2048, 0),
            "gemm",
            r"push_gemm: its kernel's dst reaches tile 2048; acc has tiles 0\.\.2047",
        ),
        (lambda k: k.uop_push(0, -1), "gemm", "push_gemm: its kernel's src reaches tile -1; inp"),
        (lambda k: k.uop_push(0, 0, 1024), "gemm", "push_gemm: its kernel's wgt reaches tile 1024; wgt"),
        (lambda k: k.uop_push(0, 2048, opcode=AluOp.ADD), "alu", "push_alu: its kernel's src reaches tile 2048; acc"),
        (lambda k: k.uop_push(0, 0, 1, opcode=AluOp.ADD), "alu", "push_alu: its kernel has wgt indices"),
    ],
)
def test_misuse_is_named(callback: Record, mode: str, message: str) -> None:
    with pytest.raises(ProgramError, match=f"^{message}"):
        record(callback, mode)


def test_loops_count_in_the_reach_of_an_index() -> None:
    def reaching(extent: int) -> Record:
        def callback(k: UopRecorder) -> None:
            with k.uop_loop(extent, 4, 0), k.uop_loop(4, 1, 0):
                k.uop_push(0, 0)

        return callback

    record(reaching(512))
    with pytest.raises(ProgramError, match="dst reaches tile 2051"):
        record(reaching(513))


def test_a_write_may_come_again_after_two_others() -> None:
    record(lambda k: sums(k, 7, 8, 9, 7))


def test_a_kernel_longer_than_the_cache_is_refused() -> None:
    with pytest.raises(ProgramError, match="push_gemm: its kernel has 8193 micro-ops; the cache has 8192"):
        record(lambda k: sums(k, *(n % 2048 for n in range(8193))))
