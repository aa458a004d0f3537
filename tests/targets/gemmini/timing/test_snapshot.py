"""A snapshot holds all that the machine uses, and nothing else: each saved number is ruined in turn."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from tests.targets.gemmini.programs import BASE, encoded, program
from tests.targets.gemmini.timing.repetition import repeated, skipped
from tilewright.array import Array
from tilewright.sim.jit import Compiled
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.timing import (
    archive,
    array,
    build,
    bus,
    clock,
    controller,
    load,
    moves,
    repeat,
    snapshot,
    state,
    station,
    store,
    unroll_streams,
)
from tilewright.targets.gemmini.timing.archive import HEADER
from tilewright.targets.gemmini.timing.clock import run_machine
from tilewright.targets.gemmini.timing.layout import PER_QUEUE, QUEUES, TABLES, WIDTH
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo
from tilewright.targets.gemmini.timing.program import Program, record
from tilewright.targets.gemmini.timing.queues import QUEUE
from tilewright.targets.gemmini.timing.records import DECLARED, RULE, TABLE_ROWS
from tilewright.targets.gemmini.timing.snapshot import serialise
from tilewright.targets.gemmini.timing.unroll import plan
from tilewright.targets.gemmini.timing.unroll_streams import FRONT, FrontPlan

CONFIG = Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32, memory_latency=3)
#: Cycles that a machine runs after a snapshot is set, and programs.
STEPS, SEEDS = 300, 8
#: States in which a number is tried.
TRIES = 120
#: Numbers whose wrong values change no time in these programs. Only convolutions have streams with stages, for example.
EQUIVALENT = {
    *("STREAM.early", "STREAM.idle", "STREAM.late"),
    *("READER.page", "READER.t_page", "READER.x_hit", "READER.x_page", "CROSSBAR.tlb_last"),
    *("WRITER.page", "WRITER.page_of", "WRITER.t_page", "WRITER.x_asked", "WRITER.x_hit", "WRITER.x_page"),
    *("WRITER.command", "WRITER.s_item", "OUTGOING.command", "SCALER.lane_last", "INCOMING.bytes"),
    *("SHARED.asked", "SHARED.c_stride", "SHARED.full", "SHARED.lone", "SHARED.may_ask", "EXECUTION.filled"),
    *("FRONT.settled", "TAGS.local"),
}


def ruined(machine: Array, seed: int) -> Array:
    """Return a machine in which all but the parameters is random."""
    numbers = np.random.default_rng(seed).integers(-5, 100, len(machine))
    for fields in DECLARED.values():
        for place, saved in fields.values():
            if saved.rule == RULE.fixed:
                numbers[place] = machine[place]
    lengths = machine[QUEUES:TABLES].reshape(-1, PER_QUEUE)[:, QUEUE.length]
    numbers[QUEUES:TABLES].reshape(-1, PER_QUEUE)[:, QUEUE.length] = lengths
    return numbers


def ruining(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Ruin each machine before a snapshot is set on it; return these machines. Nothing runs compiled."""
    machines: list[Array] = []

    def serialising(m: Array, p: Program, plan: FrontPlan, words: Array) -> None:
        if words[HEADER.sets]:
            machines.append(m.copy())
            m[:] = ruined(m, len(machines))
        serialise(m, p, plan, words)

    monkeypatch.setattr(repeat, "serialise", serialising)
    monkeypatch.setattr(Compiled, "due", lambda *_: False)
    return machines


