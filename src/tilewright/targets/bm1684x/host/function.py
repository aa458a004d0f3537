"""Functions that a host launches by name: kernels with one argument, a packed struct that is copied.

class Scale(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("y", ctypes.c_uint64), ("x", ctypes.c_uint64), ("length", ctypes.c_int32)]

@function(Scale)
def scale(tpu, arguments): ...
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import InputError
from tilewright.targets.bm1684x.runtime.kernel import Kernel, kernel

#: Largest argument in bytes: a bound against mistakes, not the vendor's.
MAX_ARGUMENT = 1 << 20


@dataclass(frozen=True)
class Function:
    """A kernel, and what its argument is: a ctypes.Structure, a NumPy struct type, a struct format (a tuple), or None
    (bytes)."""

    kernel: Kernel
    argument: Any = None

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def size(self) -> int | None:
        """Bytes of the argument; None: any."""
        if self.argument is None:
            return None
        if isinstance(self.argument, np.dtype):
            return self.argument.itemsize
        return struct.calcsize(self.argument) if isinstance(self.argument, str) else ctypes.sizeof(self.argument)

    def unpacked(self, raw: bytes) -> Any:
        """The argument as the kernel sees it; a copy of its own. `raw` has `size` bytes."""
        if self.argument is None:
            return raw
        if isinstance(self.argument, np.dtype):
            return np.frombuffer(raw, self.argument)[0]
        if isinstance(self.argument, str):
            return struct.unpack(self.argument, raw)
        return self.argument.from_buffer_copy(raw)


def function(argument: Any = None) -> Callable[[Callable[..., None]], Function]:
    """Decorator: the function, known to firmware under its name. Raises InputError for what is no kind of struct."""
    if isinstance(argument, str):
        try:
            struct.calcsize(argument)
        except struct.error as error:
            raise InputError("function", f"'{argument}' is no struct format: {error}") from None
    elif argument is not None and not (isinstance(argument, type) and issubclass(argument, ctypes.Structure)):
        argument = _struct_type(argument)
    return lambda body: Function(kernel(body), argument)


def packed(argument: Any) -> bytes:
    """The bytes of an argument: ctypes, NumPy, or anything with a buffer. Raises InputError."""
    if isinstance(argument, np.ndarray | np.generic):
        raw = argument.tobytes()
    else:
        try:
            raw = bytes(memoryview(argument))
        except TypeError:
            reason = f"a {type(argument).__name__} has no bytes"
            raise InputError("argument", reason, "give a ctypes.Structure, a NumPy struct or bytes") from None
    if len(raw) > MAX_ARGUMENT:
        raise InputError("argument", f"has {len(raw)} bytes", f"{MAX_ARGUMENT} is the limit")
    return raw


def _struct_type(argument: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(argument)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.names is None or dtype.hasobject:
        remedy = "give a ctypes.Structure, a NumPy type with fields, or a format of the module struct"
        raise InputError("function", f"{argument!r} is no struct", remedy)
    return dtype
