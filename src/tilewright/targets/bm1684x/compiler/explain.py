"""Each stage of compiling, as text: operations of every layer, tiles, places, transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilewright.program.program import Launch, Program
from tilewright.targets.bm1684x.compiler.run import prepared
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.elaborate import UNITS


def text(program: Program, config: Config) -> str:
    """All launches."""
    return "\n".join(line for launch in program.launches for line in _launch(launch, config)) + "\n"


def _launch(launch: Launch, config: Config) -> Iterator[str]:
    known = prepared(launch, config)
    image, trace = known.image, known.trace
    constants = config.lane_bytes - image.values_end
    yield f"{launch.name}: {len(known.program.steps)} commands, {image.batch} samples a launch"
    yield f"  each lane: {image.values_end} bytes of values, {constants} for {len(image.constants)} of constants"
    busy = ", ".join(f"{engine} {cycles}" for engine, cycles in trace.busy().items())
    cycles = f"{trace.cycles} cycles a launch, {known.serial.cycles} without overlap"
    yield f"  {cycles} (timing model estimate); busy: {busy}"
    for kind, segments in (("in", image.inputs), ("out", image.outputs)):
        for segment in segments:
            own = segment.stored
            shape = f"({own.c}, {own.h}, {own.w}) {own.dtype}, codes {own.add:+d}"
            yield f"  {kind:3} {segment.name} at {segment.address:#x}: {shape}"
    if "tiles" in launch.meta:
        groups = ", ".join(f"{begin}..{end - 1}" for begin, end in launch.meta["groups"])
        yield f"  samples go through groups of layers: {groups}" if image.batch > 1 else "  layer by layer"
        yield from _layers(launch, config)


def _layers(launch: Launch, config: Config) -> Iterator[str]:
    known = prepared(launch, config)
    counts: dict[tuple[int, str], Counter[str]] = {}
    for step, layer in zip(known.program.steps, known.layers.tolist(), strict=True):
        counts.setdefault((layer, step.engine), Counter())[step.command.operation.name] += 1
    for number, (name, (slots, rows)) in enumerate(zip(launch.nodes, launch.meta["tiles"], strict=True)):
        yield f"  {name}: tiles of {slots * config.lanes} channels, {rows} rows"
        for engine in UNITS:
            own = counts.get((number, engine), Counter())
            if own:
                yield f"    {engine}: " + ", ".join(f"{count} {operation}" for operation, count in own.items())
