"""The timing model `chisel` against recorded runs of upstream's RTL, and a second transcription of its rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.vta import chisel_rules, timed
from tilewright.sim.costs import Simulated
from tilewright.sim.order import order
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.conform import BUILDS, conform
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing import MODELS, chisel
from tilewright.targets.vta.timing.model import Timing

#: Builds of the second transcription; the names are those of the vectors.
RULES: dict[str, dict[str, Any]] = {
    "pynq": {},
    "de10": {"burst": 16},
    "wide128": {"bus": 16},
    "tsim_pynq": {"tsim": True},
    "tsim_de10": {"tsim": True, "burst": 16},
}
FINISH: timed.Record = {"opcode": Opcode.FINISH}
NOP: timed.Record = {"opcode": Opcode.LOAD, "memory_type": Memory.INP}


def config_of(build: str, latency: int) -> Config:
    return timed.config_of(semantics="chisel", dram_latency=latency, **BUILDS[build])


def difference(records: list[timed.Record], build: str, latency: int) -> str:
    """Return the first instruction whose start or end differs from the rules, or ""."""
    config = config_of(build, latency)
    trace = timed.traced(records, config, "chisel")
    bases = [timed.BASES[name] for name in ("uop", "inp", "wgt", "acc", "out")]
    rules = chisel_rules.Machine(encode(records, config), bases, chisel_rules.Build(latency=latency, **RULES[build]))
    rules.run(2 * trace.cycles + 1000)
    ours = np.stack((trace.start + 1, trace.end), axis=1)
    wrong = np.flatnonzero((ours != np.stack((rules.start, rules.done), axis=1)).any(axis=1))
    return f"#{wrong[0]} {records[wrong[0]]} at {ours[wrong[0]]}" if wrong.size else ""


def random_case(rng: np.random.Generator) -> tuple[list[timed.Record], str, int]:
    records = timed.random_program(rng, int(rng.integers(1, 60)))
    nop = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP}  # runs where FINISH runs, with its tokens
    records = [{**record, **nop} if record["opcode"] == Opcode.FINISH else record for record in records]
    return [*records, FINISH], str(rng.choice([*RULES])), int(rng.choice([1, 2, 16, 100]))


def test_recorded_runs_are_equal(shared: Path) -> None:
    paths = sorted((shared / "vta_chisel_vectors").glob("*.npz"))
    assert len(paths) == 173
    cases = [conform(path) for path in paths]
    assert not [(case.name, case.reason) for case in cases if not case.passed]
    starts = [counts for case in cases for name, counts in case.counts.items() if name.startswith("starts")]
    totals = [counts for case in cases for name, counts in case.counts.items() if name.startswith("totals")]
    assert (len(starts), sum(equal for equal, _ in starts)) == (1205, sum(of for _, of in starts))
    assert sum(equal for equal, _ in totals) == 1205


def test_a_wrong_time_is_seen(shared: Path, tmp_path: Path) -> None:
    with np.load(shared / "vta_chisel_vectors" / "alu_all.npz") as archive:
        data = dict(archive)
    data["times_de10_16"][3, 1] += 1
    np.savez(tmp_path / "wrong.npz", **data)
    case = conform(tmp_path / "wrong.npz")
    assert not case.passed
    assert case.reason.startswith("de10 at latency 16: #3 ")


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_programs_follow_the_rules(count: int) -> None:
    for seed in range(count):
        records, build, latency = random_case(np.random.default_rng(seed))
        assert not (text := difference(records, build, latency)), f"seed {seed}, {build} at {latency}: {text}"


def test_a_full_command_queue_stops_delivery() -> None:
    records = [timed.gemm(3000), *[{**timed.gemm(1), "iter_in": 1 + i % 3} for i in range(700)], *[NOP] * 20, FINISH]
    for build in RULES:
        assert not difference(records, build, 16), build


def changed(**parts: Callable[[Any], Any]) -> Callable[[Elaborated, Timing], Simulated]:
    """Return the model's description of a launch with some parts replaced."""

    def simulated(program: Elaborated, timing: Timing) -> Simulated:
        costs = chisel._simulated(program, timing)
        return costs._replace(**{name: change(getattr(costs, name)) for name, change in parts.items()})

    return simulated


