"""The CFU model: sums and cycles against an array stepped cycle by cycle, post-processing, alternatives, misuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.cfu.asm import A0, A1, NOP, T0, T1, addi, custom, halt, image, li, sw
from tests.targets.cfu.running import run
from tests.targets.cfu.stepper import stepped
from tests.targets.cfu.unit import CHECK, CLAMP, GET, GET_SRDHM, RDBPOT, SET_A, SET_B, SET_SRDHM, START, Unit
from tilewright.errors import ConfigError
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.gemm import busy_cycles
from tilewright.targets.cfu.runtime.system import REGION

ALTERNATIVES = {
    "published": Config(),
    "addressed4": Config(array=4, transfer="addressed"),
    "addressed16": Config(transfer="addressed"),
    "counter4": Config(array=4, transfer="counter"),
    "counter8": Config(array=8, transfer="counter"),
    "paired32": Config(array=32),
    "random": Config(readout="random"),
    "blocking": Config(start="blocking"),
    "single": Config(srdhm="single"),
}


@pytest.mark.parametrize("name", ALTERNATIVES)
@pytest.mark.parametrize("shape", [(16, 16, 16), (5, 7, 11), (20, 16, 9), (16, 20, 9), (33, 34, 3), (1, 1, 1)])
def test_sums_and_cycles_are_those_of_the_stepped_array(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng([m, n, k])
    a, b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
    unit = Unit(ALTERNATIVES[name])
    unit.load(a, b)
    before = unit.cycle
    unit.start(m, n, k, 128)
    if unit.config.start == "blocking":
        assert unit.cycle == before + 2 + unit.busy_cycles
    unit.wait()
    expected, cycles = stepped(a, b, 128, unit.config.array)
    np.testing.assert_array_equal(unit.sums(m, n), expected)
    assert (unit.busy_cycles, unit.kinds) == (cycles, [])


@pytest.mark.parametrize(
    ("shape", "cycles"),
    [
        ((16, 16, 16), 49), ((16, 16, 27), 60), ((20, 16, 9), 71), ((16, 20, 9), 83), ((5, 7, 11), 33),
        ((256, 16, 27), 945), ((64, 64, 64), 1537), ((64, 64, 256), 4609), ((256, 256, 256), 73729),
    ],
)  # fmt: skip
def test_busy_cycles_are_those_of_the_rtl(shape: tuple[int, int, int], cycles: int) -> None:
    assert busy_cycles(*shape, 16) == cycles


def test_check_says_busy_to_the_last_cycle() -> None:
    unit = Unit()
    unit.load(np.ones((16, 16)), np.ones((16, 16)))
    started = unit.cycle
    unit.start(16, 16, 16)
    for cycle, busy in ((started + 2, 1), (started + 1 + 49, 1), (started + 2 + 49, 0)):
        unit.cycle = cycle
        assert unit.op(CHECK) == busy, cycle - started


def test_accumulation_adds_and_a_launch_without_it_overwrites() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (20, 8)), rng.integers(-128, 128, (8, 17))
    unit = Unit()
    for accumulate in (False, True, True):
        unit.load(a, b)
        unit.start(20, 17, 8, -3, accumulate)
        unit.wait()
    np.testing.assert_array_equal(unit.sums(20, 17), 3 * ((a - 3) @ b))
    unit.load(a, b)
    unit.start(20, 17, 8, -3)
    unit.wait()
    np.testing.assert_array_equal(unit.sums(20, 17), (a - 3) @ b)


def test_the_offset_sum_is_kept_in_nine_bits() -> None:
    unit = Unit()
    unit.load(np.full((1, 1), 127), np.ones((1, 1)))
    unit.start(1, 1, 1, 200)
    unit.wait()
    assert unit.op(GET) == 127 + 200 - 512


def test_rows_beyond_the_buffer_wrap() -> None:
    unit = Unit(Config(buffer_rows=16))
    unit.rows(0, np.repeat(np.arange(17), 16).reshape(17, 16))
    assert unit.kinds == ["rows"]
    assert unit.buffers[0] == 0x10101010  # row 16 in the place of row 0


@pytest.mark.parametrize("seed", range(3))
def test_post_processing_is_gemmlowp(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [-(1 << 31), -(1 << 31) + 1, -1, 0, 1, (1 << 31) - 1, 1 << 30, -(1 << 30)]
    values = [*edges, *rng.integers(-(1 << 31), 1 << 31, 200).tolist()]
    others = [*edges, *rng.integers(-(1 << 31), 1 << 31, 200).tolist()]
    unit, single = Unit(), Unit(ALTERNATIVES["single"])
    x, q = np.array(values), np.array(others)
    for left, right in zip(values, np.roll(others, seed).tolist(), strict=True):
        unit.op(SET_SRDHM, left, right)
        found = unit.op(GET_SRDHM)
        assert found == _high(left, right)
        assert single.op(SET_SRDHM, left, right) == found
        for exponent in (0, 1, 7, 31):
            assert unit.op(RDBPOT, left, exponent) == _shifted(left, exponent)
        assert unit.op(CLAMP, left, right) == max(-128, min(127, ((left + right + (1 << 31)) % (1 << 32)) - (1 << 31)))
    assert len(x) == len(q) and unit.kinds == []


def _high(a: int, b: int) -> int:
    if a == b == -(1 << 31):
        return (1 << 31) - 1
    nudged = a * b + ((1 << 30) if a * b >= 0 else 1 - (1 << 30))
    return abs(nudged) // (1 << 31) * (1 if nudged >= 0 else -1)


def _shifted(x: int, exponent: int) -> int:
    whole, half = abs(x) >> exponent, (1 << exponent) >> 1
    rounded = whole + (1 if exponent and abs(x) & ((1 << exponent) - 1) >= half else 0)
    return rounded if x >= 0 else -rounded


def launched(unit: Unit) -> Unit:
    unit.load(np.ones((16, 16)), np.ones((16, 16)))
    unit.start(16, 16, 16)
    return unit


def test_misuse_is_noted_and_goes_on_as_the_rtl_would() -> None:
    unit = launched(Unit())
    unit.op(GET)
    assert unit.kinds == ["read_busy"]
    unit = launched(Unit())
    for _ in range(4):
        unit.op(SET_A, 0x02020202, 0x02020202)
    assert unit.kinds == ["write_busy"] and unit.notes[0].times == 4
    unit.wait()
    assert unit.buffers[0] == 0x01010101 and unit.buffers[4] == 0x02020202  # the last write is still enabled
    unit = launched(Unit())
    unit.start(16, 16, 16)
    assert unit.kinds == ["start_busy"]
    unit = Unit()
    unit.op(SET_B, 1, 1)
    unit.start(16, 16, 16)
    assert unit.kinds == ["half_row"]
    unit = launched(Unit())
    unit.wait()
    for _ in range(17):
        unit.op(GET)
    unit.start(16, 16, 16)
    assert unit.kinds == ["partial_read"]
    unit = Unit()
    unit.start(1023, 16, 16)
    assert unit.kinds == [] and unit.op(CHECK)
    for m, n, k, kind in ((1023, 1023, 1, "rows"), (16, 16, 0, "empty"), (0, 16, 16, "empty")):
        unit = Unit()
        unit.start(m, n, k)
        assert unit.kinds == [kind]
    unit = Unit()
    unit.start(16, 16, 16, 300)
    unit.op(9)
    unit.op(CHECK, funct3=1)
    assert unit.kinds == ["offset", "unknown"]


def test_a_zero_sized_product_never_ends() -> None:
    unit = Unit()
    unit.start(0, 16, 16)
    unit.cycle += 10_000_000
    assert unit.op(CHECK) == 1


def test_the_write_of_a_stays_enabled_over_start() -> None:
    """A's last row is written again, to the row in front of the first: the RTL's slip."""
    unit = Unit()
    unit.rows(SET_A, np.full((1, 16), 5))
    unit.rows(SET_B, np.full((1, 16), 6))
    unit.start(16, 16, 1)
    words = unit.config.buffer_rows * 4
    assert unit.buffers[words - 1] == 0x05050505 and unit.buffers[2 * words - 1] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"array": 16, "transfer": "counter"}, {"array": 8, "transfer": "paired"}, {"array": 12}, {"array": 64},
        {"readout": "both"}, {"buffer_rows": 100}, {"clock_mhz": 0},
    ],
)  # fmt: skip
def test_impossible_machines_are_refused(changes: dict[str, int | str]) -> None:
    with pytest.raises(ConfigError):
        Config(**changes)  # type: ignore[arg-type]


def test_a_start_of_the_seeds_tile_is_complete() -> None:
    """M = N = K = 256 fills all three buffers, and no row wraps."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (256, 256)), rng.integers(-128, 128, (256, 256))
    unit = Unit()
    unit.load(a, b)
    unit.op(START, 256 << 20 | 256 << 10 | 256, 128)
    unit.wait()
    np.testing.assert_array_equal(unit.sums(256, 256), (a + 128) @ b)
    assert unit.kinds == []


def test_an_offset_of_more_than_9_bits_is_noted_in_its_region() -> None:
    def launch(offset: int) -> list[int]:
        return [*li(A0, 16 << 20 | 16 << 10 | 16), addi(A1, 0, offset), custom(START, 0, A0, A1), *[NOP] * 64]

    def region(number: int) -> list[int]:
        return [*li(T0, REGION), addi(T1, 0, number), sw(T1, T0)]

    words = [*launch(5), *region(1), *launch(128), *region(2), *launch(300), *region(0), *launch(7), *halt(0)]
    found = run(image(words), Config())
    assert [(note.kind, note.region, note.detail) for note in found.misuses] == [("offset", 2, 300)]
    assert [part.region for part in found.regions] == [0, 1, 2, 0]
    assert sum(part.cycles for part in found.regions) == found.cycles
    assert sum(part.instructions for part in found.regions) == found.instret
