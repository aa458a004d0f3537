"""Short instructions in the compiled loop give what the array forms give: every memory, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from platform import machine

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim import jit
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.expression import Do
from tilewright.targets.vta.isa.fields import Memory, Opcode, Uops
from tilewright.targets.vta.isa.own import OwnOperation
from tilewright.targets.vta.isa.stream import Record, decode, encode, encode_uops
from tilewright.targets.vta.steps.elaborate import Elaborated, elaborate
from tilewright.targets.vta.steps.micro_kernel import Kernel
from tilewright.targets.vta.values import actions as planning
from tilewright.targets.vta.values import loop
from tilewright.targets.vta.values.actions import Action, StepBatch, actions, plan, stored_resets
from tilewright.targets.vta.values.machine import Machine

BASE = PRESETS["pynq"]
#: Every step of expressions.
OWN_ALU = (
    OwnOperation("first", 5, "abs(dst - src * 3) >> imm if dst != src else max(src, -7) << (imm + 40)"),
    OwnOperation("second", 6, "where((dst ^ src) < imm, ~dst | 255, int8(dst) * min(src, imm)) + (src == 1)"),
    OwnOperation("third", 7, "(dst & int16(src)) << src >> 3"),
)
CONFIGS = {
    "pynq": BASE,
    "batch2": replace(BASE, LOG_BATCH=1),
    "batch4b8": replace(BASE, LOG_BATCH=2, LOG_BLOCK=3, LOG_WGT_BUFF_SIZE=15),
    "int4": replace(BASE, LOG_INP_WIDTH=2, LOG_WGT_WIDTH=2, LOG_INP_BUFF_SIZE=14, LOG_WGT_BUFF_SIZE=17),
    "mixed": replace(BASE, LOG_INP_WIDTH=1, LOG_WGT_WIDTH=0, LOG_INP_BUFF_SIZE=13, LOG_WGT_BUFF_SIZE=15),
    "acc16": replace(BASE, LOG_ACC_WIDTH=4, LOG_ACC_BUFF_SIZE=16),
    "acc8": replace(BASE, LOG_ACC_WIDTH=3, LOG_ACC_BUFF_SIZE=15),
    "own": replace(BASE, LOG_BATCH=1, own_alu=OWN_ALU),
    "wide": replace(BASE, LOG_INP_WIDTH=4, LOG_WGT_WIDTH=4, LOG_INP_BUFF_SIZE=16, LOG_WGT_BUFF_SIZE=19),
}
#: Tiles of each memory that programs use: few, so that they meet.
TILES = 12
BASES = {"uop": 0, "inp": 0x10000, "wgt": 0x20000, "out": 0x40000, "acc": 0x60000}
SIZES = {"uop": 0x400, "inp": 0x2000, "wgt": 0x8000, "out": 0x8000, "acc": 0x4000}


def memory(rng: np.random.Generator, config: Config, samples: int) -> Callable[[], Dram]:
    """Equal DRAMs: micro-ops and accumulators are constants, weights are the samples' own in half of them."""
    index = rng.integers(0, TILES // 2, (3, SIZES["uop"] // 4))
    own = {"inp", "out", *(["wgt"] if rng.random() < 0.5 else [])}
    data = {name: rng.integers(0, 256, (samples if name in own else 1, size)) for name, size in SIZES.items()}
    uops = encode_uops(Uops(*index), config)
    data["uop"] = uops.astype(np.int64).reshape(1, -1)

    def dram() -> Dram:
        places = [(name, BASES[name], content.astype(np.uint8)) for name, content in data.items()]
        return Dram([Segment(name, address, bytes_, shared=name not in own) for name, address, bytes_ in places])

    return dram


def transfer(rng: np.random.Generator, config: Config) -> Record:
    """A LOAD or STORE of a few tiles, now and then empty or padded, of data or of what others have stored."""
    kind = [Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT, Memory.OUT][int(rng.integers(5))]
    some_rows = kind == Memory.OUT and config.rules.counters_wrap  # such a STORE without rows stores 65,536
    rows, columns, stride = (int(rng.integers(low, 4)) for low in (some_rows, 0, 0))
    record: dict[str, int] = {"opcode": Opcode.STORE if kind == Memory.OUT else Opcode.LOAD, "memory_type": kind}
    record |= {"sram_base": int(rng.integers(TILES)), "dram_base": int(rng.integers(4))}
    record |= {"y_size": rows, "x_size": columns, "x_stride": stride}
    if kind != Memory.OUT and rng.random() < 0.4:
        record |= {f"{axis}_pad_{side}": int(rng.integers(3)) for axis in "xy" for side in (0, 1)}
    if rng.random() < 0.3:  # what has been stored; or stored over a constant
        base, other = {Memory.INP: ("inp", "out"), Memory.WGT: ("wgt", "out"), Memory.OUT: ("out", "acc")}.get(
            kind, ("acc", "acc")
        )
        record["dram_base"] += (BASES[other] - BASES[base]) // config.dram_tile_bytes(kind)
    return record


def compute(rng: np.random.Generator, config: Config) -> Record:
    """A GEMM or ALU instruction of 0 to 16 micro-ops."""
    begin = int(rng.integers(60))
    loop = {
        "uop_bgn": begin,
        "uop_end": begin + int(rng.integers(config.rules.counters_wrap, 5)),
        "iter_out": 2,
        "iter_in": int(rng.integers(1, 3)),
    }
    loop |= {f"{which}_factor_{level}": int(rng.integers(3)) for which in ("dst", "src") for level in ("in", "out")}
    if rng.random() < 0.5:
        return {
            "opcode": Opcode.GEMM,
            **loop,
            "reset_reg": int(rng.random() < 0.4),
            "wgt_factor_in": int(rng.integers(2)),
        }
    imm = int(rng.choice([int(rng.integers(-40, 40)), int(rng.integers(-(2**15), 2**15))]))
    opcode = int(rng.choice(list(config.opcodes)))
    operation = {"alu_opcode": opcode, "use_imm": int(rng.random() < 0.6), "imm": imm}
    return {"opcode": Opcode.ALU, **loop, **operation}


def program(rng: np.random.Generator, config: Config, dram: Dram, length: int = 80) -> Elaborated:
    """Random instructions on 60 micro-ops; no tokens, as values are computed in the order of the stream."""
    uops = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP, "y_size": 1, "x_size": 64, "x_stride": 64}
    records = [compute(rng, config) if rng.random() < 0.6 else transfer(rng, config) for _ in range(length)]
    return elaborate(decode(encode([uops, *records], config), config), config, dram, BASES)


