"""Run a layer on the compiled gateware, with a PS that serves its pages, and compare it with the simulator.

The comparison covers the bits of all results, the cycles of the layer, and the number of page services per store. If
the simulator knows the order of page services, the comparison also covers the block and the engine cycle of each
service.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.hdl.model import Compiled, Model, RtlHangs, RtlStopped, Wave
from tilewright.hdl.verilog import Rtl, UserRtl
from tilewright.targets.gateware import CosimCase
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware import user_rtl
from tilewright.targets.zynq.gateware.engine import beat_bytes, drain, require, require_layer
from tilewright.targets.zynq.gateware.user_rtl import EnginePorts
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import LAYOUT, Kind, Layer
from tilewright.targets.zynq.runtime import driver
from tilewright.targets.zynq.timing import service
from tilewright.targets.zynq.timing.walk import uses
from tilewright.targets.zynq.values import machine

RESULT = STORES.index("result")
#: The largest number of page services in a layer; the largest layer of VGG16 has some ten thousand.
MOST_SERVICES = 1 << 20
#: The largest number of differences to report.
MOST_DIFFERENCES = 8


class ServedPage(NamedTuple):
    """A page service. `at` is the start: counted in engine cycles with one frame, in all cycles with two frames."""

    store: int
    block: int
    at: int


class PageLog(NamedTuple):
    """The page services of a run in order, and the cycle of each, waits included."""

    served: list[ServedPage]
    moments: list[int]

    def add(self, page: ServedPage, cycle: int) -> None:
        """Add a service. Raises RtlHangs if there are more than any layer needs."""
        self.served.append(page)
        self.moments.append(cycle)
        if len(self.served) > MOST_SERVICES:
            raise RtlHangs("RTL model", f"has requested {len(self.served)} pages and is not idle")


@dataclass(frozen=True, eq=False)
class RtlRun:
    """The run of a layer on the RTL.

    `moments` has the cycle of each service, waits included. `engine`: cycles without waits, or None with two frames.
    `stopped` is the reason if the layer did not end.
    """

    results: Array
    cycles: int
    engine: int | None
    served: list[ServedPage]
    moments: list[int]
    stopped: str = ""


class SteadyPace:
    """The PS and the engine have no additional delays. Tests replace this class by a class with random delays."""

    def delay(self) -> int:
        """Return the number of cycles by which a page service is delayed."""
        return 0

    def hold(self, model: Model) -> int:
        return 0


#: The pace of a run whose cycles are compared.
STEADY = SteadyPace()


class RandomPace(SteadyPace):
    """A PS that takes random additional cycles for each page."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def delay(self) -> int:
        return int(self.rng.integers(0, 40))


def component(config: Config) -> Any:
    from tilewright.targets.zynq.gateware.window_engine import engine_of

    return engine_of(config)


def run(
    image: LayerImage, data: Array, rtl: Rtl = "verilator", pace: SteadyPace = STEADY, wave: Wave | None = None
) -> RtlRun:
    """Run a layer on the compiled RTL. `data` has the codes of one sample, (rows, cols, ic) or (r)."""
    layer = image.layer
    config = layer.config
    limit = 2 * service.schedule(layer, paged=False).engine + 1000
    if isinstance(rtl, UserRtl):
        form = rtl.form(user_rtl.forms(config))
        ps = user_rtl.ports(rtl.model(form, wave is not None), form, config)
        limit = rtl.limit or limit
    else:
        ps = user_rtl.ports(Compiled.of_machine(component, config, rtl).model(), None, config)
    blocks = {"data": placement.blocks(placement.data(layer), data)}
    words = np.zeros(0, np.uint32)
    if layer.channels:
        blocks["weight"] = placement.blocks(placement.weight(layer), image.weight)
        blocks["bias"] = driver.bias_blocks(layer, image.bias, image.weight)
        words = np.broadcast_to(image.factor, layer.channels).astype("<f8").view("<u4")
    log = PageLog([], [])
    first = ps.model.cycle
    try:
        ps.load(LAYOUT.encode_rows([layer.fields]).view(np.uint8), words)
        if wave:
            ps.model.wave(wave.path, wave.first + 1, wave.last + 1)
        first = ps.start()
        return (_serve if config.frames == 1 else _load_ahead)(ps, layer, blocks, first, pace, limit, log)
    except (RtlHangs, RtlStopped) as error:
        if not isinstance(rtl, UserRtl):
            raise
        reason = f"hangs: {error.reason}" if isinstance(error, RtlHangs) else error.reason
        return RtlRun(np.zeros(0, np.uint8), ps.model.cycle - first, None, *log, reason)


