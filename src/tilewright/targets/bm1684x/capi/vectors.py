"""Functions of the device API on all pairs of elements of two vectors. Row i of the result belongs to element i."""

from __future__ import annotations

from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.elementwise import RELATIONS, related
from tilewright.targets.bm1684x.capi.forms import DeviceFunction, Functions, Given, Spread, function, issue
from tilewright.targets.bm1684x.capi.parameters import CType, Parameter

LENGTHS = CType.INT.each("src0_len", "src1_len")
WIDTHS = CType.INT.each("src0_len_per_channel", "src1_len_per_channel")


def _columns(given: Given) -> int:
    """Return the length of the second vector in whole channels: the machine computes them all."""
    length, width = given[LENGTHS[1].name], given[WIDTHS[1].name]
    return -(-length // width) * width


A = Spread(p.SRC0, columns=LENGTHS[0], width=WIDTHS[0])
B = Spread(p.SRC1, columns=_columns, width=WIDTHS[1])
Y = Spread(p.DST, rows=LENGTHS[0], columns=_columns, width=WIDTHS[1])


def _parameters(*types: Parameter, true: tuple[Parameter, ...] = ()) -> tuple[Parameter, ...]:
    return (p.DST, p.SRC0, p.SRC1, *true, *LENGTHS, *WIDTHS, *types)


def _pairs(operation: str, *types: Parameter) -> DeviceFunction:
    """Return the function of an operation on vectors."""
    return function(_parameters(*types), issue(operation, y=Y, a=A, b=B))


COMPARED = _parameters(p.DST_DTYPE, p.SRC_DTYPE, true=(p.TRUE_VAL,))
INTEGERS = (p.DST_DTYPE, p.SRC0_DTYPE, p.SRC1_DTYPE, p.SATURATION)
#: Functions by name, without the prefix tpu_bdc_.
VECTORS: Functions = {
    **{f"fp_vc_{name}": _pairs(f"vc_fp_{name}", p.DTYPE) for name in ("add", "sub", "mul")},
    **{f"int_vc_{name}": _pairs(f"vc_int_{name}", *INTEGERS) for name in ("add", "sub", "mul")},
    **{f"vc_{name}": _pairs(f"vc_{name}", p.DTYPE) for name in ("max", "min", "and", "or", "xor")},
    **{f"vc_{name}": function(COMPARED, *related(f"vc_{name}", Y, a=A, b=B)) for name in RELATIONS},
    "fp32_vc_div": _pairs("vc_fp_div"),
}
