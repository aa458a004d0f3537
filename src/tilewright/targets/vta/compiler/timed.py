"""When the instructions of a draft run: the machine's own time pass, before anything is encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.sim.order import order
from tilewright.sim.steps import Footprints, StepTable, Trace
from tilewright.targets.vta.compiler.emit import Draft
from tilewright.targets.vta.compiler.kernels import Step
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import SEMANTICS, AluOp
from tilewright.targets.vta.isa.fields import REGIONS
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FIELDS, Kernels
from tilewright.targets.vta.steps.moves import moves
from tilewright.targets.vta.timing import MODELS

#: Footprints say where data are, which times do not depend on.
NOWHERE = Footprints.of(())


def trace(draft: Draft, config: Config, model: str) -> Trace:
    """The trace of a draft under timing model `model`. Raises HazardError where a queue fills for good."""
    stream, line = decode(draft.built.code, config), config.pipeline
    pops, pushes = line.tokens(stream)
    kernel, kernels = draft.step, _kernels(draft.steps, config)
    table = StepTable(
        units=line.units,
        queues=line.queues(config.token_depth),
        spaces=(),
        unit=draft.built.unit,
        pops=pops,
        pushes=pushes,
        footprint=np.zeros(len(stream), np.int64),
        footprints=NOWHERE,
    )
    moved = moves(stream, config, dict.fromkeys(REGIONS, 0))
    micro_ops = np.append(kernels.micro_ops, 0)[kernel]
    program = Elaborated(config, stream, table, kernel, kernels, micro_ops, moved, ())
    return MODELS[model].trace(program, order(table))


def _kernels(steps: Sequence[Step], config: Config) -> Kernels:
    """Steps as the machine knows them, relative to their slots."""
    fields = np.array(list(map(_fields, steps)), np.int64).reshape(-1, len(FIELDS))
    lists = [np.stack([step.kernel.dst, step.kernel.src, step.kernel.wgt], axis=1) for step in steps]
    return Kernels(fields, lists, SEMANTICS[config.semantics])


def _fields(step: Step) -> tuple[int, ...]:
    """FIELDS of a step."""
    outer, inner = step.kernel.outer, step.kernel.inner
    if step.kernel.joined:
        return (
            int(step.op is not None),
            0,
            1,
            step.kernel.joined,
            1,
            *[0] * 6,
            int(step.op or 0),
            int(step.imm is not None),
            0,
            0,
        )
    loops = (outer.extent, inner.extent, outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
    imm = step.factor if step.op == AluOp.REQ else step.imm
    code = int(step.reset) if step.op is None else int(step.op)
    operand = (int(step.imm is not None), imm or 0, int((imm or 0) < 0))
    return (int(step.op is not None), 0, len(step.kernel.dst), *loops, code, *operand)