def _load_ahead(
    ps: EnginePorts,
    layer: Layer,
    blocks: dict[str, Array],
    first: int,
    pace: SteadyPace,
    limit: int,
    log: PageLog,
) -> RtlRun:
    """Act as the PS of an engine with two frames: move blocks in the simulator's order, when the engine is ready."""
    config = layer.config
    model = ps.model
    results = dict[int, Array]()
    numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in uses(layer).items()}
    for number in service.schedule(layer).service.cause.tolist():
        if number == service.RELAYOUT:
            continue
        model["job"] = number
        model.step(pace.delay())
        model.run_until("ready", limit)
        block = next(numbers[number])
        began = model.cycle
        log.add(ServedPage(number, block, began - first), began - first)
        _move(ps, config, blocks, results, number, block, began + config.transfer(STORES[number]))
    model.run_until("idle", limit)
    left = np.concatenate([results[index] for index in range(len(results))])
    return RtlRun(left[: layer.outputs], model.cycle - first, None, *log)


def _serve(
    ps: EnginePorts,
    layer: Layer,
    blocks: dict[str, Array],
    first: int,
    pace: SteadyPace,
    limit: int,
    log: PageLog,
) -> RtlRun:
    """Act as the PS: move blocks when the engine waits, until the engine is idle."""
    config = layer.config
    model = ps.model
    results: dict[int, Array] = {}
    waited = 0
    while True:
        waited += pace.hold(model)
        model.run_until("interrupt", limit)
        missed = model.cycle - 1
        request = ps.request()
        if request is None:
            break
        number, block = request
        cycles = config.transfer(STORES[number]) + pace.delay()
        log.add(ServedPage(number, block, missed - first - waited), missed - first)
        _move(ps, config, blocks, results, number, block, missed + cycles)
        waited += cycles
    cycles = missed + 1 - first
    left = [results.get(index, np.zeros(0, np.uint8)) for index in range(max(results, default=0) + 1)]
    return RtlRun(np.concatenate(left)[: layer.outputs], cycles, cycles - waited, *log)


