"""Which elements a command computes an element from: one step of a backward slice.

Moves, element-wise operations, convolutions, pools and matrix products are followed element by element (convolutions:
pixel by pixel). The result of any other operation depends on all of its operands. Each byte has a uint64, in which
every bit is a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tilewright.array import Array
from tilewright.sim.walk import Wanted
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import PLACED, Flow
from tilewright.targets.bm1684x.isa.operations import Values
from tilewright.targets.bm1684x.isa.operations.products import sides
from tilewright.targets.bm1684x.layouts.layout import Operand
from tilewright.targets.bm1684x.values.window import Window

#: See commands.CommandWalk.located.
Locate = Callable[[Array], Iterator[tuple[int, Array | slice, Array]]]
Bits = Mapping[str, Array]
NONE = np.uint64(0)


def backward(command: Command, locate: Locate, wanted: Wanted) -> int:
    """Go back over one command (see sim.walk.Walk.backward)."""
    places = {name: list(_located(own, locate)) for name, own in command.results.items()}
    given = {name: _gathered(own, places[name], wanted) for name, own in command.results.items()}
    union = _any(given)
    if not union:
        return 0
    for name, own in command.results.items():
        touched = command.touched.get(name)
        if touched is None and command.operation.by_data:
            continue  # it is not known which elements were written: all may keep their old values
        for space, mine, elements in places[name]:
            here = np.broadcast_to(True if touched is None else touched, own.addresses.shape).reshape(-1)[mine]
            wanted[space][elements[here]] = 0
    for name, bits in _spread(command, given, np.uint64(union)).items():
        operand = command.operands[name]
        assert not isinstance(operand, Constant)
        each = np.broadcast_to(bits, operand.addresses.shape).reshape(-1)
        each = np.where(np.broadcast_to(command.touched.get(name, np.True_), each.shape), each, NONE)
        for space, mine, elements in _located(operand, locate):
            np.bitwise_or.at(wanted[space], elements, each[mine])
    return union


def _located(operand: Operand, locate: Locate) -> Iterator[tuple[int, Array | slice, Array]]:
    """Yield the elements of memory of each byte of an operand; the second item selects elements of the operand."""
    addresses = operand.addresses.reshape(-1)
    for byte in range(operand.dtype.bytes):
        yield from locate(addresses + byte)


def _gathered(result: Operand, places: list[tuple[int, Array | slice, Array]], wanted: Wanted) -> Array:
    """Return the slices that want each element of a result, uint64 of its shape."""
    bits = np.zeros(result.addresses.size, np.uint64)
    for space, mine, elements in places:
        bits[mine] |= wanted[space][elements]
    return bits.reshape(result.addresses.shape)


def _any(given: Bits) -> int:
    return int(np.bitwise_or.reduce([np.bitwise_or.reduce(bits, axis=None, initial=NONE) for bits in given.values()]))


def _spread(command: Command, given: Bits, union: np.uint64) -> dict[str, Array]:
    """Return the slices that want each element of the operands in memory: arrays that broadcast to their shapes."""
    flow = command.operation.flow
    shapes = {key: own.addresses.shape for key, own in command.operands.items() if not isinstance(own, Constant)}
    found = {key: np.full((), union) for key in shapes}
    if len(given) > 1 or "y" not in given:
        return found
    y = given["y"]
    if flow is Flow.MOVE and "x" in shapes:
        found["x"] = _moved(command, y, shapes["x"])
    elif flow is Flow.PRODUCT:
        found |= _product(command, y, shapes)
    elif flow in (Flow.CONVOLUTION, Flow.WINDOW) and "x" in shapes:
        found |= _windows(command, y, shapes, by_channel=flow is Flow.WINDOW)
    elif flow is Flow.ELEMENTWISE:
        found |= {key: _reduced(y, shape) for key, shape in shapes.items() if key in PLACED}
    return found


def _moved(command: Command, y: Array, shape: tuple[int, ...]) -> Array:
    """Return the slices for the operand x of a move. The move's meaning, on numbers of elements, tells the sources."""
    numbers = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
    values = Values({"x": numbers}, command.types, {"y": y.shape}, command.attributes)
    source = np.broadcast_to(command.operation.results(values)["y"], y.shape).reshape(-1)
    bits = np.zeros(numbers.size + 1, np.uint64)
    np.bitwise_or.at(bits, source, y.reshape(-1))
    return bits[1:].reshape(shape)


def _product(command: Command, y: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the slices for the factors of a matrix product and for what is added: rows or columns."""
    found = {key: _reduced(y, shapes[key]) for key in ("bias", "acc") if key in shapes}
    made = {key: np.zeros(shapes.get(key, (1, 1)), np.uint64) for key in ("L", "R")}
    left, right = sides(made["L"], made["R"], command.attributes)  # views
    if "L" in shapes and "R" in shapes and (left.shape[0], right.shape[1]) == y.shape:
        left |= np.bitwise_or.reduce(y, axis=1)[:, None]
        right |= np.bitwise_or.reduce(y, axis=0)[None]
        found |= made
    return found


def _windows(command: Command, y: Array, shapes: Mapping[str, tuple[int, ...]], by_channel: bool) -> dict[str, Array]:
    """Return the slices for the feature map, the weights and what is added, of a convolution or a pool."""
    window: Window | None = command.attributes.get("window")
    _, channels, h, w = shapes["x"]
    if window is None or window.out(h, w) != y.shape[2:] or (by_channel and channels != y.shape[1]):
        return {}
    pixels = y if by_channel else np.bitwise_or.reduce(y, axis=1)[:, None]
    height, width = window.padded(h, w)
    area = np.zeros((*pixels.shape[:2], height, width), np.uint64)
    (oh, ow), (down, across) = y.shape[2:], window.stride
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            top, left = row * window.dilation[0], column * window.dilation[1]
            area[:, :, top : top + oh * down : down, left : left + ow * across : across] |= pixels
    top, bottom, left, right = window.pads
    inner = area[:, :, top : height - bottom, left : width - right]
    found = {"x": inner[:, :, :: window.inserted[0] + 1, :: window.inserted[1] + 1]}
    found |= {key: _reduced(y, shapes[key]) for key in ("bias", "acc") if key in shapes}
    if "w" in shapes:
        each = np.bitwise_or.reduce(y, axis=(0, 2, 3))
        found["w"] = each[None, :, None, None] if by_channel else each[:, None, None, None]
    return found


def _reduced(y: Array, shape: tuple[int, ...]) -> Array:
    """Return the slices of the elements of an operand that is broadcast to the result's shape."""
    if len(shape) != y.ndim or any(size not in (1, whole) for size, whole in zip(shape, y.shape, strict=True)):
        return np.full((), np.bitwise_or.reduce(y, axis=None, initial=NONE))
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and y.shape[axis] > 1)
    return np.bitwise_or.reduce(y, axis=axes, keepdims=True) if axes else y
