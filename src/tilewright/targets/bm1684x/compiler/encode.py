"""Commands as bits: the inverse of isa/, for what the compiler emits."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.arithmetic.window import Window
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.dtypes import DType, Rounding
from tilewright.targets.bm1684x.isa.arithmetic import BINARY, CAST, SHIFTS
from tilewright.targets.bm1684x.isa.moves import ALL_LANES, WC
from tilewright.targets.bm1684x.isa.neural import AVERAGE, DEPTHWISE, MAXIMUM
from tilewright.targets.bm1684x.isa.operands import ALIGNED, COMPACT, OFFSET, STRIDED
from tilewright.targets.bm1684x.isa.stream import DMA_SYS, SYS, TIU_END, Encoded, encode, fresh
from tilewright.targets.bm1684x.layout import Stride
from tilewright.targets.bm1684x.operations import DMA, TIU
from tilewright.targets.bm1684x.tensor import Kernel, Operand, Tensor

Fields = dict[str, int]
#: Codes of the formats' type fields.
CONV, POOL, ARITHMETIC, QUANTISE, TRANSPOSE = 0, 1, 3, 4, 5
QUANTISERS = {"fp32_requant": 0, "int_requant": 1, "fp32_dequant": 3, "int_dequant": 4}
DMA_END = 6


def queue(engine: str, commands: Sequence[Command], needs: Sequence[int]) -> Array:
    """The bytes of one queue, closed; `needs` is the other engine's command that each waits for (0: none)."""
    found = [encoded(engine, number, command, needs[number]) for number, command in enumerate(commands)]
    return encode([*found, end(engine, len(found))])


def end(engine: str, number: int) -> Encoded:
    """What closes a queue."""
    if engine == DMA:
        return fresh(DMA, number, DMA_SYS, True, {"cmd_short": 1, "cmd_type": DMA_END, "cmd_id": number + 1})
    return fresh(TIU, number, SYS, True, {"tsk_typ": 15, "tsk_eu_typ": TIU_END, "cmd_id": number + 1})


def encoded(engine: str, number: int, command: Command, needs: int) -> Encoded:
    """One command. Raises ProgramError for an operation without an encoding here."""
    head = {"cmd_id": number + 1, "cmd_id_dep": needs, "cmd_id_en": 1}
    name = command.operation.name
    if engine == DMA:
        return fresh(DMA, number, "DMA_tensor", False, head | _copy(command))
    if name in ("int8_asym_quant_conv2d", "fp_conv2d"):
        form, fields = "CONV", {"tsk_typ": CONV} | _convolution(command)
    elif name in ("int8_depthwise2d", "max_pool2d", "fp_avg_pool2d", "fp_depthwise2d"):
        form, fields = "PorD", {"tsk_typ": POOL} | _pool(command)
    elif name in QUANTISERS:
        form, fields = "RQ&DQ", {"tsk_typ": QUANTISE} | _quantise(command)
    elif name == "wc_trans":
        form, fields = "TRANS&BC", {"tsk_typ": TRANSPOSE} | _transpose(command)
    else:
        form, fields = "AR", {"tsk_typ": ARITHMETIC} | _arithmetic(command)
    return fresh(TIU, number, form, True, {"cmd_short": 1} | head | fields)


def _arithmetic(command: Command) -> Fields:
    name, y = command.operation.name, _tensor(command.results["y"])
    a = command.operands.get("a", command.operands.get("x"))
    assert a is not None
    fields = _result(y) | _operand("opd0", a) | {"tsk_opd_num": 2}
    fields["opd2_n_str"] = command.attributes.get("mode", Rounding.HALF_TO_EVEN)
    if name == "cast":
        return fields | {"tsk_eu_typ": CAST, "opd2_sign": int(y.dtype.signed)}
    if name in SHIFTS.values():
        function = next(code for code, own in SHIFTS.items() if own == name)
        return fields | _operand("opd1", command.operands["shift"]) | {"tsk_eu_typ": function}
    saturating = bool(command.attributes.get("saturate"))
    codes = (
        code
        for code, (real, whole, clamps) in BINARY.items()
        if name in (real, whole) and (clamps == saturating or name == real)
    )
    function_code = next(codes, None)
    if function_code is None:
        raise ProgramError(name, "has no encoding here")
    fields |= _operand("opd1", command.operands["b"]) | {"tsk_eu_typ": function_code}
    if "shift" in command.operands:
        shift = {key: value for key, value in _operand("opd2", command.operands["shift"]).items() if "str" not in key}
        fields |= shift | {"tsk_opd_num": 3}
    return fields


