"""Programs through the runtime: results, tokens, the cache, debug modes, saving, and misuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.blocked import SIZE, blocked_gemm
from tests.conftest import ROOT
from tilewright import targets
from tilewright.array import Array
from tilewright.cli import main
from tilewright.errors import ConfigError, HazardError, InputError, ProgramError
from tilewright.program import file
from tilewright.run import run_bare
from tilewright.sim.findings import DEADLOCK, LEAK, RACE
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.runtime import AluOp, Debug, Memory, Runtime, UopRecorder, commands

SEED = 11
Call = Callable[[Runtime], object]


def add(k: UopRecorder, amount: int, tiles: int = 4) -> None:
    with k.uop_loop(tiles, 1, 1):
        k.uop_push(0, 0, opcode=AluOp.ADD, imm=amount)


def dense(k: UopRecorder) -> None:
    for n in range(4):
        k.uop_push(n, 0, n)


def added(rt: Runtime, values: Array, *amounts: int) -> Array:
    """`values` (4, 16) with amounts added by the ALU, one push each, as int8; tokens complete."""
    source, out = rt.to_device(values, Memory.ACC), rt.empty(values.shape, Memory.OUT)
    rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
    for amount in amounts:
        rt.push_alu(add, amount)
    rt.dep_push("compute", "store")
    rt.dep_pop("compute", "store")
    rt.store_buffer_2d(0, Memory.OUT, out, 0, 4, 1, 4)
    result = rt.synchronize()
    assert result.findings == ()
    return rt.from_device(out, Memory.OUT, (4, 16))


def opcodes(rt: Runtime, launch: int = -1) -> list[str]:
    """One word an instruction; LOAD UOPs and NOPs are told apart."""
    stream = decode(rt.program().launches[launch].arrays["insns"], rt.config)
    names = [Opcode(code).name.lower() for code in stream.opcode.tolist()]
    moves = np.isin(stream.opcode, (Opcode.LOAD, Opcode.STORE))
    names = [
        "nop" if move and not size else name for name, move, size in zip(names, moves, stream.mem.x_size, strict=True)
    ]
    uop = (stream.opcode == Opcode.LOAD) & (stream.mem.memory_type == Memory.UOP)
    return ["uop" if mine and name == "load" else name for name, mine in zip(names, uop, strict=True)]


VALUES = np.arange(64).reshape(4, 16)


def test_results_are_in_the_buffer_after_synchronize() -> None:
    with Runtime("pynq") as rt:
        np.testing.assert_array_equal(added(rt, VALUES, 5), VALUES + 5)


def test_the_program_in_the_docs_runs() -> None:
    text = (ROOT / "docs" / "vta-programs.md").read_text()
    codes = re.findall("(?<=```python\n).*?(?=```)", text, re.DOTALL)
    (code,) = (code for code in codes if "low_bytes" in code)
    names = {"matrix": VALUES - 32}
    exec(code, names)
    np.testing.assert_array_equal(names["low_bytes"], 2 * (VALUES - 32))


def test_a_kernel_is_recorded_once_and_loaded_once() -> None:
    calls = []

    def counted(k: UopRecorder, amount: int) -> None:
        calls.append(amount)
        add(k, amount)

    with Runtime() as rt:
        for amount in (1, 2, 1, 1):
            rt.push_alu(counted, amount)
        assert calls == [1, 2]
        assert opcodes(rt) == ["uop", "alu", "alu", "alu", "alu", "nop", "nop", "nop", "finish"]  # equal micro-ops
        rt.push_alu(lambda k: k.uop_push(1, 1, opcode=AluOp.MAX))
        assert opcodes(rt)[4:7] == ["alu", "uop", "alu"]


def test_the_cache_is_dropped_at_synchronize_kernels_are_not() -> None:
    with Runtime() as rt:
        first, second = added(rt, VALUES, 1, 2), added(rt, VALUES, 3, 1)
        np.testing.assert_array_equal(first, second - 1)
        for launch in (0, 1):
            assert opcodes(rt, launch).count("uop") == 1


def test_the_cache_evicts_when_full() -> None:
    """64 micro-ops of cache: two lists of 30 fit, the third starts over, the second is still there."""
    config = PRESETS["pynq"].with_overrides({"LOG_UOP_BUFF_SIZE": "8"})

    def listed(k: UopRecorder, first: int) -> None:
        for tile in range(first, first + 30):
            k.uop_push(tile, tile, opcode=AluOp.ADD, imm=1)

    with Runtime(config) as rt:
        values = np.arange(64 * 16).reshape(64, 16) % 50
        source, out = rt.to_device(values, Memory.ACC), rt.empty(values.shape, Memory.OUT)
        rt.load_buffer_2d(source, 0, 64, 1, 64, 0, Memory.ACC)
        for first in (0, 30, 34, 30, 0):
            rt.push_alu(listed, first)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, 64, 1, 64)
        assert opcodes(rt)[1:10] == ["uop", "alu", "uop", "alu", "uop", "alu", "alu", "uop", "alu"]
        assert rt.synchronize().findings == ()
        times = np.zeros(64, int)
        for first in (0, 30, 34, 30, 0):
            times[first : first + 30] += 1
        np.testing.assert_array_equal(rt.from_device(out, Memory.OUT, values.shape), values + times[:, None])


def matrices() -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    x, w = (rng.integers(-128, 128, (SIZE, SIZE)) for _ in range(2))
    bias = rng.integers(-1000, 1000, (SIZE, SIZE))
    return x, w, bias, (x @ w.T + bias).astype(np.int8)


def test_blocked_gemm_and_the_serial_order() -> None:
    x, w, bias, golden = matrices()
    with Runtime() as rt:
        out, overlapped = blocked_gemm(rt, x, w, bias, 2)
        np.testing.assert_array_equal(out, golden)
        assert overlapped.findings == ()
        assert overlapped.macs == SIZE**3
    with Runtime(debug=Debug.FORCE_SERIAL, timing="hls") as rt:  # whose units end an instruction before the next
        out, chained = blocked_gemm(rt, x, w, bias, 2)
        np.testing.assert_array_equal(out, golden)
        assert chained.findings == ()
        assert chained.trace is not None
        starts, ends = chained.trace.start, chained.trace.end
        assert (starts[1:] >= ends[:-1]).all()
        assert overlapped.cycles < 0.75 * chained.cycles


def test_deadlock_raises_with_findings_and_the_program_can_be_looked_at() -> None:
    with Runtime() as rt:
        rt.dep_pop("load", "compute")
        rt.push_alu(add, 1)
        with pytest.raises(
            HazardError, match=r"compute waits at .* for a load->compute token; no instruction of load pushes it"
        ) as caught:
            rt.synchronize()
        assert caught.value.findings[0].kind == DEADLOCK
        assert caught.value.findings[0].launch == "launch0"
        assert [finding.kind for finding in targets.get("vta").check(rt.program())][:1] == [DEADLOCK]
        np.testing.assert_array_equal(added(rt, VALUES, 5), VALUES + 5)  # what failed is gone


def test_races_and_leftovers_are_findings() -> None:
    with Runtime() as rt:
        source, out = rt.to_device(VALUES, Memory.ACC), rt.empty((4, 16), Memory.OUT)
        rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
        rt.push_alu(add, 1)
        rt.store_buffer_2d(0, Memory.OUT, out, 0, 4, 1, 4)
        rt.dep_push("compute", "load")
        assert {finding.kind for finding in rt.synchronize().findings} == {RACE, LEAK}
    with Runtime(check=False) as rt:
        rt.dep_push("compute", "load")
        assert [finding.kind for finding in rt.synchronize().findings] == [LEAK]


def test_reading_a_buffer_that_nobody_wrote_is_found() -> None:
    with Runtime() as rt:
        rt.load_buffer_2d(rt.empty((4, 16), Memory.INP), 0, 4, 1, 4, 0, Memory.INP)
        assert [finding.kind for finding in rt.synchronize().findings] == ["uninitialised"]


def test_padding_is_zeros_around_the_rows() -> None:
    with Runtime() as rt:
        source, out = rt.to_device(VALUES + 1, Memory.ACC), rt.empty((12, 16), Memory.OUT)
        rt.load_buffer_2d(source, 0, 2, 2, 2, 0, Memory.ACC, x_pad=(1, 0), y_pad=(0, 2))
        rt.push_alu(add, 0, 12)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, 12, 1, 12)
        rt.synchronize()
        found = rt.from_device(out, Memory.OUT, (12, 16))
        np.testing.assert_array_equal(found[[1, 2, 4, 5]], VALUES + 1)
        assert not found[[0, 3, *range(6, 12)]].any()


def test_stores_over_part_of_a_buffer_keep_the_rest(tmp_path: Path) -> None:
    """The host's data stay where nothing is stored, also in a saved program."""
    with Runtime() as rt:
        source = rt.to_device(VALUES, Memory.ACC)
        out = rt.to_device(np.full((6, 16), 99), Memory.OUT, "out")
        rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
        rt.push_alu(add, 1)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 1, 2, 2, 3)
        program = rt.program()  # from before it runs
        rt.synchronize()
        found = rt.from_device(out, Memory.OUT, (6, 16))
        np.testing.assert_array_equal(found[[1, 2, 4, 5]], VALUES + 1)
        assert (found[[0, 3]] == 99).all()
    np.testing.assert_array_equal(run_bare(program).outputs["out"].view(np.int8).reshape(6, 16), found)


