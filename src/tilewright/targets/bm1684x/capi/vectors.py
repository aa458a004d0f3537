"""Functions of the device API on all pairs of elements of two vectors. Row i of the result belongs to element i."""

from __future__ import annotations

from tilewright.targets.bm1684x.capi.elementwise import RELATIONS, related
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Run, Spread, issue


def _columns(given: Given) -> int:
    """Return the length of the second vector in whole channels: the machine computes them all."""
    length, width = given["src1_len"], given["src1_len_per_channel"]
    return -(-length // width) * width


A = Spread("src0", columns="src0_len", width="src0_len_per_channel")
B = Spread("src1", columns=_columns, width="src1_len_per_channel")
Y = Spread("dst", rows="src0_len", columns=_columns, width="src1_len_per_channel")


def _pairs(operation: str) -> Run:
    return issue(operation, y=Y, a=A, b=B)


#: Functions by name, without the prefix tpu_bdc_.
VECTORS: Functions = {
    **{f"{kind}_vc_{name}": _pairs(f"vc_{kind}_{name}") for kind in ("fp", "int") for name in ("add", "sub", "mul")},
    **{f"vc_{name}": _pairs(f"vc_{name}") for name in ("max", "min", "and", "or", "xor")},
    **{f"vc_{name}": related(f"vc_{name}", Y, a=A, b=B) for name in RELATIONS},
    "fp32_vc_div": _pairs("vc_fp_div"),
}
