"""Run a layer on the compiled gateware, with a PS that serves its pages, and compare it with the simulator.

The comparison covers the bits of all results, the cycles of the layer, and the number of page services per store. If
the simulator knows the order of page services, the comparison also covers the block and the engine cycle of each
service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """The PS's delays. Without a `seed`, no page takes additional cycles. Tests have a class with more delays."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed) if seed else None

    def delay(self) -> int:
        """Return the additional cycles of the PS for a page."""
        return int(self._random.integers(0, 40)) if self._random else 0

    def hold(self, model: Model) -> int:
        """Stop the engine for some cycles while it works. Return the number of these cycles."""
        return 0


#: The delays in a run whose cycles are compared.
STEADY = SteadyPace()


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
        ports = user_rtl.ports(rtl.model(form, wave is not None), form, config)
        limit = rtl.limit or limit
    else:
        ports = user_rtl.ports(Compiled.of_machine(component, config, rtl).model(), None, config)
    blocks = {"data": placement.blocks(placement.data(layer), data)}
    words = np.zeros(0, np.uint32)
    if layer.channels:
        blocks["weight"] = placement.blocks(placement.weight(layer), image.weight)
        blocks["bias"] = driver.bias_blocks(layer, image.bias, image.weight)
        words = np.broadcast_to(image.factor, layer.channels).astype("<f8").view("<u4")
    ps = ServingPs(ports, layer, blocks, pace, limit)
    try:
        ports.load(LAYOUT.encode_rows([layer.fields]).view(np.uint8), words)
        if wave:
            ports.model.wave(wave.path, wave.first + 1, wave.last + 1)
        ps.first = ports.start()
        return ps.serve() if config.frames == 1 else ps.load_ahead()
    except (RtlHangs, RtlStopped) as error:
        if not isinstance(rtl, UserRtl):
            raise
        reason = f"hangs: {error.reason}" if isinstance(error, RtlHangs) else error.reason
        return RtlRun(np.zeros(0, np.uint8), ports.model.cycle - ps.first, None, ps.served, ps.moments, reason)


@dataclass
class ServingPs:
    """The PS while a layer runs. It moves the `blocks` (by store), and notes results and page services.

    `first` is the first cycle of the layer. Each wait for the engine is at most `limit` cycles.
    """

    ports: EnginePorts
    layer: Layer
    blocks: dict[str, Array]
    pace: SteadyPace
    limit: int
    first: int = 0
    results: dict[int, Array] = field(default_factory=dict)
    served: list[ServedPage] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)

    def load_ahead(self) -> RtlRun:
        """Serve an engine with two frames: move blocks in the simulator's order, when the engine is ready."""
        model = self.ports.model
        numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in uses(self.layer).items()}
        for number in service.schedule(self.layer).service.cause.tolist():
            if number == service.RELAYOUT:
                continue
            model["job"] = number
            model.step(self.pace.delay())
            model.run_until("ready", self.limit)
            began = model.cycle
            end = began + self.layer.config.transfer(STORES[number])
            self._move(ServedPage(number, next(numbers[number]), began - self.first), began, end)
        model.run_until("idle", self.limit)
        return self._run(model.cycle - self.first, None)

    def serve(self) -> RtlRun:
        """Serve an engine with one frame: move the requested block whenever the engine waits."""
        model = self.ports.model
        waited = 0
        while True:
            waited += self.pace.hold(model)
            model.run_until("interrupt", self.limit)
            missed = model.cycle - 1
            request = self.ports.request()
            if request is None:
                cycles = missed + 1 - self.first
                return self._run(cycles, cycles - waited)
            store, block = request
            cycles = self.layer.config.transfer(STORES[store]) + self.pace.delay()
            self._move(ServedPage(store, block, missed - self.first - waited), missed, missed + cycles)
            waited += cycles

    def _move(self, page: ServedPage, began: int, end: int) -> None:
        """Move a block to a store, or from the result store to `results`, and report it in the cycle before `end`.

        A block that the layer does not have is zeros: the comparison reports the service.
        """
        self.served.append(page)
        self.moments.append(began - self.first)
        if len(self.served) > MOST_SERVICES:
            raise RtlHangs("RTL model", f"has requested {len(self.served)} pages and is not idle")
        config = self.layer.config
        store = STORES[page.store]
        size = config.block_bytes(store)
        if page.store == RESULT:
            self.ports.model.step(max(0, began + 1 + drain(config) - self.ports.model.cycle))
            self.results[page.block] = self.ports.read(page.store, size // beat_bytes(config)).ravel()
        else:
            blocks = self.blocks.get(store, ())
            content = blocks[page.block] if page.block < len(blocks) else np.zeros(size, np.uint8)
            beats = np.ascontiguousarray(content).view(np.uint8).reshape(-1, beat_bytes(config))
            self.ports.write(page.store, beats)
        self.ports.done(page.store, end)

    def _run(self, cycles: int, engine: int | None) -> RtlRun:
        last = max(self.results, default=0)
        left = np.concatenate([self.results.get(index, np.zeros(0, np.uint8)) for index in range(last + 1)])
        return RtlRun(left[: self.layer.outputs], cycles, engine, self.served, self.moments)


# Comparison with the simulator


def compare(
    name: str, image: LayerImage, data: Array, rtl: Rtl, wave: Wave | None = None, pace: SteadyPace = STEADY
) -> CosimCase:
    """Run a layer on the RTL and in the simulator for one sample, and compare the runs.

    Raises ConfigError or MachineError if the gateware does not support the configuration or the layer (engine.py).
    """
    require(image.layer.config)
    require_layer(name, image)
    layer = image.layer
    if isinstance(rtl, UserRtl) and rtl.seed:
        pace = SteadyPace(rtl.seed)
    ran = run(image, data, rtl, pace, wave)
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
    seen = sorted(((page._replace(at=_begin(layer, page)), at) for page, at in pages), key=lambda pair: _order(pair[0]))
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
