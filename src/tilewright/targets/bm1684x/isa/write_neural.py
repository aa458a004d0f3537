"""Convolutions, pooling and matrix products as fields: the inverse of `neural.py`."""

from __future__ import annotations

from functools import partial

from tilewright.targets.bm1684x.arithmetic.window import Window
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.dtypes import Rounding
from tilewright.targets.bm1684x.isa import neural
from tilewright.targets.bm1684x.isa.write_arithmetic import written
from tilewright.targets.bm1684x.isa.written import (
    Fields,
    Writer,
    Written,
    address,
    placed,
    refused,
    shaped,
    strided,
    tensor,
    typed,
)
from tilewright.targets.bm1684x.tensor import Matrix, Rows

NOTHING = {"opd2_const": 1, "opd2_addr": 0}


def _window(window: Window) -> Fields:
    up, down, left, right = window.pads
    fields = {"opd1_h": window.kernel[0], "opd1_w": window.kernel[1], "opd0_up_pad": up, "opd0_dn_pad": down}
    fields |= {"opd0_lf_pad": left, "opd0_rt_pad": right}
    fields |= {"res_op_y_str": window.stride[0], "res_op_x_str": window.stride[1]}
    fields |= {"opd1_y_ins0": window.dilation[0] - 1, "opd1_x_ins0": window.dilation[1] - 1}
    return fields | {"opd0_y_ins0": window.inserted[0], "opd0_x_ins0": window.inserted[1]}


def _input(command: Command) -> Fields:
    """What convolutions and pools share."""
    fields = shaped("res0", command.results["y"].shape) | placed(command, "y", "res0")
    fields |= typed("res0", command.types["y"]) | typed("opd0", command.types["x"])
    x = tensor(command, "x")
    fields |= {"opd0_c": x.shape.c, "opd0_h": x.shape.h, "opd0_w": x.shape.w}
    fields["kernel_rotate"] = int(command.attributes.get("rotated", False))
    return fields | _window(command.attributes["window"])


def _padding(command: Command) -> Fields:
    pad = command.attributes.get("pad", 0)
    return {"opd3_const": 1, "opd3_addr": pad & ((1 << command.types["x"].bits) - 1)}


def _conv(addend: str, command: Command) -> Written:
    """`addend`: the bias of floats, the zero point of integers."""
    fields = _input(command) | placed(command, "w", "opd1") | typed("opd1", command.types["w"])
    x = tensor(command, "x")
    fields |= {"opd0_addr": address(x), "res_add": int("acc" in command.operands)} | strided("opd0", x, x.shape)
    if addend in command.operands:
        fields |= placed(command, addend, "opd2") | typed("opd2", command.types[addend])
    else:
        fields |= NOTHING
    return written("CONV", 0, fields | _padding(command))


def _pool(function: int, value: str, name: str, command: Command) -> Written:
    fields = _input(command) | placed(command, "x", "opd0") | placed(command, value, name)
    return written("PorD", function, fields | {"opd2_addr": command.attributes.get("right", 0)})


def _depthwise(command: Command) -> Written:
    fields = _input(command) | placed(command, "x", "opd0") | placed(command, "w", "opd1")
    fields |= typed("opd1", command.types["w"])
    if "bias" in command.operands:
        fields |= placed(command, "bias", "opd2") | typed("opd2", command.types["bias"])
    else:
        fields |= NOTHING
    relu = bool(command.attributes.get("relu"))
    fields |= {"res1_addr": command.attributes.get("right", 0)} | _padding(command)
    fields["opd2_n_str"] = int(command.attributes.get("mode", Rounding.HALF_TO_EVEN))
    return written("PorD", neural.DEPTHWISE_RELU if relu else neural.DEPTHWISE, fields)


def _product(command: Command) -> Written:
    """By the layout of the result."""
    y = command.results["y"]
    if isinstance(y, Rows):
        return _by_rows(command)
    if isinstance(y, Matrix) and isinstance(command.operands["L"], Matrix):
        return _spread(command, y, command.operands["L"])
    raise refused(command, "its factors lie neither by rows nor spread over lanes", "give rows() or tpu.matrix(..)")


def _common(command: Command) -> Fields:
    fields = typed("res0", command.types["y"]) | typed("opd0", command.types["L"]) | typed("opd1", command.types["R"])
    fields |= placed(command, "y", "res0") | placed(command, "L", "opd0") | placed(command, "R", "opd1")
    fields["res_add"] = int("acc" in command.operands)
    return fields


def _by_rows(command: Command) -> Written:
    (rows, columns), right = command.results["y"].shape, command.operands["R"]
    turned = (command.attributes.get("left_transposed", False), command.attributes.get("right_transposed", False))
    functions = {(False, False): neural.NN, (False, True): neural.NT, (True, True): neural.TT}
    if turned not in functions or command.attributes.get("both_transposed") or isinstance(right, Constant):
        raise refused(
            command, "no known format has this transposition", "transpose neither, the right, or both factors"
        )
    fields = _common(command) | {"res0_c": rows, "res0_w": columns}
    fields |= {"opd1_c": right.shape[0], "opd1_w": right.shape[1]} | NOTHING
    if "zero" in command.operands:
        fields |= placed(command, "zero", "opd2")
    return written("MM2", functions[turned], fields)


def _spread(command: Command, y: Matrix, left: Matrix) -> Written:
    stored = left.storage.shape
    fields = _common(command) | {"res0_c": y.storage.shape.c, "res0_w": y.storage.shape.w}
    fields |= {"opd0_n": stored.n, "opd0_c": stored.c, "opd0_w": stored.w}
    fields["opd1_w"] = left.columns - stored.w * (stored.c - 1)
    fields["left_tran"] = int(command.attributes.get("left_transposed", False))
    fields |= placed(command, "bias", "opd2") if "bias" in command.operands else NOTHING
    return written("MM", 1, fields)


WRITERS: dict[str, Writer] = {
    "fp_conv2d": partial(_conv, "bias"),
    "int8_asym_quant_conv2d": partial(_conv, "zero"),
    "max_pool2d": partial(_pool, neural.MAXIMUM, "pad", "opd3"),
    "fp_avg_pool2d": partial(_pool, neural.AVERAGE, "scale", "opd1"),
    "int8_avg_pool2d": partial(_pool, neural.AVERAGE, "scale", "opd1"),
    "fp_depthwise2d": _depthwise,
    "int8_depthwise2d": _depthwise,
    "fp_mm": _product,
    "int8_zp_mm": _product,
}
