"""The cycles in which a layer uses its blocks, in closed form. For layouts without a closed form, the number of loads.

Engine cycles count the work of the engine, without waits. A *use* of a block lasts from `need`, the start of the first
group of work that touches it, to `free`, the end of the last group. In convolutions, a group consists of the outputs
that are summed together. For weights and data of FC layers, a group is an iteration, and for pools an element.

In the layouts chw and hwc, the words of a convolution lie in DDR one after another, so a window may reach into another
block. One block is resident, and a load happens when two words that the loader reads in succession are in different
blocks. Words are read in the order of the lanes: channel, tap (chw) or tap, channel (hwc), then group by group,
position by position, and again for each output channel. Padding taps read nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP, Config
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.placement import data_blocks, kernels_per_block, row_blocks, weight_blocks

#: Cycles from a pool's last element to its last result [I].
POOL_TAIL = 2


class Uses(NamedTuple):
    """The uses of one store's blocks, in order: block number, first and last engine cycle, int64 [n] each."""

    block: Array
    need: Array
    free: Array

    def once(self) -> Uses:
        """Replace `uses` by one use for each block, if the store has room for all its blocks."""
        # Blocks are used repeatedly in ascending order. So the first uses are one use of each block.
        count = int(self.block.max(initial=-1)) + 1
        last = np.full(count, self.free.max(initial=0), np.int64)
        return Uses(np.arange(count), self.need[:count], last)


class Service(NamedTuple):
    """The page services of the CPU (PS), in order, each int64 [n]: cause, number of services, start and end cycle.

    The services of a store move the blocks of its uses, in order. The first service moves block `block` of use `use` to
    frame `use` modulo the number of frames.
    """

    cause: Array
    times: Array
    start: Array
    end: Array
    use: Array
    block: Array


def engine_cycles(layer: Layer) -> int:
    """Return the engine cycles of a layer, without waits."""
    if layer.kind == Kind.POOL:
        return layer.inputs + POOL_TAIL
    of = FcWalk(layer) if layer.kind == Kind.FC else ConvWalk(layer)
    return of.total + (of.tail * layer.samples if layer.config.write_behind else 0)


def uses(layer: Layer) -> dict[str, Uses]:
    """Return the uses of the blocks of each store, by store. A convolution must have the layout `rows`."""
    if layer.kind == Kind.POOL:
        return _pool(layer)
    return FcWalk(layer).uses() if layer.kind == Kind.FC else ConvWalk(layer).uses()


