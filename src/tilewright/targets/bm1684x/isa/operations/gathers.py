"""Gathers and scatters of elements or rows by index, selections by mask, and operations of the sorting engine.

The operations differ in the shape and the meaning of an index, and some share their indices among channels (measured):

| operations | index | moves |
|---|---|---|
| w_gather, w_scatter | (1, k, 1, 1), shared | elements of a row |
| hw_gather, hw_scatter | (1, k, 1, 2), shared; the column, then the row | elements of a plane |
| pe_gather, pe_scatter, pe_gather_4bank | (n, c, 1, k) | elements of a row |
| h_gather, h_scatter | (n, c, k, 1) | rows of a plane |

An indexed tensor with n = 1 serves all n. If a scatter writes an element twice, the last write wins. An index out of
range is refused, as in the vendor's model. A gather with the operand `other` or `kept` has exceptions: an index of all
ones (255 or 65535) gives the value `other`, or keeps the old element of the result (`kept`).

The command formats of the sorting engine are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operation import HAU, TIU, Flow, Values, define
from tilewright.targets.bm1684x.isa.parts import (
    Fields,
    Instruction,
    Layout,
    Local,
    Number,
    Part,
    SharedOperand,
    Sizes,
    Type,
)
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.floats import widen


class Kind(NamedTuple):
    """The kind of index of a gather or scatter.

    `parts` splits an index array into row numbers and column numbers. None means that an element keeps its own row (or
    column). With `strict`, exceptions must be in range as well. With `shared`, all channels share the indices. With
    `lenient`, any index may be out of range (moves of the DMA engine).
    """

    parts: Callable[[Array], tuple[Array | None, Array | None]]
    strict: bool = False
    shared: bool = False
    lenient: bool = False


KINDS: Mapping[str, Kind] = {
    # `parts` returns rows and columns
    "w": Kind(lambda index: (None, index.reshape(1, 1, 1, -1)), shared=True),
    "hw": Kind(lambda index: (index[..., 1].reshape(1, 1, 1, -1), index[..., 0].reshape(1, 1, 1, -1)), shared=True),
    "pe": Kind(lambda index: (None, index)),
    "h": Kind(lambda index: (index, None), strict=True),
}
#: The kind of the DMA engine's gathers and scatters, which move rows.
TRANSFERRED = KINDS["h"]._replace(lenient=True)


def _positions(kind: Kind, v: Values, indexed: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return positions in the flattened tensor of shape `indexed`, and a mask of exceptions, both of shape `shape`.

    Raises MachineError if an index is out of range.
    """
    n, c, h, w = np.ogrid[tuple(slice(size) for size in shape)]
    index = v["index"].astype(np.int64)
    single = indexed[0] == 1
    row, column = kind.parts(index)
    # An index of all ones is an exception only if the command has the operand `other` or `kept`.
    excepted = np.zeros((), np.bool_)
    if {"other", "kept"} & v.data.keys():
        top = v.types["index"].high
        excepted = np.any([part == top for part in (row, column) if part is not None], 0)
    for part, size in ((row, indexed[2]), (column, indexed[3])):
        if part is not None and kind.lenient:
            excepted = excepted | (part >= size)
        # The vendor's model refuses exceptions that are out of range in gathers of rows, but not in gathers of
        # elements.
        elif part is not None and (bad := (part >= size) & (kind.strict | ~excepted)).any():
            reason = f"an index is {int(part[np.broadcast_to(bad, part.shape)][0])}, but there are {size} elements"
            raise MachineError("index", reason, "give indices in range, or an index of all ones as an exception")
    row, column = (
        default if part is None else np.where(excepted, 0, part) for part, default in ((row, h), (column, w))
    )
    # If the tensor has n = 1, all n read it, so the position along n is 0.
    flat = np.ravel_multi_index(np.broadcast_arrays(n * (not single), c, row, column), indexed)
    return np.broadcast_to(flat, shape), np.broadcast_to(excepted, shape)


#: A function that returns two arrays for the elements of y: positions of their sources in the flattened tensor, and a
#: mask of exceptions.
Positions = Callable[[Values], tuple[Array, Array]]


