"""Convolutions, pooling and matrix products: what their encoded commands do."""

from __future__ import annotations

from typing import Any

from tilewright.targets.bm1684x.arithmetic.window import Window
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.dtypes import F32, I8, I32, U8, DType, Rounding, from_fields
from tilewright.targets.bm1684x.isa.operands import ALIGNED, COMPACT, local, place, result, unknown
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.operations import OPERATIONS
from tilewright.targets.bm1684x.tensor import Kernel, Matrix, Operand, Rows

DEPTHWISE, AVERAGE, DEPTHWISE_RELU, MAXIMUM = 0, 1, 2, 4
NN, NT, TT = 4, 5, 6
Operands = dict[str, Operand | Constant]


def window(command: Encoded) -> Window:
    """The window fields that convolutions and pooling share."""
    return Window(
        kernel=(command["opd1_h"], command["opd1_w"]),
        pads=(command["opd0_up_pad"], command["opd0_dn_pad"], command["opd0_lf_pad"], command["opd0_rt_pad"]),
        stride=(command["res_op_y_str"], command["res_op_x_str"]),
        dilation=(command["opd1_y_ins0"] + 1, command["opd1_x_ins0"] + 1),
        inserted=(command["opd0_y_ins0"], command["opd0_x_ins0"]),
    )


def convolution(command: Encoded, config: Config) -> Command:
    """CONV without fused requantisation."""
    if command["tsk_eu_typ"] != 0 or command["opd1_const"]:
        raise unknown(command)
    oc, ic = command["res0_c"], command["opd0_c"]
    source = from_fields(command["opd0_prec"], command["opd0_sign"])
    weight = from_fields(command["opd0_prec"], command["opd1_sign"])
    x = place(command, "opd0", (command["res0_n"], ic, command["opd0_h"], command["opd0_w"]), source, config)
    shape = (oc, ic, command["opd1_h"], command["opd1_w"])
    operands: Operands = {"x": x, "w": Kernel(command["opd1_addr"] + LOCAL_BASE, shape, weight, config)}
    attributes: dict[str, Any] = {"window": window(command), "rotated": bool(command["kernel_rotate"])}
    if source.is_float:
        y = result(command, from_fields(command["res0_prec"], 1), config)
        _bias(operands, command, (1, oc, 1, 1), F32, config)
        name = "fp_conv2d"
    else:
        zero = place(command, "opd2", (1, oc, 1, 1), from_fields(I8.precision, command["opd2_sign"]), config, COMPACT)
        signed = source.signed or weight.signed or (isinstance(zero, Constant) and bool(zero.bits))
        y = result(command, from_fields(command["res0_prec"], signed), config)
        operands["zero"] = zero
        attributes["pad"] = int(source.from_bits(command["opd3_addr"])) if command["opd3_const"] else 0
        name = "int8_asym_quant_conv2d"
    if command["res_add"]:
        operands["acc"] = y
    return Command(OPERATIONS[name], operands, {"y": y}, attributes)


def pooling(command: Encoded, config: Config) -> Command:
    """PorD: pooling and depthwise convolution."""
    function = command["tsk_eu_typ"]
    n, c = command["res0_n"], command["res0_c"]
    source = from_fields(command["opd0_prec"], command["opd0_sign"])
    x = place(command, "opd0", (n, c, command["opd0_h"], command["opd0_w"]), source, config)
    operands: Operands = {"x": x}
    attributes: dict[str, Any] = {"window": window(command), "rotated": bool(command["kernel_rotate"])}
    signed = command["opd0_sign"]
    if function == MAXIMUM:
        operands["pad"] = Constant(command["opd3_addr"] & ((1 << source.bits) - 1), source)
        name = "max_pool2d"
    elif function == AVERAGE:
        operands["scale"] = Constant(command["opd1_addr"], source if source.is_float else U8)
        attributes["right"] = command["opd2_addr"] & 0xFF
        name = "fp_avg_pool2d" if source.is_float else "int8_avg_pool2d"
    elif function in (DEPTHWISE, DEPTHWISE_RELU):
        weight = from_fields(command["opd0_prec"], command["opd1_sign"])
        kernel = (1, c, command["opd1_h"], command["opd1_w"])
        operands["w"] = local(command["opd1_addr"], kernel, COMPACT, weight, config)
        operands["bias"] = place(command, "opd2", (1, c, 1, 1), source if source.is_float else I32, config, COMPACT)
        pad = int(source.from_bits(command["opd3_addr"])) if not source.is_float else 0
        attributes |= {"right": command["res1_addr"] & 0xFF, "pad": pad, "mode": Rounding(command["opd2_n_str"])}
        attributes["relu"] = function == DEPTHWISE_RELU
        signed = signed or command["opd1_sign"] or command["opd2_sign"]
        if function == DEPTHWISE_RELU and not source.is_float:
            signed = False
        name = "fp_depthwise2d" if source.is_float else "int8_depthwise2d"
    else:
        raise unknown(command)
    return Command(
        OPERATIONS[name],
        operands,
        {"y": result(command, from_fields(command["res0_prec"], signed), config)},
        attributes,
    )