def state(machine: Machine) -> dict[str, Array]:
    out = np.where(machine._mirrors[:, None, None], machine.acc, machine.out)
    dram = {segment.name: segment.data for segment in machine.dram.segments}
    wgt = np.broadcast_to(machine.wgt, (machine.samples, *machine.wgt.shape[1:]))
    return {"inp sram": machine.inp, "wgt sram": wgt, "acc sram": machine.acc, "out sram": out, **dram}


def check(machine: Machine, expected: Machine, seed: int) -> None:
    for (name, ours), theirs in zip(state(machine).items(), state(expected).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{name}, seed {seed}")


def test_the_operations_have_every_step_of_expressions() -> None:
    steps = {do for operation in OWN_ALU for do, _ in (operation.expression.steps if operation.expression else ())}
    assert steps == set(Do)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of any length and any instructions, compiled without delay."""
    monkeypatch.setattr(jit, "PATIENCE", 0)
    monkeypatch.setattr(jit, "PATIENCE_IF_ON_DISK", 0)
    monkeypatch.setattr(planning, "SHORTEST", 1)
    monkeypatch.setattr(planning, "ENOUGH", 1)
    monkeypatch.setattr(planning, "ARRAYS_US", 1 << 30)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("name", "semantics"),
    [
        pytest.param(name, semantics, marks=[pytest.mark.slow] * (name in ("acc16", "wide")))
        for name, config in CONFIGS.items()
        for semantics in (("hls",) if config.own_alu else ("hls", "fsim", "chisel"))
    ],
)
def test_both_forms_agree(name: str, semantics: str) -> None:
    config = replace(CONFIGS[name], semantics=semantics)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        samples = int(rng.integers(1, 4))
        dram = memory(rng, config, samples)
        elaborated = program(rng, config, dram())
        steps = np.arange(len(elaborated.stream))
        stored = stored_resets(elaborated, steps)
        arrays, compiled = (Machine(config, dram(), samples) for _ in "ab")
        arrays.run(actions(elaborated, steps, stored))
        parts = plan(elaborated, steps, stored, samples)
        # The loop does not support ALU instructions that read a tile without its last write.
        alone = [part.work for part in parts if isinstance(part, Action)]
        assert all(isinstance(work, Kernel) and work.follows.any() for work in alone)
        assert bool(alone) <= config.rules.reads_stale
        assert len(parts) > len(alone)
        compiled.run(parts)
        check(compiled, arrays, seed)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(8))
def test_what_the_loop_does_not_know_is_left_to_the_array_forms(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches and array forms in turn, on the same memories."""
    monkeypatch.setattr(planning, "UPSTREAM", (AluOp.MIN, AluOp.MAX, AluOp.SHR, AluOp.MUL))
    rng = np.random.default_rng(seed)
    dram = memory(rng, BASE, 2)
    elaborated = program(rng, BASE, dram())
    steps = np.arange(len(elaborated.stream))
    stored = stored_resets(elaborated, steps)
    parts = plan(elaborated, steps, stored, 2)
    assert {type(part) for part in parts} == {StepBatch, Action}
    arrays, mixed = (Machine(BASE, dram(), 2) for _ in "ab")
    arrays.run(actions(elaborated, steps, stored))
    mixed.run(parts)
    check(mixed, arrays, seed)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["pynq", "int4", "batch2"])
