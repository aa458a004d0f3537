"""Lower nodes to operators of the firmware, each with a record and constants; or give the reason for the host fallback.

`couple` selects the operators that run on the CFU's image memory, and the tensors to move for these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.array import Array
from tilewright.graph import ops
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops.linear import Linear
from tilewright.graph.ops.reduce import Pool
from tilewright.graph.rounding import Requant, Rounding, clamp_range, quantize_multiplier
from tilewright.graph.takes import Takes
from tilewright.targets.cfu.config import IMAGE_BYTES
from tilewright.targets.cfu.isa.state import CHANNELS, LAYER_BITS, Reg

from .layout import LANES, Coupled, Kind, activation_bytes, rows_of_b

DIFF_BITS = 5  # integer bits of the exponent in softmax
ADD_BITS = 20  # the left shift of the operands in TFLite's addition
MAX_DEPTH = 1023  # the largest k of a launch, which has 10 bits in start_GEMM
#: Layer registers of the CFU that limit the size of an operator.
SIZES = [
    *(Reg.IN_H, Reg.IN_W, Reg.IN_C, Reg.OUT_H, Reg.OUT_W, Reg.OUT_C),
    *(Reg.KERNEL_H, Reg.KERNEL_W, Reg.PAD_H, Reg.PAD_W),
]
#: Layer registers that limit only convolutions, because a mean has a single window.
STRIDES = [Reg.STRIDE_H, Reg.STRIDE_W]
Record = Mapping[str, int]
TAKES = Takes(groups=True)
_REMEDY = " (run it with rounding=tflm, or make it with `tilewright quantize --scheme tflm`)"
#: The window for each kind of operator that is not a convolution but runs as one.
POINT = {Kind.FULLY_CONNECTED: {f"{name}_{axis}": 1 for name in ("kernel", "stride", "dilation") for axis in "hw"}}


@dataclass(frozen=True, eq=False)
class Operator:
    """The operator of the firmware for a node.

    `activations` has tensor names, `constants` has int8 or int32 arrays, and `words` has numbers. The keys are fields
    of the operator record.
    """

    kind: Kind
    activations: Mapping[str, str]
    constants: Mapping[str, Array] = field(default_factory=dict)
    words: Mapping[str, int] = field(default_factory=dict)


def operator(site: Site, rounding: Rounding) -> Operator | str:
    op = site.node.op
    make = _MAKERS.get(type(op))
    if make is None:
        return ops.OnnxOp.real(site) or f"the firmware has no kernel for {op.label}"
    return op.refusal(site, TAKES) or make(site, rounding)


def _linear(site: Site, rounding: Rounding) -> Operator | str:
    op = site.node.op
    x = site.input(0)
    w = site.input(1)
    out = site.output
    assert isinstance(op, Linear)
    rule = op.rule(rounding)
    bias = site.optional(2)
    if rule != "double":
        of, remedy = (f"rounding={rounding.name}", _REMEDY) if op.shift is None else ("this network", "")
        return f"the requantisation rule '{rule}' of {of} is not supported: the kernels multiply by integers{remedy}"
    channels = out.shape[-1]
    requant = Requant.of_product(x, w, out, op.activation, rounding.delegated)
    multiplier, shift = quantize_multiplier(requant.real)
    constants = {
        "weights": site.constant(1),
        "bias": np.zeros(channels, np.int32) if bias is None else site.constant(2),
        "multiplier": np.broadcast_to(multiplier, channels).astype(np.int32),
        "shift": np.broadcast_to(shift, channels).astype(np.int32),
    }
    words = {"input_offset": -x.zero_point, "output_offset": requant.zero_point}
    words |= {"low": requant.low, "high": requant.high}
    if isinstance(op, ops.FullyConnected):
        kind = Kind.FULLY_CONNECTED
        shape = _rows(x.size // w.shape[1], w.shape[1], channels) | {"filter_c": w.shape[1]}
    else:
        assert isinstance(op, ops.Conv2D | ops.DepthwiseConv2D)
        kind = Kind.CONV if isinstance(op, ops.Conv2D) else Kind.DEPTHWISE
        shape = _image(x, out) | _window(op.window) | {"filter_c": w.shape[3]}
    return Operator(kind, {"input": x.name, "output": out.name}, constants, words | shape)


def _add(site: Site, rounding: Rounding) -> Operator | str:
    op = site.node.op
    out = site.output
    assert isinstance(op, ops.Add)
    a, b = site.input(0), site.input(1)
    if rounding.elementwise != "tflite":
        return f"Add with rounding={rounding.name} is not supported: the kernel adds like TFLite{_REMEDY}"
    if a.shape != b.shape or a.data is not None or b.data is not None or b.dtype != "int8":
        shapes = f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
        return f"Add of {shapes} is not supported; its kernel adds two computed int8 tensors of one shape"
    # TFLite's Add shifts both operands left by 20 bits and scales them to twice the larger scale. It then scales the
    # sum to the output. Kernels on the CFU expect that the second operand has the larger scale, with a factor of 1/2.
    if a.scale > b.scale:
        a, b = b, a
    twice_max = 2 * np.float64(b.scale)
    factors = {
        "input": np.float64(a.scale) / twice_max,
        "input2": np.float64(b.scale) / twice_max,
        "output": twice_max / ((1 << ADD_BITS) * np.float64(out.scale)),
    }
    channels = out.image[3]
    # The shape of an image is kept, because its number of pixels may not fit into one size register.
    is_image = len(out.shape) == 4 and out.shape[0] == 1
    shape = _image(out, out) if is_image else _rows(out.size // channels, channels, channels)
    words = shape | _clamp(site, op.activation)
    for name, factor in factors.items():
        words |= _factor(name, factor)
    if words["output_shift"] > 0:
        return "the scale of its result is too small: its kernel cannot scale sums up"
    words |= {"input_offset": -a.zero_point, "input2_offset": -b.zero_point, "output_offset": out.zero_point}
    return Operator(Kind.ADD, {"input": a.name, "input2": b.name, "output": out.name}, {}, words)


def _pool(site: Site, rounding: Rounding) -> Operator | str:
    op = site.node.op
    x = site.input(0)
    out = site.output
    assert isinstance(op, Pool)
    average = isinstance(op, ops.AveragePool2D)
    half_even = rounding.delegated and not average
    words = _image(x, out) | _window(op.window) | _clamp(site, op.activation, half_even)
    kind = Kind.AVERAGE_POOL if average else Kind.MAX_POOL
    return Operator(kind, {"input": x.name, "output": out.name}, {}, words)


def _reshape(site: Site, rounding: Rounding) -> Operator:
    size = site.output.size
    return Operator(Kind.COPY, {"input": site.input(0).name, "output": site.output.name}, {}, _rows(1, size, size))


def _softmax(site: Site, rounding: Rounding) -> Operator | str:
    op = site.node.op
    x = site.input(0)
    assert isinstance(op, ops.Softmax)
    if rounding.delegated:
        return f"Softmax with rounding={rounding.name} is not supported: the kernel is TFLite's in fixed point"
    # TFLite's PreprocessSoftmaxScaling: differences from the maximum are fixed-point numbers, DIFF_BITS integer bits.
    real = min(float(np.float32(op.beta)) * np.float64(x.scale) * (1 << (31 - DIFF_BITS)), float((1 << 31) - 1))
    words = _rows(x.size // x.shape[-1], x.shape[-1], x.shape[-1]) | _factor("input", real)
    # TFLite's CalculateInputRadius: the exponential of a smaller difference is 0.
    radius = np.floor(((1 << DIFF_BITS) - 1) * (1 << (31 - DIFF_BITS)) / 2.0 ** words["input_shift"])
    words |= {"diff_min": -min(int(radius), 256), "low": -128, "high": 127}
    return Operator(Kind.SOFTMAX, {"input": x.name, "output": site.output.name}, {}, words)


_MAKERS: dict[type, Callable[[Site, Rounding], Operator | str]] = {
    ops.Conv2D: _linear,
    ops.DepthwiseConv2D: _linear,
    ops.FullyConnected: _linear,
    ops.Add: _add,
    ops.AveragePool2D: _pool,
    ops.MaxPool2D: _pool,
    ops.Reshape: _reshape,
    ops.Softmax: _softmax,
}


def _factor(name: str, real: float) -> dict[str, int]:
    multiplier, shift = quantize_multiplier(real)
    return {f"{name}_multiplier": int(multiplier), f"{name}_shift": int(shift)}


def _clamp(site: Site, activation: str, half_even: bool = False) -> dict[str, int]:
    out = site.output
    low, high = clamp_range(activation, out.scale, out.zero_point, out.dtype, half_even)  # type: ignore[arg-type]
    return {"low": low, "high": high}


def _rows(rows: int, depth: int, outputs: int) -> dict[str, int]:
    return {"in_h": rows, "in_w": 1, "in_c": depth, "out_h": rows, "out_w": 1, "out_c": outputs}


def _image(x: Tensor, out: Tensor) -> dict[str, int]:
    names = ("in_h", "in_w", "in_c", "out_h", "out_w", "out_c")
    return dict(zip(names, (*x.shape[1:], *out.shape[1:]), strict=True))


def _window(window: ops.Window) -> dict[str, int]:
    pairs = {"kernel": window.kernel, "stride": window.stride, "dilation": window.dilation}
    words = {f"{name}_{axis}": size for name, pair in pairs.items() for axis, size in zip("hw", pair, strict=True)}
    return words | {"pad_h": window.padding[0], "pad_w": window.padding[2]}


def couple(
    records: Sequence[Record],
    activations: Sequence[Mapping[str, str]],
    entering: Collection[str],
    leaving: Collection[str],
    extensions: Collection[str],
    buffer_rows: int,
    tuned: bool = False,
) -> list[dict[str, int]]:
    """Decide for each operator whether it runs on the CFU's image memory, and which tensors must be moved.

    For each operator, return the words `coupled` (flags of Coupled) and `rows_at` (the first row of the weights in B).
    `activations` has the tensor names of each operator, by field. The host writes the tensors `entering` and reads the
    tensors `leaving`.

    An activation has the same offset in the image memory as in the arena. With the extension `resident`, an activation
    is pushed to the image memory once, before its first use, and is read back only if the CPU or the host needs it.
    With `stream`, the DMA fetches the tensors `entering`. It cannot fetch results of the CPU: the DMA bypasses the L2
    cache, which may still contain them. With `tuned`, a fully connected layer is a convolution with 1 x 1 windows, and
    copies without effect (see `in_place`) are left out.
    """
    if tuned:
        records = [{**record, **POINT.get(Kind(record["kind"]), {})} for record in records]
    takes = [
        _takes(record, extensions, buffer_rows, tuned) or (tuned and names["input"] == names["output"])
        for record, names in zip(records, activations, strict=True)
    ]
    resident = "resident" in extensions
    stream = {"dma", "stream"} <= set(extensions)
    # A result is copied to main memory only if the host or an operator on the CPU needs it.
    needed = set(leaving)
    for coupled, names in zip(takes, activations, strict=True):
        if not coupled:
            needed.update(names.values())
    on_chip: set[str] = set()
    words: list[dict[str, int]] = []
    weights = _weight_rows(records, takes, extensions, buffer_rows)
    for coupled, record, names, (constants, rows_at) in zip(takes, records, activations, weights, strict=True):
        if not coupled or record["kind"] == Kind.COPY:
            words.append({"coupled": int(coupled), "rows_at": 0})
            continue
        flags = Coupled.HERE | constants
        for key, push, fetch in (("input", Coupled.PUSH, Coupled.FETCH), ("input2", Coupled.PUSH2, Coupled.FETCH2)):
            if key in names and not (resident and names[key] in on_chip):
                flags |= fetch if stream and names[key] in entering else push
                on_chip.add(names[key])
        on_chip.add(names["output"])
        if not resident or names["output"] in needed:
            flags |= Coupled.READ
        words.append({**POINT.get(Kind(record["kind"]), {}), "coupled": int(flags), "rows_at": rows_at})
    return words


def _weight_rows(
    records: Sequence[Record], takes: Sequence[bool], extensions: Collection[str], buffer_rows: int
) -> Iterator[tuple[Coupled, int]]:
    # With `dma`, the weights of a convolution are loaded while the previous convolution runs. So weights are
    # alternately at the beginning and at the end of B, and the firmware alternates the entries of the channel tables in
    # the same way. If the constants of two consecutive convolutions do not fit together, the loads for the second have
    # to wait (LATE).
    stream = {"dma", "stream"} <= set(extensions)
    row = 0
    rows_before = 0
    channels_before = 0
    for record, coupled in zip(records, takes, strict=True):
        flags = Coupled(0)
        if not coupled or record["kind"] not in (Kind.CONV, Kind.FULLY_CONNECTED):
            yield flags, 0
            continue
        if "dma" in extensions:
            rows = rows_of_b(record)
            channels = record["out_c"] if stream else 0
            if rows + rows_before > buffer_rows or channels + channels_before > CHANNELS:
                flags |= Coupled.LATE
            row = 0 if row else buffer_rows - rows
            rows_before = rows
            channels_before = channels
        yield flags | Coupled.TABLE if stream else flags, row


def _takes(record: Record, extensions: Collection[str], buffer_rows: int, tuned: bool) -> bool:
    kind = record["kind"]
    sizes = activation_bytes(record)
    if any(record[field] + size > IMAGE_BYTES for field, size in sizes.items()):
        return False
    # With `tuned`, a fully connected layer is a convolution with a single window.
    is_product = kind == Kind.CONV or (tuned and kind == Kind.FULLY_CONNECTED)
    limited = SIZES + STRIDES * is_product  # these numbers must fit into the CFU's layer registers
    if any(not 0 <= record[reg.name.lower()] < 1 << LAYER_BITS[reg] for reg in limited):
        return False
    if is_product:
        dense = record["filter_c"] == record["in_c"] and (record["dilation_h"], record["dilation_w"]) == (1, 1)
        depth = record["kernel_h"] * record["kernel_w"] * record["in_c"]
        fits = depth <= MAX_DEPTH and record["out_c"] <= CHANNELS and rows_of_b(record) <= buffer_rows
        # Without `overlap`, all sums of a convolution wait in C.
        sums = record["out_h"] * record["out_w"] * -(-record["out_c"] // LANES)
        fits = fits and ("overlap" in extensions or sums <= buffer_rows)
        return "im2col" in extensions and dense and fits
    if kind == Kind.ADD:
        return "add" in extensions
    if kind == Kind.AVERAGE_POOL:
        over_all_pixels = (record["kernel_h"], record["kernel_w"]) == (record["in_h"], record["in_w"])
        return "pool" in extensions and over_all_pixels and record["out_h"] * record["out_w"] == 1
    return False


def in_place(operators: Mapping[str, Operator], outside: Collection[str]) -> dict[str, Operator]:
    """Return all operators, with input and output of each unnecessary copy as one tensor.

    `outside` are the tensors that the host writes or reads. Copies from or to these tensors are necessary.
    """
    same: dict[str, str] = {}
    operators_in_place = {}
    for node, operator in operators.items():
        names = {field: same.get(name, name) for field, name in operator.activations.items()}
        if operator.kind == Kind.COPY and not {names["input"], names["output"]} & set(outside):
            same[names["output"]] = names["input"]
            names["output"] = names["input"]
        operators_in_place[node] = replace(operator, activations=names)
    return operators_in_place


def channel_table(bias: Array, multiplier: Array, shift: Array) -> Array:
    """Return the channel tables in the DMA's format, int32 [channels, 4]: bias, multiplier, shift, 0."""
    return np.stack([bias, multiplier, shift, np.zeros_like(shift)], axis=1)


def packed_rows(weights: Array) -> Array:
    """Return int8 weights (O, KH, KW, C) as flat rows of 16 output channels, in big-endian words of set_matrixB."""
    channels = weights.shape[0]
    flat = weights.reshape(channels, -1)
    padded = np.zeros((-(-channels // LANES) * LANES, flat.shape[1]), np.int8)
    padded[:channels] = flat
    # The first of four values is in the most significant byte of a word, so reverse the bytes of each word.
    rows = padded.reshape(-1, LANES // 4, 4, flat.shape[1])[:, :, ::-1]
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2)).reshape(-1)
