"""Convert the tensors that a launch reads to tiles, and the tiles that a launch writes to tensors (see layouts.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import AveragePool2D, Linear, MatMul
from tilewright.graph.reference import value_of
from tilewright.graph.rounding import rounding_mode
from tilewright.program.placement import NOWHERE, Placement
from tilewright.program.program import Launch
from tilewright.targets.vta.launch.layouts import (
    CARRIED,
    COMPUTED,
    PAIRED,
    READ,
    STORED,
    TABLES,
    NodeLayout,
    given_back,
    held_codes,
    held_offset,
    held_zero_point,
)


class Filled(NamedTuple):
    """A segment that the host fills with a tensor of codes; `kind` names it in messages."""

    segment: str
    tensor: str
    place: Placement
    kind: str


def filled(launch: Launch, graph: Graph) -> Iterator[Filled]:
    """Yield the segments that the host fills. Raises ProgramError if a segment's size does not match its layout."""
    sizes = {segment["name"]: segment["size"] for segment in launch.meta["segments"]}
    for index, form in enumerate(NodeLayout.all_of(launch)):
        site = graph.site(graph.node(form.node))
        channels = launch.arrays.get(f"{READ}.{index}")
        read = [(*pair, False) for pair in zip(form.inputs, form.tensors, strict=True)]
        read += [(segment, tensor, True) for segment, tensor in form.residual]
        for segment, tensor, is_residual in read:
            if form.input_bytes(is_residual) != sizes[segment]:
                raise _damaged(launch, f"the size of its input segment '{segment}' does not match its layout")
            if not 0 < form.fold <= form.block:
                raise _damaged(launch, f"its layout puts {form.fold} pixels in a tile, not 1..{form.block}")
            shape = graph.tensors[tensor].shape or (1,)  # a scalar counts as one channel
            place = form.of_result(site, None, shape) if is_residual else form.of_input(site, shape, channels)
            yield Filled(segment, tensor, place, "input")
        if form.weights is not None:
            place = form.of_weights(site)
            if place.nbytes != sizes[form.weights]:
                raise _damaged(launch, f"the size of its weight segment '{form.weights}' does not match its layout")
            yield Filled(form.weights, site.input(1).name, place, "weight")


