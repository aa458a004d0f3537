"""Functions of the device API that issue several commands, whose number and operands depend on numbers in the call."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.forms import DeviceFunction, Functions, Given, Issuer, Place, function, issue
from tilewright.targets.bm1684x.capi.names import dim4
from tilewright.targets.bm1684x.capi.parameters import CType
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operation import attribute
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U16, U32, DType
from tilewright.targets.bm1684x.values.tables import OFFSETS
from tilewright.targets.bm1684x.values.window import Window

#: The numbers 0, 1, .. in static memory: their place, and how many there are.
NUMBERS, COUNTED = OFFSETS["numbers", I32]


def _static(api: Issuer, offset: int, count: int, dtype: DType) -> Tensor:
    """Return a row of static memory."""
    return Tensor.ddr(STATIC_BASE + offset, (1, 1, 1, count), dtype, api.config)


def _integer(api: Issuer, name: str, y: Operand, a: Operand, number: int) -> None:
    """Issue a command that adds a number to integers, or multiplies them by it, modulo the size of their type."""
    dtype = y.dtype
    b = Constant(number & (1 << dtype.bits) - 1, dtype)
    api.issue(f"int_{name}", {"a": a, "b": b, "shift": Constant(0, I8)}, {"y": y}, {"saturate": False})


def _stepped(api: Issuer, y: Operand, start: int, step: int) -> None:
    """Issue the commands that turn the numbers 0, 1, .. of y to start, start + step, .."""
    if step != 1:
        _integer(api, "mul", y, y, step)
    if start:
        _integer(api, "add", y, y, start)


def _count(given: Given) -> int:
    """Return the length of a sequence. Raises MachineError if it is not positive."""
    count: int = given["num"]
    if count < 1:
        raise MachineError(given["name"], f"num is {count}", "give 1 or more")
    return count


def _rows(api: Issuer, given: Given) -> None:
    """Issue the commands that write a sequence to a row in each of some lanes: each doubles what is there."""
    place, lanes, count = given["dst"], given["lanes"], _count(given)

    def row(first: int, length: int) -> Tensor:
        return api.local(place + first * I32.bytes, Shape(1, lanes, 1, length), None, I32)

    done = min(count, COUNTED)
    api.issue("static_bcast", {"x": _static(api, NUMBERS, done, I32)}, {"y": row(0, done)})
    while done < count:
        more = min(done, count - done)
        _integer(api, "add", row(done, more), row(0, more), done)
        done += more
    _stepped(api, row(0, count), given["start"], given["step"])


def _generate(api: Issuer, given: Given) -> None:
    """Issue the commands that write 0, 1, .. to a row of one lane, in parts of COUNTED."""
    count, dtype = _count(given), given["dtype"]
    if dtype not in (U16, U32):
        raise MachineError(given["name"], f"the type is {dtype}", f"give {U16} or {U32}")

    def row(first: int, length: int) -> Tensor:
        return api.local(given["dst"] + first * dtype.bytes, Shape(1, 1, 1, length), None, dtype)

    wide = api.local(given["dst"], Shape(1, 1, 1, COUNTED), None, U32)
    api.issue("static_bcast", {"x": _static(api, NUMBERS, COUNTED, U32)}, {"y": wide})
    if dtype is U16:  # the low halves
        first = row(0, min(count, COUNTED))
        halves = first.stride._replace(n=2 * first.stride.n, c=2 * first.stride.c, h=2, w=2)
        first = Tensor(first.address, first.shape, first.stride._replace(h=1), dtype, api.config)
        api.issue("copy", {"a": Tensor(first.address, first.shape, halves, dtype, api.config)}, {"y": first})
    for done in range(COUNTED, count, COUNTED):
        more = min(COUNTED, count - done)
        _integer(api, "add", row(done, more), row(0, more), done)


def _from_static(api: Issuer, place: int, offset: int, count: int, dtype: DType) -> None:
    """Issue the command that gives each channel one element of static memory."""
    y = api.local(place, Shape(1, count, 1, 1), None, dtype, layout.compact)
    api.issue("static_distribute", {"x": _static(api, offset, count, dtype)}, {"y": y})


def _channels(api: Issuer, given: Given) -> None:
    """Issue the commands that write a sequence along channels, one element each."""
    count, lanes = _count(given), api.config.lanes
    form = layout.aligned if given.get("is_aligned") else layout.compact

    def part(first: int, channels: int) -> Tensor:
        slot = form(Shape(1, 1, 1, 1), I32, 0, api.config).c * I32.bytes
        place = given["dst"] + first // lanes * slot
        return api.local(place, Shape(1, channels, 1, 1), None, I32, form)

    _from_static(api, given["dst"], NUMBERS, min(count, COUNTED), I32)
    for done in range(COUNTED, count, COUNTED):
        more = min(COUNTED, count - done)
        _integer(api, "add", part(done, more), part(0, more), done)
    _stepped(api, part(0, count), given["start"], given["step"])


def _everywhere(api: Issuer, given: Given) -> None:
    """Issue the commands that write a sequence to rows of lanes: each lane goes on where the one before it ends."""
    _rows(api, given)
    lanes, count = given["lanes"], given["num"]
    _from_static(api, given["buffer"], NUMBERS, lanes, I32)
    firsts = api.local(given["buffer"], Shape(1, lanes, 1, 1), None, I32, layout.compact)
    if given["step"] * count != 1:
        _integer(api, "mul", firsts, firsts, given["step"] * count)
    y = api.local(given["dst"], Shape(1, lanes, 1, count), None, I32)
    repeated = Tensor(firsts.address, y.shape, firsts.stride._replace(h=0, w=0), I32, api.config)
    api.issue("int_add", {"a": repeated, "b": y, "shift": Constant(0, I8)}, {"y": y}, {"saturate": True})


def _compensated(api: Issuer, given: Given) -> None:
    """Issue the commands of a reciprocal, then of Newton steps: each is kept where it makes the error smaller."""
    shape, steps = given["shape"].shape, given.get("num_iter", attribute({}, "steps"))
    x = api.local(given["src"], shape, given["src_stride"], F32)
    y, better, error, new = (api.local(given[name], shape, None, F32) for name in ("dst", "work0", "work1", "work2"))
    one = Constant.of(1.0, F32)

    def distance(to: Tensor) -> None:
        """Write 1 - better * x to a tensor."""
        api.issue("fp_mul", {"a": better, "b": x}, {"y": to})
        api.issue("fp_sub", {"a": one, "b": to}, {"y": to})

    api.issue("fp_div", {"a": one, "b": x}, {"y": y}, {"steps": steps})
    for _ in range(given["num_comp"]):
        api.issue("copy", {"a": y}, {"y": better})
        distance(error)
        api.issue("fp_mac", {"a": better, "b": error, "acc": better}, {"y": better})
        distance(new)
        for each in (error, new):
            api.issue("abs", {"a": each}, {"y": each})
        api.issue("less_select", {"a": error, "b": new, "c": y, "d": better}, {"y": y})


def _mean(api: Issuer, given: Given) -> None:
    """Issue the commands of a mean over h and w: sums of columns of one vector, then the mean of the sums."""
    n, c, h, w = given["shape"].shape
    dtype: DType = given["dtype"]
    width = api.config.eu_bytes // dtype.bytes
    rows = -(-h * w // width)
    x = api.local(given["src"], Shape(n, c, rows, width), None, dtype)
    if spare := rows * width - h * w:
        place = given["src"] + h * w * dtype.bytes
        rest = api.local(place, Shape(n, c, 1, spare), dim4(x.stride.n, x.stride.c, 1, 1), dtype)
        api.issue("copy", {"a": Constant(0, dtype)}, {"y": rest})
    sums = api.local(given["work"], Shape(n, c, 1, width), None, dtype)
    y = api.local(given["dst"], Shape(n, c, 1, 1), None, dtype)
    for result, source, size, scale in ((sums, x, (rows, 1), 1.0), (y, sums, (1, width), 1 / (h * w))):
        factor = Constant.of(scale, dtype)
        api.issue("fp_avg_pool2d", {"x": source, "scale": factor}, {"y": result}, {"window": Window(size)})


def _sign(api: Issuer, given: Given) -> None:
    """Issue the commands of a sign: 1 or -1, then 0 where the source is 0. For unsigned integers, one is enough."""
    shape, dtype = given["shape"].shape, given["dtype"]
    y, x = (api.local(given[name], shape, None, dtype) for name in ("dst", "src"))
    zero, one = Constant.of(0, dtype), Constant.of(1, dtype)
    minus = Constant.of(-1, dtype) if dtype.is_float or dtype.signed else zero
    api.issue("greater_select", {"a": x, "b": zero, "c": one, "d": minus}, {"y": y})
    if minus is not zero:
        api.issue("equal_select", {"a": x, "b": zero, "c": zero, "d": y}, {"y": y})


def _in_f32(name: str) -> DeviceFunction:
    """Return the C function of a type that is the function `name` of f32, and takes no other type."""
    plain = SEQUENCED[name]

    def run(api: Issuer, given: Given) -> None:
        if given["dtype"] is not F32:
            raise MachineError(given["name"], f"the machine has no such function for {given['dtype']}", f"give {F32}")
        plain.run(api, given)

    return DeviceFunction((*plain.parameters, p.DTYPE), run)


def _tangent(api: Issuer, given: Given) -> None:
    """Issue the commands of a tangent or a cotangent."""
    SEQUENCED["fp32_tan" if given["is_tan"] else "fp32_cot"].run(api, given)


def _to_lanes(api: Issuer, given: Given) -> None:
    """Issue a copy of a row of static memory to some lanes."""
    length, dtype = given["length"], given["dtype"]
    y = api.local(given["dst"], Shape(1, given["lanes"], 1, length), None, dtype, layout.compact)
    api.issue("static_bcast", {"x": _static(api, given["src"], length, dtype)}, {"y": y})


def _distribute(api: Issuer, given: Given) -> None:
    _from_static(api, given["dst"], given["src"], given["length"], given["dtype"])


BUFFER, IS_ALIGNED, IS_TAN = CType.LOCAL("buffer"), CType.BOOL("is_aligned"), CType.BOOL("is_tan")
NUM_COMP, NUMBER = CType.INT.each("num_comp", "number")
STATIC_SRC = CType.STATIC("src")
COEFFICIENTS = Place(CType.LOCAL("coefficients"), row=NUMBER)
STEPS = (p.START, p.STEP, p.NUM)
RECIPROCAL = (p.DST, p.SRC, p.WORK0, p.WORK1, p.WORK2, p.SHAPE, p.SRC_STRIDE)
#: Functions by name, without the prefix tpu_bdc_.
COMPUTED: Functions = {
    "arithmetic_sequence_bcast": DeviceFunction((p.DST, p.LANES, *STEPS), _rows),
    "arithmetic_sequence_general": DeviceFunction((p.DST, BUFFER, p.LANES, *STEPS), _everywhere),
    "arithmetic_sequence_distribute": DeviceFunction((p.DST, *STEPS), _channels),
    "arithmetic_sequence_distribute_aligned": DeviceFunction(
        (p.DST, *STEPS), lambda api, given: _channels(api, {**given, "is_aligned": True})
    ),
    "arithmetic_sequence_distribute_general": DeviceFunction((p.DST, *STEPS, IS_ALIGNED), _channels),
    "generate_arithmetic_sequence": DeviceFunction((p.DST, p.NUM, p.DTYPE), _generate),
    "npu_distribute_from_static": DeviceFunction((p.DST, STATIC_SRC, p.LENGTH, p.DTYPE), _distribute),
    "npu_bcast_from_static": DeviceFunction((p.DST, STATIC_SRC, p.LANES, p.LENGTH, p.DTYPE), _to_lanes),
    # It loads nothing: the exponential of this machine needs no table.
    "load_fp32_exp_table": DeviceFunction((p.TABLE,), lambda api, given: None),
    "fp_taylor": function(
        (p.DST, p.SRC, COEFFICIENTS.parameter, p.SHAPE, NUMBER, p.DTYPE),
        issue("fp_taylor", y=p.DST, a=p.SRC, coefficients=COEFFICIENTS),
    ),
    "fp32_compensate_reciprocal": DeviceFunction((*RECIPROCAL, NUM_COMP), _compensated),
    "fp32_tunable_compensate_reciprocal": DeviceFunction((*RECIPROCAL, p.NUM_ITER, NUM_COMP), _compensated),
    "fp_hw_reduce_mean": DeviceFunction((p.DST, p.SRC, p.WORK, p.SHAPE, p.DTYPE), _mean),
    "sign": DeviceFunction((p.DST, p.SRC, p.SHAPE, p.DTYPE), _sign),
    **{f"fp_{name}": _in_f32(f"fp32_{name}") for name in ("gelu_fast", "gelu_fast2")},
    "fp32_tan_cot": DeviceFunction((p.DST, p.SRC, p.WORK, p.COEFF, p.SHAPE, IS_TAN), _tangent),
}
