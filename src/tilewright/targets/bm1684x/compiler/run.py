"""A launch on S samples: packed, run, unpacked."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.program.program import Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import serial_total
from tilewright.targets import given
from tilewright.targets.base import LaunchResult
from tilewright.targets.bm1684x.compiler.image import QueueImage
from tilewright.targets.bm1684x.compiler.passes import Prepared
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.operations import TIU

#: Bytes of local memory of all launches that run together.
TOGETHER_BYTES = 1 << 26
_KNOWN: WeakKeyDictionary[Launch, Prepared] = WeakKeyDictionary()


def prepared(launch: Launch, config: Config) -> Prepared:
    """What is known of a launch, kept while it lives."""
    if launch not in _KNOWN:
        _KNOWN[launch] = Prepared(QueueImage.of(launch, config), config)
    return _KNOWN[launch]


def run(
    program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions, config: Config
) -> LaunchResult:
    """All passes that are asked for."""
    known = prepared(launch, config)
    with given.named(launch):
        known.passes.refuse(options)
    findings = known.findings(options)
    graph = program.graph
    results: dict[str, Array] = {}
    if options.values:
        with given.untrusted(launch), one_thread():
            results = _values(program, known, values, options)
    macs = known.macs(len(launch.nodes)) if graph else ()
    total = sum(macs) if graph else int(known.executed.sum())
    if options.timing is None:
        return LaunchResult(results, findings, None, TIU, total, macs_per_cycle=known.peak)
    parts = known.parts(len(launch.nodes)) if graph else ()
    serial = serial_total(part.serial_cycles for part in parts) if graph else known.serial.cycles
    return LaunchResult(results, findings, known.trace, TIU, total, serial, parts, macs, known.peak)


def _values(program: Program, known: Prepared, values: Mapping[str, Array], options: RunOptions) -> dict[str, Array]:
    """Values of the graph's tensors (S, *shape); of a bare program segments of DDR, as bytes."""
    image, graph = known.image, program.graph
    if graph is None:
        inputs = {
            segment.name: np.zeros((1, segment.stored.nbytes * image.batch), np.uint8) for segment in image.inputs
        }
        return {name: data[0] for name, data in known.run(inputs, 1, options).items()}
    samples = max((len(values[segment.name]) for segment in image.inputs), default=1)
    launches = -(-samples // image.batch)
    together = max(1, TOGETHER_BYTES // max(1, image.values_end * known.config.lanes))
    packed = {}
    for segment in image.inputs:
        given_values = np.broadcast_to(values[segment.name], (samples, *graph.tensors[segment.name].shape))
        data = np.ascontiguousarray(segment.stored.pack(given_values)).view(np.uint8)
        spare = np.zeros((launches * image.batch - samples, data.shape[1]), np.uint8)
        packed[segment.name] = np.concatenate([data, spare]).reshape(launches, -1)
    parts: dict[str, list[Array]] = {segment.name: [] for segment in image.outputs}
    for start in range(0, launches, together):
        block = {name: data[start : start + together] for name, data in packed.items()}
        count = min(together, launches - start)
        for name, found in known.run(block, count, options).items():
            parts[name].append(found)
    left = {}
    for segment in image.outputs:
        stored, data = segment.stored, np.concatenate(parts[segment.name])
        elements = data.view(stored.dtype.storage).reshape(launches * image.batch, -1)[:samples]
        left[segment.name] = stored.unpack(elements, graph.tensors[segment.name])
    return left
