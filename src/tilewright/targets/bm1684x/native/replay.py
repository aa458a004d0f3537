"""Decode the recorded calls of a kernel in C, and call the same API functions in Python."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import DeviceFunction
from tilewright.targets.bm1684x.capi.names import PROTOTYPES, CType, dim2, dim4, padding_t, scalar_t, variable_t
from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS, DeviceApi
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operation import Values
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import DTYPES, DType, Rounding
from tilewright.targets.bm1684x.values.memory import Region

#: The numbers of records that are not calls of API functions (native/c/recorder.c).
SOURCE = 0xFFFF
INITIALIZE = 0xFFFE
POLL = 0xFFFD
BEGIN = 0xFFFC
END = 0xFFFB
HERE = 0xFFFA
FILTER_NUM, CAST, ADDRESS, WAIT = range(4)
HEAD = struct.Struct("<HHi")
CODES = {dtype.code: dtype for dtype in DTYPES.values()}
POINTERS: dict[str, Callable[..., Any]] = {
    "const dim4 *": dim4,
    "const dim2 *": dim2,
    "const padding_t *": padding_t,
    CType.VARIABLE: lambda kind, bits: variable_t(kind, scalar_t(bits) if kind == 1 else bits),
}


def dtype_of(code: int) -> DType:
    """Return the type with this number in the device API. Raises MachineError for an unknown number."""
    if code not in CODES:
        types = ", ".join(f"{number} ({dtype})" for number, dtype in sorted(CODES.items()))
        raise MachineError("data_type_t", f"there is no type {code}", f"the types are {types}")
    return CODES[code]


def mode_of(number: int) -> Rounding:
    """Return the rounding mode with this number in the device API. Raises MachineError for an unknown number."""
    try:
        return Rounding(number)
    except ValueError:
        raise MachineError(
            "rounding_mode_t", f"there is no mode {number}", "give 0 (RM_HALF_TO_EVEN) to 6 (RM_HALF_DOWN)"
        ) from None


SINGLE: dict[str, Callable[[Any], Any]] = {"data_type_t": dtype_of, "rounding_mode_t": mode_of, "scalar_t": scalar_t}


class Reader:
    """Decodes the arguments of one function."""

    def __init__(self, name: str, format: str, kinds: Sequence[CType]) -> None:
        self.name = name
        self.function = FUNCTIONS[name]
        self._struct = struct.Struct(format)
        self.size = self._struct.size
        self._kinds = [
            (kind, len(struct.unpack(kind.recorded, bytes(struct.calcsize(kind.recorded))))) for kind in kinds
        ]

    def arguments(self, data: bytes, at: int) -> tuple[Any, ...]:
        """Decode the arguments of the call at byte `at`. Raises MachineError for an unknown type or rounding mode."""
        numbers = iter(self._struct.unpack_from(data, at))
        arguments = []
        for kind, width in self._kinds:
            first, *rest = islice(numbers, width)
            if rest:  # a pointer: a flag (0: NULL), then the struct
                arguments.append(POINTERS[kind](*rest) if first else None)
            else:
                arguments.append(SINGLE[kind](first) if kind in SINGLE else first)
        return tuple(arguments)


@cache
def readers() -> list[Reader]:
    return [
        Reader(prototype.name, prototype.format, [kind for kind, _ in prototype.parameters])
        for prototype in PROTOTYPES.values()
    ]


class Replay:
    """Issues the recorded calls of one launch. `sources` has the names of source files by number, for all launches."""

    def __init__(self, tpu: Tpu, sources: dict[int, str]) -> None:
        self.tpu = tpu
        self.api = DeviceApi(tpu)
        self._sources = sources
        self._handlers: dict[int, Callable[[], None]] = {
            INITIALIZE: self.api.tpu_initialize,
            POLL: self.api.tpu_poll,
            BEGIN: self.api.tpu_parallel_start,
            END: self.api.tpu_parallel_end,
            HERE: lambda: None,  # gives the source line of the query that follows
        }

    def run(self, data: bytes) -> None:
        """Issue recorded calls. Raises MachineError, with the line in C, if the machine refuses a call."""
        decoders = readers()
        at = 0
        while at < len(data):
            number, source, line = HEAD.unpack_from(data, at)
            at += HEAD.size
            if number == SOURCE:
                self._sources[source] = data[at : at + line].decode(errors="replace")
                at += line
                continue
            self.tpu.place = place = f"{self._sources[source]}:{line}"
            try:
                if handler := self._handlers.get(number):
                    handler()
                else:
                    reader = decoders[number]
                    self._issue(reader.function, reader.name, reader.arguments(data, at))
                    at += reader.size
            except MachineError as error:
                # Errors of commands already name the source line, but errors of arguments do not.
                if place in error.where:
                    raise
                where = ", ".join(part for part in (place, error.where) if part)
                raise MachineError(where, error.reason, error.remedy) from None

    def _issue(self, function: DeviceFunction, name: str, arguments: tuple[Any, ...]) -> None:
        function.call(self.api, arguments)

    def answer(self, question: bytes) -> bytes:
        """Return the answer to a query of the kernel. Raises MachineError for an illegal conversion or address."""
        try:
            kind, *words = struct.unpack(f"<{len(question) // 4}I", question)
            if kind == CAST:
                bits, target, source, mode = words
                return struct.pack("<I", cast(bits, dtype_of(target), dtype_of(source), mode_of(mode)))
            self.tpu.poll()
            if kind == ADDRESS:  # the kernel may write all bytes: they become initialised
                region = self.tpu.region_of(words[0] | words[1] << 32)
                region.written.add(np.array([(0, len(region.data))], np.int64))
                return struct.pack("<2Q", region.base, len(region.data)) + share(region).encode()
            return struct.pack("<I", self.api.tpu_gdma_get_filter_num() if kind == FILTER_NUM else 0)
        except MachineError as error:
            raise MachineError(f"{self.tpu.place}, {error.where}", error.reason, error.remedy) from None


def cast(bits: int, target: DType, source: DType, mode: Rounding) -> int:
    """Convert a number of the type `source`, given by its bits, to the type `target`, as the machine does.

    Return the bits. Raises MachineError if the machine does not have the conversion.
    """
    value = Constant(bits & ((1 << source.bits) - 1), source).value
    operation = OPERATIONS["cast"]
    types = {"x": source, "y": target}
    attributes = {"mode": mode}
    if reason := operation.refusal(types, attributes):
        raise MachineError("tpu_cast", reason)
    converted = operation.results(Values({"x": np.atleast_1d(value)}, types, {"y": (1,)}, attributes))["y"]
    stored = np.ascontiguousarray(converted).astype(target.storage, copy=False)
    return int(stored.view(f"<u{target.bytes}").reshape(-1)[0])


_FILES: WeakKeyDictionary[Region, int] = WeakKeyDictionary()


def share(region: Region) -> str:
    """Return the path of a shared file with the bytes of a memory.

    The first call for a memory moves the bytes to the file. Raises MachineError if the operating system has no
    anonymous files (memfd).
    """
    if region not in _FILES:
        if not hasattr(os, "memfd_create"):
            raise MachineError("memory", "pointers into device memory need Linux", "use commands instead")
        file = os.memfd_create(region.name)
        os.ftruncate(file, len(region.data))
        shared = np.frombuffer(mmap.mmap(file, len(region.data)), np.uint8)
        shared[:] = region.data
        object.__setattr__(region, "data", shared)
        _FILES[region] = file
        finalize(region, os.close, file)
    return f"/proc/{os.getpid()}/fd/{_FILES[region]}"
