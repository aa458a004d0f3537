"""The cycles in which a layer uses its blocks, in closed form, or for some layouts only the number of loads.

Engine cycles count the work of the engine without waits. A *use* of a block is a series of groups of work that read or
write the block. The use begins at `need`, the start of the first group, and ends at `free`, the end of the last group.
A group is a set of outputs that are summed together (in convolutions), an iteration (for weights and data of FC
layers), or an element (in pools).

In the layouts chw and hwc, the words of a convolution are contiguous in DDR, so a window may extend into another block.
A block store has room for one block. When the loader reads a word of another block, that block is loaded. The loader's
loops are, outermost first: output channel, position, group of channels, and then channel and tap (chw) or tap and
channel (hwc). For padding, the loader reads no words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP, Config
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.placement import data_blocks, kernels_per_block, row_blocks, weight_blocks

#: A pool's last result comes this number of cycles after its last element [I].
POOL_TAIL = 2


class Uses(NamedTuple):
    """The uses of one store's blocks, in order, int64 [n] each: block, start and end in engine cycles."""

    block: Array
    need: Array
    free: Array

    def once(self) -> Uses:
        """Return one use per block, for a store with room for all blocks."""
        # Blocks are used in ascending order, again and again. So the first `count` uses are the first uses of all
        # blocks.
        count = int(self.block.max(initial=-1)) + 1
        last = np.full(count, self.free.max(initial=0), np.int64)
        return Uses(np.arange(count), self.need[:count], last)


class Service(NamedTuple):
    """The page services of the CPU (PS), in order, int64 [n] each. An entry stands for `times` services with one cause.

    The first service of an entry moves block `block` for use number `use`, to frame `use` modulo the number of frames.
    The further services of an entry are for the uses `use + 1`, `use + 2` and so on.
    """

    cause: Array
    times: Array
    start: Array
    end: Array
    use: Array
    block: Array


def engine_cycles(layer: Layer) -> int:
    if layer.kind == Kind.POOL:
        return layer.inputs + POOL_TAIL
    of = FcWalk(layer) if layer.kind == Kind.FC else ConvWalk(layer)
    return of.total + (of.tail * layer.samples if layer.config.write_behind else 0)


def uses(layer: Layer) -> dict[str, Uses]:
    """Return the uses of blocks by store. A convolution must have the layout `rows`."""
    if layer.kind == Kind.POOL:
        return _pool(layer)
    return FcWalk(layer).uses() if layer.kind == Kind.FC else ConvWalk(layer).uses()


