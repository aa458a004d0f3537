"""Device memory: buffers that the host allocates, where they lie in DRAM, and matrices in them.

A matrix lies as tiles of a memory's shape: [row tile][column tile][row][column].
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.program.launch_image import MAX_ADDRESS, MAX_BYTES
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.stream import pack_values, unpack_values

#: Buffers start at multiples of a page, the largest tile that is legal (upstream: VTA_PAGE_BYTES).
PAGE = 4096
#: The area of micro-ops, and the most that instructions or micro-ops may take (upstream: VTA_MAX_XFER).
UOPS, MAX_TRANSFER = PAGE, 1 << 25


class Buffer:
    """A handle on `size` bytes of device memory at `address`, uninitialised (zeros) at first."""

    def __init__(self, name: str, address: int, size: int) -> None:
        self.name, self.address, self.size = name, address, size
        #: Whether the host or a STORE has written it.
        self.filled = False
        self.freed = False
        self._data = np.zeros(size, np.uint8)
        self._snapshot: Array | None = None

    @property
    def data(self) -> Array:
        """Its bytes, uint8 [size], read-only (upstream: VTABufferCPUPtr)."""
        self.usable("data")
        view = self._data.view()
        view.flags.writeable = False
        return view

    def write(self, data: Array, offset: int = 0) -> None:
        """Bytes uint8 [n] from `offset` on. Raises ProgramError for a freed buffer and bytes beyond the end."""
        self.usable("write")
        self.refuse_beyond("write", offset, data.size)
        self._data[offset : offset + data.size] = data
        self.filled, self._snapshot = True, None

    def snapshot(self) -> Array:
        """Its bytes as they are now, shared until the next write."""
        if self._snapshot is None:
            self._snapshot = self._data.copy()
        return self._snapshot

    def usable(self, call: str) -> None:
        """Raise ProgramError where the buffer is freed."""
        if self.freed:
            raise ProgramError(call, f"buffer '{self.name}' is freed", "allocate another")

    def refuse_beyond(self, call: str, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ProgramError(call, f"bytes {offset}..{offset + size} leave buffer '{self.name}' of {self.size} bytes")

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {self.size} bytes at {self.address:#x}{', freed' if self.freed else ''})"


class DeviceMemory:
    """The buffers of one runtime: first fit, behind the area of the micro-ops."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []  # by address
        self._made = 0

    def alloc(self, size: int, name: str | None) -> Buffer:
        """Raises ProgramError where it does not fit, or the name is taken."""
        if size < 1:
            raise ProgramError("alloc", f"size is {size}", "ask for one byte or more")
        name = f"buffer{self._made}" if name is None else name
        if name == "uop" or any(buffer.name == name for buffer in self.buffers):
            raise ProgramError("alloc", f"the name '{name}' is taken", "choose another, or none")
        address = UOPS + MAX_TRANSFER
        for taken in self.buffers:
            if address + size <= taken.address:
                break
            address = -(-(taken.address + taken.size) // PAGE) * PAGE
        used = sum(buffer.size for buffer in self.buffers)
        if address + size > MAX_ADDRESS or used + size > MAX_BYTES - MAX_TRANSFER:
            raise ProgramError("alloc", f"{size} bytes beside {used} do not fit", f"{MAX_BYTES >> 20} MiB is the limit")
        self._made += 1
        made = Buffer(name, address, int(size))
        insort(self.buffers, made, key=lambda buffer: buffer.address)
        return made

    def free(self, buffer: Buffer) -> None:
        """Raises ProgramError where it is not this memory's, or freed already."""
        self.own("free", buffer)
        self.buffers.remove(buffer)
        buffer.freed = True

    def own(self, call: str, buffer: Buffer) -> None:
        """Raise ProgramError unless a buffer is live and of this memory."""
        buffer.usable(call)
        if not any(known is buffer for known in self.buffers):
            raise ProgramError(call, f"buffer '{buffer.name}' is another runtime's", "allocate it in this one")


def copy(source: Buffer | Array, source_offset: int, target: Buffer | Array, target_offset: int, size: int) -> None:
    """`size` bytes between buffers and arrays, each a side; offsets in bytes. Raises ProgramError beyond an end."""
    piece = _part("source", source, source_offset, size)
    if isinstance(target, Buffer):
        target.write(piece, target_offset)
        return
    if not target.flags.c_contiguous or not target.flags.writeable:
        raise ProgramError("copy", "the target array is not contiguous and writable", "copy into a new one")
    _part("target", target, target_offset, size)[:] = piece


def _part(name: str, side: Buffer | Array, offset: int, size: int) -> Array:
    """Some bytes of a buffer, to read, or of an array."""
    if isinstance(side, Buffer):
        side.usable("copy")
        side.refuse_beyond("copy", offset, size)
        return side.data[offset : offset + size]
    flat = np.ascontiguousarray(side).reshape(-1).view(np.uint8)
    if offset < 0 or size < 0 or offset + size > flat.size:
        raise ProgramError("copy", f"bytes {offset}..{offset + size} leave the {name} array of {flat.size} bytes")
    return flat[offset : offset + size]


def grid(memory: Memory, shape: tuple[int, int], config: Config) -> tuple[int, int]:
    """Rows and columns of tiles that hold a matrix."""
    rows, columns = config.sram(memory).shape
    return -(-shape[0] // rows), -(-shape[1] // columns)


def pack(matrix: Array, memory: Memory, config: Config) -> Array:
    """An integer matrix (M, N) as tiles, uint8 flat; zeros fill the last ones.

    Weights are (outputs, inputs), so that out = inp @ wgt.T. Raises InputError for another shape or type, and
    values that the memory cannot hold.
    """
    chip = config.sram(memory)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "iu":
        raise InputError("matrix", f"is {matrix.dtype} {list(matrix.shape)}", "give integers (rows, columns)")
    low, high = -(1 << (chip.width - 1)), (1 << (chip.width - 1)) - 1
    if matrix.min() < low or matrix.max() > high:
        raise InputError("matrix", f"has values outside {low}..{high}", f"{chip.name} has {chip.width} bits")
    rows, columns = grid(memory, (matrix.shape[0], matrix.shape[1]), config)
    whole = np.zeros((rows * chip.shape[0], columns * chip.shape[1]), np.int64)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    tiles = whole.reshape(rows, chip.shape[0], columns, chip.shape[1]).swapaxes(1, 2)
    return pack_values(tiles.reshape(-1), chip.width)


def unpack(raw: Array, memory: Memory, shape: tuple[int, int], config: Config) -> Array:
    """The matrix (M, N) of tiles (uint8 flat) as `pack` lays them out."""
    chip = config.sram(memory)
    rows, columns = grid(memory, shape, config)
    need = rows * columns * chip.tile_bytes
    if raw.size < need:
        raise InputError("tiles", f"are {raw.size} bytes", f"{shape[0]}x{shape[1]} in {chip.name} needs {need}")
    tiles = unpack_values(raw[:need], chip.width).reshape(rows, columns, *chip.shape).swapaxes(1, 2)
    return np.ascontiguousarray(tiles.reshape(rows * chip.shape[0], columns * chip.shape[1])[: shape[0], : shape[1]])