class ConvWalk:
    """The work of a convolution in loops, outermost first: channel groups, data blocks, position groups, channels."""

    def __init__(self, layer: Layer) -> None:
        # A channel group is one output channel, or with `oc_blocking` all channels whose kernels share a weight block.
        # A position group consists of the output positions of one channel that are summed together.
        #
        # With `window`, the data of a position group are in the window buffer while its channels are computed.
        # Meanwhile the data of the next group are loaded. A position group therefore takes at least `fill` cycles, and
        # the first group begins after `fill` cycles.
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
        self.groups, self.width = divmod(layer["oc"], self.together)  # whole channel groups, and remaining channels
        sizes = np.array(self.positions, np.int64)
        #: For each data block, the number of positions in its last position group.
        self.last = sizes - (sizes - 1) // self.k * self.k
        # All channel groups but the last take the same time. So one group is summed block by block, and the result is
        # multiplied.
        #: Engine cycles of a whole channel group.
        self.whole = int(self.before(self.together)[-1])
        self.total = self.fill + self.groups * self.whole
        width = self.together
        if self.width:
            self.total = self.total + int(self.before(self.width)[-1])
            width = self.width
        #: The number of results to write after the last sum.
        self.tail = int(self.last[-1]) if self.fill else min(self.k, layer.outputs)
        # Nothing is loaded while the last position group is computed.
        self.total -= int(self.share(width, self.last[-1])) - width * int(self.group(self.last[-1]))

    def group(self, outputs: Array | int) -> Array:
        """Return the cycles that sum and then write a group of `outputs`. With `write_behind`, both overlap."""
        return np.maximum(self.sums, outputs) if self.behind else np.asarray(self.sums + outputs)

    def share(self, width: Array | int, outputs: Array | int) -> Array:
        """Return the cycles of a position group of `outputs` positions, for `width` channels."""
        return np.maximum(width * self.group(outputs), self.fill)

    def before(self, width: int) -> Array:
        """Return the engine cycles of `width` channels before each data block and at the end, int64 [blocks + 1]."""
        full = (np.array(self.positions, np.int64) - self.last) // self.k
        return np.append(0, np.cumsum(full * self.share(width, self.k) + self.share(width, self.last)))

    def start(self, first: Array, page: Array) -> Array:
        """Return the cycle in which the work on data block `page` begins, for the channel group of channel `first`."""
        left = self.groups * self.together
        before = np.where(first < left, self.before(self.together)[page], self.before(self.width)[page])
        return self.fill + first // self.together * self.whole + before

    def span(self, output: Array) -> tuple[Array, Array]:
        """Return start and end cycle of each result's group. `output` has result numbers in the order of writing."""
        # From the outermost loop to the innermost: channel group, data block, position group, channel. `left` is the
        # number of results after the loops that are already resolved.
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
        """Return the uses of blocks that hold the kernels, or the biases, of `channels_of_block` channels."""
        size = self.layer.positions
        channels = self.layer["oc"]
        first = np.arange(0, channels, channels_of_block)
        need = self.span(first * size)[0]
        if self.fill:  # in use until the next block is: the last channel may wait for the buffer
            return Uses(np.arange(len(first)), need, np.append(need[1:], self.total))
        last = np.minimum(first + channels_of_block, channels) * size - 1
        return Uses(np.arange(len(first)), need, self.span(last)[1])

    def _data(self) -> Uses:
        count = self.rows.blocks
        channels = self.layer["oc"]
        first = np.arange(0, channels, self.together)[:, None]
        page = np.arange(count)[None, :]
        start, end = self.start(first, page).ravel(), self.start(first, page + 1).ravel()
        if self.fill:  # a block is loaded to the window buffer a position group ahead
            width = np.minimum(self.together, channels - first)
            ahead = self.share(width, self.last[page]).ravel()
            start = np.append(0, end[:-1] - ahead[:-1])
            end = np.append(start[1:], self.total)
        uses = Uses(np.tile(np.arange(count), len(first)), start, end)
        kept = count == 1 or (self.layer.config.resident and count <= self.layer.config.frames)
        return uses.once() if kept else uses


def window_fill(layer: Layer) -> int:
    """Return the number of cycles that load the data of a position group to the window buffer; 0 without `window`."""
    # The data are three rows of neighbouring pixels. A cycle loads two groups of 16 channels; the last group of an odd
    # number needs its own cycle.
    cycles = layer.depth if layer.depth % 2 else layer.depth // 2
    return window_pixels(layer.config) * cycles if layer.config.window else 0


def window_pixels(config: Config) -> int:
    """Return the number of pixels in the data of a position group, which are three rows."""
    return 3 * (config.outputs + 2)