def test_compiled_and_uncompiled_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, seed = CONFIGS[name], 5
    rng = np.random.default_rng(seed)
    dram = memory(rng, config, 1)
    elaborated = program(rng, config, dram(), 40)
    steps = np.arange(len(elaborated.stream))
    parts = plan(elaborated, steps, stored_resets(elaborated, steps), 1)
    native, plain = (Machine(config, dram(), 1) for _ in "ab")
    native.run(parts)
    monkeypatch.setattr(jit.Compiled, "__call__", lambda self, *args: self.python(*args))
    plain.run(parts)
    check(plain, native, seed)


#: Runs tests of this file in a new process, compiled for another processor.
ON_ANOTHER_PROCESSOR = """
import sys
import pytest
from pathlib import Path
from tilewright.sim import native

cpu, features, folder, *tests = sys.argv[1:]
native._processor = lambda: (cpu, features)
native._folders = lambda function: (Path(folder), Path(folder))
sys.exit(pytest.main([*tests, "-n0", "-p", "no:cacheprovider"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="compiles for x86-64 processors")
@pytest.mark.parametrize(("cpu", "features"), [("haswell", "+avx2"), ("x86-64", "+sse2")])
def test_a_processor_without_wider_vectors(cpu: str, features: str, tmp_path: Path) -> None:
    """The loop as it is compiled for older processors, which this one also runs."""
    tests = [f"{__file__}::test_both_forms_agree[{name}-hls]" for name in ("pynq", "batch2")]
    run = [sys.executable, "-c", ON_ANOTHER_PROCESSOR, cpu, features, str(tmp_path), *tests]
    subprocess.run(run, check=True, cwd=Path(__file__).parents[3])
    assert list(tmp_path.glob("loop.run-*.loop"))


def test_a_large_instruction_ends_a_stretch_unless_the_loop_multiplies_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ENOUGH", 1)
    short = {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 1}
    large = {**short, "iter_out": 100, "iter_in": 100}
    for config, lengths in ((BASE, [111]), (CONFIGS["acc16"], [100, "end"])):
        dram = memory(np.random.default_rng(1), config, 1)()
        stream = decode(encode([*[short] * 100, large, *[short] * 10], config), config)
        parts = plan(elaborate(stream, config, dram, BASES), np.arange(111), {}, 1)
        assert [len(part.numbers) if isinstance(part, StepBatch) else part.where for part in parts] == lengths


def test_a_loop_that_is_soon_done_is_not_compiled(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "run", jit.compiled(loop.run.python))
    rng = np.random.default_rng(1)
    dram = memory(rng, BASE, 1)
    elaborated = program(rng, BASE, dram())
    steps = np.arange(len(elaborated.stream))
    parts = plan(elaborated, steps, stored_resets(elaborated, steps), 1)
    for patience, native in ((1 << 60, False), (0, True)):
        monkeypatch.setattr(jit, "PATIENCE", patience)
        monkeypatch.setattr(jit, "PATIENCE_IF_ON_DISK", patience)
        Machine(BASE, dram(), 1).run(parts)
        assert bool(loop.run._native) == native
