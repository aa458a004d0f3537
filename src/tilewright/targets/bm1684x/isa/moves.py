"""Transposes and broadcasts of the compute engine, and moves of the DMA engine: what their encoded commands do."""

from __future__ import annotations

from tilewright.errors import ProgramError
from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.dtypes import U32, DType, from_fields
from tilewright.targets.bm1684x.isa.operands import ALIGNED, STRIDED, local, res0_shape, result, unknown
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.operations import OPERATIONS
from tilewright.targets.bm1684x.tensor import Grid, Matrix, Operand, Tensor

CW, WC, COPY, BROADCAST, STATIC = 0, 1, 2, 3, 4
ALL_LANES = 0xFFFF_FFFF
#: Special functions of DMA_tensor: its operation. 5 and 6 write four banks.
TENSOR = {0: "dma_copy", 1: "dma_nc_trans", 2: "dma_cw_trans", 3: "dma_broadcast", 4: "dma_cw_trans"}
COPIES, CW_TRANSPOSE = 0, 2
#: Gathers of SG that read each channel by an index of its own.
GATHERS = (5, 13)


def transposed(command: Encoded, config: Config) -> Command:
    """TRANS&BC. Moves keep bits: their types are unsigned."""
    function = command["tsk_eu_typ"]
    dtype = from_fields(command["res0_prec"], 0)
    n, c, h, w = (command[f"res0_{axis}"] for axis in "nchw")
    y = result(command, dtype, config)
    source = command["opd0_addr"]
    if function in (CW, WC):
        if function == CW:  # its result is aligned by rows
            strides = layout.line(Shape(n, c, h, w), dtype, y.start_lane, config)
            y = Tensor(y.address, y.shape, strides, dtype, config)
        x = local(source, (n, w, h, c), ALIGNED, dtype, config)
        return Command(OPERATIONS["cw_trans" if function == CW else "wc_trans"], {"x": x}, {"y": y})
    if function == STATIC:
        if not STATIC_BASE <= source < STATIC_BASE + config.static_bytes:
            raise ProgramError(str(command), f"its source {source:#x} is not in static memory")
        x = Tensor.ddr(source, (1, 1, 1, w), dtype, config)
        return Command(OPERATIONS["static_bcast"], {"x": x}, {"y": y})
    if function in (COPY, BROADCAST):
        x = local(source, (n, 1 if function == BROADCAST else c, h, w), ALIGNED, dtype, config)
        return Command(OPERATIONS["npu_bcast"], {"x": x}, {"y": y})
    raise unknown(command)


def gathered(command: Encoded, config: Config) -> Command:
    """SG: elements of each channel by index, as in a table lookup. A table may be one for all channels of a lane."""
    if command["tsk_eu_typ"] not in GATHERS:
        raise unknown(command)
    dtype, index_type = from_fields(command["res0_prec"], 0), from_fields(command["opd1_prec"], 0)
    n, c, _, _ = res0_shape(command)
    sizes = (1, c, command["opd0_h"], command["opd0_w"])
    row = layout.line(Shape(*sizes), dtype, 0, config).h
    code = STRIDED if command["opd0_str"] else ALIGNED
    x = local(command["opd0_addr"], sizes, code, dtype, config, Stride(0, 0, row, 1))
    index = local(command["opd1_addr"], (n, c, 1, command["opd1_w"]), ALIGNED, index_type, config)
    fill = Constant(command["opd2_addr"] & ((1 << dtype.bits) - 1), dtype)
    operands: dict[str, Operand | Constant] = {"x": x, "index": index, "fill": fill}
    return Command(OPERATIONS["pe_gather"], operands, {"y": result(command, dtype, config)})


def cw_transposed(command: Encoded, config: Config) -> Command:
    """DMA_cw_transpose: the tensor format, with this one function."""
    return tensor(command, config, CW_TRANSPOSE)


def tensor(command: Encoded, config: Config, function: int | None = None) -> Command:
    """DMA_tensor: copies, transposes, broadcasts, fills; `function` where the format has no field for it."""
    function = command["cmd_special_function"] if function is None else function
    if function not in TENSOR:
        raise unknown(command)
    _check(command)
    dtype = from_fields(command["src_data_format"], 0)
    sizes = _sizes(command, "src")
    n, c, h, w = sizes
    shapes = {1: Shape(c, n, h, w), 2: Shape(n, w, h, c), 3: Shape(n, command["dst_csize"], h, w), 4: Shape(n, w, h, c)}
    given = sizes if command["nchw_copy"] else _sizes(command, "dst")
    y = _end(command, "dst", shapes.get(function, given), dtype, config, function != COPIES)
    if command["fill_constant_en"]:
        fill = Constant(command["constant_value"] & ((1 << dtype.bits) - 1), dtype)
        return Command(OPERATIONS["dma_broadcast"], {"x": fill}, {"y": y})
    source = sizes._replace(c=1) if TENSOR[function] == "dma_broadcast" else sizes
    x = _end(command, "src", source, dtype, config, function != COPIES)
    return Command(OPERATIONS[TENSOR[function]], {"x": x}, {"y": y})


