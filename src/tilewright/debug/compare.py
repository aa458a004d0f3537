"""Where a program first differs from the reference: the layer, the element, its bytes in DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.debug.slices import some
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.graph.ops import MatMul
from tilewright.graph.ops.linear import Linear
from tilewright.program.program import Program
from tilewright.sim.walk import Elements, PlacedTensor, State, Walk


@dataclass(frozen=True, eq=False)
class Difference:
    """The first tensor that differs from the reference, in the order of the network.

    `index` is its first wrong element, whose value is `got` instead of `expected`: its code, or its sum with `is_sum`.
    `count` of `size` elements are wrong; they are compared at `position`. `wrong` bool [*shape, planes] marks wrong
    bytes in memory: of each wrong element, the lowest wrong byte. `known` marks the bytes that are known to be right.
    """

    launch: str
    layer: str
    tensor: str
    index: tuple[int, ...]
    got: int
    expected: int
    count: int
    size: int
    position: int
    is_sum: bool
    placed: PlacedTensor
    wrong: Array
    known: Array

    def to_json(self) -> dict[str, Any]:
        names = ("launch", "layer", "tensor", "index", "got", "expected", "is_sum")
        places = {"index": list(self.index), "wrong": self.count, "elements": self.size}
        return {name: getattr(self, name) for name in names} | places

    def groups(self, walk: Walk) -> tuple[list[Sequence[Elements]], list[Sequence[Elements]]]:
        """Return some groups of elements, first those with wrong bytes, then those with right ones only.

        A group is one granule: the bytes of a tile are computed together.
        """
        at = self.placed.byte // walk.granule * walk.granule
        held = self.placed.byte >= 0
        bad = np.unique(at[self.wrong & held])
        good = np.setdiff1d(np.unique(at[self.known & held]), bad)
        found = [[walk.at(np.array([one])) for one in some(each).tolist()] for each in (bad, good)]
        return found[0], found[1]


def golden(program: Program, graph: Graph, samples: Mapping[str, Array]) -> dict[str, Array]:
    """Return the reference's value of every tensor that a node computes, and the samples, (1, *shape) each."""
    values = dict(samples)
    for node in graph.nodes:
        values.update(reference.run_node(graph, node.name, values, program.rounding))
    return values


def differences(
    walk: Walk,
    graph: Graph,
    expected: Mapping[str, Array],
    when: Callable[[PlacedTensor], int],
    state_at: Callable[[int], State],
) -> Iterator[Difference]:
    """Yield a Difference for each tensor of a launch that differs from the reference, in the order of its layers.

    Tensors of real numbers are not compared: they are not exact. when(placed) is the position at which a tensor is
    compared, state_at(position) the state there.
    """
    for name in walk.tensors:
        placed = walk.placed(name)
        of = placed.of or name
        if not placed.node or of not in expected or expected[of].dtype.kind == "f":
            continue
        position = when(placed)
        state = state_at(position)
        if sums := _sums(walk, state, graph, placed, expected):
            compared = _compared(walk.name, placed, position, sums[0], sums[1], sums[2:])
        else:
            codes = expected[of][0] if placed.part is None else expected[of][0][placed.part]
            compared = _compared(walk.name, placed, position, walk.value(state, name), codes)
        if compared:
            yield compared


def segments(walk: Walk, position: int, state: State, expected: Mapping[str, Array]) -> Difference | None:
    """Return the first segment of DRAM whose first bytes are not those expected; None: all are right."""
    for part in walk.segments:
        if part.name in expected:
            right = expected[part.name][: part.size]
            byte = part.address + np.arange(len(right))[:, None]
            placed = PlacedTensor(f"dram.{part.name}", walk.layers[-1], byte, is_code=True)
            found = _compared(walk.name, placed, position, state.dram(part.address, len(right)), right)
            if found:
                return found
    return None


def _compared(
    launch: str,
    placed: PlacedTensor,
    position: int,
    got: Array,
    expected: Array,
    sums: tuple[Array, Array] | None = None,
) -> Difference | None:
    """Return where values differ from those expected; None: nowhere. `sums` marks wrong and right bytes of sums."""
    differ = got != expected
    if not differ.any():
        return None
    first = tuple(int(axis[0]) for axis in np.nonzero(differ))
    wrong, known = sums or (differ[..., None], ~differ[..., None])
    return Difference(
        launch=launch,
        layer=placed.node,
        tensor=placed.name,
        index=first,
        got=int(got[first]),
        expected=int(expected[first]),
        count=int(differ.sum()),
        size=differ.size,
        position=position,
        is_sum=sums is not None,
        placed=placed,
        wrong=np.broadcast_to(wrong, placed.byte.shape),
        known=np.broadcast_to(known, placed.byte.shape),
    )


def _sums(
    walk: Walk, state: State, graph: Graph, placed: PlacedTensor, expected: Mapping[str, Array]
) -> tuple[Array, Array, Array, Array] | None:
    """Return a layer's sums in DRAM, those of the reference, the lowest wrong bytes and the right ones; None: no sums.

    The reference's sums get the offsets that the machine's sums have because it ignores zero points.
    """
    node = graph.node(placed.node)
    held = None if placed.is_code else walk.sums(state, placed.name)
    if held is None or not isinstance(node.op, Linear) or isinstance(node.op, MatMul):
        return None
    site = graph.site(node)
    x, w = (reference.value_of(graph, expected, name) for name in node.inputs[:2])
    assert x is not None and w is not None
    own, offset = held
    right = node.op.accumulate(site, x, w[0]).reshape(own.shape).astype(np.int64) + offset
    shifts = 8 * np.arange(placed.byte.shape[-1])
    right = np.where(placed.byte[..., 0] >= 0, right, own)  # channels that the machine does not compute
    differ = (own[..., None] >> shifts & 0xFF) != (right[..., None] >> shifts & 0xFF)
    lowest = differ & (np.cumsum(differ, axis=-1) == 1)
    return own, right, lowest, ~differ & (np.cumsum(differ, axis=-1) == 0)
