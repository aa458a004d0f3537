"""Machines that stall for ever end in one error, which names the reason, and not in an endless run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.limits import within
from tests.targets.gemmini.programs import ACC, BASE, Program, bits, encoded, program
from tests.targets.gemmini.reference import NOTHING
from tilewright.array import Array
from tilewright.errors import ConfigError, HazardError
from tilewright.sim.findings import RACE, STREAM
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.passes import Passes

SMALL = Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32, bus_bytes=4)
ALONE = replace(SMALL, writes_in_flight=1)


def stalls(commands: Array, config: Config) -> str:
    """Return why a program stalls on a machine, or ""."""
    try:
        assert Passes(commands, config).times.cycles > 0
    except HazardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(12))
def test_a_single_write_of_two_beats_stalls_the_machine(seed: int) -> None:
    """StreamWriter offers no beat while all its writes are busy. Meanwhile refused reads and flushes go in circles."""
    commands = encoded(program(np.random.default_rng(seed), SMALL, 8192, 20))
    assert stalls(commands, SMALL) or "set writes_in_flight to 2 or more" in stalls(commands, ALONE), f"seed {seed}"


@pytest.mark.parametrize("config", [SMALL, Config(spad_rows=64, acc_rows=128)], ids=["dim4", "dim16"])
def test_each_stall_of_a_random_program_has_a_finding(config: Config) -> None:
    """An output-stationary product without a result leaves its number in the array; `check` names it."""
    stalled = 0
    for seed in range(40):
        commands = encoded(program(np.random.default_rng(seed), config, 8192, 25))
        if stalls(commands, config):
            stalled += 1
            findings = Passes(commands, config).hazards.findings
            assert any("output-stationary, has no result" in finding.message for finding in findings), f"seed {seed}"
    assert stalled > 0


def change(result: int, wait: bool) -> Array:
    """Return an output-stationary product with this result, and a weight-stationary one, which may come late."""
    dim, block = SMALL.dim, {"a_cols": SMALL.dim, "a_rows": SMALL.dim, "bd_cols": SMALL.dim, "bd_rows": SMALL.dim}
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": dim, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": 0, "cols": dim, "rows": dim}),
    ]
    for dataflow, c in ((0, result), (1, ACC)):
        commands += [
            ("config_ex", {"dataflow": dataflow, "a_stride": 1, "c_stride": 1}),
            ("preload", {"bd": 0, "bd_cols": dim, "bd_rows": dim, "c": c, "c_cols": dim, "c_rows": dim}),
            ("compute_preloaded", {"a": 0, "bd": 0 if dataflow == 0 else NOTHING, **block}),
        ]
        if dataflow == 0 and wait:
            commands.append(("fence", {}))
    return encoded(commands)


def test_a_product_that_follows_late_loses_its_result() -> None:
    """The products before it have left the array, so nothing flushes it; its result stays away for ever."""
    late = change(NOTHING, wait=True)
    assert "output-stationary product right before" in stalls(late, SMALL)
    assert not stalls(change(ACC, wait=True), SMALL)
    (finding,) = Passes(late, SMALL).hazards.findings
    assert finding.kind == RACE
    assert finding.steps == (3, 6)


def test_the_store_that_is_done_but_not_written_is_named() -> None:
    """A store is done when its rows are on their way; nothing is accepted or issued behind the last one."""
    dim = SMALL.dim
    commands: Program = [
        ("config_ld", {"state": 0, "pixels": 1, "block_stride": dim, "stride": dim, "scale": bits(1.0)}),
        ("mvin", {"dram": BASE, "local": 0, "cols": dim, "rows": dim}),
        ("config_st", {"stride": 2 * dim, "scale": bits(1.0)}),
        ("mvout", {"dram": BASE + 64, "local": 0, "cols": dim, "rows": 1}),
    ]
    assert Passes(encoded(commands), ALONE).times.cycles > 0  # a row of one beat
    wide = replace(ALONE, bus_bytes=2)
    with pytest.raises(HazardError, match=r"command 3: \(funct 3\) never ends.*set writes_in_flight"):
        _ = Passes(encoded(commands), wide).times


def test_an_array_that_cannot_count_to_four_is_refused() -> None:
    with pytest.raises(ConfigError, match="dim"):
        Config(dim=2)


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"rs_load": 6}, "rs_load is 6, no power of two .ReservationStation.scala"),
        ({"queue_execute": 2}, "less than 3 .ExecuteController.scala"),
        ({"spad_rows": 64, "acc_rows": 256}, "more than all scratchpad rows but two blocks .*use at most 224"),
        ({"rs_store": 2}, "Chisel fails"),
        ({"spad_banks": 1}, "Chisel fails"),
    ],
)
def test_a_machine_that_upstream_cannot_build_is_refused(keys: dict[str, int], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        Config(**keys)  # type: ignore[arg-type]


LOADS: Program = [("config_ld", {"stride": 16, "scale": bits(1.0), "block_stride": 16})]
ONE_ROW: Program = [("config_ld", {"stride": 0, "scale": bits(1.0), "block_stride": 16})]
WINDOW = {"pool_stride": 1, "pool_size": 2, "out_dim": 2, "porows": 2, "pocols": 2, "orows": 3, "ocols": 3}


def stores(**pool: int) -> Program:
    return [("config_st", {"stride": 16, "scale": bits(1.0), **pool})]


@pytest.mark.parametrize("local", [0, ACC], ids=["spad", "acc"])
@pytest.mark.parametrize(
    ("configs", "name", "sizes"),
    [
        *((LOADS, "mvin", sizes) for sizes in ((0, 16), (16, 0), (0, 0), (0, 20))),
        (ONE_ROW, "mvin", (0, 16)),
        (LOADS, "zeros", (0, 16)),
        *((stores(), "mvout", sizes) for sizes in ((0, 16), (16, 0), (0, 0))),
        *((stores(**WINDOW | {key: 0}), "mvout", (16, 16)) for key in ("pool_size", "porows", "pocols")),
    ],
)
def test_moves_of_nothing_end_at_once(configs: Program, name: str, sizes: tuple[int, int], local: int) -> None:
    """The RTL stops at an assertion (DMACommandTracker.scala); `check` says so."""
    rows, cols = sizes
    empty = {"dram": 0 if name == "zeros" else BASE, "local": local, "rows": rows, "cols": cols}
    move = ("mvout" if name == "mvout" else "mvin", empty)
    normal = (move[0], {**empty, "dram": BASE + 4096, "rows": 2, "cols": 16})
    with within(20):
        passes = Passes(encoded([*configs, move, move, *LOADS, *stores(), normal, ("fence", {})]), Config())
        times, findings = passes.times, passes.hazards.findings
    assert (times.done >= 0).all() and times.cycles < 150
    assert [
        finding.kind
        for finding in findings
        if "no rows or no columns" in finding.message or "pools no" in finding.message
    ] == [STREAM] * 2
