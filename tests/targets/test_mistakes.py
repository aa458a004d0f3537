"""Compiled networks with one mistake that makes about a hundred findings: a report of few lines, the root first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.targets.vta.machines import buffers
from tests.targets.vta.networks import Builder
from tests.targets.vta.records import records_of
from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.graph.ops import Add, Conv2D, Window
from tilewright.program.program import Launch, Program
from tilewright.report.render import show_findings
from tilewright.sim.findings import LEAK, RACE, UNINITIALISED, Finding, Group, grouped
from tilewright.targets.base import Target
from tilewright.targets.bm1684x import TARGET as BM1684X
from tilewright.targets.bm1684x.config import Config as Chip
from tilewright.targets.bm1684x.isa import stream as queues
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.launch.image import QueueImage
from tilewright.targets.vta import TARGET as VTA
from tilewright.targets.vta.isa.fields import Fields, Memory, Opcode, Stream
from tilewright.targets.vta.isa.stream import decode as decode_stream
from tilewright.targets.vta.isa.stream import encode

pytestmark = pytest.mark.usefixtures("brief_search")

#: Fewest findings. A check keeps 256 ranges of memory, of which a race of convolutions has several.
MANY = 70
#: Most lines: a root, its consequences and how many more, for two causes; a remark; the number of findings.
LINES = 7
MACHINE = buffers(10, 11, 14, 13)
CHIP = Chip(lanes=8, banks=2, bank_bytes=1 << 12, batch=8)


def network(channels: int) -> Graph:
    """A convolution and the sum of its result with its input, of 40 x 40 pixels."""
    builder = Builder(np.random.default_rng(20261126))
    x = builder.given((1, 40, 40, channels))
    window = Window((3, 3), (1, 1), (1, 1, 1, 1))
    builder.layer(Add(), x, builder.linear(Conv2D("relu", window), x, (channels, 3, 3, channels), 0))
    return builder.graph()


def examined(found: list[Finding], capsys: pytest.CaptureFixture[str]) -> tuple[Group, ...]:
    """The groups of many findings, which a terminal shows in few lines."""
    show_findings(found)
    lines = capsys.readouterr().out.splitlines()
    groups = grouped(found)
    assert len(found) > MANY
    assert len(groups) <= 3
    assert len(lines) <= LINES
    assert lines[0] == str(groups[0].first)
    assert f"hazards {len(found)}" in lines[-1]
    assert sum(len(group.findings) for group in groups) == len(found)
    return groups


def broken(program: Program, change: Callable[[Launch], Launch]) -> list[Finding]:
    """The findings of the largest launch of a program, before (none) and after a change."""
    target: Target = VTA if program.target == VTA.name else BM1684X
    launch = max(program.launches, key=lambda each: each.arrays["insns"].size)
    before, after = (replace(program, graph=None, steps=(each,)) for each in (launch, change(launch)))
    assert not list(target.check(before))
    return list(target.check(after))


# VTA: tokens between units, micro-ops, moves with bases.


@cache
def on_vta() -> Program:
    return VTA.compile(network(64), MACHINE, "tflm")


def stream_changed(change: Callable[[Stream], Stream]) -> list[Finding]:
    def changed(launch: Launch) -> Launch:
        stream = change(decode_stream(launch.arrays["insns"], MACHINE))
        return replace(launch, arrays={**launch.arrays, "insns": encode(records_of(stream, MACHINE), MACHINE)})

    return broken(on_vta(), changed)


def places(stream: Stream, unit: int, bit: str) -> Array:
    """The instructions of a unit (load 0, compute 1, store 2) that have a token bit."""
    return np.flatnonzero((MACHINE.pipeline.units_of(stream) == unit) & (getattr(stream, bit) == 1))


def without(stream: Stream, unit: int, bit: str, chosen: slice) -> Stream:
    column = getattr(stream, bit).copy()
    column[places(stream, unit, bit)[chosen]] = 0
    return replace(stream, **{bit: column})


@pytest.mark.parametrize(
    ("unit", "bit", "queue"),
    [(1, "pop_prev", "load->compute"), (1, "pop_next", "store->compute"), (2, "pop_prev", "compute->store")],
)
def test_one_pop_is_missing(unit: int, bit: str, queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every later pop takes the token of one push earlier."""
    planted = []

    def change(stream: Stream) -> Stream:
        planted.append(places(stream, unit, bit)[2])
        return without(stream, unit, bit, slice(2, 3))

    (group,) = examined(stream_changed(change), capsys)
    assert (group.first.kind, group.first.queue) == (LEAK, queue)
    (race,) = (finding for finding in group.shown if finding.kind == RACE)
    assert race.queue == queue
    assert race.steps[-1] >= planted[0]


