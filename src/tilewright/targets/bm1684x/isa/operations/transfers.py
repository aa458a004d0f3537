"""Moves, which copy bits: transposes and broadcasts of the compute engine, and transfers of the DMA engine.

The module defines their meaning, and their encoding in the format TRANS&BC and in the DMA engine's formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.config import LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import DMA, TIU, Flow, Values, define
from tilewright.targets.bm1684x.isa.operations import gathers
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
    local_tensor,
    located,
    of_kind,
    one_field,
    refused,
)
from tilewright.targets.bm1684x.isa.stream import ALL_LANES, EncodedCommand
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Grid, Matrix, Tensor
from tilewright.targets.bm1684x.values.dtypes import U8, U16, U32


def transposed(*order: int) -> Callable[[Values], Array]:
    return lambda v: v["x"].transpose(order)


def broadcast(v: Values) -> Array:
    return np.broadcast_to(v["x"], v.shapes["y"])


cw_transposed = transposed(0, 3, 2, 1)
same_type = rules.same_type("x", "y")
moves = partial(define, TIU, flow=Flow.MOVE, arithmetic=())
for name in ("cw_trans", "wc_trans"):
    moves(name, "x", cw_transposed, same_type, places=(rules.in_lanes, rules.first_lane))
moves("npu_bcast", "x", broadcast, same_type, places=(rules.in_lanes, rules.within_lanes))
moves("static_bcast", "x", broadcast, same_type, places=())
moves("static_distribute", "x", cw_transposed, same_type, places=(rules.first_of_lanes,))


#: A move only copies bits, so its type is unsigned.
OF_RESULT = Type("res0_prec")


@dataclass(frozen=True)
class StaticRow:
    """The encoding of an operand x that is a row of static memory. The field `length` has the number of elements."""

    length: str = "res0_w"
    operand = "x"
    type = OF_RESULT

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        """Return the row as the operand x. Raises ProgramError if the row's address is not in static memory."""
        address = encoded["opd0_addr"]
        if not STATIC_BASE <= address < STATIC_BASE + config.static_bytes:
            raise ProgramError(str(encoded), f"its source {address:#x} is not in static memory")
        return {"x": Tensor.ddr(address, (1, 1, 1, encoded[self.length]), OF_RESULT.read(encoded), config)}

    def write(self, command: Command) -> Fields:
        return {"opd0_addr": of_kind(command, "x", Tensor, "x is not a tensor").address}


def _size(axis: int, command: Command) -> int:
    return command.results["y"].shape[axis]


def _transposing(function: int, operation: str, sizes: str, y_layout: Layout | None = None, **more: Any) -> Instruction:
    # `sizes` names the fields of the result that give the sizes of the source.
    x = Local("x", "opd0", OF_RESULT, Sizes(sizes), layout.aligned, noted=Sizes("- opd0_c - opd0_w"))
    y = Local("y", "res0", OF_RESULT, layout=y_layout)
    return Instruction("TRANS&BC", operation, (x, y), {"tsk_eu_typ": function}, **more)


TRANSPOSES = (
    _transposing(0, "cw_trans", "res0_n res0_w res0_h res0_c", layout.line),
    _transposing(1, "wc_trans", "res0_n res0_w res0_h res0_c"),
    # Function 3 sends a single channel to all lanes. It precedes function 2, because function 2 also matches a single
    # channel.
    _transposing(3, "npu_bcast", "res0_n 1 res0_h res0_w", takes=lambda c: local_tensor(c, "x").shape.c == 1),
    _transposing(2, "npu_bcast", "res0_n res0_c res0_h res0_w"),
    Instruction(
        *("TRANS&BC", "static_bcast", (StaticRow(), Local("y", "res0", OF_RESULT)), {"tsk_eu_typ": 4}),
        written={name: partial(_size, axis) for name, axis in (("opd0_c", 1), ("opd0_w", 3))},
    ),
    Instruction(
        "TRANS&BC",
        "static_distribute",
        (StaticRow("res0_c"), Local("y", "res0", OF_RESULT, layout=layout.compact)),
        {"tsk_eu_typ": 5},
        written={"opd0_c": partial(_size, 1), "opd0_w": 1},
    ),
)


