"""Dependencies of compiled networks made weaker at random: a race is reported where two commands can meet, else not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, product

import numpy as np
import pytest

from tests.targets.vta.networks import random_network
from tilewright.array import Array
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import RACE
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.elaborate import Step, elaborate
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import decode, encode
from tilewright.targets.bm1684x.launch.image import QueueImage

SEED = 20261122
#: Small memories, so that places are used again.
MACHINES = (Config(batch=2), Config(lanes=4, banks=2, bank_bytes=1 << 12), Config(lanes=16, banks=1, batch=3))


def weaker(launch: Launch, config: Config, rng: np.random.Generator) -> Launch | None:
    """One command that waits for an earlier command of the other engine than before, or for none."""
    image = QueueImage.of(launch, config)
    queues = {engine: decode(engine, image.queues[engine]) for engine in (TIU, DMA)}
    waiting = [
        (engine, place) for engine, queue in queues.items() for place, queued in enumerate(queue) if queued.needs
    ]
    if not waiting:
        return None
    engine, place = waiting[int(rng.integers(len(waiting)))]
    command = queues[engine][place]
    least = int(rng.integers(command.needs)) if rng.random() < 0.5 else 0
    queues[engine][place] = replace(command, fields={**command.fields, "cmd_id_dep": least})
    insns = np.concatenate([encode(queues[queued]) for queued in (TIU, DMA)])
    return replace(launch, arrays={**launch.arrays, "insns": insns})


def touched(step: Step) -> tuple[Array, Array]:
    """The bytes that a command reads and those that it writes, sorted."""
    ranges = []
    for ends in (step.command.operands, step.command.results):
        tensors = [end.storage for end in ends.values() if not isinstance(end, Constant)]
        parts = [(tensor.addresses.reshape(-1, 1) + np.arange(tensor.dtype.bytes)).reshape(-1) for tensor in tensors]
        ranges.append(np.unique(np.concatenate([np.zeros(0, np.int64), *parts])))
    return ranges[0], ranges[1]


def can_race(launch: Launch, config: Config) -> bool:
    """Whether two commands that no dependency orders touch the same byte, one of them writing: tried on all pairs."""
    steps = elaborate(QueueImage.of(launch, config).queues, config).steps
    tiu, dma = ([step for step in steps if step.engine == engine] for engine in (TIU, DMA))
    ended = {
        engine: _ended_before(steps_of_unit, partner)
        for engine, steps_of_unit, partner in ((TIU, tiu, DMA), (DMA, dma, TIU))
    }
    bytes_of = {id(step): touched(step) for step in steps}
    for (i, left), (j, right) in product(enumerate(tiu), enumerate(dma)):
        if right.id > ended[TIU][i] and left.id > ended[DMA][j]:
            (reads, writes), (others, results) = bytes_of[id(left)], bytes_of[id(right)]
            for a, b in ((reads, results), (writes, others), (writes, results)):
                if len(np.intersect1d(a, b, assume_unique=True)):
                    return True
    return False


def _ended_before(steps: Sequence[Step], partner: str) -> list[int]:
    """Up to which command of the other engine each knows all to have ended."""
    return list(accumulate((step.needs[partner] for step in steps), max))


def check(seeds: range) -> Counter[bool]:
    """Outcomes of one weaker dependency in each launch of random networks."""
    outcomes = Counter[bool]()
    for seed in seeds:
        rng, config = np.random.default_rng([SEED, seed]), MACHINES[seed % len(MACHINES)]
        program = TARGET.compile(random_network(rng, 5), config, "tflm")
        for launch in program.launches:
            mutant = weaker(launch, config, rng)
            if mutant is None:
                continue
            races = can_race(mutant, config)
            bare = Program("bm1684x", config.to_dict(), config.digest(), "tflm", None, (mutant,))
            kinds = {finding.kind for finding in TARGET.check(bare)}
            assert (RACE in kinds) == races, f"seed {SEED}, {seed}"
            assert not can_race(launch, config), f"seed {SEED}, {seed}"
            outcomes[races] += 1
    return outcomes


def test_weaker_dependencies_are_reported_where_commands_can_meet() -> None:
    assert min(check(range(8)).values()) > 0


@pytest.mark.slow
def test_many_weaker_dependencies() -> None:
    assert check(range(1000, 1400))[True] > 100
