"""The streams of one LOOP_CONV_WS, which computes a tile of a convolution and can pool the result.

Source: LoopConv.scala (ucb-bar/gemmini at 8c3f992), which also defines the names of variables: `orow`, `ocol` and `och`
index the result; `irow`, `icol` and `ich` index the input; `krow`, `kcol` and `kch` index the weights; `b` is the
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from tilewright.array import Array, numbers
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.fields import CODES, FORMATS, Funct, encode
from tilewright.targets.gemmini.isa.work import KEEP, SCALE_ONE
from tilewright.targets.gemmini.loops.words import (
    ACC,
    ACCUMULATE,
    NOTHING,
    OFFSET_MASK,
    CommandStream,
    OnChip,
    garbage,
    grid,
    interleaved,
    joined,
    operand,
    stream,
)


@dataclass(frozen=True)
class TileShape:
    """The sizes of a tile, derived from the registers `r` of its loop."""

    r: Mapping[str, int]
    config: Config

    def undilated(self, x: int) -> int:
        """Return the number of stored pixels among `x` pixels. In a dilated input, a zero is between stored pixels."""
        return (x + self.r["input_dilated"]) >> self.r["input_dilated"]

    @cached_property
    def pixels(self) -> int:
        """The largest number of kernel columns in one row of A."""
        return self.r["max_pixels"] or 1

    @cached_property
    def unpadded(self) -> tuple[int, int]:
        r = self.r
        return (
            self.undilated(self._covered("orows", "krows") - r["upad"] - r["dpad"]),
            self.undilated(self._covered("ocols", "kcols") - r["lpad"] - r["rpad"]),
        )

    @cached_property
    def padded(self) -> tuple[int, int]:
        r = self.r
        rows, columns = self.unpadded
        if not r["input_dilated"]:
            return self._covered("orows", "krows"), self._covered("ocols", "kcols")
        above, below, left, right = (self.undilated(r[name]) for name in ("upad", "dpad", "lpad", "rpad"))
        return rows + above + below, columns + left + right

    def _covered(self, out: str, kernel: str) -> int:
        r = self.r
        return r[out] * r["conv_stride"] + r[kernel] + (r["kernel_dilation"] - 1) * (r[kernel] - 1) - 1

    @cached_property
    def kept(self) -> tuple[int, int]:
        """The number of rows and of columns of the input in the scratchpad."""
        rows, columns = self.padded
        return rows >> self.r["downsample"], columns >> self.r["downsample"]

    @cached_property
    def input_stride(self) -> int:
        """The distance in scratchpad rows between blocks of `dim` input channels (in layout 3120, of `dim` images)."""
        return (self.r["kchs"] if self.r["input_3120"] else self.r["batches"]) * self.kept[0] * self.kept[1]

    @cached_property
    def weight_stride(self) -> int:
        return self.r["krows"] * self.r["kcols"] * self.r["pochs" if self.r["weight_0132"] else "kchs"]

    @cached_property
    def input_rows(self) -> int:
        across = self.r["batches" if self.r["input_3120"] else "kchs"]
        return -(-across // self.config.dim) * self.input_stride

    @cached_property
    def weight_rows(self) -> int:
        return -(-self.r["kchs" if self.r["weight_0132"] else "pochs"] // self.config.dim) * self.weight_stride

    @cached_property
    def out_stride(self) -> int:
        return self.r["batches"] * self.r["orows"] * self.r["ocols"]

    @cached_property
    def out_rows(self) -> int:
        return -(-self.r["pochs"] // self.config.dim) * self.out_stride

    def out_row(self, b: Array, orow: Array, ocol: Array, och: Array) -> Array:
        r = self.r
        return och // self.config.dim * self.out_stride + (b * r["orows"] + orow) * r["ocols"] + ocol


def streams(registers: Mapping[str, int], place: OnChip, config: Config) -> list[CommandStream]:
    """Return the five streams of a loop (see words.STREAMS). The registers must be legal (see limits.py)."""
    shape = TileShape(registers, config)
    return [
        _stores(shape, place),
        _execute(shape, place),
        _bias(shape, place),
        _weights(shape, place),
        _input(shape, place),
    ]


def _every(end: int, step: int = 1) -> Array:
    return np.arange(0, end, step)


def _config(mnemonic: str, **values: int) -> CommandStream:
    """Return a config command. As in hardware, each field keeps only the low bits of its value."""
    form = FORMATS[CODES[mnemonic]]
    kept = {place.name: values.get(place.name, 0) & (1 << place.width) - 1 for place in form.places}
    funct, rs1, rs2 = encode(mnemonic, **kept)
    return stream(funct, rs1, np.array([rs2], np.uint64))


def _config_load(state: int, block_stride: int, stride: int, pixels: int = 1) -> CommandStream:
    return _config("config_ld", state=state, block_stride=block_stride, stride=stride, pixels=pixels, scale=SCALE_ONE)


def _bias(shape: TileShape, place: OnChip) -> CommandStream:
    r = shape.r
    config = shape.config
    if not r["bias"]:
        return NOTHING
    wide = min(r["pochs"], config.acc_blocks * config.dim)
    b, orow, ocol, och = grid(
        _every(r["batches"]), _every(r["orows"]), _every(r["ocols"], config.dim), _every(r["pochs"], wide)
    )
    address = np.zeros_like(och) if r["no_bias"] else r["bias"] + och * ACC_BYTES
    row = place.c + shape.out_row(b, orow, ocol, och)
    rows, columns = np.minimum(config.dim, r["ocols"] - ocol), np.minimum(wide, r["pochs"] - och)
    loads = stream(Funct.MVIN3, address, operand(row | ACC, columns, rows))
    return joined(_config_load(2, shape.out_stride, 0), loads)


def _weights(shape: TileShape, place: OnChip) -> CommandStream:
    r = shape.r
    config = shape.config
    if not r["weights"]:
        return NOTHING
    across, down = ("kchs", "pochs") if r["weight_0132"] else ("pochs", "kchs")
    wide = min(r[across], config.spad_blocks * config.dim)
    step = {across: wide, down: config.dim}
    och, krow, kcol, kch = grid(
        _every(r["pochs"], step["pochs"]), _every(r["krows"]), _every(r["kcols"]), _every(r["kchs"], step["kchs"])
    )
    size = r["kernel_dim"]
    stride = r["weight_stride"]
    # The offset of a weight in elements. `weight_0132` and `weight_1203` are upstream's names for other orders of the
    # dimensions.
    offset = krow * r["kernel_dim"] + kcol
    if r["depthwise"]:
        stride = 1
    elif r["weight_1203"]:
        stride = size * size * r["out_channels"]
        offset = (kch * size * size + offset) * r["out_channels"] + och
    elif r["weight_0132"]:
        stride = r["in_channels"]
        offset = (offset * r["out_channels"] + och) * r["in_channels"] + kch
    else:
        offset = (offset * r["in_channels"] + kch) * stride + och
    place_of = {"pochs": och, "kchs": kch}
    row = place.b_end - shape.weight_rows + _weight_row(shape, krow, kcol, och, kch)
    columns = np.minimum(wide, r[across] - place_of[across])
    rows = np.minimum(config.dim, r[down] - place_of[down])
    loads = stream(Funct.MVIN2, r["weights"] + (offset & OFFSET_MASK), operand(row, columns, rows))
    return joined(_config_load(1, shape.weight_stride, stride), loads)


def _weight_row(shape: TileShape, krow: Array, kcol: Array, och: Array, kch: Array) -> Array:
    """Return the scratchpad row of weights, counted from the tile's first row of weights."""
    r = shape.r
    across, down, depth = (kch, och, r["pochs"]) if r["weight_0132"] else (och, kch, r["kchs"])
    return across // shape.config.dim * shape.weight_stride + (krow * r["kcols"] + kcol) * depth + down