def _move(
    ps: EnginePorts,
    config: Config,
    blocks: dict[str, Array],
    results: dict[int, Array],
    store: int,
    block: int,
    end: int,
) -> None:
    """Move a block to a store, or from the result store to `results`, a beat per cycle. `done` is high before `end`.

    A block that the layer does not have is moved as zeros, and the comparison reports the service.
    """
    if store == RESULT:
        ready = end - config.transfer("result") + 1 + drain(config)
        ps.model.step(max(0, ready - ps.model.cycle))
        results[block] = ps.read(store, config.block_bytes("result") // beat_bytes(config)).ravel()
    else:
        there = blocks.get(STORES[store], np.zeros((0, config.block_bytes(STORES[store])), np.uint8))
        content = there[block] if block < len(there) else np.zeros(config.block_bytes(STORES[store]), np.uint8)
        ps.write(store, np.ascontiguousarray(content).view(np.uint8).reshape(-1, beat_bytes(config)))
    ps.done(store, end)


# Comparison with the simulator


def compare(name: str, image: LayerImage, data: Array, rtl: Rtl, pace: SteadyPace = STEADY) -> CosimCase:
    """Run a layer on the RTL and in the simulator, on one sample. Return the result of the comparison.

    Raises ConfigError or MachineError if the gateware does not support the configuration or the layer (engine.py).
    """
    require(image.layer.config)
    require_layer(name, image)
    layer = image.layer
    if isinstance(rtl, UserRtl) and rtl.seed:
        pace = RandomPace(rtl.seed)
    ran = run(image, data, rtl, pace)
    codes = machine.run(layer, data.reshape(1, *layer.input_shape), image.weight, image.bias, image.factor)
    expected = in_order(layer, codes)
    differences = times(layer, ran, pace is STEADY)
    wrong = expected
    if ran.stopped:
        last = f"the last page service was {_text(ran.served[-1])}" if ran.served else "there was no page service"
        differences = [(cycle, text) for cycle, text in differences if cycle < ran.cycles]
        differences.append((ran.cycles, f"the RTL {ran.stopped}; {last}"))
    elif len(ran.results) != len(expected):
        differences.append((ran.cycles, f"{len(ran.results)} results on the RTL, {len(expected)} in the simulator"))
    elif (wrong := np.flatnonzero(ran.results != expected)).size:
        place = int(wrong[0])
        ours = expected[place]
        theirs = ran.results[place]
        cycle = _moved(layer, ran, place)
        reason = f"result {place} is {theirs:#04x} in cycle {cycle} on the RTL, {ours:#04x} in the simulator"
        differences.append((cycle, reason))
    differences.sort(key=lambda item: item[0])
    messages = tuple(message for _, message in differences[:MOST_DIFFERENCES])
    cycles = ran.cycles + layer.config.relayout * layer.outputs  # the PS rearranges results after the layer
    at = differences[0][0] if differences else None
    return CosimCase(name, 1, service.schedule(layer).cycles, cycles, int(wrong.size), messages, at)


def _moved(layer: Layer, ran: RtlRun, place: int) -> int:
    """Return the cycle in which the engine asks the PS to move the block with result number `place`."""
    block = place // layer.config.block_bytes("result")
    moved = zip(ran.served, ran.moments, strict=True)
    return next((at for page, at in moved if (page.store, page.block) == (RESULT, block)), ran.cycles)


def times(layer: Layer, ran: RtlRun, steady: bool) -> list[tuple[int, str]]:
    """Return (cycle, message) for each difference in the page services, the engine cycles or the total of cycles."""
    planned = service.schedule(layer)
    differences = _services(layer, planned, ran) if layer.config.frames == 1 or steady else []
    cycles = ran.cycles + layer.config.relayout * layer.outputs
    if ran.engine is not None and ran.engine != planned.engine:
        differences.append(
            (ran.cycles, f"the engine works {ran.engine} cycles on the RTL, {planned.engine} in the simulator")
        )
    if steady and cycles != planned.cycles:
        differences.append((ran.cycles, f"{cycles} cycles on the RTL, {planned.cycles} in the simulator"))
    return differences


def in_order(layer: Layer, codes: Array) -> Array:
    """Arrange a sample's results from values.machine in the order of writing, uint8."""
    return codes.reshape(-1)[placement.writing_order(layer)].view(np.uint8)


def _services(layer: Layer, planned: service.Schedule, ran: RtlRun) -> list[tuple[int, str]]:
    """Return (cycle, message) for each page service that differs."""
    counts = {store: sum(page.store == number for page in ran.served) for number, store in enumerate(STORES)}
    loads = {**dict.fromkeys(STORES, 0), **planned.loads()}
    differences = [
        (ran.cycles, f"{counts[store]} services of {store} blocks on the RTL, {loads[store]} in the simulator")
        for store in STORES
        if counts[store] != loads[store]
    ]
    if layer.conv and layer.config.layout != "rows":  # here the simulator only counts services
        return differences
    numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in uses(layer).items()}
    began = planned.waits.at if layer.config.frames == 1 else planned.service.start
    waits = zip(planned.service.cause.tolist(), began.tolist(), strict=True)
    modelled = [ServedPage(cause, next(numbers[cause]), at) for cause, at in waits if cause in numbers]
    pages = zip(ran.served, ran.moments, strict=True)
    seen = sorted(
        ((page._replace(at=_begin(layer, page)), moment) for page, moment in pages), key=lambda p: _order(p[0])
    )
    for index, ((actual, moment), page) in enumerate(zip(seen, sorted(modelled, key=_order), strict=False)):
        if actual != page:
            text = f"service #{index} is {_text(actual)} on the RTL, {_text(page)} in the simulator"
            differences.append((moment, text))
    return differences


def _order(served: ServedPage) -> tuple[int, bool, int]:
    """Return the sort key of a page service. At equal times, results come first, then the other stores in order."""
    return served.at, served.store != RESULT, served.store


def _text(served: ServedPage) -> str:
    return f"{STORES[served.store]} block {served.block} at {served.at} cycles"


def _begin(layer: Layer, served: ServedPage) -> int:
    """Return the engine cycle at which the simulator has a page request of the RTL."""
    if layer.kind != Kind.FC or served.store == RESULT or layer.config.frames > 1:
        return served.at
    # In an FC layer, the RTL requests a page in the cycle of the lane, and the simulator at the start of the iteration.
    step = layer.config.iteration(fc=True)
    column = layer.depth * step + (0 if layer.config.write_behind else 1)
    before, inside = divmod(served.at, column)
    return before * column + inside // step * step


def waveform(image: LayerImage, data: Array, rtl: Rtl, path: Path, cycles: tuple[int, int] | None) -> None:
    """Write a waveform of `cycles` of a layer (first, last; None: all)."""
    first, last = cycles or (0, 1 << 40)
    run(image, data, rtl, wave=Wave(path, max(0, first), last))