def _quantise(command: Command) -> Fields:
    name, x, y = command.operation.name, _tensor(command.operands["x"]), _tensor(command.results["y"])
    fields = _result(y) | {"tsk_eu_typ": QUANTISERS[name], "opd0_addr": x.address - LOCAL_BASE}
    del fields["res0_str"]
    fields |= {"opd0_prec": x.dtype.precision, "opd0_sign": int(x.dtype.signed), "opd2_sign": int(y.dtype.signed)}
    fields["opd2_n_str"] = command.attributes.get("mode", Rounding.HALF_TO_EVEN)
    first = command.operands["offset" if "dequant" in name else name_of_first(name)]
    if not isinstance(first, Constant):
        return fields | {"opd1_addr": _tensor(first).address - LOCAL_BASE}
    bits = {own: value.bits for own, value in command.operands.items() if isinstance(value, Constant)}
    fields["opd1_const"] = 1
    if name == "int_dequant":
        return fields | {"opd2_addr": bits["multiplier"], "opd1_addr": bits["offset"] | bits["shift"] << 16}
    if name == "int_requant":
        return fields | {"opd1_addr": bits["multiplier"], "opd2_addr": bits["shift"] | bits["offset"] << 8}
    one, other = ("offset", "scale") if name == "fp32_dequant" else ("scale", "offset")
    return fields | {"opd1_addr": bits[one], "opd2_addr": bits[other]}


def name_of_first(name: str) -> str:
    """The first of a requantisation's parameters."""
    return "multiplier" if name == "int_requant" else "scale"


def _window(window: Window) -> Fields:
    pads = dict(zip(("up", "dn", "lf", "rt"), window.pads, strict=True))
    return {
        "opd1_h": window.kernel[0],
        "opd1_w": window.kernel[1],
        **{f"opd0_{side}_pad": pad for side, pad in pads.items()},
        "res_op_y_str": window.stride[0],
        "res_op_x_str": window.stride[1],
        "opd1_y_ins0": window.dilation[0] - 1,
        "opd1_x_ins0": window.dilation[1] - 1,
    }


def _convolution(command: Command) -> Fields:
    x, w, y = _tensor(command.operands["x"]), command.operands["w"], _tensor(command.results["y"])
    assert isinstance(w, Kernel)
    fields = _result(y) | _operand("opd0", x) | _window(command.attributes["window"])
    del fields["res0_str"]
    fields |= {"opd0_c": x.shape.c, "opd0_h": x.shape.h, "opd0_w": x.shape.w, "opd1_addr": w.address - LOCAL_BASE}
    fields |= {"opd1_sign": int(w.dtype.signed)}
    if x.dtype.is_float:
        bias = command.operands.get("bias")
        if bias is None:
            return fields | {"opd2_const": 1}
        return fields | {"opd2_addr": _tensor(bias).address - LOCAL_BASE}
    zero = command.operands["zero"]
    assert isinstance(zero, Constant)
    fields |= {"opd2_const": 1, "opd2_addr": zero.bits, "opd2_sign": int(zero.dtype.signed)}
    pad = command.attributes.get("pad", 0)
    return fields | {"opd3_const": 1, "opd3_addr": pad & ((1 << x.dtype.bits) - 1)}


