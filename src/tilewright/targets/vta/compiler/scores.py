"""Time plans of single layers with the simulator's time pass, and programs of several layers before they are emitted.

Searches on different machines often time the same plans. To share these times, each plan is timed on the smallest
machine on which the plan has the same slots, and all plans are compiled for the same speed of DRAM. While machines are
explored, results of searches are kept on disk, because studies repeat the searches of earlier studies. The key of a
result consists of all inputs of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from tilewright.errors import ConfigError
from tilewright.program.remembered import Remembered
from tilewright.sim.order import Order, order
from tilewright.sim.steps import Footprints, StepTable, Trace
from tilewright.targets.vta.compiler.emit import Draft, alone
from tilewright.targets.vta.compiler.kernels import OVERHEAD, Step
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Plan, RegionAllocator, accumulator_tiles, parameter_room
from tilewright.targets.vta.compiler.sequence import Stage, WorkList
from tilewright.targets.vta.compiler.work import costs_of
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import SEMANTICS, AluOp
from tilewright.targets.vta.isa.fields import REGIONS, Fields
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FIELDS, Kernels
from tilewright.targets.vta.steps.moves import moves
from tilewright.targets.vta.timing import MODELS

#: A longer search pays off for layers with several byte planes and at most this many GEMM micro-ops.
SMALL = 20_000
#: The OVERHEAD of such small layers.
FINE_OVERHEAD = 0.5
#: Minimum number of groups timed at the end of a layer. Twice this number is timed at the start.
FEW = 3
#: Number of plans whose instructions are cached. The instructions of a plan take 90 kB on average.
SAMPLES = 3072
P = ParamSpec("P")
T = TypeVar("T")
#: All open result files by folder, and a stack of the result files of nested `remembering` blocks.
_REMEMBERED: dict[Path, Remembered] = {}
_IN_USE: list[Remembered] = []
#: Empty footprints: times do not depend on where data are.
NOWHERE = Footprints.of(())


@contextmanager
def remembering(folder: Path) -> Iterator[None]:
    """Keep results of searches in a folder during a `with` block, and use results that are already in the folder."""
    if folder not in _REMEMBERED:
        _REMEMBERED[folder] = Remembered(folder, Path(__file__).resolve().parent.parent)
    _IN_USE.append(_REMEMBERED[folder])
    try:
        yield
    finally:
        _IN_USE.pop().flush()


def kept_on_disk(search: Callable[P, T]) -> Callable[P, T]:
    """Decorate a search, so that `remembering` keeps its result under its name and arguments.

    The result is a JSON value; a tuple read from disk is a list. Different arguments must have different `repr` texts.
    """

    @wraps(search)
    def recall(*arguments: P.args, **named: P.kwargs) -> T:
        if not _IN_USE:
            return search(*arguments, **named)
        key = f"{search.__name__} {arguments} {named}"
        result: T | None = _IN_USE[-1].get(key)
        if result is None:
            result = search(*arguments, **named)
            _IN_USE[-1].put(key, result)
        return result

    return recall


@lru_cache(maxsize=1024)
def fine(layer: Layer) -> bool:
    """Return whether a longer search pays off: for small layers that store several byte planes."""
    return layer.planes > 1 and layer.gemm_uops() <= SMALL


def overhead(layer: Layer) -> float:
    """Return the assumed extra cycles of an instruction, added to the timed cycles.

    Small groups need more instructions, but leave fewer gaps between the stores of byte planes. The lower value for
    small layers allows for this.
    """
    return FINE_OVERHEAD if fine(layer) else OVERHEAD


def score(plan: Plan, config: Config, timing: str) -> tuple[float, int]:
    """Time a plan; return its score and the number of instructions that were timed.

    The score is cycles plus OVERHEAD per instruction, so that shorter programs win among equally fast programs. If many
    groups are equal, only the first and the last of these groups are timed.
    """
    plan = replace(plan, layer=plan.layer.canonical)
    cycles, timed = _score(plan, smallest(plan, config.plain), timing)
    return cycles, timed


class _Sample(NamedTuple):
    """The instructions of some groups of a plan, ready for the time pass."""

    program: Elaborated
    relation: Order
    instructions: int  # the number of timed instructions
    groups: int  # the number of groups in the middle that are left out
    turn: int  # the number of groups just before the gap, whose average score each missing group gets
    repeated: tuple[int, int]  # two steps; the cycles between the ends of these steps are the time of the `turn` groups
    shorter: int  # the number of instructions of the `turn` groups
    overhead: float  # extra cycles per instruction


@lru_cache(maxsize=1 << 16)
@kept_on_disk
def _score(plan: Plan, config: Config, timing: str) -> tuple[float, int]:
    # With one byte plane, the instructions do not depend on the speed of DRAM, so they are cached for all machines.
    unclocked = replace(config, LOG_BUS_WIDTH=6, dram_latency=1) if plan.layer.planes == 1 else config
    return _estimate(_sample(plan, unclocked, timing), config, timing)


def _estimate(sample: _Sample, config: Config, timing: str) -> tuple[float, int]:
    trace = MODELS[timing].trace(replace(sample.program, config=config), sample.relation)
    cycles = trace.cycles + sample.overhead * sample.instructions
    if sample.groups:
        begin, end = sample.repeated
        spent = trace.end[end] - trace.end[begin] + sample.overhead * sample.shorter
        cycles += sample.groups * spent / sample.turn
    return float(cycles), len(sample.program.stream)


@lru_cache(maxsize=SAMPLES)
def _sample(plan: Plan, config: Config, timing: str) -> _Sample:
    """Return the instructions of a plan's first groups, and of its last groups if many equal groups lie between."""
    groups = tuple(plan.groups())
    # Only whole periods are timed, so that the pattern to extrapolate is complete.
    first, last = (plan.period * max(least, -(-FEW * least // plan.period)) for least in (2, 1))
    left_out = max(0, len(groups) - first - last)
    if left_out < first + last or (plan.layer.by_group and fine(plan.layer)):
        first = len(groups)
        last = 0
        left_out = 0
    work_list = WorkList(costs_of(config, timing), (where := RegionAllocator(config, alone=True).allocate(plan),))
    work_list.layer(Stage(plan), where, groups[:first] + groups[len(groups) - last :])
    work_list.end()
    draft = alone(plan, work_list, config)
    program = _elaborated(draft, config)
    ends = np.cumsum(draft.instructions)  # by item
    turn = 1
    steps = (0, 0)
    shorter = 0
    if left_out:
        turn = first // plan.period // 2 * plan.period
        begin, end = (draft.stream_order.work.index(work_list.stores[group]) for group in (first - 1 - turn, first - 1))
        steps = (int(np.searchsorted(draft.item, begin)), int(np.searchsorted(draft.item, end)))
        shorter = int(ends[end] - ends[begin])
    relation = order(program.table)
    cycles_each = overhead(plan.layer)
    program = replace(program, stream=replace(program.stream, mem=Fields(), gemm=Fields(), alu=Fields()))  # small
    return _Sample(program, relation, int(ends[-1]), left_out, turn, steps, shorter, cycles_each)


def smallest(plan: Plan, config: Config) -> Config:
    """Return the machine with the smallest memories in which a plan has the same slots.

    A plan with one byte plane takes exactly the same cycles on both machines. A plan with several byte planes may
    differ by a few cycles, because its slots have other addresses, and equal micro-op lists are loaded once.
    """
    slot_sizes = plan.slot_sizes()
    places = RegionAllocator(config, alone=True).allocate(plan)
    least = config.par.index_bits if config.has_parameters else 1  # these bits also address the parameters
    inp = max(least, (places.inp.slots * slot_sizes.inp + slot_sizes.more_inp - 1).bit_length())
    wgt = max(least, (places.wgt.slots * slot_sizes.wgt + plan.layer.more_weights - 1).bit_length())
    for acc in range((plan.slots.acc * slot_sizes.acc - 1).bit_length(), config.index_bits.acc):
        smaller = _resized(config, inp, wgt, acc)
        if (
            smaller
            and accumulator_tiles(smaller, plan.layer) // plan.slots.acc >= slot_sizes.acc
            and parameter_room(smaller).tiles >= slot_sizes.par
            and RegionAllocator(smaller, alone=True).allocate(plan).par.slots == places.par.slots
        ):
            return smaller
    return _resized(config, inp, wgt, config.index_bits.acc) or config


@lru_cache(maxsize=4096)
def _resized(config: Config, inp: int, wgt: int, acc: int) -> Config | None:
    """Return the machine with memories of 2^`inp`, 2^`wgt` and 2^`acc` tiles; None if it is illegal."""
    bits = config.index_bits
    try:
        return replace(
            config,
            LOG_INP_BUFF_SIZE=config.LOG_INP_BUFF_SIZE + inp - bits.inp,
            LOG_WGT_BUFF_SIZE=config.LOG_WGT_BUFF_SIZE + wgt - bits.wgt,
            LOG_ACC_BUFF_SIZE=config.LOG_ACC_BUFF_SIZE + acc - bits.acc,
        )
    except ConfigError:
        return None


def trace_of(draft: Draft, config: Config, model: str) -> Trace:
    """Return the timing trace of a draft under timing model `model`. Raises HazardError for a deadlock."""
    program = _elaborated(draft, config)
    return MODELS[model].trace(program, order(program.table))


def _elaborated(draft: Draft, config: Config) -> Elaborated:
    stream = draft.linked.stream
    line = config.pipeline
    pops, pushes = line.tokens(stream)
    kernel = draft.step
    kernels = _kernels(draft.steps, config)
    table = StepTable(
        units=line.units,
        queues=line.queues(config.token_depth),
        spaces=(),
        unit=draft.linked.unit,
        pops=pops,
        pushes=pushes,
        footprint=np.zeros(len(stream), np.int64),
        footprints=NOWHERE,  # neither `order` nor a timing model reads footprints
    )
    moved = moves(stream, config, dict.fromkeys(REGIONS, 0))
    micro_ops = np.append(kernels.micro_ops, 0)[kernel]
    return Elaborated(config, stream, table, kernel, kernels, micro_ops, moved, ())


def _kernels(steps: Sequence[Step], config: Config) -> Kernels:
    """Return GEMM and ALU steps as the simulator's `Kernels`, with tile indices relative to the steps' slots."""
    fields = np.array(list(map(_fields, steps)), np.int64).reshape(-1, len(FIELDS))
    lists = [np.stack([step.kernel.dst, step.kernel.src, step.kernel.wgt], axis=1) for step in steps]
    return Kernels(fields, lists, SEMANTICS[config.semantics])


def _fields(step: Step) -> tuple[int, ...]:
    outer = step.kernel.outer
    inner = step.kernel.inner
    joined = step.kernel.joined
    if joined:
        return (int(step.op is not None), 0, 1, joined, 1, *[0] * 6, int(step.op or 0), int(step.imm is not None), 0)
    loops = (outer.extent, inner.extent, outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
    imm = step.factor if step.op == AluOp.REQ else step.imm
    code = int(step.reset) if step.op is None else int(step.op)
    return (int(step.op is not None), 0, len(step.kernel.dst), *loops, code, int(step.imm is not None), imm or 0)