def test_no_pair_of_units_is_ordered(capsys: pytest.CaptureFixture[str]) -> None:
    """A code generator that forgets the tokens from compute to store."""
    found = stream_changed(
        lambda stream: without(without(stream, 1, "push_next", slice(None)), 2, "pop_prev", slice(None))
    )
    (group,) = examined(found, capsys)
    assert (group.first.kind, group.first.queue) == (RACE, "compute->store")


def test_micro_ops_are_loaded_to_a_wrong_base(capsys: pytest.CaptureFixture[str]) -> None:
    """GEMMs read micro-ops that nothing has written, and so touch wrong elements: these races are consequences."""

    def change(stream: Stream) -> Stream:
        base = stream.mem.sram_base.copy()
        base[np.flatnonzero((stream.opcode == Opcode.LOAD) & (stream.mem.memory_type == Memory.UOP))[:1]] += 64
        return replace(stream, mem=Fields({**stream.mem, "sram_base": base}))

    root, *_ = examined(stream_changed(change), capsys)
    assert (root.first.kind, root.first.space) == (UNINITIALISED, "uop")
    assert len(root.findings) > MANY
    assert {finding.kind for finding in root.findings} == {UNINITIALISED, RACE}


# BM1684X: each command names the command of the other engine that it waits for.


@cache
def on_bm1684x() -> Program:
    return BM1684X.compile(network(16), CHIP, "tflm")


def queues_changed(change: Callable[[str, EncodedCommand], int]) -> list[Finding]:
    """The findings with `change` in the place of each command's number of the command that it waits for."""

    def changed(launch: Launch) -> Launch:
        image = QueueImage.of(launch, CHIP)
        made = {
            engine: [
                replace(each, fields={**each.fields, "cmd_id_dep": change(engine, each)}) if each.needs else each
                for each in queues.decode(engine, image.queues[engine])
            ]
            for engine in (TIU, DMA)
        }
        insns = np.concatenate([queues.encode(made[engine]) for engine in (TIU, DMA)])
        return replace(launch, arrays={**launch.arrays, "insns": insns})

    return broken(on_bm1684x(), changed)


WAITS: dict[str, tuple[Callable[[str, EncodedCommand], int], str]] = {
    "tiu never waits": (lambda engine, each: 0 if engine == TIU else each.needs, "dma->tiu"),
    "dma never waits": (lambda engine, each: 0 if engine == DMA else each.needs, "dma->tiu"),
    "tiu waits for the command before": (lambda engine, each: each.needs - (engine == TIU), "dma->tiu"),
    "dma waits for the command before": (lambda engine, each: each.needs - (engine == DMA), "tiu->dma"),
    "no engine waits": (lambda engine, each: 0, "dma->tiu"),
}


@pytest.mark.parametrize(("change", "path"), WAITS.values(), ids=WAITS)
def test_commands_do_not_wait(
    change: Callable[[str, EncodedCommand], int], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root, *_ = examined(queues_changed(change), capsys)
    assert root.first.kind == RACE
    assert {finding.queue for finding in root.findings if finding.kind == RACE} <= {"dma->tiu", "tiu->dma"}
