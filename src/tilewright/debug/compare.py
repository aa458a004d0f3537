"""Find the first difference between a program and the reference: the layer, the element, and its bytes in DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.debug.slices import evenly_spread
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.graph.ops import MatMul
from tilewright.graph.ops.linear import Linear
from tilewright.program.program import Program
from tilewright.sim.walk import Elements, PlacedTensor, State, Walk


@dataclass(frozen=True, eq=False)
class Difference:
    """The first tensor that differs from the reference, in the order of the network.

    `index` is the first wrong element of the tensor. Its value is `got` instead of `expected`. If `is_sum`, the values
    are sums, otherwise codes. Of the `size` elements of the tensor, `count` are wrong.
    """

    launch: str
    layer: str
    tensor: str
    index: tuple[int, ...]
    got: int
    expected: int
    count: int
    size: int
    position: int  # the position in the order of execution at which the tensor was compared
    is_sum: bool
    placed: PlacedTensor
    #: bool [*shape, planes]: the lowest wrong byte of each wrong element. Higher bytes may be wrong because of a carry.
    wrong: Array
    #: bool [*shape, planes]: the bytes that are certainly correct.
    correct: Array

    def to_json(self) -> dict[str, Any]:
        names = ("launch", "layer", "tensor", "index", "got", "expected", "is_sum")
        places = {"index": list(self.index), "wrong": self.count, "elements": self.size}
        return {name: getattr(self, name) for name in names} | places

    def groups(self, walk: Walk) -> tuple[list[Sequence[Elements]], list[Sequence[Elements]]]:
        """Return two lists of groups of elements: groups with a wrong byte, and groups with correct bytes only."""
        # A group is one granule of DRAM. One instruction computes all its bytes together.
        granule = self.placed.byte // walk.granule * walk.granule
        in_memory = self.placed.byte >= 0
        bad = np.unique(granule[self.wrong & in_memory])
        good = np.setdiff1d(np.unique(granule[self.correct & in_memory]), bad)

        def groups_of(starts: Array) -> list[Sequence[Elements]]:
            return [walk.at(np.array([start])) for start in evenly_spread(starts).tolist()]

        return groups_of(bad), groups_of(good)


def golden(program: Program, graph: Graph, samples: Mapping[str, Array]) -> dict[str, Array]:
    """Return the reference values of all tensors of a network, including `samples`, each (1, *shape)."""
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

    Tensors of real numbers are not compared, because they are not exact. A tensor is compared at the position
    `when(placed)`, in the state that `state_at` returns for this position.
    """
    for name in walk.tensors:
        placed = walk.placed(name)
        of = placed.of or name
        if not placed.node or of not in expected or expected[of].dtype.kind == "f":
            continue
        position = when(placed)
        state = state_at(position)
        # Sums are compared before requantisation, since a wrong sum may give the correct code.
        if sums := _sums(walk, state, graph, placed, expected):
            marks = sums.wrong, sums.correct
            compared = _compared(walk.name, placed, position, sums.got, sums.expected, marks)
        else:
            codes = expected[of][0] if placed.part is None else expected[of][0][placed.part]
            compared = _compared(walk.name, placed, position, walk.value(state, name), codes)
        if compared:
            yield compared


def segments(walk: Walk, position: int, state: State, expected: Mapping[str, Array]) -> Difference | None:
    """Return the first DRAM segment whose first bytes are not the expected bytes, or None if all are correct."""
    for part in walk.segments:
        if part.name in expected:
            wanted_bytes = expected[part.name][: part.size]
            byte = part.address + np.arange(len(wanted_bytes))[:, None]
            placed = PlacedTensor(f"dram.{part.name}", walk.layers[-1], byte, is_code=True)
            difference = _compared(
                walk.name, placed, position, state.dram(part.address, len(wanted_bytes)), wanted_bytes
            )
            if difference:
                return difference
    return None


def _compared(
    launch: str,
    placed: PlacedTensor,
    position: int,
    got: Array,
    expected: Array,
    marks: tuple[Array, Array] | None = None,
) -> Difference | None:
    """Compare a tensor's values with the expected values. Return None if they are equal.

    `marks` has the `wrong` and `correct` bytes of the tensor. Without `marks`, all bytes of a wrong element are wrong.
    """
    differ = got != expected
    if not differ.any():
        return None
    first = tuple(int(axis[0]) for axis in np.nonzero(differ))
    wrong, correct = marks or (differ[..., None], ~differ[..., None])
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
        is_sum=marks is not None,
        placed=placed,
        wrong=np.broadcast_to(wrong, placed.byte.shape),
        correct=np.broadcast_to(correct, placed.byte.shape),
    )


class _Sums(NamedTuple):
    """The sums of a layer in DRAM (`got`) and in the reference (`expected`), int64 [*shape]. See also Difference."""

    got: Array
    expected: Array
    wrong: Array
    correct: Array


def _sums(walk: Walk, state: State, graph: Graph, placed: PlacedTensor, expected: Mapping[str, Array]) -> _Sums | None:
    """Return the sums of products of a layer, or None if DRAM contains codes or other sums."""
    node = graph.node(placed.node)
    sums = None if placed.is_code else walk.sums(state, placed.name)
    if sums is None or not isinstance(node.op, Linear) or isinstance(node.op, MatMul):
        return None
    site = graph.site(node)
    x, w = (reference.value_of(graph, expected, name) for name in node.inputs[:2])
    assert x is not None and w is not None
    # The machine does not subtract zero points before it multiplies. `offset` is the resulting difference of the sums.
    got, offset = sums
    expected_sums = node.op.accumulate(site, x, w[0]).reshape(got.shape).astype(np.int64) + offset
    shifts = 8 * np.arange(placed.byte.shape[-1])
    # Channels without an address are not computed by the machine, so they cannot differ.
    expected_sums = np.where(placed.byte[..., 0] >= 0, expected_sums, got)
    differ = (got[..., None] >> shifts & 0xFF) != (expected_sums[..., None] >> shifts & 0xFF)
    # Only the lowest wrong byte is certain: a carry from it may have changed the higher bytes.
    lowest = differ & (np.cumsum(differ, axis=-1) == 1)
    return _Sums(got, expected_sums, lowest, ~differ & (np.cumsum(differ, axis=-1) == 0))
