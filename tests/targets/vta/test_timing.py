"""Timing edges of the VTA models: what each instruction takes alone, and what moves it by exactly one cycle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.targets.vta.test_chisel_reference import BASES, Record, config_of, elaborated, random_program, traced
from tilewright.errors import HazardError
from tilewright.sim.dram import Dram, Segment
from tilewright.sim.findings import LOST
from tilewright.sim.order import order
from tilewright.targets.base import RunOptions
from tilewright.targets.vta import timing
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import run_passes

NOP: Record = {"opcode": Opcode.LOAD, "memory_type": Memory.INP}
IDLE: Record = {"opcode": Opcode.STORE, "memory_type": Memory.OUT}  # a NOP of the store unit
FINISH: Record = {"opcode": Opcode.FINISH}


#: The order of expected cycles below.
EACH = ("hls", "chisel", "ideal", "tilewright")


def load(memory: int, tiles: int, rows: int = 1, **fields: int) -> Record:
    return {"opcode": Opcode.LOAD, "memory_type": memory, "x_size": tiles, "y_size": rows, "x_stride": tiles} | fields


def store(tiles: int, rows: int = 1, **fields: int) -> Record:
    return {**load(Memory.OUT, tiles, rows), "opcode": Opcode.STORE} | fields


def gemm(uops: int, **fields: int) -> Record:
    return {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": uops} | fields


def alu(uops: int, imm: int = 1) -> Record:
    return {**gemm(uops), "opcode": Opcode.ALU, "use_imm": imm}


def alone(record: Record, name: str = "chisel", **changes: Any) -> int:
    """Cycles from the start of the only instruction to its end."""
    trace = traced([record], config_of(**changes), name)
    return int(trace.end[0] - trace.start[0])


@pytest.mark.parametrize("uops", [1, 2, 9])
def test_cycles_of_the_core(uops: int) -> None:
    assert [alone(gemm(uops), name) for name in EACH] == [1 + uops, uops + 7, uops, uops + 5]
    assert [alone(alu(uops), name) for name in EACH] == [1 + 2 * uops, uops + 7, uops, uops + 5]
    assert [alone(alu(uops, 0), name) for name in EACH] == [1 + 2 * uops, 2 * uops + 7, 2 * uops, 2 * uops + 5]


@pytest.mark.parametrize(("record", "ours"), [(NOP, 1 + 2), (IDLE, 1 + 2), (FINISH, 1 + 5)])
def test_a_nop_and_finish_take_two_cycles_on_chisel(record: Record, ours: int) -> None:
    assert [alone(record, name) for name in EACH] == [1, 2, 0, ours]


#: Chisel: start to slot to grant, delay, queue and register of the memory; the data; register, count, done.
LEAD, DELAY, WIDE, NARROW = 2, 16 + 2, 2, 3


@pytest.mark.parametrize(
    ("memory", "tiles", "beats", "tail"),
    [
        (Memory.INP, 1, 2, NARROW),
        (Memory.INP, 3, 6, NARROW),
        (Memory.WGT, 1, 32, NARROW),
        (Memory.ACC, 2, 16, NARROW),
        (Memory.UOP, 1, 1, WIDE),
        (Memory.UOP, 2, 1, WIDE),
        (Memory.UOP, 3, 2, WIDE),
    ],
)
def test_a_load_alone(memory: int, tiles: int, beats: int, tail: int) -> None:
    record = load(memory, tiles)
    hls, ours = 1 + 16 + beats, 2 + 18 + beats + {Memory.UOP: 5, Memory.ACC: 1 + 5}.get(Memory(memory), 1)
    assert [alone(record, name) for name in EACH] == [hls, LEAD + DELAY + beats + tail, beats, ours]
    assert alone(record, dram_latency=17) == alone(record) + 1
    assert alone(record, "hls", dram_latency=17) == hls + 1
    assert alone(record, "ideal", dram_latency=17) == beats


def test_a_wider_bus_takes_half_the_beats_and_spares_a_register() -> None:
    assert alone(load(Memory.INP, 3), LOG_BUS_WIDTH=7) == LEAD + DELAY + 3 + WIDE
    assert alone(load(Memory.WGT, 1), LOG_BUS_WIDTH=7) == LEAD + DELAY + 16 + NARROW


def test_a_beat_that_is_needed_in_part_is_a_beat() -> None:
    """Two micro-ops fit a beat of 64 bits; at an odd address they need two."""
    assert alone(load(Memory.UOP, 2, dram_base=1)) == alone(load(Memory.UOP, 2)) + 1


def test_rows_follow_each_other_on_chisel_and_wait_on_hls() -> None:
    record = load(Memory.INP, 2, 3)
    assert alone(record) == LEAD + DELAY + 3 * 4 + NARROW
    assert alone(record, "hls") == 1 + 3 * (16 + 4)


def test_rows_of_padding_above_delay_the_first_command_a_cycle_each() -> None:
    plain = load(Memory.INP, 2)
    assert [alone({**plain, "y_pad_0": rows}) - alone(plain) for rows in (1, 2, 9)] == [1, 2, 9]


def test_zeros_are_written_beside_the_fetch() -> None:
    """Up to the first beat 20 zeros are free; the next ones wait until the data is in."""
    plain = load(Memory.INP, 2)
    more = [alone({**plain, "x_pad_0": 10, "x_pad_1": zeros - 10}) - alone(plain) for zeros in (19, 20, 21, 22)]
    assert more == [0, 0, 1, 2]
    for name in ("hls", "ideal"):
        after = [alone({**plain, "x_pad_0": zeros}, name) - alone(plain, name) for zeros in (0, 1, 5)]
        assert after == [0, 1, 5]


def test_rows_between_padding_are_passed_over_a_cycle_each() -> None:
    """Without padding at the sides: 1 zero row above, 2 tiles; n rows of data; 9 zero rows below, 18 tiles."""
    padded = {"y_pad_0": 1, "y_pad_1": 9}
    free = LEAD + 1 + DELAY - 2  # cycles after the zeros above and before the first beat
    for rows in (free - 18, free - 17):
        plain = load(Memory.INP, 2, rows)
        assert alone({**plain, **padded}) - alone({**plain, "y_pad_0": 1}) == max(0, rows - (free - 18))


def test_a_burst_ends_at_a_multiple_of_the_longest() -> None:
    """2 KiB at 64 bits. A tile less before the edge, and a STORE takes one burst more: command, address, response."""
    edge = 2048 // 16 - BASES["out"] // 16 % 128
    inside, across = store(2, dram_base=edge - 2), store(2, dram_base=edge - 1)
    assert alone(inside) == 1 + 4 + (4 + 1)
    assert alone(across) == 1 + 2 * (4 + 2)
    # de10nano's bursts have 16 beats: 8 tiles of 2.
    assert alone(store(8), TARGET="de10nano") == 1 + 4 + 16 + 7
    assert alone(store(9), TARGET="de10nano") == 1 + 4 + 16 + 7 + 4 + 2


def test_a_load_is_cut_there_too() -> None:
    """Without delay a second burst of one beat is granted 3 cycles after the first, whose last beat bars one."""
    edge = 2048 // 4 - BASES["uop"] // 4 % 512
    inside, across = (load(Memory.UOP, 4, dram_base=edge - before) for before in (4, 2))
    assert alone(across, dram_latency=0) == alone(inside, dram_latency=0) + 2


def test_a_store_alone() -> None:
    """A bubble after each tile but the last of a burst; each row is a burst; none where a tile is a beat."""
    assert [alone(store(1), name) for name in EACH] == [1 + 16 + 2 + 16, 1 + 4 + 2, 2, 2 + 2 + 2 + 16 + 1]
    assert alone(store(3)) == 1 + 4 + 3 * 2 + 2
    assert alone(store(3, 2)) == 1 + 2 * (4 + 3 * 2 + 2)
    assert alone(store(3), LOG_BUS_WIDTH=7) == 1 + 4 + 3
    assert alone(store(3), dram_latency=99) == alone(store(3))


def test_sixteen_reads_are_in_flight_and_not_seventeen() -> None:
    """A delay of 50 outlasts 16 commands: the next is granted when the last of them has ended, and pays the delay."""
    times = [alone(load(Memory.UOP, 1, rows), dram_latency=50) for rows in (15, 16, 17)]
    assert (times[1] - times[0], times[2] - times[1]) == (1, 50 + 2 + 1)


@pytest.mark.parametrize(
    ("batch", "lag", "changes"),
    [(128, 1, {}), (8, 1, {"TARGET": "de10nano"}), (256, 4, {"LOG_BUS_WIDTH": 7})],
)
def test_fetch_reads_a_batch_then_delivers_then_asks_again(batch: int, lag: int, changes: dict[str, Any]) -> None:
    beats = 1 if "LOG_BUS_WIDTH" in changes else 2
    first = 2 + DELAY + batch * beats + lag  # the first delivery: command, slot; all of the batch
    starts = [
        traced([*[FINISH] * before, IDLE, FINISH, FINISH], config_of(**changes)).start[before]
        for before in (batch - 1, batch)
    ]
    assert starts[0] == first + batch - 1 + 1
    assert starts[1] == first + batch - 1 + 3 + DELAY + 3 * beats + lag + 1


def test_a_token_is_there_when_its_instruction_has_ended() -> None:
    trace = traced([load(Memory.WGT, 1, push_next=1), gemm(1, pop_prev=1)], config_of())
    assert trace.start[1] == trace.end[0]


@pytest.mark.parametrize(("depth", "late"), [(3, True), (4, False)])
def test_a_running_command_keeps_its_place_in_chisels_queue(depth: int, late: bool) -> None:
    """Four GEMMs fill a queue of four; in one of three the last waits for the first to end, and all behind it."""
    trace = traced([*[gemm(100)] * 4, IDLE], config_of(queue_depth=depth))
    assert (trace.start[4] == trace.end[0] + 2) == late
    assert (trace.start[4] < trace.end[0]) == (not late)


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


@pytest.mark.parametrize(("count", "depth"), [(255, 1024), (8, 8)])
def test_chisels_counter_loses_a_token_more_than_it_holds(count: int, depth: int) -> None:
    config = config_of(token_depth=depth)
    slow = [{**tokens(count + 1)[0], "x_size": 1000}]
    for more in (0, 1):
        records = [*slow, *tokens(count + more)[1:]]
        program = elaborated(records, config)
        found = timing.lost(program, timing.run(program, order(program.table), "chisel"), "chisel")
        assert [(f.kind, f.queue, f.steps) for f in found] == [(LOST, "load->compute", (count + 1,))] * more
        assert timing.lost(program, timing.run(program, order(program.table), "ideal"), "ideal") == []


def test_a_lost_token_is_a_finding_of_the_run() -> None:
    config = config_of(token_depth=4)
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 20), np.uint8))])
    insns = encode(tokens(5), config)
    for name, lost in (("chisel", [LOST]), ("hls", [])):
        passes = run_passes(insns, config, dram, BASES, 1, RunOptions(name, check=False, values=False))
        assert [f.kind for f in passes.findings if f.kind == LOST] == lost


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
    for name in ("hls", "chisel"):
        trace = traced(records, config, name)
        assert (bound.end <= trace.end).all() and (bound.start <= trace.start).all(), f"seed {seed}"
        assert (bound.bytes_read == trace.bytes_read).all() and (bound.bytes_written == trace.bytes_written).all()


@pytest.mark.parametrize("name", timing.MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_no_step_overlaps_another_without_overlap(name: str, seed: int) -> None:
    program = elaborated(random_program(np.random.default_rng(seed), 40), config_of())
    _, trace = timing.both(program, order(program.table), name)
    assert trace is not None
    assert (trace.start[1:] >= trace.end[:-1]).all(), f"seed {seed}"


def test_a_queue_that_can_never_drain_is_an_error_of_each_bounded_model() -> None:
    records = [{**FINISH, "pop_prev": 1}, FINISH, {**NOP, "push_next": 1}]
    for name, depth in (("hls", 1), ("chisel", 1)):
        with pytest.raises(HazardError, match=f"commands {depth}"):
            traced(records, config_of(queue_depth=depth), name)
        assert traced(records, config_of(queue_depth=2), name).cycles
    assert traced(records, config_of(queue_depth=1), "ideal").cycles == 0
