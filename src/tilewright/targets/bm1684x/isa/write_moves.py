"""Transposes, broadcasts and transfers as fields: the inverse of `moves.py`."""

from __future__ import annotations

from functools import partial

from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.isa import moves
from tilewright.targets.bm1684x.isa.write_arithmetic import written
from tilewright.targets.bm1684x.isa.written import Fields, Writer, Written, placed, refused, shaped, tensor, typed
from tilewright.targets.bm1684x.tensor import Grid, Matrix, Tensor

#: Special functions of DMA_tensor by operation.
FUNCTIONS = {"dma_copy": 0, "dma_nc_trans": 1, "dma_cw_trans": 2, "dma_broadcast": 3}
MATRIX, GATHER, SCATTER = 1, 7, 8
EVERY_LANE = {"localmem_mask_l32": moves.ALL_LANES, "localmem_mask_h32": moves.ALL_LANES}


def _turned(function: int, command: Command) -> Written:
    """TRANS&BC."""
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0")
    fields |= typed("res0", command.types["y"]) | placed(command, "x", "opd0")
    x = tensor(command, "x")
    return written("TRANS&BC", function, fields | {"opd0_c": x.shape.c, "opd0_w": x.shape.w})


def _across(command: Command) -> Written:
    """One channel to all, or each to another lane."""
    return _turned(moves.BROADCAST if tensor(command, "x").shape.c == 1 else moves.COPY, command)


def _static(command: Command) -> Written:
    source = command.operands["x"]
    if not isinstance(source, Tensor):
        raise refused(command, "x is no tensor in static memory")
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0")
    return written("TRANS&BC", moves.STATIC, fields | typed("res0", command.types["y"]) | {"opd0_addr": source.address})


def _gathered(command: Command) -> Written:
    """SG."""
    x, index = tensor(command, "x"), tensor(command, "index")
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0") | placed(command, "x", "opd0")
    fields |= typed("res0", command.types["y"]) | typed("opd1", command.types["index"])
    fields |= {"opd0_h": x.shape.h, "opd0_w": x.shape.w, "opd1_w": index.shape.w, "opd0_str": int(x.stride.c == 0)}
    fields |= placed(command, "index", "opd1") | placed(command, "fill", "opd2")
    return written("SG", moves.GATHERS[0], fields)


def _end(end: str, operand: Tensor) -> Fields:
    """Sizes, strides and address of a source or destination."""
    fields = {f"{end}_{axis}size": size for axis, size in zip("nchw", operand.shape, strict=True)}
    fields |= {f"{end}_{axis}stride": step for axis, step in zip("nchw", operand.stride, strict=True)}
    return fields | {
        f"{end}_start_addr_l32": operand.address & 0xFFFF_FFFF,
        f"{end}_start_addr_h8": operand.address >> 32,
    }


def _transfer(command: Command) -> Written:
    """DMA_tensor, or DMA_matrix where columns are spread over lanes."""
    x, y = command.operands["x"], command.results["y"]
    name = command.operation.name
    if isinstance(x, Matrix | Grid) or isinstance(y, Matrix | Grid):
        return _matrix(command)
    if not isinstance(y, Tensor) or not isinstance(x, Tensor | Constant):
        raise refused(command, "an end of it is no tensor")
    fields = {"stride_enable": 1, "src_data_format": y.dtype.precision, **EVERY_LANE, **_end("dst", y)}
    if isinstance(x, Constant):
        fields |= {"fill_constant_en": 1, "constant_value": x.bits, "nchw_copy": 1}
        sizes = {f"src_{axis}size": size for axis, size in zip("nchw", y.shape, strict=True)}
        return Written("DMA_tensor", fields | sizes)
    fields |= _end("src", x) | {"nchw_copy": int(x.shape == y.shape), "cmd_special_function": FUNCTIONS[name]}
    return Written("DMA_tensor", fields)


def _matrix(command: Command) -> Written:
    ends = {"src": command.operands["x"], "dst": command.results["y"]}
    fields = {"cmd_type": MATRIX, "stride_enable": 1, "src_data_format": command.types["y"].precision, **EVERY_LANE}
    fields["cmd_special_function"] = int(command.operation.name == "dma_matrix_trans")
    for end, operand in ends.items():
        if not isinstance(operand, Matrix | Grid):
            raise refused(command, f"its {end} is no matrix", "copy between a matrix in lanes and a grid outside")
        fields |= _end(end, operand.storage)
        fields[f"{end}_start_addr_h32"] = fields.pop(f"{end}_start_addr_l32")  # named so, the other way round
        fields[f"{end}_start_addr_l8"] = fields.pop(f"{end}_start_addr_h8")
    return Written("DMA_matrix", fields)


def _by_index(name: str, number: int, command: Command) -> Written:
    """DMA_gather, DMA_scatter."""
    fields = {"cmd_type": number, "stride_enable": 1, "src_data_format": command.types["y"].precision, **EVERY_LANE}
    for end, operand in (("src", command.operands["x"]), ("dst", command.results["y"])):
        if not isinstance(operand, Tensor):
            raise refused(command, f"its {end} is no tensor")
        fields |= _end(end, operand)
    index, fill = command.operands["index"], command.operands.get("fill")
    if not isinstance(index, Tensor):
        raise refused(command, "its index is no tensor")
    fields |= _end("index", index)
    if isinstance(fill, Constant):
        fields |= {"fill_constant_en": 1, "constant_value": fill.bits}
    return Written(name, fields)


WRITERS: dict[str, Writer] = {
    **dict.fromkeys((*FUNCTIONS, "dma_matrix_trans"), _transfer),
    "cw_trans": partial(_turned, moves.CW),
    "wc_trans": partial(_turned, moves.WC),
    "npu_bcast": _across,
    "static_bcast": _static,
    "pe_gather": _gathered,
    "dma_h_gather": partial(_by_index, "DMA_gather", GATHER),
    "dma_h_scatter": partial(_by_index, "DMA_scatter", SCATTER),
}
