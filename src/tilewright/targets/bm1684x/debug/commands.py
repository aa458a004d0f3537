"""The common part of the debugger's walks of networks and kernels: commands, their operands, and elements of memory.

`backward` is one step of a backward slice: it maps the elements that a command writes to the elements from which they
were computed. Moves, element-wise operations, pools and matrix products are followed element by element, and
convolutions pixel by pixel. For all other operations, each element of the result depends on all elements of all
operands. Up to 64 slices are followed together: for each element of memory, a uint64 has one bit per slice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import READ, WRITE
from tilewright.sim.walk import Elements, Index, Operand, Scratchpad, SliceBits, State, Walk, by_name
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram
from tilewright.targets.bm1684x.isa.operation import PER_ELEMENT, Flow
from tilewright.targets.bm1684x.isa.operations import Values
from tilewright.targets.bm1684x.isa.operations.products import sides
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor
from tilewright.targets.bm1684x.layouts.tensor import Operand as Placed
from tilewright.targets.bm1684x.values.window import Window

#: The name of local memory in the text of a location, such as local[lane, bank, byte].
LOCAL = "local"
#: The name of the layout of convolution weights, by bytes per element.
KERNELS = {1: "64ic", 2: "32ic", 4: "compact kernel"}

#: A space, a mask of the addresses that lie in the space, and the indices of the elements at these addresses.
Located = tuple[int, Array | slice, Array]


class CommandState(State):
    """The memories of a device after some commands. All memories, including local memory, are read by bus address."""

    walk: CommandWalk

    @abstractmethod
    def local(self) -> Array:
        """Return the bytes of local memory."""

    def memory(self, name: str) -> Array:
        config = self.walk.config
        return self.local().reshape(config.lanes, config.banks, config.bank_bytes)


class CommandWalk(Walk):
    """A launch whose instructions are commands. `steps` has one entry per row of the step table."""

    def __init__(self, name: str, layers: Sequence[str], program: ElaboratedProgram, config: Config) -> None:
        super().__init__(name, layers, program.table, program.order)
        self.steps = program.steps
        self.config = config
        shape = (config.banks, config.bank_bytes)
        space = next(at for at, memory in enumerate(self.table.spaces) if memory.name.startswith(LOCAL))
        self.memories = by_name(
            Scratchpad(LOCAL, config.lanes, shape, "uint8", "one lane: banks x bytes of a bank", space)
        )

    @abstractmethod
    def located(self, addresses: Array) -> Iterator[Located]:
        """For each space, yield the elements that contain the bytes at the bus addresses (int64 [n])."""

    def operation(self, step: int) -> str:
        return self.steps[step].command.operation.name

    def text(self, step: int) -> str:
        """Return a command as text, results first, such as `int_add y=i32(1,16,8,8)@local[0,0,0x0] a=.. b=3`."""
        command = self.steps[step].command
        words = [f"{name}={_short(place)}" for name, place in (*command.results.items(), *command.operands.items())]
        return " ".join([command.operation.name, *words])

    def operands(self, step: int) -> Mapping[str, Operand]:
        return {
            name: Operand(
                bytes_of(place.addresses, place.dtype.bytes), layout_of(place), place.dtype.storage.str, mode == WRITE
            )
            for mode, name, place in self.steps[step].command.in_memory
        }

    def details(self, step: int) -> Sequence[str]:
        command = self.steps[step].command
        given = [
            f"  {name} = {operand.value}" for name, operand in command.operands.items() if isinstance(operand, Constant)
        ]
        named = [f"  {key}={value}" for key, value in command.attributes.items()]
        moved = [
            f"  {'reads' if mode == READ else 'writes'} {name}: {_title(place)}"
            for mode, name, place in command.in_memory
        ]
        return [*moved, *given, *named]

    def backward(self, step: int, wanted: SliceBits) -> int:
        return backward(self.steps[step].command, self.located, wanted)

    def in_memory(self, name: str, index: Index) -> Sequence[Elements]:
        config = self.config
        byte = np.arange(config.local_bytes, dtype=np.int64).reshape(config.lanes, config.banks, config.bank_bytes)
        return self.at(byte[index].reshape(-1) + LOCAL_BASE)

    def at(self, addresses: Array) -> Sequence[Elements]:
        return [(space, np.unique(elements)) for space, _, elements in self.located(addresses)]


def bytes_of(addresses: Array, size: int) -> Array:
    return addresses[..., None] + np.arange(size)


def layout_of(operand: Placed) -> str:
    """Return the name of an operand's layout (docs/bm1684x.md). Strides along axes of size 1 are ignored."""
    if isinstance(operand, ConvWeights):
        return KERNELS[operand.dtype.bytes]
    tensor = operand.storage
    form = "" if isinstance(operand, Tensor) else "matrix, "
    if not tensor.is_local:
        return form + ("continuous" if _alike(tensor, layout.continuous(tensor.shape), tensor.shape.c) else "free")
    for name, strides in layout.LAYOUTS.items():
        if _alike(tensor, strides(tensor.shape, tensor.dtype, tensor.start_lane, tensor.config), tensor.slots):
            return form + name
    return f"{form}free"


