"""The compute engine's gathers and scatters: elements or rows of local memory, chosen by index, and selections by mask.

The commands differ in what an index is, and in whether channels share the indices (measured):

| operations | index | moves |
|---|---|---|
| w_gather, w_scatter | (1, k, 1, 1), shared | elements of a row |
| hw_gather, hw_scatter | (1, k, 1, 2), shared; the column, then the row | elements of a plane |
| pe_gather, pe_scatter, pe_gather_4bank | (n, c, 1, k) | elements of a row |
| h_gather, h_scatter | (n, c, k, 1) | rows of a plane |

The tensor that is indexed may have n = 1. It then serves all n. In a scatter, the last of equal indices wins. An index
out of range is refused, as the vendor's model does. With the operand `other` or `kept`, a gather has exceptions: an
index of all ones (255 or 65535) gives `other`, or else leaves the element of `kept`, which is the old result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import TIU, Flow, Values, define
from tilewright.targets.bm1684x.values.dtypes import U8, U16, U32


class Kind(NamedTuple):
    """What an index of a gather or scatter is.

    `parts` splits an index array in the row numbers and the column numbers, either of which may be None: the element's
    own row or column. `strict` says that an exception must also be in range, `shared` that all channels share indices.
    """

    parts: Callable[[Array], tuple[Array | None, Array | None]]
    strict: bool = False
    shared: bool = False


KINDS: Mapping[str, Kind] = {
    "w": Kind(lambda index: (None, index.reshape(1, 1, 1, -1)), shared=True),
    "hw": Kind(lambda index: (index[..., 1].reshape(1, 1, 1, -1), index[..., 0].reshape(1, 1, 1, -1)), shared=True),
    "pe": Kind(lambda index: (None, index)),
    "h": Kind(lambda index: (index, None), strict=True),
}


def _positions(kind: Kind, v: Values, indexed: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the positions in the flattened tensor of shape `indexed`, and a mask of the exceptions; both have `shape`.

    Raises MachineError if an index is out of range.
    """
    n, c, h, w = np.ogrid[tuple(slice(size) for size in shape)]
    index, one = v["index"].astype(np.int64), indexed[0] == 1
    row, column = kind.parts(index)
    excepted = np.zeros((), np.bool_)
    if {"other", "kept"} & v.data.keys():
        top = v.types["index"].high
        excepted = np.any([part == top for part in (row, column) if part is not None], 0)
    for part, size in ((row, indexed[2]), (column, indexed[3])):
        if part is not None and (bad := (part >= size) & (kind.strict | ~excepted)).any():
            reason = f"an index is {int(part[np.broadcast_to(bad, part.shape)][0])}, but there are {size} elements"
            raise MachineError("index", reason, "give indices in range, or an index of all ones as an exception")
    row, column = (own if part is None else np.where(excepted, 0, part) for part, own in ((row, h), (column, w)))
    flat = np.ravel_multi_index(np.broadcast_arrays(n * (not one), c, row, column), indexed)
    return np.broadcast_to(flat, shape), np.broadcast_to(excepted, shape)


def gather(kind: Kind, v: Values) -> Array:
    """Return y, whose elements are those of x at the indices; exceptions give `other`, or else what `kept` has."""
    at, excepted = _positions(kind, v, v["x"].shape, v.shapes["y"])
    instead = v["other"] if "other" in v.data else v["kept"] if "kept" in v.data else 0
    return np.where(excepted, instead, v["x"].reshape(-1)[at])


def gathered(kind: Kind, v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements of x that a gather reads and of the elements of y that it writes."""
    at, excepted = _positions(kind, v, v["x"].shape, v.shapes["y"])
    read = np.zeros(v["x"].size, np.bool_)
    read[at[~excepted]] = True
    written = ~excepted | ("other" in v.data)
    return {"x": read.reshape(v["x"].shape), "y": written, "kept": np.zeros((), np.bool_)}


def gather_copies(v: Values) -> Array:
    """Return the gather of elements from x (4, c, 1, w). Raises MachineError if the four copies of x differ."""
    bits = np.ascontiguousarray(v["x"]).view(f"<u{v['x'].itemsize}")  # NaNs are unequal
    if (bits != bits[:1]).any():
        raise MachineError("x", "its four copies differ", "write the same values to all of them")
    return gather(KINDS["pe"], _first_copy(v))


def gathered_copies(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    masks = gathered(KINDS["pe"], _first_copy(v), found)
    return {**masks, "x": np.broadcast_to(masks["x"], v["x"].shape)}


def _first_copy(v: Values) -> Values:
    return replace(v, data={**v.data, "x": v["x"][:1]})


def scatter(kind: Kind, v: Values) -> Array:
    """Return y: `y_before` with the elements of x written at the indices."""
    y = v["y_before"].copy()
    shape = (y.shape[0], *v["x"].shape[1:])
    at, _ = _positions(kind, v, y.shape, shape)
    y.reshape(-1)[at.reshape(-1)] = np.broadcast_to(v["x"], shape).reshape(-1)
    return y


def scattered(kind: Kind, v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return the mask of the elements of y that a scatter writes."""
    marks = {**v.data, "x": np.ones(v["x"].shape, np.bool_), "y_before": np.zeros(v.shapes["y"], np.bool_)}
    return {"y": scatter(kind, replace(v, data=marks)), "y_before": np.zeros((), np.bool_)}


def mask_select(v: Values) -> dict[str, Array]:
    """Return y and counts. Each row of y begins with the elements of x where mask (n, c, 1, w) is not 0, and goes on
    with what y_before has there; counts (n, c, 1, 1) is the number of these elements."""
    kept = v["mask"] != 0
    order = np.argsort(~kept, axis=3, kind="stable")
    moved = np.take_along_axis(np.broadcast_to(v["x"], kept.shape), order, 3)
    count = kept.sum(3, keepdims=True)
    return {"y": np.where(np.arange(kept.shape[3]) < count, moved, v["y_before"]), "counts": count}


def selected(v: Values, found: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements of x that a selection reads and of the elements of y that it writes."""
    kept = v["mask"] != 0
    read = kept.any(0, keepdims=True) if v["x"].shape[0] == 1 else kept
    written = np.arange(kept.shape[3]) < found["counts"]
    return {"x": read, "y": written, "y_before": np.zeros((), np.bool_)}


indices = rules.of("index", U8, U16)
alike = rules.alike("x", "y", "other", "kept", "y_before")
moves = partial(define, TIU, flow=Flow.INDEXED, arithmetic=())
for name, kind in KINDS.items():
    places = (*rules.COMPUTE, rules.shared_index) if kind.shared else None
    chosen: dict[str, Any] = {"deciding": ("index",), "places": places}
    takes, puts = partial(gather, kind), partial(scatter, kind)
    moves(f"{name}_gather", "x index other kept", takes, alike, indices, touches=partial(gathered, kind), **chosen)
    chosen |= {"touches": partial(scattered, kind), "by_data": True}
    moves(f"{name}_scatter", "x index y_before", puts, alike, indices, **chosen)
copies: dict[str, Any] = {"deciding": ("index",), "touches": gathered_copies}
moves("pe_gather_4bank", "x index other kept", gather_copies, alike, indices, **copies)
counted: dict[str, Any] = {"outputs": "y counts", "by_data": True, "deciding": ("mask",), "touches": selected}
masks = (rules.of("mask", U8, U16, U32), rules.of("counts", U16))
moves("w_mask_select", "x mask y_before", mask_select, alike, *masks, **counted)