#: One rule changed at a time.
MUTANTS: dict[str, Callable[[Elaborated, Timing], Simulated]] = {
    "fetch begins a cycle later": changed(fetch=lambda f: f._replace(lead=2)),
    "fetch requests a cycle earlier": changed(fetch=lambda f: f._replace(turn=f.turn - 1)),
    "instructions are seen at once": changed(fetch=lambda f: f._replace(delay=f.delay - 1)),
    "delivery does not wait for the batch": changed(fetch=lambda f: f._replace(unpack=-1)),
    "delivery begins with the last beat": changed(fetch=lambda f: f._replace(unpack=f.unpack - 1)),
    "a queue holds one instruction more": changed(fetch=lambda f: f._replace(depth=f.depth + 1)),
    "batches are half as large": changed(fetch=lambda f: f._replace(batch=f.batch // 2)),
    "a client commands in every cycle": changed(channel=lambda c: c._replace(turn=1)),
    "commands in cycles of last beats": changed(channel=lambda c: c._replace(rests=False)),
    "one read less in flight": changed(channel=lambda c: c._replace(in_flight=15)),
    "tsim's memory waits for each read": changed(channel=lambda c: c._replace(streams=False)),
    "writes are not answered": changed(channel=lambda c: c._replace(answer=-1)),
    "answers come a cycle later": changed(channel=lambda c: c._replace(answer=c.answer + 1)),
    "writes do not pause": changed(channel=lambda c: c._replace(pause=0)),
    "beats of a write come a cycle later": changed(channel=lambda c: c._replace(write_latency=c.write_latency + 1)),
    "bursts are half as long": changed(channel=lambda c: c._replace(burst=c.burst // 2)),
    "instructions without work take a cycle less": changed(costs=lambda c: c._replace(lead=c.lead - (c.lead == 2))),
    "reads are served in another order": changed(costs=lambda c: c._replace(priority=3 - c.priority)),
    "work takes a cycle longer": changed(costs=lambda c: c._replace(busy=c.busy + (c.busy > 3))),
    "loads end a cycle earlier": changed(costs=lambda c: c._replace(busy=c.busy - (c.busy == 3))),
    "padding does not pause for rows": changed(costs=lambda c: c._replace(fill_pause=0 * c.fill_pause)),
    "padding takes no time": changed(costs=lambda c: c._replace(fill=0 * c.fill, fill_last=0 * c.fill_last)),
}


def long_programs() -> list[tuple[list[timed.Record], str, int]]:
    """Programs for the rules that short random programs do not reach."""
    row = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "x_size": 1, "x_stride": 1, "y_size": 60}
    rows_below = {**row, "x_size": 8, "x_stride": 8, "y_size": 12, "y_pad_1": 3}
    full = [timed.gemm(3000), *[timed.gemm(1)] * 700, *[NOP] * 20, FINISH]
    batches = [NOP] * 20
    wgt = {**row, "memory_type": Memory.WGT, "y_size": 9}
    return [
        ([row, FINISH], "de10", 100),
        ([rows_below, FINISH], "pynq", 1),
        (full, "de10", 16),
        ([*batches, FINISH], "de10", 1),
    ] + [([row, {**row, "memory_type": Memory.ACC}, wgt, FINISH], build, 16) for build in RULES]


@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_is_tested(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*long_programs(), *(random_case(np.random.default_rng(seed)) for seed in range(60))]
    model = MODELS["chisel"]
    for records, build, latency in cases:
        program = timed.elaborated(records, config_of(build, latency))
        right = model.trace(program, order(program.table))
        with monkeypatch.context() as patch:
            patch.setitem(model.__dict__, "simulated", MUTANTS[name])
            wrong = model.trace(program, order(program.table))
        if not (np.array_equal(right.start, wrong.start) and np.array_equal(right.end, wrong.end)):
            return
    pytest.fail("no program shows the change")


def test_the_programs_of_the_mutants_follow_the_rules() -> None:
    for records, build, latency in long_programs():
        assert not (text := difference(records, build, latency)), f"{build} at {latency}: {text}"


def test_a_queue_of_one_instruction_is_fetched() -> None:
    """A machine with the shallowest command queues is not faster than one with upstream's."""
    records = [*[timed.gemm(9)] * 20, *[NOP] * 20, FINISH]
    shallow, deep = (timed.traced(records, timed.config_of(queue_depth=depth), "chisel") for depth in (1, 512))
    assert shallow.cycles > deep.cycles
