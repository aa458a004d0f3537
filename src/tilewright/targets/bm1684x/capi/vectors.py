"""Functions of the device API on all pairs of elements of two vectors. Row i of the result belongs to element i."""

from __future__ import annotations

from tilewright.targets.bm1684x.capi.elementwise import BITS_OF, NEGATED
from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, attributes
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.layout import Operand
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.elementwise import RELATIONS

LENGTHS = "src0_len src1_len src0_len_per_channel src1_len_per_channel"


def _pairs(operation: str, types: str = "dtype", before: str = "") -> Function:
    """Return the C function of an operation on vectors. `before` are parameters between addresses and lengths."""

    def run(api: Issuer, given: Given) -> None:
        one = given.get("dtype", F32)
        source = given.get("src_dtype", one)
        lengths = [given[f"src{number}_len"] for number in range(2)]
        widths = [given[f"src{number}_len_per_channel"] for number in range(2)]
        lengths[1] = -(-lengths[1] // widths[1]) * widths[1]  # the machine computes whole channels
        kinds = [given.get(f"src{number}_dtype", source) for number in range(2)]
        result = given.get("dst_dtype", one)
        operands: dict[str, Operand | Constant] = {
            own: api.matrix(given[f"src{number}"], 1, lengths[number], widths[number], kinds[number])
            for number, own in enumerate("ab")
        }
        if "true_val" in given:
            operands["c"] = constant(given["true_val"], result)
        y = api.matrix(given["dst"], lengths[0], lengths[1], widths[1], result)
        api.issue(operation, operands, {"y": y}, attributes(given))

    return Function(" ".join(f"dst src0 src1 {before} {LENGTHS} {types}".split()), run)


def _negated(relation: str, types: str, before: str) -> Function:
    """Return the C function of a relation that is the negation of another: two commands, as for tensors.

    The second one exchanges the true value and 0 in the result.
    """
    other = _pairs(f"vc_{NEGATED[relation]}", types, before)

    def run(api: Issuer, given: Given) -> None:
        other.run(api, given)
        width, dtype = given["src1_len_per_channel"], BITS_OF[given["dst_dtype"].bytes]
        y = api.matrix(given["dst"], given["src0_len"], given["src1_len"], width, dtype).storage
        value = Constant(constant(given["true_val"], given["dst_dtype"]).bits, dtype)
        api.issue("xor", {"a": y, "b": value}, {"y": y})

    return Function(other.parameters, run)


_INTEGER = "dst_dtype src0_dtype src1_dtype saturation"
_COMPARED = "dst_dtype src_dtype", "true_val"
#: Functions by name, without the prefix tpu_bdc_.
VECTORS: dict[str, Function] = {
    **{f"fp_vc_{name}": _pairs(f"vc_fp_{name}") for name in ("add", "sub", "mul")},
    **{f"int_vc_{name}": _pairs(f"vc_int_{name}", _INTEGER) for name in ("add", "sub", "mul")},
    **{f"vc_{name}": _pairs(f"vc_{name}") for name in ("max", "min", "and", "or", "xor")},
    **{f"vc_{name}": _pairs(f"vc_{name}", *_COMPARED) for name in RELATIONS if name not in NEGATED},
    **{f"vc_{name}": _negated(name, *_COMPARED) for name in NEGATED},
    "fp32_vc_div": _pairs("vc_fp_div", ""),
}
