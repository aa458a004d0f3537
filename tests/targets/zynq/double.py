"""Two frames a store, cycle by cycle: the engine works while one server moves blocks. Explicit loops, no formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.isa.layer import Kind, Layer

Touch = tuple[str, tuple[int, ...]]  # a store, and which use of which block


@dataclass
class Item:
    """Work that is done without a stop, and the blocks that must be there from its start to its end."""

    cycles: int
    touches: set[Touch]


def items(layer: Layer) -> list[Item]:
    """The layer's work in order."""
    conv, fc = (_window, _lines) if layer.config.window else (_conv, _fc)
    walk = {Kind.POOL: _pool, Kind.FC: fc}.get(layer.kind, conv)
    return list(walk(layer))


def _conv(layer: Layer) -> Iterator[Item]:
    config, row = layer.config, layer["cols"] * layer["ic"]
    fit = config.block_words("data") // row
    step = layer["rows"] if fit >= layer["rows"] else fit - 2
    pages = [range(top, min(top + step, layer["rows"])) for top in range(0, layer["rows"], step)]
    kernels = config.block_words("weight") // layer.kernel
    together, k = kernels if config.oc_blocking else 1, config.outputs
    kept = len(pages) == 1 or (config.resident and len(pages) <= config.frames)
    sums, written = layer.depth * config.iteration(), 0
    for first in range(0, layer["oc"], together):
        for page, rows in enumerate(pages):
            positions = len(rows) * layer["cols"]
            for start in range(0, positions, k):
                count = min(k, positions - start)
                for channel in range(first, min(first + together, layer["oc"])):
                    touches: set[Touch] = {("data", (0 if kept else first, page)), ("weight", (channel // kernels,))}
                    touches.add(("bias", (channel // config.block_words("bias"),)))
                    touches |= {
                        ("result", (n // config.block_words("result"),)) for n in range(written, written + count)
                    }
                    written += count
                    yield Item(max(sums, count) if config.write_behind else sums + count, touches)
    if config.write_behind:
        yield Item(k, set())


def _window(layer: Layer) -> Iterator[Item]:
    """With a window buffer: while the channels of a position group are computed, the next group is loaded."""
    config, groups = layer.config, -(-layer["ic"] // 16)
    fit = config.block_words("data") // (layer["cols"] * 16 * groups if groups > 1 else layer["cols"] * 16)
    step = layer["rows"] if fit >= layer["rows"] else fit - 2
    pages = [range(top, min(top + step, layer["rows"])) for top in range(0, layer["rows"], step)]
    kept = len(pages) == 1 or (config.resident and len(pages) <= config.frames)
    kernels = config.block_words("weight") // 144 // groups
    load = 0
    for _ in range(3 * (config.outputs + 2)):  # pixels
        for group in range(groups):
            load += groups % 2 or group % 2 == 0
    phases: list[tuple[range, Touch, int]] = []
    for first in range(0, layer["oc"], kernels):
        for page, rows in enumerate(pages):
            left = len(rows) * layer["cols"]
            while left:
                count = min(config.outputs, left)
                channels = range(first, min(first + kernels, layer["oc"]))
                phases.append((channels, ("data", (0 if kept else first, page)), count))
                left -= count
    yield Item(load, {phases[0][1]})
    written = 0
    for (channels, _, count), following in zip(phases, [*phases[1:], None], strict=True):
        held: set[Touch] = {
            ("weight", (channels[0] // kernels,)),
            ("bias", (channels[0] // config.block_words("bias"),)),
        }
        held |= {following[1]} if following else set()
        spent = 0
        for _ in channels:
            results: set[Touch] = {
                ("result", (n // config.block_words("result"),)) for n in range(written, written + count)
            }
            written += count
            spent += max(groups, count)
            yield Item(max(groups, count), held | results)
        if following and spent < load:
            yield Item(load - spent, held)
    yield Item(phases[-1][2], set())


def _lines(layer: Layer) -> Iterator[Item]:
    """With a window buffer: an FC column at a time, a line of data and one of weights per cycle."""
    config, samples = layer.config, layer.samples
    per_data, per_weight = config.block_words("data") // 256, config.block_words("weight") // 144
    depth = -(-layer["r"] // 144)
    fits = -(-depth * samples // per_data) <= config.frames
    for column in range(layer["l"]):
        held: set[Touch] = {("bias", (column // config.block_words("bias"),))}
        held |= {("result", ((column * samples + n) // config.block_words("result"),)) for n in range(samples)}
        for time in range(depth):
            touches = held | {("weight", ((column * depth + time) // per_weight,))}
            lines = range(depth * samples) if samples > 1 else (time,)
            touches |= {("data", (0 if fits else column, line // per_data)) for line in lines}
            yield Item(samples, touches)
    yield Item(samples, set())


def _fc(layer: Layer) -> Iterator[Item]:
    config, samples, lanes = layer.config, layer.samples, layer.config.fc_lanes
    k, word, written = min(config.outputs, layer["l"]), 0, 0
    data_words, total = config.block_words("data"), layer["r"] * samples
    fits = -(-total // data_words) <= config.frames
    for first in range(0, layer["l"], k):
        columns = range(first, min(first + k, layer["l"]))
        results = range(written, written + len(columns) * samples)
        written = results.stop
        held: set[Touch] = {("bias", (column // config.block_words("bias"),)) for column in columns}
        held |= {("result", (n // config.block_words("result"),)) for n in results}
        sums = 0
        for start in range(0, layer["r"], lanes):
            stop = min(start + lanes, layer["r"])
            words = range(word, word + (stop - start) * len(columns))
            word = words.stop
            touches = held | {("weight", (n // config.block_words("weight"),)) for n in (words[0], words[-1])}
            read = (0, total - 1) if samples > 1 else (start, stop - 1)
            touches |= {("data", (0 if fits else first, n // data_words)) for n in read}
            sums += config.iteration(fc=True) * samples
            yield Item(config.iteration(fc=True) * samples, touches)
        yield Item(max(0, len(results) - sums) if config.write_behind else len(results), held)
    if config.write_behind:
        yield Item(k * samples, set())


def _pool(layer: Layer) -> Iterator[Item]:
    config, written = layer.config, 0
    for element in range(layer.inputs):
        row, column = divmod(element, layer["cols"])
        touches: set[Touch] = {("data", (element // config.block_words("data"),))}
        if row % 2 and column % 2:
            touches.add(("result", (written // config.block_words("result"),)))
            written += 1
        yield Item(1, touches)
    yield Item(2, set())


def simulate(layer: Layer) -> tuple[int, int]:
    """Cycles until the last result is in DDR, and how many of them the engine waited."""
    work, config = items(layer), layer.config
    begin = [0]
    for item in work:
        begin.append(begin[-1] + item.cycles)
    first, last = dict[Touch, int](), dict[Touch, int]()
    for index, item in enumerate(work):
        for touch in item.touches:
            first.setdefault(touch, index)
            last[touch] = index
    order = {store: sorted((t for t in first if t[0] == store), key=lambda t: (first[t], t)) for store in STORES}
    last[order["result"][-1]] = len(work) - 1
    place = {touch: index for store in STORES for index, touch in enumerate(order[store])}
    ready = set(order["result"][: config.frames])
    queue: list[tuple[int, bool, int, int, Touch]] = []

    def load(touch: Touch, now: int) -> None:
        queue.append((now, False, begin[first[touch]], STORES.index(touch[0]), touch))

    def leave(touch: Touch, now: int) -> None:
        following = order[touch[0]][place[touch] + config.frames :][:1]
        if touch[0] == "result":
            due = begin[first[following[0]]] if following else begin[-1]
            queue.append((now, True, due, STORES.index("result"), touch))
        elif following:
            load(following[0], now)

    for store in STORES[:3]:
        for touch in order[store][: config.frames]:
            load(touch, 0)
    clock = waits = current = progress = busy = 0
    moving: Touch | None = None
    left = len(order["result"])
    while current < len(work) or left:
        if moving is None and queue:
            queue.sort()
            moving = queue.pop(0)[-1]
            busy = config.transfer(moving[0])
        if current < len(work) and (progress or work[current].touches <= ready):
            progress += 1
        else:
            waits += 1
        clock += 1
        if moving is not None:
            busy -= 1
            if not busy:
                if moving[0] == "result":
                    ready |= set(order["result"][place[moving] + config.frames :][:1])
                    left -= 1
                else:
                    ready.add(moving)
                moving = None
        while current < len(work) and progress >= work[current].cycles and (progress or not work[current].cycles):
            for touch in [touch for touch in work[current].touches | {order["result"][-1]} if last[touch] == current]:
                leave(touch, begin[current + 1])
            current, progress = current + 1, 0
    return clock, waits