def _pool(command: Command) -> Fields:
    name, x, y = command.operation.name, _tensor(command.operands["x"]), _tensor(command.results["y"])
    fields = _result(y) | _window(command.attributes["window"]) | {"opd0_addr": x.address - LOCAL_BASE}
    del fields["res0_str"]
    fields |= {"opd0_h": x.shape.h, "opd0_w": x.shape.w, "opd0_prec": x.dtype.precision}
    fields["opd0_sign"] = int(x.dtype.signed)
    if name == "max_pool2d":
        pad = command.operands["pad"]
        assert isinstance(pad, Constant)
        return fields | {"tsk_eu_typ": MAXIMUM, "opd3_const": 1, "opd3_addr": pad.bits}
    if name == "fp_avg_pool2d":
        scale = command.operands["scale"]
        assert isinstance(scale, Constant)
        return fields | {"tsk_eu_typ": AVERAGE, "opd1_const": 1, "opd1_addr": scale.bits}
    w, bias = _tensor(command.operands["w"]), _tensor(command.operands["bias"])
    fields |= {"opd1_addr": w.address - LOCAL_BASE, "opd2_addr": bias.address - LOCAL_BASE}
    fields |= {"opd1_sign": int(w.dtype.signed), "opd2_sign": int(bias.dtype.signed)}
    pad_value = command.attributes.get("pad", 0) & ((1 << x.dtype.bits) - 1)
    return fields | {"tsk_eu_typ": DEPTHWISE, "opd3_const": 1, "opd3_addr": pad_value}


def _transpose(command: Command) -> Fields:
    x, y = _tensor(command.operands["x"]), _tensor(command.results["y"])
    fields = _result(y) | {"tsk_eu_typ": WC, "opd0_addr": x.address - LOCAL_BASE}
    del fields["res0_str"]
    return fields | {"opd0_c": x.shape.c, "opd0_w": x.shape.w}


def _copy(command: Command) -> Fields:
    if command.operation.name != "dma_copy":
        raise ProgramError(command.operation.name, "has no encoding here")
    ends = {"src": _tensor(command.operands["x"]), "dst": _tensor(command.results["y"])}
    fields = {"stride_enable": 1, "nchw_copy": 1, "src_data_format": ends["src"].dtype.precision}
    fields |= {"localmem_mask_l32": ALL_LANES, "localmem_mask_h32": ALL_LANES}
    for name, tensor in ends.items():
        fields |= {f"{name}_start_addr_l32": tensor.address & ALL_LANES, f"{name}_start_addr_h8": tensor.address >> 32}
        fields |= {f"{name}_{axis}stride": own for axis, own in zip("nchw", tensor.stride, strict=True)}
        fields |= {f"{name}_{axis}size": own for axis, own in zip("nchw", tensor.shape, strict=True)}
    return fields


def _tensor(operand: Operand | Constant) -> Tensor:
    assert isinstance(operand, Tensor)
    return operand


def _result(y: Tensor) -> Fields:
    fields = {f"res0_{axis}": size for axis, size in zip("nchw", y.shape, strict=True)}
    return fields | {"res0_addr": y.address - LOCAL_BASE, "res0_prec": y.dtype.precision, "res0_str": ALIGNED}


def _operand(name: str, operand: Operand | Constant) -> Fields:
    """Address, type and layout; a constant stands in the address."""
    dtype: DType = operand.dtype
    fields = {f"{name}_prec": dtype.precision, f"{name}_sign": int(dtype.signed)}
    if isinstance(operand, Constant):
        return fields | {f"{name}_const": 1, f"{name}_addr": operand.bits}
    tensor = _tensor(operand)
    fields[f"{name}_addr"] = tensor.address - LOCAL_BASE
    codes = {ALIGNED: layout.aligned, COMPACT: layout.compact}
    for code, rule in codes.items():
        if tensor.stride == rule(tensor.shape, dtype, tensor.start_lane, tensor.config):
            return fields | {f"{name}_str": code}
    if tensor.stride == Stride(0, 1, 0, 0):
        return fields | {f"{name}_str": OFFSET}
    strides = {f"{name}_{axis}_str": own for axis, own in zip("nchw", tensor.stride, strict=True)}
    return fields | {f"{name}_str": STRIDED} | strides
