"""Timing edges of the VTA models: what each instruction takes alone, and what moves it by exactly one cycle."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.timed import Record, alone, alu, config_of, elaborated, gemm, random_program, traced
from tilewright.errors import HazardError
from tilewright.sim.order import order
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.timing import MODELS

NOP: Record = {"opcode": Opcode.LOAD, "memory_type": Memory.INP}
IDLE: Record = {"opcode": Opcode.STORE, "memory_type": Memory.OUT}  # a NOP of the store unit
FINISH: Record = {"opcode": Opcode.FINISH}


#: The order of expected cycles below.
EACH = ("hls", "ideal", "tilewright")


def load(memory: int, tiles: int, rows: int = 1, **fields: int) -> Record:
    return {"opcode": Opcode.LOAD, "memory_type": memory, "x_size": tiles, "y_size": rows, "x_stride": tiles} | fields


def store(tiles: int, rows: int = 1, **fields: int) -> Record:
    return {**load(Memory.OUT, tiles, rows), "opcode": Opcode.STORE} | fields


@pytest.mark.parametrize("uops", [1, 2, 9])
def test_cycles_of_the_core(uops: int) -> None:
    assert [alone(gemm(uops), name) for name in EACH] == [1 + uops, uops, uops + 5]
    assert [alone(alu(uops), name) for name in EACH] == [1 + 2 * uops, uops, uops + 5]
    assert [alone(alu(uops, 0), name) for name in EACH] == [1 + 2 * uops, 2 * uops, 2 * uops + 5]


@pytest.mark.parametrize(("record", "ours"), [(NOP, 1 + 2), (IDLE, 1 + 2), (FINISH, 1 + 5)])
def test_a_nop_and_finish(record: Record, ours: int) -> None:
    assert [alone(record, name) for name in EACH] == [1, 0, ours]


@pytest.mark.parametrize(
    ("memory", "tiles", "beats"),
    [
        (Memory.INP, 1, 2),
        (Memory.INP, 3, 6),
        (Memory.WGT, 1, 32),
        (Memory.ACC, 2, 16),
        (Memory.UOP, 1, 1),
        (Memory.UOP, 2, 1),
        (Memory.UOP, 3, 2),
    ],
)
def test_a_load_alone(memory: int, tiles: int, beats: int) -> None:
    record = load(memory, tiles)
    hls, ours = 1 + 16 + beats, 2 + 18 + beats + {Memory.UOP: 5, Memory.ACC: 1 + 5}.get(Memory(memory), 1)
    assert [alone(record, name) for name in EACH] == [hls, beats, ours]
    assert alone(record, "tilewright", dram_latency=17) == ours + 1
    assert alone(record, "hls", dram_latency=17) == hls + 1
    assert alone(record, "ideal", dram_latency=17) == beats


def test_a_wider_bus_takes_half_the_beats() -> None:
    assert alone(load(Memory.WGT, 1), LOG_BUS_WIDTH=7) == alone(load(Memory.WGT, 1)) - 16


def test_a_beat_that_is_needed_in_part_is_a_beat() -> None:
    """Two micro-ops fit a beat of 64 bits; at an odd address they need two."""
    shifted, plain = (alone(load(Memory.UOP, 2, dram_base=base), "tilewright") for base in (1, 0))
    assert shifted == plain + 1


def test_rows_wait_on_hls() -> None:
    assert alone(load(Memory.INP, 2, 3)) == 1 + 3 * (16 + 4)


def test_zeros_come_after_the_data() -> None:
    plain = load(Memory.INP, 2)
    for name in ("hls", "ideal"):
        after = [alone({**plain, "x_pad_0": zeros}, name) - alone(plain, name) for zeros in (0, 1, 5)]
        assert after == [0, 1, 5]


def test_a_store_alone() -> None:
    assert [alone(store(1), name) for name in EACH] == [1 + 16 + 2 + 16, 2, 2 + 2 + 2 + 16 + 1]


def test_a_token_is_there_when_its_instruction_has_ended() -> None:
    trace = traced([load(Memory.WGT, 1, push_next=1), gemm(1, pop_prev=1)], config_of())
    assert trace.start[1] == trace.end[0]


@pytest.mark.parametrize(("depth", "late"), [(2, True), (3, False)])
def test_a_running_command_has_left_hls_queue(depth: int, late: bool) -> None:
    trace = traced([*[gemm(100)] * 4, IDLE], config_of(queue_depth=depth), "hls")
    assert (trace.start[4] > trace.end[0]) == late


@pytest.mark.parametrize("depth", [256, 512])
def test_documented_depths_hold_their_number_of_commands(depth: int) -> None:
    """Three GEMMs more than the queue: on hls one of them runs, so two have to wait and IDLE starts late."""
    waits = []
    for extra in (1, 2):
        trace = traced([*[gemm(8000)] * (depth + extra), IDLE], config_of(queue_depth=depth), "hls")
        waits.append(bool(trace.start[-1] > trace.end[0]))
    assert waits == [False, True]


def tokens(count: int) -> list[Record]:
    """`count` pushes before the first pop, which waits for a store of its own."""
    pushes = [{**NOP, "push_next": 1}] * count
    return [{**store(300), "push_prev": 1}, *pushes, {**FINISH, "pop_next": 1}, *[{**FINISH, "pop_prev": 1}] * count]


@pytest.mark.parametrize("depth", [8, 256])
def test_a_push_into_a_full_token_queue_waits_on_hls(depth: int) -> None:
    for count, waits in ((depth, False), (depth + 1, True)):
        trace = traced(tokens(count), config_of(token_depth=depth), "hls")
        first_pop = trace.start[count + 2]
        assert (trace.end[count] >= first_pop) == waits


def test_ideal_knows_neither_fetch_nor_queues_nor_a_shared_port() -> None:
    records = [load(Memory.INP, 100), load(Memory.ACC, 25), *[gemm(50)] * 600]
    trace = traced(records, config_of(queue_depth=1), "ideal")
    assert (trace.start[0], trace.start[1], trace.end[0], trace.end[1]) == (0, 0, 200, 200)
    assert trace.cycles == 200 + 600 * 50
    assert trace.bytes_read.tolist()[:2] == [1600, 1600]
    assert traced(tokens(300), config_of(token_depth=8), "ideal").end[300] == 0


@pytest.mark.parametrize("seed", range(40))
def test_ideal_is_a_lower_bound_of_every_step(seed: int) -> None:
    records = random_program(np.random.default_rng(seed), 60)
    config = config_of(**({"LOG_BUS_WIDTH": 7} if seed % 2 else {}))
    bound = traced(records, config, "ideal")
    trace = traced(records, config, "hls")
    assert (bound.end <= trace.end).all() and (bound.start <= trace.start).all(), f"seed {seed}"
    assert (bound.bytes_read == trace.bytes_read).all() and (bound.bytes_written == trace.bytes_written).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_no_step_overlaps_another_without_overlap(name: str, seed: int) -> None:
    program = elaborated(random_program(np.random.default_rng(seed), 40), config_of())
    _, trace = MODELS[name].traces(program, order(program.table))
    assert trace is not None
    assert (trace.start[1:] >= trace.end[:-1]).all(), f"seed {seed}"


def test_a_queue_that_can_never_drain_is_an_error_of_each_bounded_model() -> None:
    records = [{**FINISH, "pop_prev": 1}, FINISH, {**NOP, "push_next": 1}]
    for name, depth in (("hls", 1), ("tilewright", 1)):
        with pytest.raises(HazardError, match=f"depths: {depth} commands"):
            traced(records, config_of(queue_depth=depth), name)
        assert traced(records, config_of(queue_depth=2), name).cycles
    assert traced(records, config_of(queue_depth=1), "ideal").cycles == 0