class ConvWalk:
    """The loops of a convolution, outermost first: channel groups, data blocks, position groups, channels."""

    def __init__(self, layer: Layer) -> None:
        # A channel group is one output channel (with `oc_blocking`, all channels whose kernels share a weight block). A
        # position group is a set of neighbouring output positions that are summed together.
        #
        # With `window`, the window buffer loads the data of the next position group while the channels of the current
        # group are computed. So a position group takes at least `fill` cycles, and the first group begins in cycle
        # `fill`.
        self.layer = layer
        config = layer.config
        self.together = kernels_per_block(layer) if config.oc_blocking else 1
        self.rows = row_blocks(layer)
        self.k = config.outputs
        self.sums = layer.depth * config.iteration()
        self.behind = config.write_behind
        self.fill = window_fill(layer)
        self.positions = [
            (min((p + 1) * self.rows.step, layer["rows"]) - p * self.rows.step) * layer["cols"]
            for p in range(self.rows.blocks)
        ]
        self.groups, self.width = divmod(layer["oc"], self.together)  # full groups, remaining channels
        sizes = np.array(self.positions, np.int64)
        #: The number of positions in the last position group of each data block.
        self.last = sizes - (sizes - 1) // self.k * self.k
        #: The engine cycles of a full channel group. All full groups take the same time.
        self.whole = int(self.before(self.together)[-1])
        self.total = self.fill + self.groups * self.whole
        width = self.together
        if self.width:
            self.total = self.total + int(self.before(self.width)[-1])
            width = self.width
        #: The number of results that are written after the last sum.
        self.tail = int(self.last[-1]) if self.fill else min(self.k, layer.outputs)
        # The last position group does not overlap with a load.
        self.total -= int(self.share(width, self.last[-1])) - width * int(self.group(self.last[-1]))

    def group(self, outputs: Array | int) -> Array:
        """Return the cycles to sum and write a group of `outputs`. With `write_behind`, sums and writes overlap."""
        return np.maximum(self.sums, outputs) if self.behind else np.asarray(self.sums + outputs)

    def share(self, width: Array | int, outputs: Array | int) -> Array:
        """Return the cycles of a position group with `outputs` positions and `width` channels."""
        return np.maximum(width * self.group(outputs), self.fill)

    def before(self, width: int) -> Array:
        """Return the engine cycles of `width` channels before each data block, and in all blocks."""
        full = (np.array(self.positions, np.int64) - self.last) // self.k
        return np.append(0, np.cumsum(full * self.share(width, self.k) + self.share(width, self.last)))

    def start(self, first: Array, page: Array) -> Array:
        """Return the cycle in which the channel group that contains channel `first` begins to use data block `page`."""
        left = self.groups * self.together
        before = np.where(first < left, self.before(self.together)[page], self.before(self.width)[page])
        return self.fill + first // self.together * self.whole + before

    def span(self, output: Array) -> tuple[Array, Array]:
        """Return start and end cycle of each result's group. `output` counts results in the order of writing."""
        # Resolve the loops from the outermost to the innermost: channel group, data block, position group, channel. In
        # each loop, `left` is the index of the result within the current iteration.
        size = self.layer.positions
        channels = self.layer["oc"]
        first = output // (size * self.together) * self.together
        left = output - first * size
        width = np.minimum(self.together, channels - first)
        page = left // (self.rows.step * self.layer["cols"] * width)
        left = left - page * self.rows.step * self.layer["cols"] * width
        j = left // (self.k * width)
        left = left % (self.k * width)
        outputs = np.minimum(self.k, np.array(self.positions, np.int64)[page] - j * self.k)
        start = self.start(first, page) + j * self.share(width, self.k)
        start = start + left // outputs * self.group(outputs)
        return start, start + self.group(outputs)

    def uses(self) -> dict[str, Uses]:
        layer = self.layer
        config = self.layer.config
        return {
            "data": self._data(),
            "weight": self._channels(kernels_per_block(layer)),
            "bias": self._channels(config.block_words("bias")),
            "result": _sequential(config.block_words("result"), layer.outputs, self.span),
        }

    def _channels(self, channels_of_block: int) -> Uses:
        """Return the uses of weight or bias blocks. Each block serves `channels_of_block` channels."""
        size = self.layer.positions
        channels = self.layer["oc"]
        first = np.arange(0, channels, channels_of_block)
        need = self.span(first * size)[0]
        if self.fill:  # the last channel may wait for the window buffer
            return Uses(np.arange(len(first)), need, np.append(need[1:], self.total))
        last = np.minimum(first + channels_of_block, channels) * size - 1
        return Uses(np.arange(len(first)), need, self.span(last)[1])

    def _data(self) -> Uses:
        count = self.rows.blocks
        channels = self.layer["oc"]
        first = np.arange(0, channels, self.together)[:, None]
        page = np.arange(count)[None, :]
        start, end = self.start(first, page).ravel(), self.start(first, page + 1).ravel()
        if self.fill:  # the window buffer reads a block one position group ahead
            width = np.minimum(self.together, channels - first)
            ahead = self.share(width, self.last[page]).ravel()
            start = np.append(0, end[:-1] - ahead[:-1])
            end = np.append(start[1:], self.total)
        uses = Uses(np.tile(np.arange(count), len(first)), start, end)
        kept = count == 1 or (self.layer.config.resident and count <= self.layer.config.frames)
        return uses.once() if kept else uses


def window_fill(layer: Layer) -> int:
    """Return the cycles that load a position group to the window buffer, or 0 without `window`."""
    # A cycle loads two groups of 16 channels, but only one group if the number of groups is odd.
    cycles = layer.depth if layer.depth % 2 else layer.depth // 2
    return window_pixels(layer.config) * cycles if layer.config.window else 0


def window_pixels(config: Config) -> int:
    """Return the number of pixels of a position group: three rows with a halo of one pixel on both sides."""
    return 3 * (config.outputs + 2)