def mask_select(v: Values) -> dict[str, Array]:
    """Return the elements of x with a nonzero mask in NCHW order, and their number. The rest of y is unchanged."""
    kept = v["x"][v["mask"] != 0]
    return {"y": kept, "count": np.array([kept.size])}


def selected(v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    """Return masks of the elements that `mask_select` reads and writes."""
    return {"x": v["mask"] != 0, **gathers.first_ones(v, results)}


def nonzero(v: Values) -> dict[str, Array]:
    """Return the positions of nonzero elements of x (y: u32, in NCHW order, counted from `base`), and their number."""
    at = np.flatnonzero(v["x"]) + v.attribute("base")
    return {"y": at.astype(np.uint32), "count": np.array([at.size])}


same_type = rules.same_type("x", "y")
moves = partial(define, DMA, flow=Flow.MOVE, arithmetic=())
for name, places in (("dma_copy", (rules.short_steps,)), ("dma_linear", None)):  # both read and write in NCHW order
    moves(name, "x", lambda v: v["x"].reshape(v.shapes["y"]), same_type, places=places)
moves("dma_broadcast", "x", broadcast, same_type, places=(rules.within_lanes, rules.packed_rows))
moves("dma_linear_bcast", "x", broadcast, same_type, places=(rules.within_lanes,))
moves("dma_nc_trans", "x", transposed(1, 0, 2, 3), same_type)
moves("dma_cw_trans", "x", transposed(0, 3, 2, 1), same_type)
moves("dma_matrix_trans", "x", transposed(1, 0), same_type)
moves("dma_reverse", "x", lambda v: np.flip(v["x"], v.attribute("axis")), same_type)
filled = (rules.same_type("x", "y", "fill"), rules.of("index", U32, U16, U8))
by_row = partial(gathers.positions, gathers.TRANSFERRED)
indexed: Mapping[str, Any] = {"deciding": ("index",), "touches": partial(gathers.gathered, by_row)}
define(DMA, "dma_h_gather", "x index fill", partial(gathers.gather, by_row), *filled, **indexed)
scatters: Mapping[str, Any] = {
    "by_data": True,
    "deciding": ("index",),
    "touches": partial(gathers.scattered, gathers.TRANSFERRED),
}
define(DMA, "dma_h_scatter", "x index y_before", partial(gathers.scatter, gathers.TRANSFERRED), same_type, **scatters)
#: For selections, the operands' values decide the number of written elements.
selects: Mapping[str, Any] = {"outputs": "y count", "by_data": True}
masked: Mapping[str, Any] = {"deciding": ("mask",), "touches": selected, **selects}
define(DMA, "dma_mask_select", "x mask", mask_select, same_type, rules.integers("mask"), **masked)
numbered = (rules.integers("x"), rules.of("y", U32))
define(DMA, "dma_nonzero", "x", nonzero, *numbered, deciding=("x",), touches=gathers.first_ones, **selects)


#: The type of a transfer's operands. Transfers copy bits, so the type is unsigned.
BITS = Type("src_data_format")


def check(encoded: EncodedCommand) -> None:
    """Check that an encoded transfer is modelled. Raises ProgramError if it decompresses data or masks lanes."""
    if encoded["decompress_enable"]:
        raise ProgramError(str(encoded), "it decompresses data, which is not modelled")
    if not encoded["localmem_mask_l32"] == encoded["localmem_mask_h32"] == ALL_LANES:
        raise ProgramError(str(encoded), "it masks lanes, which is not modelled")


def _end_fields(end: str, tensor: Tensor) -> Fields:
    fields = {f"{end}_{axis}size": size for axis, size in zip("nchw", tensor.shape, strict=True)}
    fields |= {f"{end}_{axis}stride": step for axis, step in zip("nchw", tensor.stride, strict=True)}
    return fields | _place_fields(end, tensor)


def _place_fields(end: str, tensor: Tensor) -> Fields:
    return {f"{end}_start_addr_l32": tensor.address & 0xFFFF_FFFF, f"{end}_start_addr_h8": tensor.address >> 32}


def _address(encoded: EncodedCommand, end: str) -> int:
    high = encoded[f"{end}_start_addr_h8"] & 0xFF  # for a mask, this field has 32 bits
    return high << 32 | encoded[f"{end}_start_addr_l32"]


@dataclass(frozen=True)
class TransferEnd:
    """The encoding of a transfer's source, destination or index.

    Without strides, an operand has the default layout of its memory. With `packed`, the stride along w is 1, and its
    field is ignored. With `strided`, the command always has strides, and the flag for strides is ignored. Without
    `sized`, the encoder writes only the address. Without `steps`, the encoder writes no strides.
    """

    operand: str
    end: str
    sizes: Sizes
    packed: bool = False
    strided: bool = False
    type: Type = BITS
    sized: bool = True
    steps: bool = True

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        address = _address(encoded, self.end)
        shape = self.sizes.read(encoded)
        dtype = self.type.read(encoded)
        if self.strided or encoded["stride_enable"]:
            stride = Stride(*(encoded.get(f"{self.end}_{axis}stride") for axis in "nchw"))
            return {
                self.operand: Tensor(address, shape, stride._replace(w=1) if self.packed else stride, dtype, config)
            }
        # In local memory, the default is the layout of a DMA copy, which ignores the start lane (layouts/layout.py). In
        # other memories, the default has no gaps.
        if LOCAL_BASE <= address < LOCAL_BASE + config.local_bytes:
            lane = (address - LOCAL_BASE) // config.lane_bytes
            return {self.operand: Tensor(address, shape, layout.dma_default(shape, dtype, lane, config), dtype, config)}
        return {self.operand: Tensor.ddr(address, shape, dtype, config)}

    def write(self, command: Command) -> Fields:
        tensor = of_kind(command, self.operand, Tensor, f"{self.operand} is not a tensor")
        if not self.sized:
            return _place_fields(self.end, tensor)
        fields = _end_fields(self.end, tensor) | self.sizes.write(tensor.shape) | self.type.write(tensor.dtype)
        return {name: value for name, value in fields.items() if self.steps or not name.endswith("stride")}


def _keeps_shape(command: Command) -> bool:
    # If the shapes differ, a copy takes the elements of both in NCHW order.
    x, y = command["x"], command["y"]
    return isinstance(x, Constant) or (not isinstance(y, Constant) and x.shape == y.shape)


#: The fields with the sizes of a source or destination, in the order n, c, h, w. A transfer encodes the sizes of both,
#: but the machine reads the sizes of the source wherever they are sufficient.
SRC, DST = "src_nsize src_csize src_hsize src_wsize", "dst_nsize dst_csize dst_hsize dst_wsize"
NC = "src_csize src_nsize src_hsize src_wsize"
CW = "src_nsize src_wsize src_hsize src_csize"
TO_ALL = "src_nsize dst_csize src_hsize src_wsize"
FROM_ONE = "src_nsize 1 src_hsize src_wsize"
SAME_SHAPE = {"nchw_copy": _keeps_shape}
ENDS = (("x", "src"), ("y", "dst"))
NOTHING: Mapping[str, Any] = {}
FILL = Number("x", "constant_value", "fill_constant_en", BITS)


def _tensor_moves() -> Iterator[Instruction]:
    # Functions 5 and 6 of DMA_tensor, which write four banks, are not modelled. DMA_cw_transpose has a single function,
    # and no field for a function number.
    for name, chosen, operation, to, of in (
        ("DMA_tensor", {"cmd_special_function": 0, "nchw_copy": 1}, "dma_copy", SRC, SRC),
        ("DMA_tensor", {"cmd_special_function": 0, "nchw_copy": 0}, "dma_copy", DST, SRC),
        ("DMA_tensor", {"cmd_special_function": 1, "stride_enable": 1}, "dma_nc_trans", NC, SRC),
        ("DMA_tensor", {"cmd_special_function": 1, "stride_enable": 0}, "dma_nc_trans", NC, SRC),
        ("DMA_tensor", {"cmd_special_function": 2}, "dma_cw_trans", CW, SRC),
        ("DMA_tensor", {"cmd_special_function": 3, "stride_enable": 1}, "dma_broadcast", TO_ALL, FROM_ONE),
        ("DMA_tensor", {"cmd_special_function": 3, "stride_enable": 0}, "dma_broadcast", TO_ALL, FROM_ONE),
        ("DMA_tensor", {"cmd_special_function": 4}, "dma_cw_trans", CW, SRC),
        ("DMA_cw_transpose", {}, "dma_cw_trans", CW, SRC),
    ):
        packed = operation != "dma_copy"  # transposes and broadcasts ignore the stride along w
        x, y = TransferEnd("x", "src", Sizes(of), packed), TransferEnd("y", "dst", Sizes(to), packed)
        # In any of these transfers, a constant may replace the source. The constant then fills the destination.
        fills, copies = ({**chosen, "fill_constant_en": fills} for fills in (1, 0))
        yield Instruction(name, "dma_broadcast", (FILL, y), fills, written=SAME_SHAPE)
        takes = _keeps_shape if chosen.get("nchw_copy") else None
        fixed = {"without_strides": not chosen["stride_enable"]} if "stride_enable" in chosen else NOTHING
        yield Instruction(name, operation, (x, y), copies, written=SAME_SHAPE, takes=takes, fixed=fixed)


@dataclass(frozen=True)
class MatrixEnd:
    """The encoding of the source or destination of a DMA_matrix command.

    One of the two is a grid outside of local memory, and the other is a matrix in local memory, with columns spread
    over lanes. With `transposed`, the rows of the grid are the columns of the matrix. In this format, the vendor's
    names of the fields for low and high address bits are swapped.
    """

    operand: str
    end: str
    transposed: bool
    type = BITS

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        # The addresses tell whether the source or the destination is the local matrix. The command contains the sizes
        # of the grid.
        from_lanes = LOCAL_BASE <= _matrix_address(encoded, "src") < LOCAL_BASE + config.local_bytes
        end, local, dram = self.end, *(("src", "dst") if from_lanes else ("dst", "src"))
        rows, columns = encoded[f"{dram}_hsize"], encoded[f"{dram}_wsize"]
        shape, stride = Shape(1, 1, rows, columns), Stride(0, 0, encoded[f"{dram}_hstride"], 1)
        if end == local:
            rows, columns = (columns, rows) if self.transposed else (rows, columns)
            shape = Shape(rows, encoded[f"{end}_csize"], 1, encoded[f"{end}_wsize"])
            stride = Stride(encoded[f"{end}_nstride"], encoded[f"{end}_cstride"], 0, 1)
        tensor = Tensor(_matrix_address(encoded, end), shape, stride, BITS.read(encoded), config)
        return {self.operand: Matrix(tensor, columns) if end == local else Grid(tensor)}

    def write(self, command: Command) -> Fields:
        operand = command[self.operand]
        end = self.end
        if not isinstance(operand, Matrix | Grid):
            remedy = "copy between a tpu.matrix(..) and the grid() of a tensor outside of local memory"
            raise refused(command, f"{self.operand} is not a matrix", remedy)
        fields = _end_fields(end, operand.storage) | BITS.write(operand.dtype)
        fields[f"{end}_start_addr_h32"] = fields.pop(f"{end}_start_addr_l32")
        fields[f"{end}_start_addr_l8"] = fields.pop(f"{end}_start_addr_h8")
        return fields


def _matrix_address(encoded: EncodedCommand, end: str) -> int:
    return encoded[f"{end}_start_addr_l8"] << 32 | encoded[f"{end}_start_addr_h32"]


def _by_index(format_name: str, operation: str, *parts: Part) -> Instruction:
    index_sizes = Sizes("1 index_csize index_hsize 1")
    index_type = Type(0, always=U32)
    index = TransferEnd("index", "index", index_sizes, packed=True, type=index_type)
    x = TransferEnd("x", "src", Sizes("1 src_csize src_hsize src_wsize"), packed=True)
    return Instruction(format_name, operation, (x, index, *parts, ROWS), {"cmd_special_function": 0})


ROWS = TransferEnd("y", "dst", Sizes("1 src_csize dst_hsize src_wsize"), packed=True)
LINE = Sizes("1 1 1 src_cstride")


@dataclass(frozen=True)
class LaneCopies:
    """The encoding of the result of a copy to several lanes, at the same offset in each lane."""

    operand = "y"
    type = BITS

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        at = _address(encoded, "dst") % config.local_bytes
        shape = Shape(1, encoded["dst_csize"], 1, encoded["src_cstride"])
        return {"y": located(at, shape, BITS.read(encoded), config, layout.compact)}

    def write(self, command: Command) -> Fields:
        y = local_tensor(command, "y")
        return {"dst_start_addr_l32": y.address, "dst_start_addr_h8": 0, "dst_csize": y.shape.c}


def _counts_in_register(command: Command) -> bool:
    return "count" not in command.results


MASK_TYPE = Type("mask_data_format")
SELECTIONS = (
    Instruction(
        *("DMA_masked_select", "dma_mask_select"),
        (
            TransferEnd("x", "src", Sizes(SRC), steps=False),
            TransferEnd("mask", "mask", Sizes(SRC), type=MASK_TYPE, steps=False),
            TransferEnd("y", "dst", Sizes(SRC), sized=False),
        ),
        {"stride_enable": 0},
        takes=_counts_in_register,
    ),
    Instruction(
        *("DMA_nonzero", "dma_nonzero"),
        (
            TransferEnd("x", "src", Sizes(SRC), steps=False),
            one_field("base", "dst_nstride"),
            TransferEnd("y", "dst", Sizes(SRC), type=Type(0, always=U32), sized=False),
        ),
        {"stride_enable": 0},
        written={"index_data_format": U32.precision},
        takes=_counts_in_register,
    ),
)
PLAIN = {"cmd_special_function": 0, "fill_constant_en": 0}
INSTRUCTIONS = (
    *TRANSPOSES,
    *_tensor_moves(),
    *SELECTIONS,
    Instruction(
        *("DMA_general", "dma_linear_bcast", (TransferEnd("x", "src", LINE, packed=True, strided=True), LaneCopies())),
        {"cmd_special_function": 1, "fill_constant_en": 0},
    ),
    Instruction(
        "DMA_general", "dma_linear", tuple(TransferEnd(*end, LINE, packed=True, strided=True) for end in ENDS), PLAIN
    ),
    Instruction(
        "DMA_matrix", "dma_matrix_trans", tuple(MatrixEnd(*end, True) for end in ENDS), {"cmd_special_function": 1}
    ),
    Instruction("DMA_matrix", "dma_copy", tuple(MatrixEnd(*end, False) for end in ENDS), {}),
    _by_index("DMA_gather", "dma_h_gather", Number("fill", "constant_value", "", BITS)),
    _by_index("DMA_scatter", "dma_h_scatter", SharedOperand("y_before", ROWS)),
)