class FcWalk:
    """The work of an FC layer in loops, outermost first: groups of columns (outputs summed together), iterations."""

    def __init__(self, layer: Layer) -> None:
        # Weights are read once, in the order of use. The samples of a batch share each iteration. With `window`, one
        # column is computed at a time, and an iteration reads a line of data and a line of weights.
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
        """Return the start and end cycle of each column's (FC output's) group of columns."""
        g = column // self.k
        return g * self.full, np.where(g + 1 < self.groups, (g + 1) * self.full, self.total)

    def weight_span(self, word: Array) -> tuple[Array, Array]:
        """Return the start and end cycle of each weight's iteration. `word` has weight numbers in the order of use."""
        r = self.layer["r"]
        lanes = self.layer.config.fc_lanes
        g = word // (self.k * r)
        width = np.minimum(self.k, self.layer["l"] - g * self.k)
        start = g * self.full + (word - g * self.k * r) // (lanes * width) * self.step
        return start, start + self.step

    def line_span(self, line: Array) -> tuple[Array, Array]:
        """Return start and end cycle of the iteration that reads each line of weights."""
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
        """Return the uses of data blocks. An input that fits the store is loaded once, else for each column group."""
        layer = self.layer
        lanes = self.layer.config.fc_lanes
        words = lanes * layer.config.lines("data") if layer.config.window else layer.config.block_words("data")
        count = data_blocks(layer)
        if self.samples > 1:  # every iteration reads words of all samples
            return Uses(np.arange(count), np.zeros(count, np.int64), np.full(count, self.total))
        first = np.arange(count) * words
        need = first // lanes * self.step
        free = ((np.minimum(first + words, layer["r"]) - 1) // lanes + 1) * self.step
        if count <= layer.config.frames:
            return Uses(np.arange(count), need, np.full(count, self.total))
        start = np.arange(self.groups)[:, None] * self.full
        return Uses(np.tile(np.arange(count), self.groups), (start + need).ravel(), (start + free).ravel())


def refusal(layer: Layer) -> str:
    """Return the reason (shape or number of blocks) why this engine cannot run a layer; "" if it can."""
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
    """Return the uses of a pool's blocks. A pool reads an element per cycle. Every fourth one completes a result."""
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
    """Return the uses of blocks whose words are used in order. `span` returns the start and end cycles of words."""
    first = np.arange(0, total, words)
    return Uses(np.arange(len(first)), span(first)[0], span(np.minimum(first + words, total) - 1)[1])


def data_loads(layer: Layer) -> int:
    """Return the number of loads of data blocks in all sweeps over the input (one sweep per output channel)."""
    # One block is resident. Loads happen within a run of words that lies in several blocks, between two runs in
    # different blocks, and at the first word of a sweep if the last sweep ended in another block. All sweeps are equal.
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
    """For chw, return the blocks of the first and last word of each (column, channel) of output row `row`."""
    rows = layer["rows"]
    cols = layer["cols"]
    words = layer.config.block_words("data")
    x = np.arange(cols)[:, None]
    plane = np.arange(layer["ic"]) * layer.positions
    first = max(row - 1, 0) * cols + np.maximum(x - 1, 0)
    last = min(row + 1, rows - 1) * cols + np.minimum(x + 1, cols - 1)
    return ((first + plane) // words).ravel(), ((last + plane) // words).ravel()


def _pixels(layer: Layer, row: int) -> tuple[Array, Array]:
    """For hwc, return the blocks of the first and last word of each (column, group, valid tap) of output row `row`."""
    cols = layer["cols"]
    channels = layer["ic"]
    words = layer.config.block_words("data")
    y, x = row + np.repeat([-1, 0, 1], 3), np.arange(cols)[:, None] + np.tile([-1, 0, 1], 3)
    inside = (y >= 0) & (y < layer["rows"]) & (x >= 0) & (x < cols)
    start = ((y * cols + x) * channels)[:, None, :] + np.arange(layer.depth)[:, None] * GROUP
    words_read = start[np.broadcast_to(inside[:, None, :], start.shape)]
    return words_read // words, (words_read + min(GROUP, channels) - 1) // words


def weight_loads(layer: Layer) -> int:
    """Return the number of loads of weight blocks. A kernel in several blocks is loaded again at every position."""
    # At each position, the engine reads the kernel's blocks in order, and starts again with the first block at the next
    # position.
    start, end = _kernel_blocks(layer)
    crossed = end - start
    inner = layer.positions * crossed + (layer.positions - 1) * (crossed > 0)
    return 1 + int(inner.sum()) + int((start[1:] != end[:-1]).sum())


def straddling(layer: Layer) -> int:
    """Return the number of kernels in more than one weight block, if kernels are stored one after another."""
    start, end = _kernel_blocks(layer)
    return int((start != end).sum())


def _kernel_blocks(layer: Layer) -> tuple[Array, Array]:
    """Return the blocks of the first and last word of each kernel, if kernels are stored one after another."""
    words = layer.config.block_words("weight")
    first = np.arange(layer.channels) * layer.kernel
    return first // words, (first + layer.kernel - 1) // words