def test_saved_programs_run_check_and_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Runtime() as rt:
        first = added(rt, VALUES, 5)
        second = added(rt, first, 7)
        program = rt.program()
    path, again = tmp_path / "a.twp", tmp_path / "b.twp"
    file.save(program, path)
    assert main(["check", str(path)]) == 0
    assert main(["exec", str(path), "-o", str(tmp_path / "o.npz")]) == 0
    with np.load(tmp_path / "o.npz") as found:
        outputs = [found[name].view(np.int8).reshape(4, 16) for name in ("launch0_buffer1", "launch1_buffer3")]
    np.testing.assert_array_equal(outputs, [first, second])
    capsys.readouterr()
    assert main(["disasm", str(path)]) == 0
    text = capsys.readouterr().out
    (tmp_path / "a.txt").write_text(text)
    assert main(["asm", str(tmp_path / "a.txt"), "-o", str(again)]) == 0
    for one, other in zip(program.launches, file.load(again).launches, strict=True):
        assert (one.name, one.meta) == (other.name, other.meta)
        assert one.arrays.keys() == other.arrays.keys()
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array.reshape(-1), other.arrays[name].reshape(-1))


def test_equal_data_of_several_launches_are_kept_once() -> None:
    with Runtime() as rt:
        source = rt.to_device(VALUES, Memory.ACC, "source")
        for _ in range(2):
            rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
            rt.synchronize()
        one, two = (launch.arrays["dram.source"] for launch in rt.program().launches)
        assert one is two
        source.write(np.zeros(1, np.uint8))
        rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
        assert rt.program().launches[-1].arrays["dram.source"] is not one