class FcWalk:
    """The loops of an FC layer, outermost first: groups of columns (outputs that are summed together), iterations."""

    def __init__(self, layer: Layer) -> None:
        # Each weight is read once. All samples of a batch use the weights of an iteration before the next iteration.
        # With `window`, a group is one column, and an iteration reads a line of data and a line of weights.
        self.layer = layer
        config = layer.config
        self.k = 1 if config.window else min(config.outputs, layer["l"])
        self.samples = layer.samples
        self.step = config.iteration(fc=True) * self.samples
        self.tail = self.k
        self.behind = config.write_behind
        self.groups = -(-layer["l"] // self.k)
        self.full = self._group(self.k)
        last = layer["l"] - (self.groups - 1) * self.k
        self.total = (self.groups - 1) * self.full + self._group(last)

    def _group(self, columns: int) -> int:
        sums = self.layer.depth * self.step
        writes = columns * self.samples
        return max(sums, writes) if self.behind else sums + writes

    def group_span(self, column: Array) -> tuple[Array, Array]:
        g = column // self.k
        return g * self.full, np.where(g + 1 < self.groups, (g + 1) * self.full, self.total)

    def weight_span(self, word: Array) -> tuple[Array, Array]:
        """Return the start and end cycle of the iteration of each weight. `word` counts weights in the order of use."""
        r = self.layer["r"]
        lanes = self.layer.config.fc_lanes
        g = word // (self.k * r)
        width = np.minimum(self.k, self.layer["l"] - g * self.k)
        start = g * self.full + (word - g * self.k * r) // (lanes * width) * self.step
        return start, start + self.step

    def line_span(self, line: Array) -> tuple[Array, Array]:
        """Return the start and end cycle of the iteration that reads each line of weights."""
        start = line // self.layer.depth * self.full + line % self.layer.depth * self.step
        return start, start + self.step

    def uses(self) -> dict[str, Uses]:
        layer = self.layer
        config = self.layer.config
        if config.window:
            weights = _sequential(config.lines("weight"), layer.depth * layer["l"], self.line_span)
        else:
            weights = _sequential(config.block_words("weight"), layer["r"] * layer["l"], self.weight_span)
        return {
            "data": self._data(),
            "weight": weights,
            "bias": _sequential(config.block_words("bias"), layer["l"], self.group_span),
            "result": _sequential(
                config.block_words("result"), layer["l"] * self.samples, lambda n: self.group_span(n // self.samples)
            ),
        }

    def _data(self) -> Uses:
        """Return the uses of data blocks.

        The input is loaded for each group of columns, or once if it fits the store.
        """
        layer = self.layer
        lanes = self.layer.config.fc_lanes
        words = lanes * layer.config.lines("data") if layer.config.window else layer.config.block_words("data")
        count = data_blocks(layer)
        if self.samples > 1:  # each iteration reads words of all samples
            return Uses(np.arange(count), np.zeros(count, np.int64), np.full(count, self.total))
        first = np.arange(count) * words
        need = first // lanes * self.step
        free = ((np.minimum(first + words, layer["r"]) - 1) // lanes + 1) * self.step
        if count <= layer.config.frames:
            return Uses(np.arange(count), need, np.full(count, self.total))
        start = np.arange(self.groups)[:, None] * self.full
        return Uses(np.tile(np.arange(count), self.groups), (start + need).ravel(), (start + free).ravel())


def refusal(layer: Layer) -> str:
    """Return the reason why this engine cannot run a layer (its shape or its number of blocks), or ""."""
    if reason := layer.refusal():
        return reason
    config = layer.config
    for store, count in (("data", data_blocks(layer)), ("weight", weight_blocks(layer))):
        if count > 1 << config.block_bits:
            return f"{count} {store} blocks exceed the block register (block_bits={config.block_bits})"
    if layer.samples > 1 and data_blocks(layer) > config.frames:
        return f"fc_batch={layer.samples} takes {data_blocks(layer)} data blocks, more than frames={config.frames}"
    words = min(config.outputs, layer["l"]) * config.fc_lanes if layer.kind == Kind.FC and not config.window else 0
    if config.frames > 1 and words > min(config.block_words("weight"), config.block_words("data")):
        return f"an FC iteration reads {words} words, more than a data or weight block has"
    if config.oc_blocking and layer["oc"] > config.block_words("bias"):
        return f"{layer['oc']} output channels exceed a bias block (bias_bits={config.bias_bits})"
    return ""


def _pool(layer: Layer) -> dict[str, Uses]:
    """Return the uses of a pool's blocks. A pool reads one element per cycle, and four elements give a result."""
    cols = layer["cols"]
    config = layer.config

    def element(result: Array) -> tuple[Array, Array]:
        row, column = result // (cols // 2), result % (cols // 2)
        start = (2 * row + 1) * cols + 2 * column + 1
        return start, start + 1

    return {
        "data": _sequential(config.block_words("data"), layer.inputs, lambda word: (word, word + 1)),
        "result": _sequential(config.block_words("result"), layer.outputs, element),
    }


def _sequential(words: int, total: int, span: Callable[[Array], tuple[Array, Array]]) -> Uses:
    """Return the uses of blocks whose words are used in ascending order. `span` returns the cycles of a word."""
    first = np.arange(0, total, words)
    return Uses(np.arange(len(first)), span(first)[0], span(np.minimum(first + words, total) - 1)[1])


def data_loads(layer: Layer) -> int:
    """Return the number of loads of data blocks. The engine sweeps over the input once per output channel."""
    # The store has one block. Loads happen inside a run of words that spans several blocks, between two runs in
    # different blocks, and at the start of a sweep if the previous one ended in another block. All sweeps are equal.
    blocks_of = _planes if layer.config.layout == "chw" else _pixels
    sweep = 0
    opening = 0
    before = 0
    for row in range(layer["rows"]):
        first, last = blocks_of(layer, row)
        sweep += int((last - first).sum()) + int((first[1:] != last[:-1]).sum()) + int(row > 0 and first[0] != before)
        opening = int(first[0]) if row == 0 else opening
        before = int(last[-1])
    return 1 + layer["oc"] * sweep + (layer["oc"] - 1) * int(before != opening)


def _planes(layer: Layer, row: int) -> tuple[Array, Array]:
    """Return the first and last block of the window of each (column, channel) of output row `row`, for chw."""
    rows = layer["rows"]
    cols = layer["cols"]
    words = layer.config.block_words("data")
    x = np.arange(cols)[:, None]
    plane = np.arange(layer["ic"]) * layer.positions
    first = max(row - 1, 0) * cols + np.maximum(x - 1, 0)
    last = min(row + 1, rows - 1) * cols + np.minimum(x + 1, cols - 1)
    return ((first + plane) // words).ravel(), ((last + plane) // words).ravel()


def _pixels(layer: Layer, row: int) -> tuple[Array, Array]:
    """Return the first and last block of the channels of each (column, group, tap) of a row, for hwc."""
    cols = layer["cols"]
    channels = layer["ic"]
    words = layer.config.block_words("data")
    y, x = row + np.repeat([-1, 0, 1], 3), np.arange(cols)[:, None] + np.tile([-1, 0, 1], 3)
    inside = (y >= 0) & (y < layer["rows"]) & (x >= 0) & (x < cols)
    start = ((y * cols + x) * channels)[:, None, :] + np.arange(layer.depth)[:, None] * GROUP
    words_read = start[np.broadcast_to(inside[:, None, :], start.shape)]
    return words_read // words, (words_read + min(GROUP, channels) - 1) // words


def weight_loads(layer: Layer) -> int:
    """Return the number of loads of weight blocks. Each position loads all blocks that a kernel spans."""
    start, end = _kernel_blocks(layer)
    crossed = end - start
    inner = layer.positions * crossed + (layer.positions - 1) * (crossed > 0)
    return 1 + int(inner.sum()) + int((start[1:] != end[:-1]).sum())


def straddling(layer: Layer) -> int:
    """Return the number of kernels that span several weight blocks, if kernels are stored contiguously."""
    start, end = _kernel_blocks(layer)
    return int((start != end).sum())


def _kernel_blocks(layer: Layer) -> tuple[Array, Array]:
    """Return the blocks of the first and last word of each kernel, if kernels are stored contiguously."""
    words = layer.config.block_words("weight")
    first = np.arange(layer.channels) * layer.kernel
    return first // words, (first + layer.kernel - 1) // words