def matrix(command: Encoded, config: Config) -> Command:
    """MM: columns of all three matrices are spread over lanes."""
    if command["tsk_eu_typ"] != 1 or command["opd0_const"]:
        raise unknown(command)
    left_type = from_fields(command["opd0_prec"], command["opd0_sign"])
    right_type = from_fields(command["opd0_prec"], command["opd1_sign"])
    stored = (command["opd0_n"], command["opd0_w"] * (command["opd0_c"] - 1) + command["opd1_w"])
    rows, depth = stored[::-1] if command["left_tran"] else stored
    width, columns = command["res0_w"], command["res0_c"] * command["res0_w"]

    def spread(address: int, shape: tuple[int, int], per_channel: int, dtype: DType) -> Matrix:
        start, offset = divmod(address, config.lane_bytes)
        return Matrix.local(start, offset, shape, per_channel, dtype, config)

    y = spread(command["res0_addr"], (rows, columns), width, from_fields(command["res0_prec"], 1))
    operands: Operands = {
        "L": spread(command["opd0_addr"], stored, command["opd0_w"], left_type),
        "R": spread(command["opd1_addr"], (depth, columns), width, right_type),
    }
    name = "int8_zp_mm"
    if left_type.is_float:
        name = "fp_mm"
        if not command["opd2_const"]:
            operands["bias"] = spread(command["opd2_addr"], (1, columns), width, F32)
    if command["res_add"]:
        operands["acc"] = y
    return Command(OPERATIONS[name], operands, {"y": y}, {"left_transposed": bool(command["left_tran"])})


def matrix_by_rows(command: Encoded, config: Config) -> Command:
    """MM2: rows go from lane to lane."""
    function = command["tsk_eu_typ"]
    left_type = from_fields(command["opd0_prec"], command["opd0_sign"])
    right_type = from_fields(command["opd0_prec"], command["opd1_sign"])
    rows, columns, right = command["res0_c"], command["res0_w"], (command["opd1_c"], command["opd1_w"])
    left = {NN: (rows, right[0]), NT: (rows, right[1]), TT: (right[1], rows)}[function]

    def by_rows(name: str, shape: tuple[int, int], dtype: DType) -> Rows:
        address = command[f"{name}_addr"]
        return Rows(local(address, (1, shape[0], 1, shape[1]), ALIGNED, dtype, config))

    if command["opd0_const"] or command["opd1_const"]:
        raise unknown(command)
    y = by_rows("res0", (rows, columns), from_fields(command["res0_prec"], 1))
    operands: Operands = {"L": by_rows("opd0", left, left_type), "R": by_rows("opd1", right, right_type)}
    if not left_type.is_float:
        if not command["opd2_const"]:
            raise unknown(command)
        operands["zero"] = Constant(command["opd2_addr"] & 0xFF, right_type)
    if command["res_add"]:
        operands["acc"] = y
    attributes = {"left_transposed": function == TT, "right_transposed": function in (NT, TT)}
    return Command(OPERATIONS["fp_mm" if left_type.is_float else "int8_zp_mm"], operands, {"y": y}, attributes)


def _bias(operands: Operands, command: Encoded, shape: tuple[int, ...], dtype: DType, config: Config) -> None:
    """The second operand, where it is not the constant 0."""
    bias = place(command, "opd2", shape, dtype, config, COMPACT)
    if not isinstance(bias, Constant) or bias.bits:
        operands["bias"] = bias
