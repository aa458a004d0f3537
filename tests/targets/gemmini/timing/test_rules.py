"""The rules that were measured on the RTL: gemmini_timing.md of the golden data, with its numbers."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.errors import HazardError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import GARBAGE_ADDR, WEIGHT_STATIONARY, Commands, acc, spad
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.timing import Times, run
from tilewright.targets.gemmini.timing.bus import TRANSACTIONS
from tilewright.targets.gemmini.timing.moves import MERGER, SCALER

DRAM = 0x8000_0000
LATENCIES = (1, 16, 100)
#: The first command after a configuration is issued in this cycle.
ISSUED = 6


def timed(program: Commands, latency: int = 16) -> Times:
    return run(program.array, expand(program.array, program.config), program.config, latency)


def commands(preset: str = "default") -> Commands:
    return Commands(Config.read(preset, {"rtl": "2023"}))


def loaded(
    local: int, rows: int, columns: int, stride: int = 64, at: int = DRAM, latency: int = 16, **how: float
) -> int:
    """Return the cycles from issue to done of one load."""
    program = commands()
    program.gemmini_extended2_config_ld(stride, how.get("scale", 1.0), bool(how.get("shrunk", 0)))
    program.gemmini_extended_mvin(at, local, columns, rows)
    times = timed(program, latency)
    assert times.issued.tolist() == [ISSUED - 1, ISSUED]
    return int(times.done[1] - times.issued[1])


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("rows", [1, 2, 15, 16])
def test_a_load_takes_the_latency_and_its_beats(latency: int, rows: int) -> None:  # rules 2 and 3
    assert loaded(spad(0), rows, 16, latency=latency) == latency + 13 + rows
    assert loaded(acc(0), rows, 16, latency=latency) == latency + 11 + 4 * rows
    assert loaded(acc(0), rows, 16, latency=latency, shrunk=1) == latency + 13 + rows


def test_a_load_of_four_blocks_or_of_rows_across_lines() -> None:  # rules 2 and 7
    assert loaded(spad(0), 16, 64) == 93
    assert loaded(spad(0), 16, 16, stride=16, at=DRAM + 1) == 73


def test_a_fourth_load_state_changes_nothing() -> None:
    def cycles(state: int) -> int:
        program = commands()
        program.gemmini_extended3_config_ld(64, 1.0, False, 0)
        program.gemmini_config_st(64)
        program.gemmini_extended5_config_ld(64, 1.0, False, 100, 9, state)
        program.gemmini_extended_mvout(DRAM, spad(0), 16, 16)
        program.gemmini_extended_mvin(DRAM + 4096, spad(40), 16, 16)  # its range would begin 100 rows earlier
        return timed(program).cycles

    assert cycles(3) == cycles(2)


@pytest.mark.parametrize("rows", [1, 7, 16])
def test_zeros_need_no_memory_and_stride_0_one_read(rows: int) -> None:  # rule 4
    assert loaded(spad(0), rows, 16, at=0) == 3 + rows
    assert loaded(spad(0), 16, 16, stride=0) == 45
    assert loaded(acc(0), 16, 16, stride=0) == 46


def test_a_scale_other_than_1_needs_four_lanes() -> None:  # rule 5
    """The turn of the lanes stays from load to load, so that the first rows decide how well the lanes are used."""
    differences = set()
    for before in range(1, 4):
        program = commands()
        program.gemmini_extended3_config_ld(64, 1.0, False, 0)
        program.gemmini_extended3_config_ld(64, 0.5, False, 1)
        program.gemmini_extended_mvin(DRAM, spad(0), 16, before)
        program.gemmini_fence()
        program.gemmini_extended_mvin2(DRAM, spad(64), 16, 16)
        times = timed(program)
        differences.add(int(times.done[3] - times.issued[3]))
    assert min(differences) == 99 and len(differences) > 1


@pytest.mark.parametrize(
    ("preset", "latency", "columns", "step"),
    [("default", 16, 16, 23), ("default", 100, 16, 107), ("default", 100, 64, 110), ("wsonly", 16, 16, 16)],
)
def test_a_slot_is_held_until_its_beats_are_there(preset: str, latency: int, columns: int, step: int) -> None:  # rule 6
    program = commands(preset)
    program.gemmini_config_ld(64)
    for k in range(6):
        program.gemmini_extended_mvin(DRAM + 1024 * k, spad(64 * k), columns, 16)
    done = timed(program, latency).done
    assert (done[4:] - done[3:-1]).tolist() == [step] * 3


def stored(local: int, rows: int, columns: int, latency: int = 16, at: int = DRAM) -> tuple[int, int]:
    """Return the cycles from the issue of one store until it is done, and until the machine is idle."""
    program = commands()
    program.gemmini_config_st(64)
    program.gemmini_extended_mvout(at, local, columns, rows)
    times = timed(program, latency)
    return int(times.done[1] - times.issued[1]), int(times.cycles - times.issued[1])


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("rows", [2, 9, 16])
def test_a_store_is_done_when_its_last_row_is_read(latency: int, rows: int) -> None:  # rule 8
    assert stored(spad(0), rows, 16, latency) == (rows + 2, latency + 14 + rows)


def test_stores_of_results_blocks_and_unaligned_rows() -> None:  # rules 9 to 12
    assert stored(acc(0), 16, 16) == (24, 60)
    assert stored(acc(0, full=True), 16, 16) == (42, 99)
    assert stored(spad(0), 16, 64) == (108, 142)
    assert stored(spad(0), 16, 16, at=DRAM + 7)[0] > 18


def pair(rows: int, a: int = 0, preset: str = "default", count: int = 1, weights: bool = True) -> Times:
    """Time pairs of preload and compute (weight-stationary, results in the accumulator)."""
    program = commands(preset)
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    for k in range(count):
        b = spad(a + 16 * k) if weights or k == 0 else GARBAGE_ADDR
        program.gemmini_extended_preload(b, acc(16 * (k % 64)), 16, 16, 16, rows)
        macro = program.gemmini_extended_compute_accumulated
        if weights or k == 0:
            macro = program.gemmini_extended_compute_preloaded
        macro(spad(4096 + 16 * k), GARBAGE_ADDR, 16, rows, 16, 16)
    return timed(program)


@pytest.mark.parametrize(("rows", "computed", "written"), [(16, 35, 72), (4, 23, 60), (1, 23, 60)])
def test_a_lone_pair(rows: int, computed: int, written: int) -> None:  # rule 14
    times = pair(rows)
    assert (times.done[2] - times.issued[1], times.done[1] - times.issued[1]) == (computed, written)


@pytest.mark.parametrize(("a", "step"), [(0, 16), (4096 + 1024, 32)])
def test_weights_and_operands_in_one_bank_are_read_in_turn(a: int, step: int) -> None:  # rule 16
    done = pair(16, a, count=8).done[2::2][:-1]  # the last compute has no preload beside it
    assert (done[3:] - done[2:-1]).tolist() == [step] * 4


def test_kept_weights_leave_one_row_a_cycle() -> None:  # rule 15
    done = pair(16, count=8, weights=False).done[2::2]
    assert (done[3:] - done[2:-1]).tolist() == [16] * 5
    done = pair(4, count=24, weights=False).done[2::2]
    steps = sorted((done[1:] - done[:-1]).tolist())
    assert steps[len(steps) // 2] == 4 and 4 + 17 <= steps[-1] <= 4 + 18, "a pause after every fifth or sixth pair"


def test_a_chain_of_load_compute_store() -> None:  # rules 21 and 22
    program = commands()
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_config_st(16)
    program.gemmini_config_ld(16)
    program.gemmini_mvin(DRAM, spad(0))
    program.gemmini_preload(spad(4096), acc(0))
    program.gemmini_compute_preloaded(spad(0), GARBAGE_ADDR)
    program.gemmini_mvout(DRAM + 4096, acc(0))
    times = timed(program)
    mvin, preload, compute, mvout = range(3, 7)
    assert times.issued[compute] == times.done[mvin] + 1
    assert times.done[preload] - times.issued[compute] == 71
    assert times.issued[mvout] == times.done[preload] + 1
    assert (times.done[mvout] - times.issued[mvout], times.cycles - times.issued[mvout]) == (24, 60)


def test_operands_in_the_accumulator_stall_the_machine() -> None:
    program = commands()
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_preload(spad(0), acc(0))
    program.gemmini_compute_preloaded(acc(64), GARBAGE_ADDR)
    with pytest.raises(HazardError, match="command 1"):
        timed(program)


def test_records_that_are_copied_as_a_whole_have_the_same_fields() -> None:
    assert [getattr(MERGER, name) - MERGER.slot for name in ("bytes", "size", "shift", "offset", "row")] == [
        getattr(TRANSACTIONS, name) - TRANSACTIONS.slot for name in ("bytes", "size", "shift", "offset", "row")
    ]
    assert (SCALER.row - SCALER.valid, SCALER.repeats - SCALER.valid) == (1, 2)
    assert (SCALER.wide_row - SCALER.wide_valid, SCALER.wide_repeats - SCALER.wide_valid) == (1, 2)


@pytest.mark.parametrize(
    ("preset", "latency", "cycles"), [("default", 16, 71_866), ("default", 100, 67_477), ("wsonly", 100, 67_249)]
)
def test_a_product_of_256_takes_the_cycles_of_the_rtl(preset: str, latency: int, cycles: int) -> None:  # rule 24
    """By LOOP_WS of 4 x 4 x 8 blocks. Eleven commands are before the first loop: the three figures share that number,
    which the source of the rule does not tell."""
    side, program = 256, commands(preset)
    for _ in range(6):
        program.gemmini_flush(0)
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_config_st(side)
    for state, stride in enumerate((side, side, 0)):
        program.gemmini_extended3_config_ld(stride, 1.0, False, state)
    a, b, c = (DRAM + n * side * side for n in range(3))
    for i, j, k in product(range(0, side, 64), range(0, side, 64), range(0, side, 128)):
        out = c + i * side + j if k else 0
        places = a + i * side + k, b + k * side + j, 0, out
        program.gemmini_loop_ws(
            *(4, 4, 8, 0, 0, 0, *places, side, side, 0, side), False, False, False, False, k > 0, 0, 0, 0, False
        )
    assert timed(program, latency).cycles == cycles


@pytest.mark.parametrize("entries", [None, 32])
def test_a_load_of_offsets_waits_for_the_array_as_long_as_it_takes(entries: int | None) -> None:
    """The array's sums come first in a bank of the accumulator, and any number of rows passes on to the scratchpad."""
    config = Config() if entries is None else Config(rs_load=entries, rs_execute=entries, rs_store=entries)
    program = Commands(config)
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_config_ld(16)
    program.gemmini_extended3_config_ld(0, 1.0, False, 2)
    program.gemmini_mvin(DRAM, spad(0))
    program.gemmini_mvin(DRAM, spad(4096))
    for turn in range(60):
        program.gemmini_preload(GARBAGE_ADDR if turn else spad(4096), acc(turn % 4 * 16))
        (program.gemmini_compute_accumulated if turn else program.gemmini_compute_preloaded)(spad(0), GARBAGE_ADDR)
        if turn == 12:
            program.gemmini_extended_mvin3(DRAM, acc(400), 16, 16)
        elif turn > 12:
            program.gemmini_mvin(DRAM, spad(8192 + turn * 16))
    times = timed(program)
    waiting = int((program.array[:, 0] == 14).argmax())
    if entries is None:
        assert times.done[waiting] > times.issued[waiting] + 400
    assert (times.done > 0).all()
