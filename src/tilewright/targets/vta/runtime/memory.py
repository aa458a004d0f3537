"""Device memory: the buffers that the host allocates, the buffers' addresses in DRAM, and the layout of matrices.

A matrix is stored as tiles, in the tile shape of an on-chip memory: [row tile][column tile][row][column].
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.program.launch_image import MAX_ADDRESS, MAX_BYTES
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import PAGE, Memory, paged
from tilewright.targets.vta.isa.stream import pack_values, unpack_values

#: The address of the micro-op area, and the maximum size of instructions and of micro-ops, in bytes (upstream:
#: VTA_MAX_XFER).
UOPS = PAGE
MAX_TRANSFER = 1 << 25


class Buffer:
    """`size` bytes of device memory at `address`. Until the first write, the bytes are 0 and count as uninitialised."""

    def __init__(self, name: str, address: int, size: int) -> None:
        self.name = name
        self.address = address
        self.size = size
        #: Whether the host or a STORE has written to the buffer.
        self.filled = False
        self.freed = False
        self._data = np.zeros(size, np.uint8)
        self._snapshot: Array | None = None

    @property
    def data(self) -> Array:
        """The buffer's bytes, uint8 [size], read-only (upstream: VTABufferCPUPtr). Raises ProgramError if freed."""
        self.usable("data")
        view = self._data.view()
        view.flags.writeable = False
        return view

    def write(self, data: Array, offset: int = 0) -> None:
        """Write bytes (uint8 [n]) from `offset` on. Raises ProgramError if the buffer is freed or too small."""
        self.usable("write")
        self.refuse_beyond("write", offset, data.size)
        self._data[offset : offset + data.size] = data
        self.filled = True
        self._snapshot = None

    def snapshot(self) -> Array:
        """Return a copy of the buffer's bytes; calls between two writes return the same array."""
        if self._snapshot is None:
            self._snapshot = self._data.copy()
        return self._snapshot

    def usable(self, call: str) -> None:
        """Check that the buffer is not freed. Raises ProgramError if the buffer is freed."""
        if self.freed:
            raise ProgramError(call, f"buffer '{self.name}' is freed", "allocate another")

    def refuse_beyond(self, call: str, offset: int, size: int) -> None:
        """Check that a range of bytes is inside the buffer. Raises ProgramError if the range is not inside."""
        if offset < 0 or size < 0 or offset + size > self.size:
            reason = f"bytes {offset}..{offset + size} are not inside buffer '{self.name}' of {self.size} bytes"
            raise ProgramError(call, reason)

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {self.size} bytes at {self.address:#x}{', freed' if self.freed else ''})"


class DeviceMemory:
    """The buffers of one runtime. Each buffer gets the first large enough free range after the micro-op area."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []  # by address
        self._count = 0

    def alloc(self, size: int, name: str | None) -> Buffer:
        """Allocate `size` bytes. Raises ProgramError if size < 1, no free range is large enough, or `name` is taken."""
        if size < 1:
            raise ProgramError("alloc", f"size is {size}", "ask for one byte or more")
        name = f"buffer{self._count}" if name is None else name
        if name == "uop" or any(buffer.name == name for buffer in self.buffers):
            raise ProgramError("alloc", f"the name '{name}' is taken", "choose another name, or leave it out")
        address = UOPS + MAX_TRANSFER
        for taken in self.buffers:  # buffers ascend by address: find the first gap that is large enough
            if address + size <= taken.address:
                break
            address = paged(taken.address + taken.size)
        used = sum(buffer.size for buffer in self.buffers)
        if address + size > MAX_ADDRESS or used + size > MAX_BYTES - MAX_TRANSFER:
            reason = f"{size} bytes do not fit beside the {used} bytes in use"
            raise ProgramError("alloc", reason, f"free a buffer; the limit is {MAX_BYTES >> 20} MiB")
        self._count += 1
        allocated = Buffer(name, address, int(size))
        insort(self.buffers, allocated, key=lambda buffer: buffer.address)
        return allocated

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. Raises ProgramError if the buffer belongs to another runtime or is already freed."""
        self.check_owner("free", buffer)
        self.buffers.remove(buffer)
        buffer.freed = True

    def check_owner(self, call: str, buffer: Buffer) -> None:
        """Check that a buffer belongs to this memory and is not freed. Raises ProgramError if not."""
        buffer.usable(call)
        if not any(allocated is buffer for allocated in self.buffers):
            raise ProgramError(call, f"buffer '{buffer.name}' belongs to another runtime", "allocate it in this one")


def copy(source: Buffer | Array, source_offset: int, target: Buffer | Array, target_offset: int, size: int) -> None:
    """Copy `size` bytes. Source and target are buffers or arrays; offsets are in bytes.

    Raises ProgramError if a range exceeds its buffer or array, a buffer is freed, or the target is not writable.
    """
    piece = _part("source", source, source_offset, size)
    if isinstance(target, Buffer):
        target.write(piece, target_offset)
        return
    if not target.flags.c_contiguous or not target.flags.writeable:
        raise ProgramError("copy", "the target array is not contiguous and writable", "copy into a new array")
    _part("target", target, target_offset, size)[:] = piece


def _part(name: str, side: Buffer | Array, offset: int, size: int) -> Array:
    """Return bytes `offset`..`offset + size` of a buffer (read-only) or array.

    Raises ProgramError if these do not exist.
    """
    if isinstance(side, Buffer):
        side.usable("copy")
        side.refuse_beyond("copy", offset, size)
        return side.data[offset : offset + size]
    flat = np.ascontiguousarray(side).reshape(-1).view(np.uint8)
    if offset < 0 or size < 0 or offset + size > flat.size:
        reason = f"bytes {offset}..{offset + size} are not inside the {name} array of {flat.size} bytes"
        raise ProgramError("copy", reason)
    return flat[offset : offset + size]


def grid(memory: Memory, shape: tuple[int, int], config: Config) -> tuple[int, int]:
    """Return the numbers of tile rows and tile columns of a matrix of `shape` in `memory`."""
    rows, columns = config.sram(memory).shape
    return -(-shape[0] // rows), -(-shape[1] // columns)


def pack(matrix: Array, memory: Memory, config: Config) -> Array:
    """Return an integer matrix (M, N) as tiles, flat uint8; zeros pad the last row and column of tiles.

    Weights are (outputs, inputs), so that `out = inp @ wgt.T`. Raises InputError if the matrix is empty, not 2-D, not
    of integers, or has values outside the memory's range.
    """
    chip = config.sram(memory)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "iu":
        raise InputError("matrix", f"is {matrix.dtype} {list(matrix.shape)}", "give a 2-D array of integers")
    low, high = -(1 << (chip.width - 1)), (1 << (chip.width - 1)) - 1
    if matrix.min() < low or matrix.max() > high:
        raise InputError("matrix", f"has values outside {low}..{high}", f"{chip.name} has {chip.width} bits")
    rows, columns = grid(memory, (matrix.shape[0], matrix.shape[1]), config)
    whole = np.zeros((rows * chip.shape[0], columns * chip.shape[1]), np.int64)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    # The values of a tile become consecutive.
    tiles = whole.reshape(rows, chip.shape[0], columns, chip.shape[1]).swapaxes(1, 2)
    return pack_values(tiles.reshape(-1), chip.width)


def unpack(raw: Array, memory: Memory, shape: tuple[int, int], config: Config) -> Array:
    """Return the matrix of `shape` (M, N) from the tiles (flat uint8) of `pack`.

    Raises InputError for missing bytes.
    """
    chip = config.sram(memory)
    rows, columns = grid(memory, shape, config)
    need = rows * columns * chip.tile_bytes
    if raw.size < need:
        remedy = f"a {shape[0]}x{shape[1]} matrix in {chip.name} needs {need}"
        raise InputError("tiles", f"have only {raw.size} bytes", remedy)
    tiles = unpack_values(raw[:need], chip.width).reshape(rows, columns, *chip.shape).swapaxes(1, 2)
    return np.ascontiguousarray(tiles.reshape(rows * chip.shape[0], columns * chip.shape[1])[: shape[0], : shape[1]])