def commands(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return repeated(rng, encoded(program(rng, CONFIG, 2048, 5)), 6)


def test_a_snapshot_holds_all_that_the_machine_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a snapshot leaves out is overwritten before one is set, and no time changes."""
    machines = ruining(monkeypatch)
    for seed in range(8):
        print("seed", seed)
        skipped(monkeypatch, commands(seed), CONFIG)
    assert len(machines) > 2


PARTS = {
    min(vars(record)[name] for name in vars(record) if not name.startswith("_")): part
    for module in (array, bus, state, controller, load, moves, station, store, unroll_streams)
    for part, record in vars(module).items()
    if isinstance(record, ModuleType)
    and not hasattr(record, "__file__")
    and part not in ("COLUMN", "EX_STATE", "MOVE_STATE", "PIPE", "RULE", "SPAN", "TIMES")
}
NAMES = {
    place + WIDTH * row + x: f"{PARTS[part]}.{name}"
    for part, fields in DECLARED.items()
    for name, (place, saved) in fields.items()
    for row in range(TABLE_ROWS.get(part, 1))
    for x in range(saved.size)
}


class State(NamedTuple):
    """A machine before a command of the host, and the numbers of it that a snapshot saves: names and places."""

    cycle: int
    machine: Array
    program: Program
    plan: FrontPlan
    saved: dict[str, list[int]]


def registers(next_check: int) -> Memo:
    """Return a memo whose run stops before a command of the host, and no other."""
    memo = Memo(*(np.full(64, NEVER, np.int64) for _ in Memo._fields))
    memo.registers[MEMO.next_check] = next_check
    return memo


def copied(p: Program) -> Program:
    return p._replace(times=p.times.copy(), order=p.order.copy())


def saved(patch: pytest.MonkeyPatch, state: State) -> State:
    """Return a state with the numbers that a snapshot saves."""
    field, places = snapshot.serialise_field, defaultdict[str, list[int]](list)

    def noting(m: Array, p: Program, words: Array, place: int, *rest: int) -> None:
        places[NAMES[place]].append(place)
        field(m, p, words, place, *rest)

    patch.setattr(snapshot, "serialise_field", noting)
    here = np.zeros(1 << 14, np.int64)
    here[HEADER.cursor], here[HEADER.related], here[HEADER.now] = archive.WORDS, 1 << 13, state.cycle
    serialise(state.machine.copy(), state.program, state.plan, here)
    return state._replace(saved=places)


def states(monkeypatch: pytest.MonkeyPatch, commands: Array) -> list[State]:
    """Return states of a run, before some commands of the host."""
    expansion, saved_states = expand(commands, CONFIG), list[State]()
    ahead = plan(expansion, CONFIG)

    def check(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, t: int, busy: int) -> None:
        saved_states.append(State(t, m.copy(), copied(p), plan, {}))
        memo.registers[[MEMO.next_check, MEMO.resume, MEMO.last_busy]] = m[FRONT.next_host] + 1, t, busy

    with monkeypatch.context() as patch, np.errstate(over="ignore"):
        patch.setattr(clock, "check", check)
        machine, accept = build(CONFIG, CONFIG.memory_latency), np.full(len(commands), -1, np.int64)
        run_machine.python(machine, record(expansion), ahead, accept, registers(0), 1 << 12)
        return [saved(patch, state) for state in saved_states[1::2]]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Fail if a block takes longer, in seconds of the processor: a machine with a wrong number may hang."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def continued(patch: pytest.MonkeyPatch, state: State, machine: Array) -> object:
    """Return what happens in a machine's next steps; None if it hangs or fails."""

    def check(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, t: int, busy: int) -> None:
        memo.registers[[MEMO.next_check, MEMO.resume, MEMO.last_busy]] = NEVER, state.cycle, state.cycle

    patch.setattr(clock, "check", check)
    program, accept = copied(state.program), np.full(len(state.plan.item), -1, np.int64)
    memo, limit = registers(int(machine[FRONT.next_host])), state.cycle + STEPS
    try:
        with limited(1), np.errstate(all="ignore"):
            cycles = run_machine.python(machine, program, state.plan, accept, memo, limit)
    except (AssertionError, IndexError, ValueError, OverflowError):
        return None
    return cycles, program.times.tolist(), accept.tolist(), program.order.tolist()


def loops() -> Array:
    """Return a program with products of both kinds of loops' streams, and a residual addition."""
    program = Commands(CONFIG)
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_config_st(16)
    for number in range(3):
        program.gemmini_extended3_config_ld(16, 1.0, False, number)
    a, b, c, d = (BASE + 4096 * part for part in range(4))
    for added in (False, False, True, False):
        sizes = 2, 2, 1 if added else 2, 0, 0, 0
        places = a, b, 0 if added else d, c, 16, 16, 16, 16
        program.gemmini_loop_ws(*sizes, *places, False, False, False, False, False, 0, 0, 0, added)
    return program.array


def lives(monkeypatch: pytest.MonkeyPatch, state: State, place: int, right: object) -> bool:
    """Return whether a machine goes on in another way, or fails, if a number is wrong."""
    for value in (state.machine[place] + 1, 0 if state.machine[place] else 77, state.machine[place] + 64):
        machine = state.machine.copy()
        machine[place] = value
        if continued(monkeypatch, state, machine) != right:
            return True
    return False


@pytest.mark.slow
def test_a_machine_needs_the_saved_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above fails if a snapshot leaves one of them out."""
    random = (encoded(program(np.random.default_rng(seed), CONFIG, 2048, 14)) for seed in range(SEEDS))
    every = [state for commands in (loops(), *random) for state in states(monkeypatch, commands)]
    right = [continued(monkeypatch, state, state.machine.copy()) for state in every]
    names = sorted({name for state in every for name in state.saved})
    dead, rng = set[str](), np.random.default_rng(0)
    for name in sorted(set(names) - EQUIVALENT):  # others may be without an effect
        uses = [(x, place) for x, state in enumerate(every) for place in state.saved.get(name, ())]
        set_ones = [(x, place) for x, place in uses if every[x].machine[place] > 0] or uses
        chosen = rng.permutation(set_ones)[:TRIES].tolist()
        if not any(lives(monkeypatch, every[x], place, right[x]) for x, place in chosen):
            dead.add(name)
    print(len(names), "met, without an effect:", sorted(dead))
    assert len(names) > 190
    assert dead <= EQUIVALENT
