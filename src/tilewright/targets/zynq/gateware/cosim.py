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
from tilewright.errors import MachineError
from tilewright.hdl.model import Compiled, Model, Wave
from tilewright.targets.gateware import CosimCase
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware.engine import beat_bytes, drain, require, require_layer
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import LAYOUT, Kind, Layer
from tilewright.targets.zynq.runtime import driver
from tilewright.targets.zynq.timing import service
from tilewright.targets.zynq.timing.walk import uses
from tilewright.targets.zynq.values import machine

RESULT = STORES.index("result")
#: The start comes this number of cycles after the descriptor, while the gateware computes the sizes of the layer.
SETTLE = 4
#: At most this number of differences is reported.
MOST_DIFFERENCES = 8


class ServedPage(NamedTuple):
    """A page service. `at` is the start: counted in engine cycles with one frame, in all cycles with two frames."""

    store: int
    block: int
    at: int


@dataclass(frozen=True, eq=False)
class RtlRun:
    """The run of a layer on the RTL.

    `results` has the codes in the order of writing, uint8 [outputs], and `served` has the page services in order.
    `engine` is the number of cycles without waits, or None with two frames.
    """

    results: Array
    cycles: int
    engine: int | None
    served: list[ServedPage]


class SteadyPace:
    """The PS and the engine have no additional delays. Tests replace this class by a class with random delays."""

    def delay(self) -> int:
        """Return the number of cycles by which a page service is delayed."""
        return 0

    def hold(self, model: Model) -> int:
        return 0


#: The pace of a run whose cycles are compared.
STEADY = SteadyPace()


def component(config: Config) -> Any:
    from tilewright.targets.zynq.gateware.window_engine import engine_of

    return engine_of(config)


def run(
    image: LayerImage, data: Array, engine: str = "verilator", pace: SteadyPace = STEADY, wave: Wave | None = None
) -> RtlRun:
    """Run a layer on the compiled RTL. `data` has the codes of one sample, (rows, cols, ic) or (r)."""
    layer = image.layer
    config = layer.config
    model = Compiled.of_machine(component, config, engine).model()
    blocks = {"data": placement.blocks(placement.data(layer), data)}
    if layer.channels:
        blocks["weight"] = placement.blocks(placement.weight(layer), image.weight)
        blocks["bias"] = driver.bias_blocks(layer, image.bias, image.weight)
        words = np.broadcast_to(image.factor, layer.channels).astype("<f8").view("<u4")
        ones = np.ones(len(words), np.uint8)
        model.play({"factor_address": np.arange(len(words)), "factor_data": words, "factor_write": ones})
        model["factor_write"] = 0
    model.play({"descriptor": np.repeat(LAYOUT.encode_rows([layer.fields]).view(np.uint8), SETTLE, 0)})
    first = model.cycle + 1
    if wave:
        model.wave(wave.path, wave.first + first, wave.last + first)
    model["start"] = 1
    model.step()
    model["start"] = 0
    return (_serve if config.frames == 1 else _load_ahead)(model, layer, blocks, first, pace)


def _load_ahead(model: Model, layer: Layer, blocks: dict[str, Array], first: int, pace: SteadyPace) -> RtlRun:
    """Act as the PS of an engine with two frames: move blocks in the simulator's order, when the engine is ready."""
    config = layer.config
    results = dict[int, Array]()
    served = list[ServedPage]()
    numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in uses(layer).items()}
    limit = 2 * service.schedule(layer, paged=False).engine + 1000
    for number in service.schedule(layer).service.cause.tolist():
        if number == service.RELAYOUT:
            continue
        model["job"] = number
        model.step(pace.delay())
        model.run_until("ready", limit)
        block = next(numbers[number])
        began = model.cycle
        _move(model, config, blocks, results, number, block, began + config.transfer(STORES[number]))
        served.append(ServedPage(number, block, began - first))
    model.run_until("idle", limit)
    left = np.concatenate([results[index] for index in range(len(results))])
    return RtlRun(left[: layer.outputs], model.cycle - first, None, served)