def pack(launch: Launch, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return a launch's input segments by name, uint8 (S samples, bytes): the tensors in `values` laid out as tiles.

    Raises ProgramError if the launch's layout does not fit its segments, or a tensor has no value.
    """
    packed = {}
    for segment in filled(launch, graph):
        held = _held(launch, graph, values, segment.tensor)
        packed[segment.segment] = segment.place.pack(held.reshape(len(held), *segment.place.shape))
    samples = max((len(data) for data in packed.values()), default=1)
    return {name: np.broadcast_to(data, (samples, data.shape[1])) for name, data in packed.items()}


def _damaged(launch: Launch, reason: str) -> ProgramError:
    return ProgramError(f"launch '{launch.name}'", reason, "compile the network again")


def _held(launch: Launch, graph: Graph, values: Mapping[str, Array], tensor: str) -> Array:
    value = value_of(graph, values, tensor)
    if value is None:
        raise _damaged(launch, f"input '{tensor}' has no value")
    return held_codes(value)


class Result(NamedTuple):
    """The result of a node in DRAM. `carried`: see plan.carried; None if no sum includes an earlier sum.

    `tables`: the arrays TABLES of the correction; None for an array that the launch lacks.
    """

    site: Site
    form: NodeLayout
    place: Placement
    carried: Array | None
    tables: tuple[Array | None, ...]
    paired: Array | None = None

    def read(self, memory: Array) -> Array:
        """Decode codes or sums (S, *shape) from bytes, uint8 (S, bytes). Channels that are not computed get 0."""
        stored = self.place.read(memory) if self.paired is None else self._read_paired(memory, self.paired)
        if self.carried is not None:
            # The sums include the top byte plane of an earlier tile: see plan.carried.
            planes = self.form.planes if self.place.parts is None else (self.place.parts != NOWHERE).sum(axis=0)
            shifts = np.broadcast_to(self.form.bits * (planes - 1), len(self.carried))[:, None]
            top = stored.reshape(len(memory), len(self.carried), -1) >> shifts
            carried = np.where(self.carried[:, None] >= 0, top[:, self.carried], 0)
            stored -= carried.reshape(stored.shape)
        return self.place.collect(stored)

    def _read_paired(self, memory: Array, lower: Array) -> Array:
        """Decode sums. The third bytes of two tiles, which are -8..7, are the halves of one stored byte.

        The machine adds the sum of the upper tile, shifted right by 12 bits, so bits 12..15 of this sum are subtracted.
        """
        planes = self.place.gathered(memory)
        upper = np.flatnonzero(lower != NOWHERE)
        both = planes[:, 2, lower[upper]] - (planes[:, 1, upper] >> 4)
        low = (both + 8 & 15) - 8
        planes[:, 2, lower[upper]] = low
        planes[:, 2, upper] = (both - low).view(np.int8) >> 4
        return replace(self.place, parts=None).read(planes)

    @property
    def clamped(self) -> bool:
        """Whether some sums are clamped to fewer bytes, to others with the same codes."""
        return self.place.parts is not None and bool((self.place.parts == NOWHERE).any())

    @property
    def correction(self) -> Array | None:
        """The contribution of zero points to the sums, int32, broadcastable to (S, *shape); None without tables."""
        correction, rows, columns = self.tables
        if correction is None or rows is None or columns is None:
            return None
        is_one: bool = correction.shape[:2] == (1, 1)
        return correction[0, 0] if is_one else correction[rows[:, None], columns]


def result_of(launch: Launch, graph: Graph, index: int, form: NodeLayout) -> Result:
    """Return the result of a launch's node number `index`, in the layout of DRAM."""
    site = graph.site(graph.node(form.node))
    names = (CARRIED, COMPUTED, STORED, PAIRED, *TABLES)
    carried, computed, stored, paired, *tables = (launch.arrays.get(f"{name}.{index}") for name in names)
    place = form.of_result(site, computed)
    if stored is not None:
        place = replace(place, parts=stored)
    return Result(site, form, place, carried, tuple(tables), paired)


def unpack(
    launch: Launch, graph: Graph, values: Mapping[str, Array], outputs: Mapping[str, Array], rounding: str
) -> dict[str, Array]:
    """Return the result tensors of a launch as codes, {name: (S samples, *shape)}, from its output segments.

    `values`: as for `pack`. Raises ProgramError if the launch lacks correction tables.
    """
    tensors = {}
    for index, form in enumerate(NodeLayout.all_of(launch)):
        if form.result is None:
            continue
        result = result_of(launch, graph, index, form)
        begin = form.first * form.tile_bytes
        memory = outputs[form.result][:, begin : begin + result.place.nbytes]
        if memory.shape[1] < result.place.nbytes:
            raise _damaged(launch, f"the size of its result segment '{form.result}' does not match its layout")
        stored = result.read(memory)
        site = result.site
        if form.codes:
            codes = given_back(np.ascontiguousarray(stored), site.output)  # the ALU has requantised the sums
        elif isinstance(site.node.op, MatMul):
            # Both operands vary, so the compiler could not compute the correction for the zero points.
            operands = [_held(launch, graph, values, site.input(operand).name) for operand in (0, 1)]
            sums = stored + _product_correction(site, *operands)
            codes = site.node.op.finish(site, sums, rounding_mode(rounding))
        else:
            codes = _finished(result, stored, _residual(graph, values, site), rounding)
        tensors[site.output.name] = codes
    return tensors


def _residual(graph: Graph, values: Mapping[str, Array], site: Site) -> Array | None:
    op = site.node.op
    return value_of(graph, values, site.node.inputs[3]) if isinstance(op, Linear) and op.residual(site) else None


def _finished(result: Result, sums: Array, residual: Array | None, rounding: str) -> Array:
    """Requantise the sums, int32 (S, *shape), on the host, with the codes `residual`; return the codes."""
    site = result.site
    op = result.site.node.op
    if isinstance(op, Linear):
        correction = result.correction
        if correction is None:
            raise ProgramError(f"op '{site.node.name}'", "correction tables are missing", "compile the network again")
        if correction.any():
            sums = sums - correction
        return op.finish(site, sums, rounding_mode(rounding), residual)
    if not isinstance(op, AveragePool2D):
        raise ProgramError(f"op '{site.node.name}'", f"the host cannot finish a {op.kind}", "compile the network again")
    # The machine summed int8 codes, so uint8 codes lack 128 for each value in the window.
    return op.finish(site, sums + held_offset(site.input(0)) * op.counts(site))[0]


def _product_correction(site: Site, left: Array, right: Array) -> Array:
    """Return the term of zero points to add to MatMul sums: int32 (S, *out_shape), or broadcastable to that."""
    za, zb = (held_zero_point(site.input(index)) for index in (0, 1))
    depth = left.shape[-1]
    rows, columns = left.sum(-1, dtype=np.int32)[..., None], right.sum(-2, dtype=np.int32)[..., None, :]
    total: Array = depth * za * zb - zb * rows - za * columns
    return total