def positions(kind: Kind, v: Values) -> tuple[Array, Array]:
    return _positions(kind, v, v["x"].shape, v.shapes["y"])


def gather(of: Positions, v: Values, source: str = "x") -> Array:
    """Return the elements of `source` at the positions. Exceptions give `other`, `fill` or the element of `kept`."""
    at, excepted = of(v)
    instead = next((v[name] for name in ("other", "fill", "kept") if name in v.data), 0)
    return np.where(excepted, instead, v[source].reshape(-1)[at])


def gathered(of: Positions, v: Values, results: Mapping[str, Array], source: str = "x") -> dict[str, Array]:
    """Return masks of the elements that `gather` reads and writes. Exceptions without a value are not written."""
    at, excepted = of(v)
    read = np.zeros(v[source].size, np.bool_)
    read[at[~excepted]] = True
    written = ~excepted | bool({"other", "fill"} & v.data.keys())
    return {source: read.reshape(v[source].shape), "y": written, "kept": np.zeros((), np.bool_)}


def gather_copies(v: Values) -> Array:
    """Gather elements from x (4, c, 1, w). Raises MachineError if the four copies in x differ."""
    bits = np.ascontiguousarray(v["x"]).view(f"<u{v['x'].itemsize}")  # compares bits, because NaNs are unequal
    if (bits != bits[:1]).any():
        raise MachineError("x", "its four copies differ", "write the same values to all of them")
    return gather(partial(positions, KINDS["pe"]), _first_copy(v))