def test_dumps() -> None:
    dumped: list[str] = []
    with Runtime(debug=Debug.DUMP_INSN | Debug.DUMP_UOP, dump=dumped.append) as rt:
        rt.push_alu(add, 3)
        rt.push_alu(add, 3)
        assert dumped == [".uop\ndst=0 src=0 wgt=0  # 0\n"]
        text = rt.instructions()
        rt.synchronize()
    assert dumped[1:] == [f"# launch0\n{text}"]
    assert text.splitlines()[2] == (
        "alu add uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_out=0 dst_factor_in=1 src_factor_out=0 "
        "src_factor_in=1 use_imm=1 imm=3  # 1"
    )
    assert text.splitlines()[-1] == "finish  # 6"


def test_nothing_recorded() -> None:
    with Runtime() as rt:
        assert (rt.synchronize().cycles, rt.synchronize().findings) == (0, ())
        with pytest.raises(ProgramError, match="program: nothing is recorded"):
            rt.program()
        rt.dep_pop("load", "compute")
        with pytest.raises(HazardError):  # a pop alone is a NOP that waits
            rt.synchronize()


def long(k: UopRecorder) -> None:
    for tile in range(125):
        k.uop_push(tile, tile, opcode=AluOp.ADD)


def test_a_full_command_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_TRANSFER", 16 * 32)
    with Runtime() as rt:
        source = rt.to_device(VALUES, Memory.ACC)
        for _ in range(16):
            rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
        calls: list[Call] = [lambda rt: rt.push_gemm(dense), lambda rt: rt.dep_push("load", "compute")]
        for call in calls:
            with pytest.raises(ProgramError, match=r"the command buffer of 0 KiB is full \(16 instructions\); call"):
                call(rt)
        assert rt.synchronize().cycles
        rt.push_gemm(dense)
        with pytest.raises(ProgramError, match="push_alu: the micro-ops exceed 0 KiB; call synchronize"):
            rt.push_alu(long)