def _alike(tensor: Tensor, stride: layout.Stride, channels: int) -> bool:
    sizes = Shape(tensor.shape.n, channels, tensor.shape.h, tensor.shape.w)
    return all(size == 1 or a == b for size, a, b in zip(sizes, tensor.stride, stride, strict=True))


def _short(operand: Placed | Constant) -> str:
    if isinstance(operand, Constant):
        return str(operand.value)
    return f"{operand.dtype}({','.join(map(str, operand.shape))})@{where(operand.storage)}"


def where(tensor: Tensor) -> str:
    if not tensor.is_local:
        return f"{tensor.address:#x}"
    bank, byte = divmod(tensor.lane_offset, tensor.config.bank_bytes)
    return f"local[{tensor.start_lane},{bank},{byte:#x}]"


def _title(operand: Placed) -> str:
    strides = f", strides {', '.join(map(str, operand.stride))}" if operand.stride else ""
    shape = ", ".join(map(str, operand.shape))
    return f"{operand.dtype} ({shape}), {layout_of(operand)}{strides}, from {where(operand.storage)} on"


#: See CommandWalk.located.
Locate = Callable[[Array], Iterator[Located]]
Bits = Mapping[str, Array]
NONE = np.uint64(0)


def backward(command: Command, locate: Locate, wanted: SliceBits) -> int:
    """Follow slices backward through one command (see sim.walk.Walk.backward)."""
    places = {name: list(_located(place, locate)) for name, place in command.results.items()}
    result_bits = {name: _gathered(place, places[name], wanted) for name, place in command.results.items()}
    # `result_bits` has the slices that contain each element of a result. A command that writes to none of the slices is
    # skipped.
    union = _any(result_bits)
    if not union:
        return 0
    for name, place in command.results.items():
        touched = command.touched.get(name)
        if touched is None and command.operation.by_data:
            continue  # the written elements are unknown, so all elements may have their old values
        for space, selected, elements in places[name]:
            written = np.broadcast_to(True if touched is None else touched, place.addresses.shape).reshape(-1)[selected]
            # An overwritten element does not depend on its old value.
            wanted[space][elements[written]] = 0
    for name, bits in _spread(command, result_bits, np.uint64(union)).items():
        operand = command.operands[name]
        assert not isinstance(operand, Constant)
        slices = np.broadcast_to(bits, operand.addresses.shape).reshape(-1)
        slices = np.where(np.broadcast_to(command.touched.get(name, np.True_), slices.shape), slices, NONE)
        for space, selected, elements in _located(operand, locate):
            np.bitwise_or.at(wanted[space], elements, slices[selected])
    return union


def _located(operand: Placed, locate: Locate) -> Iterator[Located]:
    addresses = operand.addresses.reshape(-1)
    for byte in range(operand.dtype.bytes):
        yield from locate(addresses + byte)


def _gathered(result: Placed, places: list[Located], wanted: SliceBits) -> Array:
    bits = np.zeros(result.addresses.size, np.uint64)
    for space, selected, elements in places:
        bits[selected] |= wanted[space][elements]
    return bits.reshape(result.addresses.shape)


def _any(result_bits: Bits) -> int:
    unions = [np.bitwise_or.reduce(bits, axis=None, initial=NONE) for bits in result_bits.values()]
    return int(np.bitwise_or.reduce(unions))


