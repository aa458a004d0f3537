"""Products of two computed operands: the host lays the second one out as weights, before each launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import MatMul, Window
from tilewright.graph.ops.linear import matrices
from tilewright.targets.vta.compiler import parameters
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import (
    CODE_DTYPES,
    CODE_MIN,
    Context,
    Lowered,
    held_zero_point,
    packing,
    planes_of,
)


def product(site: Site, op: MatMul, context: Context) -> Lowered | str:
    """All products as one layer: the matrices are channels side by side, each in tiles of its own."""
    config, block = context.config, context.config.block
    count, rows, depth, columns = matrices(site)
    if site.input(1).dtype not in CODE_DTYPES or site.output.dtype not in CODE_DTYPES:
        return f"its operands are {site.input(0).dtype} and {site.input(1).dtype}; VTA multiplies int8"
    planes = planes_of(np.full((1, 1, depth), CODE_MIN, np.int32), config)
    if isinstance(planes, str):
        return planes
    deep, wide = -(-depth // block), -(-columns // block)
    bands = tuple((matrix * deep, matrix * deep + deep) for matrix in range(count) for _ in range(wide))
    width = -(-rows // config.batch)
    layer = Layer(
        kind="sum",
        matrix=True,
        size=(1, width),
        out=(1, width),
        window=Window(),
        in_tiles=count * deep,
        out_tiles=count * wide,
        link="banded" if count > 1 else "dense",
        bands=bands if count > 1 else (),
        shared=False,
        planes=planes,
        clamp=None,
        fold=1,
        packing=packing(f"{count} matrices", 1, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    one = np.zeros(1, np.int64)
    none = np.zeros((1, 1, count * wide * block), np.int32)
    lowered = Lowered(layer, None, none, one, one)
    centred = any(held_zero_point(site.input(index)) for index in (0, 1))
    if context.rounding.elementwise != "pow2" or centred or not context.codes:
        return lowered
    made = parameters.of_product_shift(site, "none", none, layer, config)
    if made is None:
        return lowered
    return replace(lowered, layer=replace(layer, planes=1, codes=made.codes), parameters=made.tiles)


def as_rows(site: Site, held: Array, block: int) -> Array:
    """The first operand, int8 (S, *shape), as rows of the layer: int8 (S, M, matrices * K in whole tiles)."""
    count, rows, depth, _ = matrices(site)
    parts = np.pad(held.reshape(-1, count, rows, depth), ((0, 0),) * 3 + ((0, -depth % block),))
    return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(len(parts), rows, -1)


def as_weights(site: Site, held: Array, block: int) -> Array:
    """The second operand as weight tiles: int8 [S, output tile, k, block, block]."""
    count, _, depth, columns = matrices(site)
    parts = np.pad(
        held.reshape(-1, count, depth, columns), ((0, 0), (0, 0), (0, -depth % block), (0, -columns % block))
    )
    tiles = parts.reshape(len(parts), count, parts.shape[2] // block, block, parts.shape[3] // block, block)
    return tiles.transpose(0, 1, 4, 2, 5, 3).reshape(len(parts), -1, parts.shape[2] // block, block, block)


def as_result(site: Site, acc: Array, block: int) -> Array:
    """Results (S, M, matrices * N in whole tiles) as the operator gives them: (S, *out_shape)."""
    count, rows, _, columns = matrices(site)
    parts = acc.reshape(len(acc), rows, count, -(-columns // block) * block)[..., :columns]
    return parts.swapaxes(1, 2).reshape(len(acc), *site.output.shape)


def correction(site: Site, left: Array, right: Array) -> Array:
    """What zero points add to sums of codes as they are held: int32 (S, *out_shape) or broadcasting to it."""
    za, zb = (held_zero_point(site.input(index)) for index in (0, 1))
    depth = left.shape[-1]
    rows, columns = left.sum(-1, dtype=np.int32)[..., None], right.sum(-2, dtype=np.int32)[..., None, :]
    total: Array = depth * za * zb - zb * rows - za * columns
    return total