def _input(shape: TileShape, place: OnChip) -> CommandStream:
    r = shape.r
    config = shape.config
    if not r["input"]:
        return NOTHING
    across = r["batches" if r["input_3120"] else "kchs"]
    wide = min(across, config.spad_blocks * config.dim)
    above, below = shape.undilated(r["upad"]), shape.undilated(r["dpad"])
    irows = np.arange(-above, shape.unpadded[0] + below, 1 << r["downsample"])
    icols, lengths = _input_columns(shape)
    images = _every(across, wide)
    channels = _every(r["kchs"])
    if not r["input_3120"]:
        images, channels = _every(r["batches"]), images
    b, irow, place_in_row, ich = grid(images, irows, np.arange(len(icols)), channels)
    icol = icols[place_in_row]
    pixel = irow * r["in_col_dim"] + icol
    plane = r["in_row_dim"] * r["in_col_dim"]
    between = r["in_stride"]
    if r["input_3120"]:
        between = r["batch_size"]
        image_stride = r["batches"] if config.rules.conv_batches == "batches" else between
        offset = (ich * plane + pixel) * image_stride + b
    else:
        offset = (b * plane + pixel) * between + ich
    # Border pixels are loaded from address 0, which writes zeros.
    border = (irow < 0) | (irow >= shape.unpadded[0]) | (icol < 0) | (icol >= shape.unpadded[1])
    address = np.where(border, 0, r["input"] + (offset & OFFSET_MASK))
    left = shape.undilated(r["lpad"])
    row = place.a + _input_row(shape, b, irow + above, icol + left, ich)
    columns = np.minimum(wide, across - (b if r["input_3120"] else ich))
    loads = stream(Funct.MVIN, address, operand(row, columns, lengths[place_in_row] >> r["downsample"]))
    return joined(_config_load(0, shape.input_stride, between << r["downsample"], shape.pixels), loads)


