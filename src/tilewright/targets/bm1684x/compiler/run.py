"""A launch on S samples: packed, run, unpacked."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import HazardError
from tilewright.program.program import Launch, Program
from tilewright.sim.trace import serial_total
from tilewright.targets import given
from tilewright.targets.base import LaunchResult, RunOptions
from tilewright.targets.bm1684x.compiler.image import Image
from tilewright.targets.bm1684x.compiler.passes import Passes
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.operations import TIU

#: Bytes of local memory of all launches that run together.
TOGETHER_BYTES = 1 << 26
_KNOWN: WeakKeyDictionary[Launch, Passes] = WeakKeyDictionary()


def passes(launch: Launch, config: Config) -> Passes:
    """What is known of a launch, kept while it lives."""
    if launch not in _KNOWN:
        _KNOWN[launch] = Passes(Image.of(launch, config), config)
    return _KNOWN[launch]


def run(
    program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions, config: Config
) -> LaunchResult:
    """All passes that are asked for."""
    known = passes(launch, config)
    if not known.program.order.complete:
        raise HazardError(f"launch '{launch.name}'", "; ".join(str(found) for found in known.findings))
    findings = known.findings if options.check else ()
    graph = program.graph
    results: dict[str, Array] = {}
    if options.values:
        with given.untrusted(launch), one_thread():
            results = _values(program, known, values, options)
    macs = tuple(graph.node(name).op.macs(graph.site(graph.node(name))) for name in launch.nodes) if graph else ()
    if options.timing is None:
        return LaunchResult(results, findings, None, TIU, sum(macs))
    parts = known.parts(len(launch.nodes)) if graph else ()
    serial = serial_total(part.serial_cycles for part in parts) if graph else known.serial.cycles
    return LaunchResult(results, findings, known.trace, TIU, sum(macs), serial, parts, macs)


def _values(program: Program, known: Passes, values: Mapping[str, Array], options: RunOptions) -> dict[str, Array]:
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