def matrix(command: Encoded, config: Config) -> Command:
    """DMA_matrix: rows and columns in DDR, columns spread over lanes in local memory."""
    _check(command)
    dtype = from_fields(command["src_data_format"], 0)
    addresses = {
        end: command[f"{end}_start_addr_l8"] << 32 | command[f"{end}_start_addr_h32"] for end in ("src", "dst")
    }
    into = not LOCAL_BASE <= addresses["src"] < LOCAL_BASE + config.local_bytes
    far, near = ("src", "dst") if into else ("dst", "src")
    transposing = command["cmd_special_function"] == 1
    rows, columns = command[f"{far}_hsize"], command[f"{far}_wsize"]
    linear = Tensor(
        addresses[far], Shape(1, 1, rows, columns), Stride(0, 0, command[f"{far}_hstride"], 1), dtype, config
    )
    if transposing:
        rows, columns = columns, rows
    sizes = Shape(rows, command[f"{near}_csize"], 1, command[f"{near}_wsize"])
    strides = Stride(command[f"{near}_nstride"], command[f"{near}_cstride"], 0, 1)
    spread = Matrix(Tensor(addresses[near], sizes, strides, dtype, config), columns)
    ends: dict[str, Operand] = {far: Grid(linear), near: spread}
    operation = OPERATIONS["dma_matrix_trans" if transposing else "dma_copy"]
    return Command(operation, {"x": ends["src"]}, {"y": ends["dst"]})


def general(command: Encoded, config: Config) -> Command:
    """DMA_general: elements one behind the other."""
    if command["cmd_special_function"] or command["fill_constant_en"]:
        raise unknown(command)
    _check(command)
    dtype = from_fields(command["src_data_format"], 0)
    count = command["src_cstride"]
    ends = {end: _address(command, end) for end in ("src", "dst")}
    shape = Shape(1, 1, 1, count)
    x, y = (Tensor(ends[end], shape, Stride(0, 0, 0, 1), dtype, config) for end in ("src", "dst"))
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})


def by_index(command: Encoded, config: Config) -> Command:
    """DMA_gather, DMA_scatter: rows of each channel by u32 numbers. By the debugger's names of fields: no stored
    program has one."""
    if command["cmd_special_function"]:
        raise unknown(command)
    _check(command)
    gathers = command.format.name == "DMA_gather"
    dtype = from_fields(command["src_data_format"], 0)

    def end(name: str, shape: Shape, kind: DType) -> Tensor:
        strides = Stride(0, command[f"{name}_cstride"], command[f"{name}_hstride"], 1)
        return Tensor(_address(command, name), shape, strides, kind, config)

    x, y = (end(name, Shape(1, *(command[f"{name}_{axis}size"] for axis in "chw")), dtype) for name in ("src", "dst"))
    index = end("index", Shape(1, command["index_csize"], command["index_hsize"], 1), U32)
    if not gathers:
        return Command(OPERATIONS["dma_h_scatter"], {"x": x, "index": index, "y_before": y}, {"y": y})
    fill = Constant(command["constant_value"] & ((1 << dtype.bits) - 1), dtype)
    return Command(OPERATIONS["dma_h_gather"], {"x": x, "index": index, "fill": fill}, {"y": y})


def _check(command: Encoded) -> None:
    """What moves of this model do not have."""
    if command["decompress_enable"]:
        raise ProgramError(str(command), "it decompresses, which is not modelled")
    if not command["localmem_mask_l32"] == command["localmem_mask_h32"] == ALL_LANES:
        raise ProgramError(str(command), "it masks lanes, which is not modelled")


def _sizes(command: Encoded, end: str) -> Shape:
    return Shape(*(command[f"{end}_{axis}size"] for axis in "nchw"))


def _address(command: Encoded, end: str) -> int:
    return command[f"{end}_start_addr_h8"] << 32 | command[f"{end}_start_addr_l32"]


def _end(command: Encoded, end: str, shape: Shape, dtype: DType, config: Config, moves: bool) -> Tensor:
    """Source or destination; without strides the layout that is usual in its memory.

    What is no plain copy (`moves`) has no stride along w.
    """
    address = _address(command, end)
    if command["stride_enable"]:
        strides = Stride(*(command[f"{end}_{axis}stride"] for axis in "nchw"))
        if moves:
            strides = strides._replace(w=1)
        return Tensor(address, shape, strides, dtype, config)
    inside = LOCAL_BASE <= address < LOCAL_BASE + config.local_bytes
    if inside:
        lane = (address - LOCAL_BASE) // config.lane_bytes
        return Tensor(address, shape, layout.dma_default(shape, dtype, lane, config), dtype, config)
    return Tensor.ddr(address, shape, dtype, config)
