"""What lowering makes of a node: a `Layer` with its weight tiles, and what finishes the sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Linear
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler import fold as folding
from tilewright.targets.vta.compiler.layer import Layer, Link
from tilewright.targets.vta.config import Config


@dataclass(frozen=True, eq=False)
class Lowered:
    """`tiles` int8 [out tile, k, tap, block, block], None where the host brings them at every run.

    `correction` int32 [row class, column class, channel], the classes of output rows and columns: which taps lie inside
    the image. The host subtracts it, zero point times the sum of the weights used; pools have none. `parameters` (see
    parameters.py) are there where the machine finishes by itself.
    """

    layer: Layer
    tiles: Array | None
    correction: Array
    row_class: Array
    column_class: Array
    parameters: Array | None = None


class Context(NamedTuple):
    """`timing`: the model that plans are timed by.

    `single`: no pixels share a tile and no patches are laid out, because the input comes from another layer.

    `codes`: sums become codes on the machine, if it can do that.
    """

    config: Config
    rounding: Rounding
    timing: str
    single: bool = False
    codes: bool = True


def windowed(
    site: Site,
    fold: folding.Fold,
    start: Array,
    config: Config,
    planes: int,
    out: tuple[int, int] | None = None,
) -> Layer:
    """A window over an image; `out`: rows and columns of the output, where its shape does not say so."""
    block, pixels, w = config.block, fold.pixels, fold.weights
    (height, width), (out_height, out_width) = site.input(0).shape[1:3], out or site.output.shape[1:3]
    in_tiles, out_tiles = -(-site.input(0).shape[3] * pixels // block), -(-w.shape[0] // block)
    bands: tuple[tuple[int, int], ...] = ((0, 1),)  # folded: one tile
    if pixels == 1:
        first, last = start // block, (start + w.shape[2] - 1) // block + 1
        edges = np.arange(0, w.shape[0], block)
        low, high = np.minimum.reduceat(first, edges), np.maximum.reduceat(last, edges)
        bands = tuple(zip(low.tolist(), high.tolist(), strict=True))
    link: Link = "banded"
    if all(band == (0, in_tiles) for band in bands):
        link = "dense"
    elif bands == tuple((o, o + 1) for o in range(out_tiles)):
        link = "diagonal"
    return Layer(
        kind="sum",
        matrix=False,
        size=(height, -(-width // pixels)),
        out=(out_height, -(-out_width // pixels)),
        window=fold.window,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        link=link,
        bands=bands if link == "banded" else (),
        shared=not isinstance(site.node.op, Linear),
        planes=planes,
        clamp=None,
        fold=pixels,
        packing=packing("the image", pixels, f"1 of {config.batch} tile rows used" if config.batch > 1 else ""),
    )


def packing(what: str, pixels: int, rows: str) -> str:
    return ", ".join(part for part in (what, f"{pixels} pixels side by side" if pixels > 1 else "", rows) if part)
