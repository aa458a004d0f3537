"""The order of a layer's instructions: loads, sums, shifts and stores placed by a simulated clock.

Loads follow the order of the sums. The compute unit shifts a group as soon as the store of its last byte plane
is done and sums the next group meanwhile, so that shifts and stores of one group overlap the sums of others.
Sorted by start the instructions are a legal order of execution, with each unit's in the order it runs them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.targets.vta.codegen.clock import NO_LIMIT, Clock, Item
from tilewright.targets.vta.codegen.plan import Group, Plan
from tilewright.targets.vta.codegen.work import opening, shift, sums
from tilewright.targets.vta.config import Config


@dataclass(frozen=True, eq=False)
class Schedule:
    """Items in stream order, and when the last one would end."""

    items: tuple[Item, ...]
    cycles: int


class _Waiting(NamedTuple):
    """A group whose next byte plane may be shifted down from `ready` on."""

    ready: int
    group: Group
    acc: int
    plane: int
    store_cycles: int


def schedule(plan: Plan, config: Config, give_up: int = NO_LIMIT) -> Schedule | None:
    """Items of a layer, None when it takes `give_up` cycles or more. The plan must fit the config."""
    clock = Clock(plan, config)
    limit = max(1, config.uop.depth // 4)
    groups = list(plan.groups())
    planes = plan.layer.planes
    waiting: deque[_Waiting] = deque()
    free: list[int | None] = [0] * plan.acc  # when each accumulator slot's last store is done; None: not yet known

    def shift_first() -> None:
        ready, group, acc, plane, spent = waiting.popleft()
        for step in shift(group.tiles, config.LOG_ACC_WIDTH):
            clock.run(step, ready, acc)
        store(group, acc, plane, clock.compute, spent)

    def store(group: Group, acc: int, plane: int, ready: int, spent: int) -> None:
        done = clock.stored(group, acc, plane, ready, spent)
        if plane + 1 < planes:
            waiting.append(_Waiting(done, group, acc, plane + 1, spent))
        else:
            free[acc] = done

    for index, group in enumerate(groups):
        if clock.compute >= give_up:
            return None
        acc = index % plan.acc
        while free[acc] is None:
            shift_first()
        available = free[acc]
        assert available is not None
        while waiting and waiting[0].ready <= max(clock.compute, available):
            shift_first()
        free[acc] = None
        for step in opening(plan.layer, group):
            clock.run(step, available, acc)
        for chunk in group.chunks:
            inp, wgt = clock.inputs(group, chunk), clock.weights(chunk.weights)
            loaded = max(clock.inp.ready[inp], clock.wgt.ready[wgt])
            for step in sums(plan, group, chunk, limit):
                while waiting and waiting[0].ready <= max(clock.compute, loaded):
                    shift_first()
                reads = step.op is None
                clock.run(step, loaded, acc, inp if reads else -1, wgt if reads else -1)
            clock.inp.free[inp] = clock.wgt.free[wgt] = clock.compute
        store(group, acc, 0, clock.compute, clock.store_cycles(group))
    while waiting:
        shift_first()
    clock.items.sort(key=lambda item: item[:2])
    end = max(clock.compute, clock.store, clock.load)
    return Schedule(tuple(item for _, _, item in clock.items), end + clock.commands())