def _input_columns(shape: TileShape) -> tuple[Array, Array]:
    """Return the first column and the length of each load of an input row: left border, image, right border."""
    # A load is either inside the image or in a border. With downsampling, a load covers twice as many columns, because
    # it loads only every second column.
    dim = shape.config.dim
    columns = shape.unpadded[1]
    left, right = shape.undilated(shape.r["lpad"]), shape.undilated(shape.r["rpad"])
    parts = ((-left, 0, dim), (0, columns, dim << shape.r["downsample"]), (columns, columns + right, dim))
    starts = [np.arange(low, high, step) for low, high, step in parts]
    lengths = [np.minimum(step, high - start) for start, (_, high, step) in zip(starts, parts, strict=True)]
    return np.concatenate(starts), np.concatenate(lengths)


def _input_row(shape: TileShape, b: Array, irow: Array, icol: Array, ich: Array) -> Array:
    """Return the scratchpad row of an input pixel, counted from the tile's first row. Indices include the border."""
    r = shape.r
    rows, columns = shape.kept
    across, along = (b, ich) if r["input_3120"] else (ich, b)
    row: Array = across // shape.config.dim * shape.input_stride + along * rows * columns
    return row + (irow >> r["downsample"]) * columns + (icol >> r["downsample"])


def _execute(shape: TileShape, place: OnChip) -> CommandStream:
    r = shape.r
    dim = shape.config.dim
    nowhere = garbage(shape.config)
    step = dim if r["input_3120"] else 1
    rows_of = grid(
        _every(r["pochs"], dim),
        _every(r["krows"]),
        _every(r["kcols"], shape.pixels),
        _every(r["kchs"], dim),
        _every(r["batches"], step),
        _every(r["orows"]),
    )
    ocol, row_of, idle, tail = _output_columns(shape, rows_of[1], rows_of[2], rows_of[5])
    och, krow, kcol, kch, b, orow = (axis[row_of] for axis in rows_of)
    pixels = np.minimum(shape.pixels, r["kcols"] - kcol)
    if r["input_3120"]:
        height = np.minimum(dim, r["batches"] - b)
    else:
        across = np.minimum(dim << r["input_dilated"], r["ocols"] - ocol)
        height = (across + r["input_dilated"]) >> r["input_dilated"]
    width = np.minimum(dim, r["pochs"] - och)
    depth = pixels * np.minimum(dim, r["kchs"] - kch)
    irow, icol = (
        (out * r["conv_stride"] + kernel * r["kernel_dilation"] + r["input_dilated"]) >> r["input_dilated"]
        for out, kernel in ((orow, krow), (ocol, kcol))
    )
    a = place.a + _input_row(shape, b, irow, icol, kch)
    rotated = (r["krows"] - 1 - krow, r["kcols"] - 1 - kcol) if r["rotate"] else (krow, kcol)
    weights = place.b_end - shape.weight_rows + _weight_row(shape, *rotated, och, kch)
    c = place.c + shape.out_row(b, orow, ocol, och)
    # The array loads weights at the first step of a block of weights, and keeps them for all positions of the result.
    new = np.diff(row_of // (len(_every(r["batches"], step)) * r["orows"]), prepend=-1) > 0
    preload = stream(
        Funct.PRELOAD,
        operand(np.where(new, weights, nowhere), width, depth),
        operand(c | ACC | ACCUMULATE, width, height),
    )
    compute = stream(
        np.where(new, Funct.COMPUTE_PRELOADED, Funct.COMPUTE_ACCUMULATED),
        operand(a, depth, height),
        operand(np.full(len(a), nowhere), width, height),
    )
    # The unroller spends two cycles on a skipped step: one for the preload, one for the compute.
    pairs = interleaved(preload._replace(idle=2 * idle), compute)._replace(tail=2 * tail)
    if not r["input_3120"]:
        return pairs
    in_rows, in_columns = shape.padded
    c_stride = r["orows"] * r["ocols"]
    strides = _config("config_ex", only_strides=1, a_stride=in_rows * in_columns, c_stride=c_stride)
    return joined(strides, pairs)


def _output_columns(shape: TileShape, krow: Array, kcol: Array, orow: Array) -> tuple[Array, Array, Array, int]:
    """Return the steps of the execute stream for several rows of the result.

    Each element of the arguments describes one row. Returns for each step the first column, the row and the number of
    skipped steps before it, and then the number of skipped steps after the last step. A step is skipped if the kernel
    is at an inserted zero of a dilated input.
    """
    # The inserted zeros of a row are in all columns, in the even columns or in the odd columns.
    r = shape.r
    rows = [_output_row(shape, *zeros) for zeros in ((False, 0), (False, 1), (True, 0))]
    columns, passed, zeros = zip(*rows, strict=True)
    zero_row = (krow * r["kernel_dilation"] + orow - r["upad"]) & r["input_dilated"]
    zero_column = (kcol * r["kernel_dilation"] - r["lpad"]) & r["input_dilated"]
    pattern = np.where(zero_row, 2, zero_column)
    counts = np.array(list(map(len, columns)))
    index, row_of = numbers((np.cumsum(counts) - counts)[pattern], counts[pattern])
    ocol, within = (np.array(list(chain(*parts)), np.int64)[index] for parts in (columns, passed))
    total = np.array(zeros)[pattern]
    idle = np.diff((np.cumsum(total) - total)[row_of] + within, prepend=0)
    return ocol, row_of, idle, int(total.sum() - idle.sum())


def _output_row(shape: TileShape, zero_row: bool, zero_column: int) -> tuple[list[int], list[int], int]:
    """Return the first column of each step of a row, how many steps are skipped before it, and in the whole row.

    The kernel is at inserted zeros in the whole row (`zero_row`), or in every second column (`zero_column`).
    """
    r = shape.r
    dim = shape.config.dim
    columns = list[int]()
    passed = list[int]()
    ocol = 0
    zeros = 0
    while ocol < r["ocols"]:
        if zero_row or (ocol + zero_column) & r["input_dilated"]:
            zeros += 1
            ocol += 1
        else:
            columns.append(ocol)
            passed.append(zeros)
            ocol += 1 if r["input_3120"] else dim << r["input_dilated"]
    return columns, passed, zeros


def _stores(shape: TileShape, place: OnChip) -> CommandStream:
    r = shape.r
    config = shape.config
    if not r["output"]:
        return NOTHING
    if not r["no_pool"]:
        return _pooled_stores(shape, place)
    b, orow, ocol, och = grid(
        _every(r["batches"]), _every(r["orows"]), _every(r["ocols"], config.dim), _every(r["pochs"], config.dim)
    )
    if r["out_1203"]:
        offset = ((orow * r["out_col_dim"] + ocol) * r["batch_size"] + b) * r["out_channels"] + och
    else:
        offset = ((b * r["out_row_dim"] + orow) * r["out_col_dim"] + ocol) * r["out_stride"] + och
    row = place.c + shape.out_row(b, orow, ocol, och)
    rows, columns = np.minimum(config.dim, r["ocols"] - ocol), np.minimum(config.dim, r["pochs"] - och)
    return stream(Funct.MVOUT, r["output"] + (offset & OFFSET_MASK), operand(row | ACC, columns, rows))


def _pooled_stores(shape: TileShape, place: OnChip) -> CommandStream:
    """Return a pooled store for each image and block of channels, preceded and followed by a config_st."""
    r = shape.r
    config = shape.config
    b, och = grid(_every(r["batches"]), _every(r["pochs"], config.dim))
    plane = r["pool_out_col_dim"] * r["pool_out_row_dim"]
    nothing = np.zeros_like(b)
    row = place.c + shape.out_row(b, nothing, nothing, och)
    stores = stream(
        Funct.MVOUT,
        r["output"] + b * plane * r["out_stride"] + och,
        operand(row | ACC, np.minimum(config.dim, r["pochs"] - och), 0),
    )
    activation = r["activation"]
    if config.rules.conv_activation == "relu":
        activation = int(activation > 0)
    names = "pool_stride", "pool_size", "porows", "pocols", "orows", "ocols"
    pooling = {name: r[name] for name in names} | {
        "upad": r["pupad"],
        "lpad": r["plpad"],
        "out_dim": r["pool_out_col_dim"],
    }
    every = {"activation": activation, "stride": r["out_stride"], "scale": KEEP}
    return joined(_config("config_st", **every, **pooling), stores, _config("config_st", **every))
