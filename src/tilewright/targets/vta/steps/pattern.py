"""Patterns of tile indices, which group an instruction's micro-ops into a few matrix products or array operations.

The grouping of a pattern is computed once, and reused when the pattern runs at other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending

#: Tile numbers; a slice if they are consecutive.
Tiles = Array | slice
#: The position of a pattern: the numbers to add to its dst, src and wgt tiles.
Origin = tuple[int, int, int]
NO_TILE = -1
#: (dst, src) tiles of each wave of an ALU instruction.
Waves = tuple[tuple[Tiles, Tiles], ...]


class Product(NamedTuple):
    """A matrix product `acc[dst] += inp[src] @ wgt[wgt]` with P x G result tiles, each a sum of R products of tiles.

    `src` is int64 [P, R], `wgt` int64 [G, R]; `dst` has the P acc tiles of each of the G columns. If a row lacks a term
    (at a convolution's border), `src` is NO_TILE, an inp tile that is always zero.
    """

    src: Array
    wgt: Array
    dst: tuple[Tiles, ...]

    def at(self, origin: Origin) -> Product:
        dst, src, wgt = origin
        moved = np.where(self.src == NO_TILE, NO_TILE, self.src + src)
        return Product(moved, self.wgt + wgt, tuple(shifted(tiles, dst) for tiles in self.dst))


@dataclass(frozen=True, eq=False)
class Pattern:
    """The tile indices of every micro-op of an instruction, int64 [n] each, relative to a kernel's origin."""

    dst: Array
    src: Array
    wgt: Array
    _waves: dict[tuple[bool, int], Waves] = field(init=False, default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Pattern, Origin]]) -> Pattern:
        """Join `parts` into one pattern with all their micro-ops. The origin of a part is added to its tile indices."""
        shifted_parts = zip(*((p.dst + o[0], p.src + o[1], p.wgt + o[2]) for p, o in parts), strict=True)
        return cls(*map(np.concatenate, shifted_parts))

    @cached_property
    def written(self) -> Tiles:
        return in_a_row(distinct(self.dst))

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The micro-ops grouped into a few matrix products.

        Destinations that read the same weight tiles, or a subset of these, become the rows of one product. Products
        that read the same input tiles become the columns of one product.
        """
        # Families with the same inputs become one product with several columns.
        merged: dict[tuple[int, bytes], list[tuple[Array, Array, Array]]] = {}
        for src, wgt, dst in _families(self.dst, self.src, self.wgt):
            merged.setdefault((wgt.size, src.tobytes()), []).append((src, wgt, dst))
        return tuple(
            Product(parts[0][0], np.stack([part[1] for part in parts]), tuple(in_a_row(part[2]) for part in parts))
            for parts in merged.values()
        )

    @cached_property
    def last(self) -> tuple[Pattern, Array]:
        """The pattern reduced to the last micro-op on each dst tile, and the dst tiles that have several micro-ops."""
        _, from_end, count = np.unique(self.dst[::-1], return_index=True, return_counts=True)
        last = self.dst.size - 1 - from_end
        return self.chosen(last), self.dst[last][count > 1]

    def waves(self, reads_own: bool, shift: int) -> Waves:
        """Return (dst tiles, src tiles) for each wave, in execution order. See `groups` for waves and parameters."""
        key = reads_own, shift
        if key not in self._waves:
            groups = self.groups(reads_own, shift)
            self._waves[key] = tuple((in_a_row(self.dst[mine]), in_a_row(self.src[mine])) for mine in groups)
        return self._waves[key]

    def groups(self, reads_own: bool, shift: int) -> tuple[Array | slice, ...]:
        """Return the micro-ops of each wave. In a wave, no micro-op accesses a tile that an earlier micro-op wrote.

        A micro-op reads `dst` if `reads_own`, else `src + shift`, in the memory of dst. `shift` is the origin of src
        minus the origin of dst.
        """
        source = self.dst if reads_own else self.src + shift
        reads_own = reads_own or np.array_equal(self.dst, source)
        # The usual case: no tile is written twice, and no micro-op reads a tile that another micro-op writes.
        once = ascending(self.dst).size == self.dst.size
        if once and (reads_own or not np.isin(source, self.dst).any()):
            return (slice(None),)
        written: dict[int, int] = {}
        read: dict[int, int] = {}
        level = np.empty(self.dst.size, np.int64)
        for index, (dst, src) in enumerate(zip(self.dst.tolist(), source.tolist(), strict=True)):
            # A wave reads all its operands before it writes, so a write may be in the same wave as an earlier read.
            wave = max(written.get(dst, -1) + 1, written.get(src, -1) + 1, read.get(dst, 0))
            written[dst] = wave
            read[src] = max(read.get(src, -1), wave)
            level[index] = wave
        order = np.argsort(level, kind="stable")
        return tuple(np.split(order, np.flatnonzero(np.diff(level[order])) + 1))

    def chosen(self, micro_ops: Array) -> Pattern:
        """Return the pattern of the selected micro-ops, given by index or mask."""
        return Pattern(self.dst[micro_ops], self.src[micro_ops], self.wgt[micro_ops])


def distinct(tiles: Array) -> Array:
    if not tiles.size:
        return tiles
    low = tiles.min()
    touched = np.zeros(tiles.max() + 1 - low, np.bool_)
    touched[tiles - low] = True
    ascending_tiles: Array = np.flatnonzero(touched) + low
    return ascending_tiles


def in_a_row(tiles: Array) -> Tiles:
    """Return the tiles as a slice if they are consecutive and ascending, else unchanged."""
    first = int(tiles[0]) if tiles.size else 0
    return slice(first, first + tiles.size) if np.array_equal(tiles, np.arange(first, first + tiles.size)) else tiles


def shifted(tiles: Tiles, by: int) -> Tiles:
    return slice(tiles.start + by, tiles.stop + by) if isinstance(tiles, slice) else tiles + by


def _families(dst: Array, src: Array, wgt: Array) -> list[tuple[Array, Array, Array]]:
    """Return (src [P, R], wgt [R], dst [P]) for each family: P acc tiles that read all or many of R weight tiles."""
    order = np.argsort(dst.astype(np.min_scalar_type(dst.max(initial=0))), kind="stable")  # 16 bits sort fastest
    dst = dst[order]
    src = src[order]
    wgt = wgt[order]
    first = np.flatnonzero(np.concatenate([dst[:1] >= 0, dst[1:] != dst[:-1]]))
    depth = np.diff(np.append(first, dst.size))
    families: list[_Family] = []
    # Border pixels of a convolution use a subset of the weights: the longest lists come first, so that shorter lists
    # can join the family of a long list, with NO_TILE for missing terms.
    for terms in sorted(set(depth.tolist()), reverse=True):
        heads = first[depth == terms]
        rows = heads[:, None] + np.arange(terms)
        weights = wgt[rows]
        # Destinations with the same weight list, compared as bytes.
        same: dict[bytes, list[int]] = {}
        for index, content in enumerate(weights.view(f"V{weights.itemsize * terms}")[:, 0].tolist()):
            same.setdefault(content, []).append(index)
        for mine in same.values():
            family, place = _join(families, weights[mine[0]].tolist())
            inputs = np.full((len(mine), len(family.weights)), NO_TILE, np.int64)
            inputs[:, place] = src[rows[mine]]
            family.src.append(inputs)
            family.dst.append(dst[heads[mine]])
    results = []
    for family in families:
        target = np.concatenate(family.dst)
        ascending = np.argsort(target)
        source = np.ascontiguousarray(np.concatenate(family.src)[ascending])
        results.append((source, np.array(family.weights, np.int64), target[ascending]))
    return results


class _Family(NamedTuple):
    """Acc tiles `dst` that read the tiles `weights`. `place`: each weight tile's index; {} if a tile occurs twice."""

    weights: list[int]
    place: dict[int, int]
    src: list[Array]
    dst: list[Array]


def _join(families: list[_Family], weights: list[int]) -> tuple[_Family, list[int]]:
    """Return the family for a list of weight tiles (a new family if none fits), and each tile's index in the family."""
    place = {tile: index for index, tile in enumerate(weights)}
    distinct = len(place) == len(weights)
    for family in families:
        # Missing terms are multiplied as zeros. This only pays off if at least a third of the terms exist.
        if distinct and 3 * len(weights) >= len(family.weights) and place.keys() <= family.place.keys():
            return family, [family.place[tile] for tile in weights]
    families.append(_Family(weights, place if distinct else {}, [], []))
    return families[-1], list(range(len(weights)))
