"""Functions of the device API that issue several commands. The arguments of a call determine the number of commands."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.elementwise import is_signed, to_dst
from tilewright.targets.bm1684x.capi.forms import (
    Args,
    Functions,
    Issue,
    Issuer,
    Place,
    Run,
    Source,
    either,
    issue,
    row_of,
    sequence,
)
from tilewright.targets.bm1684x.capi.names import dim4
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Operand, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U16, U32, DType
from tilewright.targets.bm1684x.values.memory import OFFSETS
from tilewright.targets.bm1684x.values.window import Window

#: The byte offset in static memory of the stored numbers 0, 1, .., and the count of these numbers.
NUMBERS, COUNTED = OFFSETS["numbers", I32]
#: Returns the tensor that stores a part of an arithmetic sequence, given the part's first position and its length.
Part = Callable[[int, int], Tensor]


def _static(api: Issuer, count: int, dtype: DType) -> Tensor:
    return Tensor.ddr(STATIC_BASE + NUMBERS, (1, 1, 1, count), dtype, api.config)


def _integer(api: Issuer, name: str, y: Operand, a: Operand, number: int) -> None:
    """Issue a command that adds `number` to integers, or multiplies integers by `number`. Overflows wrap around."""
    dtype = y.dtype
    b = Constant(number & (1 << dtype.bits) - 1, dtype)
    api.issue(f"int_{name}", {"a": a, "b": b, "shift": Constant(0, I8)}, {"y": y}, {"saturate": False})


def _count(call: Args) -> int:
    count: int = call["num"]
    if count < 1:
        raise MachineError(call["name"], f"num is {count}", "give 1 or more")
    return count


def _extended(api: Issuer, part: Part, count: int, done: int, doubles: bool = False) -> None:
    # Each command copies existing numbers and adds the current length to the copies. It copies at most COUNTED numbers,
    # or all numbers with `doubles`.
    while done < count:
        more = min(done if doubles else COUNTED, count - done)
        _integer(api, "add", part(done, more), part(0, more), done)
        done += more


def _stepped(api: Issuer, y: Operand, call: Args) -> None:
    if call["step"] != 1:
        _integer(api, "mul", y, y, call["step"])
    if call["start"]:
        _integer(api, "add", y, y, call["start"])


def _rows(api: Issuer, call: Args) -> None:
    place = call["dst"]
    lanes = call["lanes"]
    count = _count(call)

    def row(first: int, length: int) -> Tensor:
        return api.local(place + first * I32.bytes, Shape(1, lanes, 1, length), None, I32)

    done = min(count, COUNTED)
    api.issue("static_bcast", {"x": _static(api, done, I32)}, {"y": row(0, done)})
    _extended(api, row, count, done, doubles=True)
    _stepped(api, row(0, count), call)


def _generate(api: Issuer, call: Args) -> None:
    count = _count(call)
    dtype = call["dtype"]
    if dtype not in (U16, U32):
        raise MachineError(call["name"], f"the type is {dtype}", f"give {U16} or {U32}")

    def row(first: int, length: int) -> Tensor:
        return api.local(call["dst"] + first * dtype.bytes, Shape(1, 1, 1, length), None, dtype)

    wide = api.local(call["dst"], Shape(1, 1, 1, COUNTED), None, U32)
    api.issue("static_bcast", {"x": _static(api, COUNTED, U32)}, {"y": wide})
    if dtype is U16:  # static memory has 32-bit numbers: copy the low 16 bits of each
        first = row(0, min(count, COUNTED))
        halves = first.stride._replace(n=2 * first.stride.n, c=2 * first.stride.c, h=2, w=2)
        first = Tensor(first.address, first.shape, first.stride._replace(h=1), dtype, api.config)
        api.issue("copy", {"a": Tensor(first.address, first.shape, halves, dtype, api.config)}, {"y": first})
    _extended(api, row, count, COUNTED)


def _by_channel(api: Issuer, place: int, count: int) -> None:
    y = api.local(place, Shape(1, count, 1, 1), None, I32, layout.compact)
    api.issue("static_distribute", {"x": _static(api, count, I32)}, {"y": y})


def _channels(api: Issuer, call: Args) -> None:
    count = _count(call)
    lanes = api.config.lanes
    form = layout.aligned if call.get("is_aligned") else layout.compact

    def part(first: int, channels: int) -> Tensor:
        slot = form(Shape(1, 1, 1, 1), I32, 0, api.config).c * I32.bytes
        place = call["dst"] + first // lanes * slot
        return api.local(place, Shape(1, channels, 1, 1), None, I32, form)

    _by_channel(api, call["dst"], min(count, COUNTED))
    _extended(api, part, count, COUNTED)
    _stepped(api, part(0, count), call)


def _everywhere(api: Issuer, call: Args) -> None:
    # Each lane first gets the same sequence. Then the number of elements in earlier lanes (times the step) is added.
    _rows(api, call)
    lanes = call["lanes"]
    count = call["num"]
    _by_channel(api, call["buffer"], lanes)
    firsts = api.local(call["buffer"], Shape(1, lanes, 1, 1), None, I32, layout.compact)
    if call["step"] * count != 1:
        _integer(api, "mul", firsts, firsts, call["step"] * count)
    y = api.local(call["dst"], Shape(1, lanes, 1, count), None, I32)
    repeated = Tensor(firsts.address, y.shape, firsts.stride._replace(h=0, w=0), I32, api.config)
    api.issue("int_add", {"a": repeated, "b": y, "shift": Constant(0, I8)}, {"y": y}, {"saturate": True})


def _alone(operation: str, y: str, **operands: Source) -> Issue:
    return Issue(operation, {**operands, "y": y}, inherits=False)


#: A Newton step of a reciprocal: work0 is the new estimate, work2 its error, and work1 the error of the old estimate
#: dst. The new estimate replaces dst only if work2 is smaller than work1.
NEWTON = sequence(
    _alone("copy", "work0", a="dst"),
    _alone("fp_mul", "work1", a="work0", b="src"),
    _alone("fp_sub", "work1", a=1.0, b="work1"),
    _alone("fp_mac", "work0", a="work0", b="work1", acc="work0"),
    _alone("fp_mul", "work2", a="work0", b="src"),
    _alone("fp_sub", "work2", a=1.0, b="work2"),
    _alone("abs", "work1", a="work1"),
    _alone("abs", "work2", a="work2"),
    _alone("less_select", "dst", a="work1", b="work2", c="dst", d="work0"),
)


def _compensated(api: Issuer, call: Args) -> None:
    sequence(to_dst("fp_div", a=1.0, b="src"), *[NEWTON] * call["num_comp"])(api, call)


def _mean(api: Issuer, call: Args) -> None:
    n, c, h, w = call["shape"].shape
    dtype: DType = call["dtype"]
    # Two pools compute the mean. The first pool reads the elements as a matrix with `eu_bytes` bytes per row, and sums
    # each column. The second pool adds the column sums. Unused elements of the last row must be 0.
    width = api.config.eu_bytes // dtype.bytes
    rows = -(-h * w // width)
    x = api.local(call["src"], Shape(n, c, rows, width), None, dtype)
    if spare := rows * width - h * w:
        place = call["src"] + h * w * dtype.bytes
        rest = api.local(place, Shape(n, c, 1, spare), dim4(x.stride.n, x.stride.c, 1, 1), dtype)
        api.issue("copy", {"a": Constant(0, dtype)}, {"y": rest})
    sums = api.local(call["work"], Shape(n, c, 1, width), None, dtype)
    y = api.local(call["dst"], Shape(n, c, 1, 1), None, dtype)
    for result, source, size, scale in ((sums, x, (rows, 1), 1.0), (y, sums, (1, width), 1 / (h * w))):
        factor = Constant.of(scale, dtype)
        api.issue("fp_avg_pool2d", {"x": source, "scale": factor}, {"y": result}, {"window": Window(size)})


def _in_f32(name: str) -> Run:
    def run(api: Issuer, call: Args) -> None:
        if call["dtype"] is not F32:
            raise MachineError(call["name"], f"the machine has no such function for {call['dtype']}", f"give {F32}")
        SEQUENCED[name](api, call)

    return run


def _compact(channels: str, columns: str = "") -> Place:
    """Return the destination in the compact layout. `channels` and `columns` name parameters ("": one column)."""

    def shape(whole: Shape, call: Args) -> Shape:
        return Shape(1, call[channels], 1, call[columns] if columns else 1)

    return Place("dst", shape=shape, layout=layout.compact)


STATIC_ROW = Place("src", shape=row_of("length"))
#: Functions by name, without the prefix tpu_bdc_.
COMPUTED: Functions = {
    "arithmetic_sequence_bcast": _rows,
    "arithmetic_sequence_general": _everywhere,
    "arithmetic_sequence_distribute": _channels,
    "arithmetic_sequence_distribute_aligned": lambda api, call: _channels(api, {**call, "is_aligned": True}),
    "arithmetic_sequence_distribute_general": _channels,
    "generate_arithmetic_sequence": _generate,
    "npu_distribute_from_static": issue("static_distribute", y=_compact("length"), x=STATIC_ROW),
    "npu_bcast_from_static": issue("static_bcast", y=_compact("lanes", "length"), x=STATIC_ROW),
    # This function issues no command, because the exponential of this machine needs no table.
    "load_fp32_exp_table": lambda api, call: None,
    "fp_taylor": issue("fp_taylor", y="dst", a="src", coefficients=Place("coefficients", row="number")),
    "fp32_compensate_reciprocal": _compensated,
    "fp32_tunable_compensate_reciprocal": _compensated,
    "fp_hw_reduce_mean": _mean,
    # The first command writes 1 or -1; the second writes 0 where the source is 0. Unsigned integers need one command.
    "sign": either(
        is_signed,
        sequence(
            to_dst("greater_select", a="src", b=0, c=1.0, d=-1.0), to_dst("equal_select", a="src", b=0, c=0, d="dst")
        ),
        to_dst("greater_select", a="src", b=0, c=1.0, d=0),
    ),
    **{f"fp_{name}": _in_f32(f"fp32_{name}") for name in ("gelu_fast", "gelu_fast2")},
    "fp32_tan_cot": either(lambda call: call["is_tan"], SEQUENCED["fp32_tan"], SEQUENCED["fp32_cot"]),
}