def _spread(command: Command, result_bits: Bits, union: np.uint64) -> dict[str, Array]:
    flow = command.operation.flow
    shapes = {
        key: operand.addresses.shape for key, operand in command.operands.items() if not isinstance(operand, Constant)
    }
    # By default, each element of each operand inherits all slices. Known flows give more exact sources below.
    sources = {key: np.full((), union) for key in shapes}
    if len(result_bits) > 1 or "y" not in result_bits:
        return sources
    y = result_bits["y"]
    if flow is Flow.MOVE and "x" in shapes:
        sources["x"] = _moved(command, y, shapes["x"])
    elif flow is Flow.PRODUCT:
        sources |= _product(command, y, shapes)
    elif flow in (Flow.CONVOLUTION, Flow.WINDOW) and "x" in shapes:
        sources |= _windows(command, y, shapes, by_channel=flow is Flow.WINDOW)
    elif flow is Flow.ELEMENTWISE:
        sources |= {key: _reduced(y, shape) for key, shape in shapes.items() if key in PER_ELEMENT}
    return sources


def _moved(command: Command, y: Array, shape: tuple[int, ...]) -> Array:
    # The move is applied to element numbers instead of values, so each element of the result shows its source (0:
    # none).
    numbers = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
    values = Values({"x": numbers}, command.types, {"y": y.shape}, command.attributes)
    source = np.broadcast_to(command.operation.results(values)["y"], y.shape).reshape(-1)
    bits = np.zeros(numbers.size + 1, np.uint64)
    np.bitwise_or.at(bits, source, y.reshape(-1))
    return bits[1:].reshape(shape)


def _product(command: Command, y: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    sources = {key: _reduced(y, shapes[key]) for key in ("bias", "acc") if key in shapes}
    factors = {key: np.zeros(shapes.get(key, (1, 1)), np.uint64) for key in ("L", "R")}
    # `left` and `right` are views of the factors, so writing to them changes the factors, even if they are transposed.
    left, right = sides(factors["L"], factors["R"], command.attributes)
    if "L" in shapes and "R" in shapes and (left.shape[0], right.shape[1]) == y.shape:
        left |= np.bitwise_or.reduce(y, axis=1)[:, None]
        right |= np.bitwise_or.reduce(y, axis=0)[None]
        sources |= factors
    return sources


def _windows(command: Command, y: Array, shapes: Mapping[str, tuple[int, ...]], by_channel: bool) -> dict[str, Array]:
    window: Window | None = command.attributes.get("window")
    _, channels, h, w = shapes["x"]
    if window is None or window.out(h, w) != y.shape[2:] or (by_channel and channels != y.shape[1]):
        return {}
    # A pixel of the result depends on all pixels in its window: in its own channel for a pool, or in all channels.
    pixels = y if by_channel else np.bitwise_or.reduce(y, axis=1)[:, None]
    height, width = window.padded(h, w)
    area = np.zeros((*pixels.shape[:2], height, width), np.uint64)
    oh, ow = y.shape[2:]
    down, across = window.stride
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            top = row * window.dilation[0]
            left = column * window.dilation[1]
            area[:, :, top : top + oh * down : down, left : left + ow * across : across] |= pixels
    top, bottom, left, right = window.pads
    inner = area[:, :, top : height - bottom, left : width - right]
    sources = {"x": inner[:, :, :: window.inserted[0] + 1, :: window.inserted[1] + 1]}
    sources |= {key: _reduced(y, shapes[key]) for key in ("bias", "acc") if key in shapes}
    if "w" in shapes:
        by_channel_of_y = np.bitwise_or.reduce(y, axis=(0, 2, 3))
        sources["w"] = by_channel_of_y[None, :, None, None] if by_channel else by_channel_of_y[:, None, None, None]
    return sources


def _reduced(y: Array, shape: tuple[int, ...]) -> Array:
    if len(shape) != y.ndim or any(size not in (1, whole) for size, whole in zip(shape, y.shape, strict=True)):
        return np.full((), np.bitwise_or.reduce(y, axis=None, initial=NONE))
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and y.shape[axis] > 1)
    return np.bitwise_or.reduce(y, axis=axes, keepdims=True) if axes else y