def loading(
    *, offset: int = 0, x: int = 1, y: int = 1, stride: int = 1, sram: int = 0, memory: Memory = Memory.INP
) -> Call:
    return lambda rt: rt.load_buffer_2d(rt.alloc(64 * 16, "b"), offset, x, y, stride, sram, memory)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (loading(sram=2047, x=2), r"load_buffer_2d: sram_index 2047 with 2 tiles is outside inp; inp has tiles"),
        (loading(sram=-1), "load_buffer_2d: sram_index -1"),
        (loading(sram=1023, x=2, memory=Memory.WGT), r".*is outside wgt; wgt has tiles 0\.\.1023"),
        (loading(x=1 << 16), r"load_buffer_2d: x_size is 65536, not an integer in 0\.\.65535"),
        (loading(y=-1), "load_buffer_2d: y_size is -1"),
        (loading(stride=1 << 16), "load_buffer_2d: x_stride is 65536"),
        (loading(offset=-1), "load_buffer_2d: offset -1 with 1 rows"),
        (
            loading(x=4, y=3, stride=31),
            "load_buffer_2d: offset 0 .* reaches to tile 66; buffer 'b' has 64 tiles of 16 bytes",
        ),
        (loading(x=2, memory=Memory.WGT, stride=2, y=3), "load_buffer_2d: .* buffer 'b' has 4 tiles of 256 bytes"),
        (loading(memory=Memory.UOP), "load_buffer_2d: memory is UOP; push_gemm and push_alu load micro-ops"),
        (loading(memory=Memory.OUT), "load_buffer_2d: memory is OUT; choose INP, WGT, ACC"),
        (loading(memory=Memory.ACC_8BIT), "load_buffer_2d: ACC_8BIT is ignored by hls"),
        (
            lambda rt: rt.load_buffer_2d(rt.alloc(16), 0, 1, 1, 1, 0, Memory.INP, x_pad=(0, 16)),
            "load_buffer_2d: x_pad_1 is 16",
        ),
        (
            lambda rt: rt.load_buffer_2d(rt.alloc(16), 0, 1, 1, 1, 2047, Memory.INP, y_pad=(1, 0)),
            "load_buffer_2d: sram_index 2047 with 2 tiles",
        ),
        (lambda rt: rt.store_buffer_2d(0, Memory.ACC, rt.alloc(16), 0, 1, 1, 1), "store_buffer_2d: memory is ACC"),
        (lambda rt: rt.store_buffer_2d(2048, Memory.OUT, rt.alloc(16), 0, 1, 1, 1), "store_buffer_2d: sram_index"),
        (lambda rt: rt.dep_push("load", "store"), r"dep_push\(load, store\): there is no such token queue"),
        (lambda rt: rt.dep_pop("store", "load"), r"dep_pop\(store, load\): there is no such token queue"),
        (lambda rt: rt.dep_push("gemm", "store"), "dep_push: there is no unit 'gemm'; choose one of load, compute"),
        (lambda rt: rt.push_gemm(add, 1), "push_gemm: its kernel has alu micro-ops; use push_alu"),
    ],
)
def test_misuse_is_named(call: Call, message: str) -> None:
    with Runtime() as rt:
        with pytest.raises(ProgramError, match=f"^{message}"):
            call(rt)
        assert not rt._commands


def test_a_buffer_in_use_is_not_freed() -> None:
    with Runtime() as rt:
        source = rt.to_device(VALUES, Memory.ACC)
        rt.load_buffer_2d(source, 0, 4, 1, 4, 0, Memory.ACC)
        with pytest.raises(ProgramError, match="free: recorded instructions use buffer 'buffer0'; call synchronize"):
            rt.free(source)
        rt.synchronize()
        rt.free(source)
    with pytest.raises(ProgramError, match="synchronize: the runtime is closed"):
        rt.synchronize()


def test_bad_machines_are_refused() -> None:
    with pytest.raises(ConfigError, match='no preset "x"'):
        Runtime("x")
    with pytest.raises(InputError, match="no timing model 'x'; choose one of tilewright"):
        Runtime(timing="x")
