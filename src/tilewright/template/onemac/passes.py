"""A launch through all passes but values: order, hazards, time. None of this depends on data."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.program.launch_image import LaunchImage
from tilewright.sim.dram import Dram
from tilewright.sim.findings import DEADLOCK, Finding
from tilewright.sim.hazards import hazards, out_of_range
from tilewright.sim.order import order, random_sequence, sequence_by_time
from tilewright.sim.timeline import serial_timeline, timeline
from tilewright.sim.trace import Trace
from tilewright.targets.base import RunOptions

from . import timing
from .config import Config
from .isa import ISA
from .machine import steps


@dataclass(frozen=True, eq=False)
class Passes:
    """What is known of a launch without its data; `sequence` is the order in which values are computed.

    `serial_cycles` is as in LaunchResult.
    """

    findings: tuple[Finding, ...]
    sequence: Array
    trace: Trace | None = None
    serial_cycles: int | None = 0


def run_passes(image: LaunchImage, config: Config, dram: Dram, options: RunOptions) -> Passes:
    """All passes but values, in order; each needs what the one before it found to be sound."""
    columns = ISA.decode(image.insns)
    table = steps(columns, config, dram)
    relation = order(table)
    outside = out_of_range(table)
    findings = [*relation.findings, *outside]
    if outside or not relation.complete:
        return Passes(tuple(findings), relation.sequence)
    if options.check:
        findings += hazards(table, relation)
    trace: Trace | None = None
    serial: int | None = 0
    if options.timing is not None or options.order == "time":
        model = timing.MODELS[options.timing or next(iter(timing.MODELS))]
        given = timing.costs(columns, config, model), timing.channel(config, model), timing.fetch(config)
        try:
            trace = timeline(table, relation, *given)
            alone = serial_timeline(table, relation, *given)
            serial = alone.cycles if alone else None
        except HazardError as error:  # a queue too short for the program
            return Passes((*findings, Finding(DEADLOCK, error.reason)), relation.sequence)
    sequence = relation.sequence
    if options.order == "time" and trace is not None:
        sequence = sequence_by_time(relation, trace.start)
    elif options.order == "random":
        sequence = random_sequence(table, relation, options.seed)
    return Passes(tuple(findings), sequence, trace, serial)