def gathered_copies(v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    touched = gathered(partial(positions, KINDS["pe"]), _first_copy(v), results)
    return {**touched, "x": np.broadcast_to(touched["x"], v["x"].shape)}


def _first_copy(v: Values) -> Values:
    return replace(v, data={**v.data, "x": v["x"][:1]})


def scatter(kind: Kind, v: Values) -> Array:
    """Return a copy of `y_before` (or zeros) with the elements of x written at the indices.

    Exceptions are not written. If two indices are equal, the last write wins.
    """
    y = v["y_before"].copy() if "y_before" in v.data else np.zeros(v.shapes["y"], v.types["y"].storage)
    shape = (y.shape[0], *v["x"].shape[1:])
    at, excepted = _positions(kind, v, y.shape, shape)
    # NumPy assigns in order, so for equal indices the last write wins, as on the machine.
    y.reshape(-1)[at[~excepted]] = np.broadcast_to(v["x"], shape)[~excepted]
    return y


def scattered(kind: Kind, v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    if "y_before" not in v.data:
        return {}
    # A scatter of True instead of values shows which elements are written.
    marks = {**v.data, "x": np.ones(v["x"].shape, np.bool_), "y_before": np.zeros(v.shapes["y"], np.bool_)}
    return {"y": scatter(kind, replace(v, data=marks)), "y_before": np.zeros((), np.bool_)}


def first_ones(v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    """Return the mask of the written elements of y: a selection of N elements writes the first N."""
    shape = v.shapes["y"]
    return {"y": (np.arange(math.prod(shape)) < results["y"].size).reshape(shape)}


def mask_select(v: Values) -> dict[str, Array]:
    """Return the selected elements of each row (y), and their numbers (counts).

    Each row of y begins with the elements of x for which `mask` (n, c, 1, w) is not 0. The rest of the row comes from
    `y_before`. `counts` (n, c, 1, 1) has the number of selected elements in each row.
    """
    kept = v["mask"] != 0
    # A stable sort of the mask moves the selected elements of each row to the front and keeps their order.
    order = np.argsort(~kept, axis=3, kind="stable")
    moved = np.take_along_axis(np.broadcast_to(v["x"], kept.shape), order, 3)
    count = kept.sum(3, keepdims=True)
    return {"y": np.where(np.arange(kept.shape[3]) < count, moved, v["y_before"]), "counts": count}


def selected(v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements that `mask_select` reads and writes."""
    kept = v["mask"] != 0
    read = kept.any(0, keepdims=True) if v["x"].shape[0] == 1 else kept
    written = np.arange(kept.shape[3]) < results["counts"]
    return {"x": read, "y": written, "y_before": np.zeros((), np.bool_)}


def _entries(v: Values) -> tuple[Array, Array]:
    index = v["x"].astype(np.int64)
    entries = v["table"].shape[-1]
    beyond = index >= entries
    # A table (1, c, 1, k) has k entries per channel. A table (k,) is shared by all channels.
    channel = np.arange(index.shape[1])[:, None, None] if v["table"].size > entries else 0
    return channel * entries + np.where(beyond, 0, index), beyond


indices = rules.of("index", U8, U16)
same_type = rules.same_type("x", "y", "other", "kept", "y_before")
moves = partial(define, TIU, flow=Flow.INDEXED, arithmetic=())
for name, kind in KINDS.items():
    places = (*rules.COMPUTE, rules.shared_index) if kind.shared else None
    chosen: dict[str, Any] = {"deciding": ("index",), "places": places}
    of = partial(positions, kind)
    puts = partial(scatter, kind)
    reads = partial(gathered, of)
    moves(f"{name}_gather", "x index other kept", partial(gather, of), same_type, indices, touches=reads, **chosen)
    chosen |= {"touches": partial(scattered, kind), "by_data": True}
    moves(f"{name}_scatter", "x index y_before", puts, same_type, indices, **chosen)
copies: dict[str, Any] = {"deciding": ("index",), "touches": gathered_copies}
moves("pe_gather_4bank", "x index other kept", gather_copies, same_type, indices, **copies)
counted: dict[str, Any] = {"outputs": "y counts", "by_data": True, "deciding": ("mask",), "touches": selected}
kinds = (rules.of("mask", U8, U16, U32), rules.of("counts", U16))
moves("w_mask_select", "x mask y_before", mask_select, same_type, *kinds, **counted)


looks = (rules.same_type("table", "y", "fill"), rules.of("x", U8, U16))
touches = partial(gathered, _entries, source="table")
looked: Mapping[str, Any] = {"deciding": ("x",), "arithmetic": (), "touches": touches}
define(TIU, "table_lookup", "x table fill", partial(gather, _entries, source="table"), *looks, **looked)


#: A move only copies bits, so its types are unsigned.
BITS = Type("res0_prec")
INDEX = Type("opd1_prec")
#: Two codes of the field opd0_str: a table that all channels of a lane share, and rows aligned to 64 bytes.
SHARED = 4
BY_ROWS = 3
#: pe_gather_4bank reads four copies of its table, and each copy begins an eighth of a lane after the previous one.
COPIES = 4
EIGHTHS = 8


def in_each_lane(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the strides of a table of which each lane has one copy, for all n and c."""
    return Stride(0, 0, layout.line(shape, dtype, 0, config).h, 1)


def in_four_banks(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the strides of four copies of a table with one row per channel."""
    single = layout.aligned(Shape(1, *shape[1:]), dtype, start, config)
    return single._replace(n=config.lane_bytes // EIGHTHS // dtype.bytes)


def once_in_four_banks(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    return in_four_banks(shape, dtype, start, config)._replace(c=0)


@dataclass(frozen=True)
class Table(Local):
    """The encoding of the operand x of a gather or scatter: one row per channel, or one row for all channels."""

    per_channel: tuple[int, Layout] = (0, layout.aligned)
    shared: Layout = in_each_lane

    def strides(self, encoded: EncodedCommand) -> Layout | Stride:
        return self.shared if encoded["opd0_str"] == SHARED else self.per_channel[1]

    def codes(self, command: Command, tensor: Tensor) -> Fields:
        return {"opd0_str": SHARED if tensor.stride.c == 0 else self.per_channel[0]}


ROW = Sizes("1 res0_c opd0_h opd0_w")
PLANE = Sizes("res0_n res0_c opd0_h opd0_w")
LINES = Table("x", "opd0", BITS, Sizes("1 res0_c opd0_h res0_w"), per_channel=(BY_ROWS, layout.line))
Y = Local("y", "res0", BITS, layout=layout.aligned)
LINED = Local("y", "res0", BITS, layout=layout.line)
X = Local("x", "opd0", BITS, PLANE, layout.aligned)
BY_CHANNEL = Table("x", "opd0", BITS, ROW)
COPIED = Table(
    *("x", "opd0", BITS, Sizes(f"{COPIES} res0_c opd0_h opd0_w")),
    per_channel=(BY_ROWS, in_four_banks),
    shared=once_in_four_banks,
)
SHARED_INDEX = Local("index", "opd1", INDEX, Sizes("1 opd1_c 1 opd1_w"), layout.compact)
SHARED_PAIRS = Local("index", "opd1", INDEX, Sizes("1 opd1_c 1 2"), layout.compact)
CHANNEL_INDEX = Local(
    "index", "opd1", INDEX, Sizes("res0_n res0_c 1 opd1_w"), layout.aligned, noted=Sizes("- opd1_c - opd1_w")
)
NUMBER = Number("other", "opd2_addr", "opd2_const", BITS)


def _gather(
    name: str, functions: tuple[int, ...], operation: str, parts: tuple[Part, ...], y: Local
) -> Iterator[Instruction]:
    # A gather has one of three instructions, depending on its exceptions: a number, the old element, or no exceptions.
    for function in functions:
        for excepts, writes, more in ((1, 1, (NUMBER,)), (1, 0, (SharedOperand("kept", y),)), (0, 0, ())):
            chosen = {"tsk_eu_typ": function, "opd3_const": excepts, "opd2_const": writes}
            takes = partial(_has_exceptions, {part.operand for part in more})
            yield Instruction(name, operation, (*parts, *more, y), chosen, takes=takes)


def _has_exceptions(expected: set[str], command: Command) -> bool:
    return {"other", "kept"} & command.operands.keys() == expected


def _scatter(name: str, function: int, operation: str, parts: tuple[Part, ...], y: Local) -> Instruction:
    return Instruction(name, operation, (*parts, SharedOperand("y_before", y), y), {"tsk_eu_typ": function})


COUNT = Local("counts", "res1", Type(0, always=U16), Sizes("res0_n res0_c 1 1"), layout.compact)
MASK = Local("mask", "opd1", INDEX, Sizes("res0_n res0_c 1 opd1_w"), layout.aligned, noted=Sizes("- opd1_c - opd1_w"))
#: The index of a gather, and of a scatter, of rows.
ROWS_TO, ROWS_FROM = (
    Local("index", "opd1", INDEX, Sizes(f"res0_n res0_c {height} 1"), layout.aligned) for height in ("res0_h", "opd0_h")
)
INSTRUCTIONS = (
    *_gather("SG", (0,), "w_gather", (X, SHARED_INDEX), Y),
    *_gather("SG", (1,), "hw_gather", (X, SHARED_PAIRS), Y),
    *_gather("SG", (5, 13), "pe_gather", (BY_CHANNEL, CHANNEL_INDEX), Y),
    *_gather("SG", (7,), "pe_gather_4bank", (COPIED, CHANNEL_INDEX), Y),
    *_gather("SGL", (17,), "h_gather", (LINES, ROWS_TO), LINED),
    _scatter("SGL", 18, "h_scatter", (LINES, ROWS_FROM), LINED),
    _scatter("SG", 4, "hw_scatter", (X, SHARED_PAIRS), Y),
    _scatter("SG", 3, "w_scatter", (X, SHARED_INDEX), Y),
    *(_scatter("SG", function, "pe_scatter", (BY_CHANNEL, CHANNEL_INDEX), Y) for function in (6, 14)),
    *(
        Instruction(
            "SG", "w_mask_select", (BY_CHANNEL, MASK, SharedOperand("y_before", Y), COUNT, Y), {"tsk_eu_typ": function}
        )
        for function in (8, 15)
    ),
)


def sort(v: Values) -> dict[str, Array]:
    """Return the first K elements of x in stable sorted order (y), and their `numbers` or positions (index)."""
    key = widen(v["x"], F32) if v.types["x"] is F32 else v["x"].astype(np.int64)
    # negating the keys keeps a descending sort stable
    order = np.argsort(-key if v.attribute("descending") else key, kind="stable")[: v.shapes["y"][0]]
    return {"y": v["x"][order], "index": v["numbers"][order] if "numbers" in v.data else order.astype(np.int32)}


def _lines(v: Values) -> tuple[Array, Array]:
    """Return the position in x of each element of y, and a mask of the elements with an index out of range.

    All operands are flat arrays of lines. For each index, y has one line: line i of y is line `index[i] - base` of x.
    Raises ValueError if x or y does not consist of whole lines.
    """
    line = v["index"].astype(np.int64) - v.attribute("base")
    size = v.shapes["y"][0] // len(v["index"])
    if not size or v["x"].size % size or size * len(line) != v.shapes["y"][0]:
        raise ValueError(f"x has {v['x'].size} elements, and y has {v.shapes['y'][0]} for {len(line)} indices")
    beyond = (line < 0) | (line >= v["x"].size // size)
    at = np.where(beyond, 0, line)[:, None] * size + np.arange(size)
    return at.reshape(-1), np.repeat(beyond, size)


def hard_nms(v: Values) -> dict[str, Array]:
    """Return the boxes to keep (i32) and their number, by an unverified **model** of non-maximum suppression.

    The boxes are in descending order of their scores. x is a flat (boxes, boxes) matrix. A nonzero element means that
    the box of its row suppresses the box of its column. A box is kept unless a kept box before it suppresses it. The
    loop ends when y is full. Raises ValueError if x is not square.
    """
    boxes = math.isqrt(v["x"].size)
    if boxes * boxes != v["x"].size:
        raise ValueError(f"x has {v['x'].size} elements, not the square of a number of boxes")
    suppresses = v["x"].reshape(boxes, boxes) != 0
    suppressed = np.zeros(boxes, np.bool_)
    kept: list[int] = []
    for box in range(boxes):
        if not suppressed[box] and len(kept) < v.shapes["y"][0]:
            kept.append(box)
            suppressed |= suppresses[box]
    return {"y": np.array(kept, np.int32), "count": np.array([len(kept)])}


def soft_nms(v: Values) -> dict[str, Array]:
    """Return the boxes to keep (i32), best first, and their number, by an unverified **model** of soft suppression.

    x (boxes * boxes) has the overlap of each pair of boxes, and `scores` (boxes) has the scores, both in f32. Each
    operation rounds. Each step keeps the box with the best score, and multiplies every other score by 1 minus the
    overlap with the kept box. The loop ends when no score exceeds `threshold`, or y is full.
    """
    scores = v["scores"].copy()
    overlaps = v["x"].reshape(scores.size, scores.size)
    kept: list[int] = []
    while len(kept) < min(v.shapes["y"][0], scores.size):
        best = int(np.argmax(scores))
        if not scores[best] > v.attribute("threshold"):
            break
        kept.append(best)
        scores = scores * (np.float32(1) - overlaps[best])
        scores[kept] = -np.inf
    return {"y": np.array(kept, np.int32), "count": np.array([len(kept)])}


sorted_types = (rules.of("x", F32, I32, U32), rules.same_type("x", "y"))
define(HAU, "hau_sort", "x numbers", sort, *sorted_types, outputs="y index", deciding=("x",))
lines = (rules.same_type("x", "y", "other", "kept"), rules.of("index", I32))
gathers: Mapping[str, Any] = {"by_data": True, "deciding": ("index",), "touches": partial(gathered, _lines)}
define(HAU, "hau_line_gather", "x index other kept", partial(gather, _lines), *lines, **gathers)
kept = (rules.of("y", I32), rules.of("count", U32, I32))
selects: Mapping[str, Any] = {"outputs": "y count", "by_data": True, "touches": first_ones}
define(HAU, "hau_hard_nms", "x", hard_nms, rules.of("x", U8), *kept, deciding=("x",), **selects)
boxes = (rules.of("x", F32), rules.of("scores", F32), *kept)
define(HAU, "hau_soft_nms", "x scores", soft_nms, *boxes, deciding=("x", "scores"), **selects)