def _serve(model: Model, layer: Layer, blocks: dict[str, Array], first: int, pace: SteadyPace) -> RtlRun:
    """Act as the PS of an engine with one frame: move the requested block whenever the engine waits."""
    config = layer.config
    results: dict[int, Array] = {}
    served = list[ServedPage]()
    waited = 0
    limit = 2 * service.schedule(layer, paged=False).engine + 1000
    while True:
        waited += pace.hold(model)
        model.run_until("interrupt", limit)
        if model["idle"]:
            break
        number = model["store"]
        block = model["block"]
        missed = model.cycle - 1
        cycles = config.transfer(STORES[number]) + pace.delay()
        _move(model, config, blocks, results, number, block, missed + cycles)
        served.append(ServedPage(number, block, missed - first - waited))
        waited += cycles
    cycles = model.cycle - first
    left = [results.get(index, np.zeros(0, np.uint8)) for index in range(max(results, default=0) + 1)]
    return RtlRun(np.concatenate(left)[: layer.outputs], cycles, cycles - waited, served)


def _move(
    model: Model, config: Config, blocks: dict[str, Array], results: dict[int, Array], store: int, block: int, end: int
) -> None:
    """Move a block to a store, or from the result store to `results`, and pulse `done` in the cycle before `end`."""
    if store == RESULT:
        model.step(drain(config))
        count = config.block_bytes("result") // beat_bytes(config)
        results[block] = model.play({"page_address": np.arange(count)}, "page_result").ravel()
    else:
        there = blocks[STORES[store]]
        if block >= len(there):
            raise MachineError("RTL", f"requests {STORES[store]} block {block} of {len(there)}")
        beats = np.ascontiguousarray(there[block]).view(np.uint8).reshape(-1, beat_bytes(config))
        model["page_store"] = store
        model["page_write"] = 1
        model.play({"page_address": np.arange(len(beats)), "page_data": beats})
        model["page_write"] = 0
    model.step(end - 1 - model.cycle)
    model["done"] = 1
    model.step()
    model["done"] = 0


# Comparison with the simulator


def compare(name: str, image: LayerImage, data: Array, engine: str, pace: SteadyPace = STEADY) -> CosimCase:
    """Run a layer on the RTL and in the simulator for one sample, and compare the runs.

    Raises ConfigError or MachineError if the gateware does not support the configuration or the layer (engine.py).
    """
    require(image.layer.config)
    require_layer(name, image)
    layer = image.layer
    ran = run(image, data, engine, pace)
    codes = machine.run(layer, data.reshape(1, *layer.input_shape), image.weight, image.bias, image.factor)
    expected = in_order(layer, codes)
    differences = times(layer, ran, pace is STEADY)
    wrong = expected
    if len(ran.results) != len(expected):
        differences.append((ran.cycles, f"{len(ran.results)} results on the RTL, {len(expected)} in the simulator"))
    elif (wrong := np.flatnonzero(ran.results != expected)).size:
        place = int(wrong[0])
        ours = expected[place]
        theirs = ran.results[place]
        differences.append((ran.cycles, f"result {place} is {theirs:#04x} on the RTL, {ours:#04x} in the simulator"))
    differences.sort(key=lambda item: item[0])
    messages = tuple(message for _, message in differences[:MOST_DIFFERENCES])
    cycles = ran.cycles + layer.config.relayout * layer.outputs  # the PS rearranges results after the layer
    at = differences[0][0] if differences else None
    return CosimCase(name, 1, service.schedule(layer).cycles, cycles, int(wrong.size), messages, at)


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
    if differences or (layer.conv and layer.config.layout != "rows"):  # services are only counted
        return differences
    numbers = {STORES.index(store): iter(of.block.tolist()) for store, of in uses(layer).items()}
    began = planned.waits.at if layer.config.frames == 1 else planned.service.start
    waits = zip(planned.service.cause.tolist(), began.tolist(), strict=True)
    modelled = [ServedPage(cause, next(numbers[cause]), at) for cause, at in waits if cause in numbers]
    seen = sorted((request._replace(at=_begin(layer, request)) for request in ran.served), key=_order)
    for index, (actual, modelled_service) in enumerate(zip(seen, sorted(modelled, key=_order), strict=True)):
        if actual != modelled_service:
            differences.append(
                (
                    actual.at,
                    f"service #{index} is {_text(actual)} on the RTL, {_text(modelled_service)} in the simulator",
                )
            )
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


def waveform(image: LayerImage, data: Array, path: Path, cycles: tuple[int, int] | None) -> None:
    """Run a layer with CXXRTL, and write a waveform of the cycles (first, last), or of all cycles (None)."""
    first, last = cycles or (0, 1 << 40)
    run(image, data, "cxxrtl", wave=Wave(path, max(0, first), last))
