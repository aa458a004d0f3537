"""What the walks of compiled networks and of kernels share: commands, their operands, and elements of memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import READ, WRITE
from tilewright.sim.walk import Elements, Index, Operand, Scratchpad, State, Walk, Wanted, by_name
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.debug.slices import backward
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.elaborate import Elaborated
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand as Placed
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Tensor

#: The name of local memory in places: local[lane, bank, byte].
LOCAL = "local"
#: The layout of convolution weights, by bytes of an element.
KERNELS = {1: "64ic", 2: "32ic", 4: "compact kernel"}

#: Elements of a space for some addresses: the space, which of the addresses it holds, and their elements there.
Located = tuple[int, Array | slice, Array]


class CommandState(State):
    """The memories of a device after some commands. DRAM is read by bus address, which local memory has, too."""

    walk: CommandWalk

    @abstractmethod
    def local(self) -> Array:
        """Return the bytes of local memory."""

    def memory(self, name: str) -> Array:
        config = self.walk.config
        return self.local().reshape(config.lanes, config.banks, config.bank_bytes)


class CommandWalk(Walk):
    """A launch whose instructions are commands. `steps` has one command per row of the step table."""

    def __init__(self, name: str, layers: Sequence[str], program: Elaborated, config: Config) -> None:
        super().__init__(name, layers, program.table, program.order)
        self.steps, self.config = program.steps, config
        shape = (config.banks, config.bank_bytes)
        space = next(at for at, each in enumerate(self.table.spaces) if each.name.startswith(LOCAL))
        self.memories = by_name(
            Scratchpad(LOCAL, config.lanes, shape, "uint8", "one lane: banks x bytes of a bank", space)
        )

    @abstractmethod
    def located(self, addresses: Array) -> Iterator[Located]:
        """Yield the elements of the step table that hold the bytes at bus addresses, int64 [n], space by space."""

    def operation(self, step: int) -> str:
        return self.steps[step].command.operation.name

    def text(self, step: int) -> str:
        """Return a command with its operands: `int_add y=i32(1,16,8,8)@local[0,0,0x0] a=.. b=3`, results first."""
        command = self.steps[step].command
        words = [f"{name}={_short(own)}" for name, own in (*command.results.items(), *command.operands.items())]
        return " ".join([command.operation.name, *words])

    def operands(self, step: int) -> Mapping[str, Operand]:
        return {
            name: Operand(
                bytes_of(place.addresses, place.dtype.bytes), layout_of(place), place.dtype.storage.str, mode == WRITE
            )
            for mode, name, place in self.steps[step].command.in_memory
        }

    def details(self, step: int) -> Sequence[str]:
        """Return a line for each operand: whether it is read or written, its type, shape, layout and place."""
        command = self.steps[step].command
        given = [f"  {name} = {own.value}" for name, own in command.operands.items() if isinstance(own, Constant)]
        named = [f"  {key}={value}" for key, value in command.attributes.items()]
        moved = [
            f"  {'reads' if mode == READ else 'writes'} {name}: {_title(place)}"
            for mode, name, place in command.in_memory
        ]
        return [*moved, *given, *named]

    def backward(self, step: int, wanted: Wanted) -> int:
        return backward(self.steps[step].command, self.located, wanted)

    def in_memory(self, name: str, index: Index) -> Sequence[Elements]:
        config = self.config
        byte = np.arange(config.local_bytes, dtype=np.int64).reshape(config.lanes, config.banks, config.bank_bytes)
        return self.at(byte[index].reshape(-1) + LOCAL_BASE)

    def at(self, addresses: Array) -> Sequence[Elements]:
        return [(space, np.unique(elements)) for space, _, elements in self.located(addresses)]


def bytes_of(addresses: Array, size: int) -> Array:
    """Return the address of each byte of elements of `size` bytes, int64 [*shape, size]."""
    return addresses[..., None] + np.arange(size)


def layout_of(operand: Placed) -> str:
    """Return the name of an operand's layout (docs/bm1684x.md). Axes of one element do not matter."""
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
    """Return the type, shape and place of an operand in one word."""
    if isinstance(operand, Constant):
        return str(operand.value)
    return f"{operand.dtype}({','.join(map(str, operand.shape))})@{where(operand.storage)}"


def where(tensor: Tensor) -> str:
    """Return the place at which a tensor begins, as a place of the debugger."""
    if not tensor.is_local:
        return f"{tensor.address:#x}"
    bank, byte = divmod(tensor.lane_offset, tensor.config.bank_bytes)
    return f"local[{tensor.start_lane},{bank},{byte:#x}]"


def _title(operand: Placed) -> str:
    """Return the type, shape, layout and place of an operand in one line."""
    strides = f", strides {', '.join(map(str, operand.stride))}" if operand.stride else ""
    shape = ", ".join(map(str, operand.shape))
    return f"{operand.dtype} ({shape}), {layout_of(operand)}{strides}, from {where(operand.storage)} on"


def local_bytes(local: Array, address: int, size: int, config: Config) -> Array:
    """Return bytes of local memory, uint8 (lanes, ..), by bus address. Raises MachineError if some lie outside."""
    low = address - LOCAL_BASE
    if not 0 <= low <= low + size <= config.local_bytes:
        raise MachineError("local memory", f"{address:#x}..{address + size:#x} is not inside")
    first, end = low // config.lane_bytes, -(-(low + size) // config.lane_bytes)
    part = local[first:end].reshape(-1)
    found: Array = part[low - first * config.lane_bytes :][:size]
    return found
