"""Legal programs in any stream order run: none is refused, values are the interpreter's, cycles those of the RTL."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest

from tests.targets.vta.legal_programs import MACHINES, interleaved, legal_program, loosened, written
from tests.targets.vta.legality import (
    BITS,
    Program,
    before,
    faults,
    legal_order,
    pops_first,
    runs_one_by_one,
    stuck,
    tokens,
)
from tests.targets.vta.records import unit_of
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import DEADLOCK, RACE
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import Prepared, run_passes
from tilewright.targets.vta.timing import MODELS

SEED = 20261122
#: Programs that are run, and how many of them also run on the compiled RTL: every day, and in the slow test.
PROGRAMS, ON_RTL = 100, 5
MANY_PROGRAMS, MANY_ON_RTL = 5000, 300
MODEL = "tilewright"
#: The machine of the every-day programs on the RTL: one to compile.
EVERY_DAY = "four, one token"


def program_of(number: int, name: str = "") -> Program:
    """The legal program of a number, on machines in turn or on one of them."""
    machines = list(MACHINES)
    return legal_program(np.random.default_rng([SEED, number]), MACHINES[name or machines[number % len(machines)]])


def passes_of(program: Program, dram: Dram, options: RunOptions, known: Prepared | None = None) -> Prepared:
    insns = encode(program.records, program.config)
    if known is None:
        return run_passes(insns, program.config, dram, program.bases, 1, options)
    known.run(dram, 1, options)
    return known


def dram_of(program: Program) -> Dram:
    return Dram([Segment("all", 0, program.dram.reshape(1, -1).copy())])


def check(number: int) -> Counter[str]:
    """Run a program under every timing model and in every order of values; returns what kind of program it is."""
    program, what = program_of(number), f"seed {SEED}, program {number}"
    expected = program.interpret(legal_order(before(program))).dram
    dram = dram_of(program)
    passes = passes_of(program, dram, RunOptions(MODEL))
    trace = passes.trace
    assert ([str(finding) for finding in passes.findings], trace is None) == ([], False), what
    assert trace is not None
    np.testing.assert_array_equal(dram["all"][0], expected, err_msg=what)
    for order in ("time", "random"):
        again = dram_of(program)
        passes_of(program, again, RunOptions(MODEL, order=order, seed=number), passes)
        np.testing.assert_array_equal(again["all"][0], expected, err_msg=f"{what}, order {order}")
    for model in MODELS:
        # A command queue of the Chisel design holds one instruction less than its entries.
        deeper = replace(program.config, queue_depth=program.config.queue_depth + (model == "chisel"))
        options = RunOptions(model, check=False, values=False)
        timed = passes_of(replace(program, config=deeper), dram_of(program), options)
        assert timed.trace is not None and not timed.findings, f"{what}, {model}"
    assert (passes.serial is not None) == runs_one_by_one(program), what
    assert passes.serial is None or passes.serial.cycles >= trace.cycles, what
    return Counter(
        {
            "a pop before its push": pops_first(program),
            "no serial time": passes.serial is None,
            "no serial time for want of room only": passes.serial is None and not pops_first(program),
            "four stages": program.config.stages == 4,
            "bytes stored": int((expected != program.dram).sum()),
            "tokens": len(tokens(program)),
            "instructions": len(program.records),
        }
    )


def check_many(count: int) -> Counter[str]:
    """The kinds of so many programs, of which none is refused; printed with the seed."""
    began, kinds = perf_counter(), Counter[str]()
    for number in range(count):
        kinds += check(number)
    print(f"seed {SEED}: {count} programs, 0 refused, {dict(kinds)}, {perf_counter() - began:.0f} s")
    for kind in ("a pop before its push", "no serial time for want of room only", "four stages"):
        assert kinds[kind] > count / 50, kind
    return kinds


def compare(number: int, name: str = "") -> int:
    """Run a program on the compiled RTL: the cycles of every start and end, and all bytes; returns its cycles."""
    from tilewright.targets.vta.gateware.cosim import run

    program, what = program_of(number, name), f"seed {SEED}, program {number}"
    modelled, ran = dram_of(program), dram_of(program)
    trace = passes_of(program, modelled, RunOptions(MODEL)).trace
    assert trace is not None, what
    result = run(encode(program.records, program.config), program.config, ran, program.bases)
    assert (result.start.tolist(), result.end.tolist()) == (trace.start.tolist(), trace.end.tolist()), what
    assert (result.cycles, result.faults) == (trace.cycles, 0), what
    expected = program.interpret(legal_order(before(program))).dram
    np.testing.assert_array_equal(ran["all"][0], expected, err_msg=what)
    np.testing.assert_array_equal(modelled["all"][0], expected, err_msg=what)
    return trace.cycles


def test_no_legal_program_is_refused() -> None:
    check_many(PROGRAMS)


@pytest.mark.gxx
def test_legal_programs_take_the_cycles_of_the_rtl() -> None:
    assert sum(compare(number, EVERY_DAY) for number in range(ON_RTL)) > 0


@pytest.mark.slow
@pytest.mark.gxx
def test_many_legal_programs_here_and_on_the_rtl() -> None:
    check_many(MANY_PROGRAMS)
    began = perf_counter()
    sample = np.random.default_rng(SEED).choice(MANY_PROGRAMS, MANY_ON_RTL, replace=False).tolist()
    cycles = sum(compare(number) for number in sample)
    print(f"seed {SEED}: {MANY_ON_RTL} on the RTL, {cycles} cycles, 0 differ, {perf_counter() - began:.0f} s")


def test_a_program_that_stops_for_ever_is_still_found() -> None:
    """Any stream order, legal or not: a deadlock is found where the oracle finds a circle, and only there."""
    found = Counter[bool]()
    for number in range(150):
        rng = np.random.default_rng([SEED, 1, number])
        config = list(MACHINES.values())[number % len(MACHINES)]
        config = replace(config, token_depth=min(config.token_depth, 2), queue_depth=int(rng.integers(1, 6)))
        program = interleaved(rng, loosened(rng, written(rng, config)))
        if rng.random() < 0.5:  # a push that is missing, or one too many
            record = program.records[int(rng.integers(len(program.records) - 1))]
            record["push_next"] = 1 - record.get("push_next", 0)
        passes = passes_of(program, dram_of(program), RunOptions(MODEL, values=False))
        deadlocks = DEADLOCK in {finding.kind for finding in passes.findings}
        assert deadlocks == (passes.trace is None) == stuck(program, held=False), f"seed {SEED}, program {number}"
        found[deadlocks] += 1
    assert min(found[True], found[False]) > 20, found


def test_a_token_less_is_a_race_here_and_by_the_oracle() -> None:
    found = Counter[str]()
    for number in range(60):
        program = program_of(number)
        for a, b in tokens(program)[:4]:
            broken = replace(program, records=[dict(record) for record in program.records])
            one, other = (unit_of(program.records[index], program.config.stages) for index in (a, b))
            push, pop = BITS[other - one]
            del broken.records[a][push], broken.records[b][pop]
            wrong = faults(broken)
            passes = passes_of(broken, dram_of(broken), RunOptions(MODEL, values=False))
            kinds = {finding.kind for finding in passes.findings}
            if wrong != ["deadlock"]:
                assert (bool(kinds), RACE in kinds) == (bool(wrong), "race" in wrong), f"seed {SEED}, program {number}"
            found[wrong[0] if wrong else "nothing"] += 1
    assert min(found["race"], found["nothing"]) > 10, found
