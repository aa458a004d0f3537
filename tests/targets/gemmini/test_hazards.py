"""Findings: one program for each rule, then random programs whose legal orders are all tried against the check."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.programs import (
    ACC,
    ADD,
    BASE,
    FENCE,
    LOAD,
    OS,
    STORE,
    WS,
    Program,
    bits,
    dumped,
    encoded,
    findings,
    mvin,
    mvout,
    pair,
    program,
)
from tests.targets.gemmini.reference import NOTHING, Fields, Plain
from tests.targets.gemmini.schedules import executed, shuffled
from tilewright.errors import ProgramError
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.passes import Passes

WINDOW = {"pool_stride": 1, "pool_size": 2, "out_dim": 2, "porows": 2, "pocols": 2, "orows": 3, "ocols": 3}
POOL: Program = [("config_st", {**STORE[0][1], **WINDOW})]
SHRUNK: Program = [("config_ld", {**LOAD[0][1], "shrunk": 1})]
SCALED: Program = [("config_ld", {**SHRUNK[0][1], "scale": bits(0.5)})]
REPEATED: Program = [("config_ld", {**LOAD[0][1], "stride": 0})]


def one(commands: Program, kind: str, steps: tuple[int, ...], text: str, **keys: str) -> None:
    """Check that a program has exactly one finding; `steps` are commands, fences counted."""
    hazards = Passes(encoded(commands), Config.read(None, keys)).hazards
    (finding,) = hazards.findings
    assert (finding.kind, tuple(hazards.source[list(finding.steps)])) == (kind, steps), finding
    assert text in finding.message


def test_a_program_that_the_reservation_station_orders_has_no_finding() -> None:
    commands = [*LOAD, *STORE, *WS, *mvin(0), *mvin(16), *pair(0, ACC, 16), *mvout(ACC), *mvin(0), *FENCE]
    assert findings(commands) == ()


def test_the_last_rows_of_a_load_with_repeated_pixels_are_not_tracked() -> None:
    """ReservationStation.scala begins the range earlier, and does not make it longer."""
    repeats: Program = [("config_ld", {**LOAD[0][1], "pixels": 3})]
    load = mvin(16, rows=8, cols=4)
    commands = [*LOAD, *STORE, *mvin(0), *mvout(22), *repeats, *load, *FENCE]
    (finding,) = findings(commands)
    assert "use row 22 of spad, and the reservation station does not see it" in finding.message
    assert findings([*LOAD, *STORE, *mvin(0), *mvout(6), *repeats, *load, *FENCE]) == ()


def test_zeros_overtake_data() -> None:
    commands = [*LOAD, *mvin(0), *mvin(8, dram=0), *FENCE]
    one(commands, "race", (1, 2), "loads zeros into row 8 of spad")
    assert findings([*LOAD, *mvin(0), *FENCE, *mvin(8, dram=0)]) == ()
    assert findings([*LOAD, *mvin(0, dram=0), *mvin(8)]) == ()


def test_a_compute_between_them_orders_data_and_zeros() -> None:
    commands = [*LOAD, *WS, *mvin(0), *mvin(32), *pair(0, ACC, 32), *mvin(0, dram=0), *FENCE]
    assert findings(commands) == ()


def test_dram_is_not_ordered() -> None:
    store_load = [*LOAD, *STORE, *mvin(0), *mvout(0), *mvin(32, dram=BASE + 1024 + 255, rows=1)]
    one(store_load, "race", (3, 4), "put a fence between them")
    load_store = [*LOAD, *STORE, *mvin(0), *mvout(32, dram=BASE)]
    one(load_store, "race", (2, 3), "writes DRAM that")
    beside = [*LOAD, *STORE, *mvin(0), *mvout(0), *mvin(32, dram=BASE + 1024 + 256)]
    assert findings(beside) == ()


def test_results_in_the_scratchpad_are_read_by_start_row_only() -> None:
    start = [*LOAD, *WS, *mvin(0), *mvin(16), *FENCE]
    shifted = [*start, *pair(0, 64, 16), *pair(65, ACC, 16, rows=8)]
    one(shifted, "race", (5, 8), "a result of #5")
    assert findings([*start, *pair(0, 64, 16), *pair(64, ACC, 16)]) == ()
    assert findings([*start, *pair(0, 64, 16), *WS, *pair(65, ACC, 16, rows=8)]) == ()


def test_a_result_that_is_read_at_once_needs_a_long_compute_before() -> None:
    start = [*LOAD, *WS, *mvin(0), *mvin(16), *FENCE]
    short = [*start, *pair(0, ACC, 16, rows=4), *pair(0, 64), *pair(64, ACC | ADD)]
    one(short, "race", (7, 10), "runs with fewer than 6 rows")
    assert findings([*start, *pair(0, ACC, 16, rows=4), *pair(0, 64), *pair(0, NOTHING), *pair(64, ACC | ADD)]) == ()
    assert findings([*start, *pair(0, ACC, 16, rows=6), *pair(0, 64), *pair(64, ACC | ADD)]) == ()


@pytest.mark.parametrize(("distance", "hazard"), [(0, False), (13, False), (14, True), (15, True), (16, False)])
def test_accumulation_into_rows_just_written(distance: int, hazard: bool) -> None:
    start = [*LOAD, *WS, *mvin(0), *mvin(16), *FENCE]
    commands = [*start, *pair(0, ACC, 16), *pair(0, (ACC | ADD) + distance)]
    if hazard:
        one(commands, "write_distance", (5, 7), f"accumulates into row {distance} of acc {16 - distance} cycles")
    else:
        assert findings(commands) == ()


def test_a_transposed_preload_reads_rows_that_are_not_tracked() -> None:
    flipped: Program = [("config_ex", {"dataflow": 1, "a_stride": 1, "c_stride": 1, "transpose_b": 1})]
    short = {"bd_rows": 4}
    commands = [*LOAD, *flipped, *mvin(0), *mvin(16), *FENCE, *pair(0, ACC, 16, **short), *mvin(24, rows=8)]
    one(commands, "race", (5, 7), "the reservation station does not see it")


@pytest.mark.parametrize(
    ("commands", "kind", "text"),
    [
        ([*LOAD, *mvin(ACC, dram=0)], "stream", ""),
        ([*LOAD, *mvin(16380)], "out_of_range", "row 16395 of spad, which has 16384 rows"),
        ([*LOAD, *mvin(ACC | 1020)], "out_of_range", "row 1035 of acc"),
        ([*STORE, *mvout(16384 + 1024)], "out_of_range", "row 17423 of spad, which has 16384 rows"),
        ([*POOL, *mvout(NOTHING)], "out_of_range", "of acc, which has 1024 rows"),
        ([*POOL, *mvout(0, cols=0)], "stream", "pools no pixels or no channels"),
        ([*LOAD, *mvin(0, rows=17)], "stream", "more than 16 rows"),
        ([*LOAD, *mvin(0, cols=80)], "stream", "more columns"),
        ([*mvin(0)], "uninitialised", "no config_ld"),
        ([*mvout(0)], "uninitialised", "no config_st"),
        ([*STORE, *mvout(ACC | 1 << 29, cols=32)], "stream", "more than one block"),
        ([*WS, *pair(ACC, 0, 16)], "deadlock", "operand A is in the accumulator"),
        ([*WS, pair(0, 0)[1]], "deadlock", "waits for a preload"),
        ([*WS, pair(0, 0)[0]], "stream", "no compute follows"),
        ([*WS, *pair(0, 0, rows=17)], "out_of_range", "more than 16 rows or columns"),
        ([("config_norm", {})], "stream", "no normaliser"),
        ([*WS, *pair(0, ACC, rows=16), *OS, *pair(0, ACC)], "uninitialised", "the other dataflow"),
        ([*OS, *pair(0, ACC, 16), *FENCE, *pair(0, ACC)], "uninitialised", "have left the array"),
        ([*WS, pair(0, ACC)[0], pair(0, ACC, 16)[1]], "uninitialised", "its preload has no weights"),
        ([*LOAD, *mvin(ACC | ADD, BASE + 3)], "stream", "which loses carries"),
        ([*POOL, *mvout(ACC | 1 << 29)], "stream", "pools int32 rows"),
    ],
)
def test_commands_that_cannot_run(commands: Program, kind: str, text: str) -> None:
    if not text:  # zeros with shrunk=1 trip an assertion
        commands = [("config_ld", {**LOAD[0][1], "shrunk": 1}), *commands[1:]]
    reported = findings(commands)
    assert kind in {finding.kind for finding in reported}
    assert any(text in finding.message for finding in reported), reported


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([*SCALED, *mvin(ACC, cols=40)], [*LOAD, *mvin(ACC | 20, BASE + 2048)], "of another width"),
        ([*SHRUNK, *mvin(ACC)], [*LOAD, *mvin(ACC | 15, BASE + 2048)], "of another width"),
        ([*REPEATED, *mvin(ACC)], [*SHRUNK, *mvin(ACC, cols=40)], "of another width"),
        ([*STORE, *POOL, *mvout(19)], [*LOAD, *mvin(21, BASE + 2048, rows=3)], "does not see it"),
        ([*LOAD, *mvin(0), *mvin(16), *FENCE, *WS, *pair(0, 64, 16, rows=4)], WS, "streams only 4 rows"),
    ],
)
def test_races_that_random_programs_lost_on_rtl(first: Program, second: Program, text: str) -> None:
    """Each one left other bytes in a third-party build (Chipyard-Generated-Files at f9fb301) than in program order."""
    (race,) = (finding for finding in findings([*first, *second, *FENCE], rtl="2023") if finding.kind == "race")
    assert text in race.message
    assert not [finding for finding in findings([*first, *FENCE, *second], rtl="2023") if finding.kind == "race"]


def _product(a: int, d: int, c: int, dim: int, name: str = "compute_preloaded") -> Program:
    """Return one step of an output-stationary product."""
    bd = {"bd_cols": dim, "bd_rows": dim}
    preload: Fields = {"bd": NOTHING, **bd, "c": c, "c_cols": dim, "c_rows": dim}
    return [("preload", preload), (name, {"a": a, "a_cols": dim, "a_rows": dim, "bd": d, **bd})]


@pytest.mark.parametrize(("rtl", "dim", "lost"), [("2023", 4, 1), ("2025", 4, 0), ("2023", 8, 0)])
def test_a_flush_may_swap_the_sums_of_short_products(rtl: str, dim: int, lost: int) -> None:
    """[R: gemmini_sizes] Only the last product of several k steps is left on an array of 4, in the RTL of 2023."""
    begin = [*LOAD, *mvin(0, rows=dim, cols=dim), *mvin(64, rows=dim, cols=dim), *FENCE, *OS]
    last = _product(0, 64, ACC, dim, "compute_accumulated")
    steps = [*begin, *_product(0, 64, NOTHING, dim), *last]
    behind = _product(0, 64, ACC | 8, dim)
    for commands, races in ((steps, lost), ([*steps, *behind], 0), ([*steps, *FENCE, *behind], lost)):
        messages = [str(finding) for finding in findings(commands, rtl=rtl, dim=str(dim))]
        assert len(messages) == races
        assert all("may swap its sums" in message for message in messages)
    late = [*steps, *mvin(128, rows=dim, cols=dim), *_product(128, 64, ACC | 8, dim)]
    assert len(findings(late, rtl=rtl, dim=str(dim))) == lost, "the next product waits for the load"


@pytest.mark.parametrize(("length", "kept", "lost"), [(3, 0, 1), (3, 2, 1), (4, 0, 0), (4, 1, 1), (4, 2, 0), (5, 1, 0)])
def test_transposed_weights_need_a_long_execute_queue(length: int, kept: int, lost: int) -> None:
    flipped: Program = [("config_ex", {"dataflow": 1, "a_stride": 1, "c_stride": 1, "transpose_b": 1})]
    commands = [*LOAD, *mvin(0), *mvin(16), *FENCE, *flipped]
    commands += [*pair(0, ACC, 16), *(kept * pair(0, ACC | 16)), *pair(0, ACC | 32, 16)]
    messages = [str(finding) for finding in findings(commands, queue_execute=str(length))]
    assert sum("transposed weights" in message for message in messages) == (2 if length == 3 else lost)


def test_int32_rows_that_one_request_moves_may_have_any_address() -> None:
    assert findings([*LOAD, *mvin(ACC | ADD, BASE + 3, rows=1, cols=4)]) == ()
    assert findings([*LOAD, *mvin(ACC, BASE + 3)]) == ()


@pytest.mark.parametrize(("dataflow", "built"), [(0, "ws"), (1, "os")])
def test_a_dataflow_that_is_not_built(dataflow: int, built: str) -> None:
    commands: Program = [("config_ex", {"dataflow": dataflow, "a_stride": 1, "c_stride": 1}), *pair(0, ACC, 16)]
    assert "stream" in {finding.kind for finding in findings(commands, dataflow=built)}
    assert findings(commands) == ()


def test_an_unknown_funct_is_refused() -> None:
    with pytest.raises(ProgramError, match="there is no funct 23"):
        _ = Passes(np.array([[23, 0, 0]], np.uint64), Config()).work


SMALL = Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32)
SIZE = 2048


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_programs_without_a_race_have_the_same_bytes_in_every_order(seed: int) -> None:
    """Mutants of a random program: with fences here and there. Those that pass the check do not depend on the order."""
    rng = np.random.default_rng(seed)
    commands = program(rng, SMALL, SIZE, 8)
    fences = rng.random(len(commands)) < rng.choice([0.0, 0.15, 0.5])
    commands = [
        part
        for index, command in enumerate(commands)
        for part in ((*FENCE, command) if fences[index] and not _splits(commands, index) else (command,))
    ]
    reported = Passes(encoded(commands), SMALL).hazards.findings
    races = [finding for finding in reported if finding.kind == "race"]
    memory = rng.integers(0, 256, SIZE + dumped(SMALL)).astype(np.uint8)
    outcomes = set()
    for _ in range(6):
        dram = memory.copy()
        model = Plain(SMALL.dim, SMALL.all_spad_rows, SMALL.acc_rows, dram, BASE)
        bank = SMALL.acc_rows // SMALL.acc_banks
        outcomes.add(executed(shuffled(commands, SMALL.dim, bank, rng), commands, model, dram).tobytes())
    assert races or len(outcomes) == 1, f"seed {seed}: {len(outcomes)} outcomes, and no race is reported"


def _splits(commands: Program, index: int) -> bool:
    """Return whether a fence before a command would part a preload from its compute."""
    return commands[index][0].startswith("compute")
