"""Functions that a host launches by name, and firmware files with the Python sources of functions.

A function is a kernel with one argument, a copy of a packed struct:

    class Scale(ctypes.Structure):
        _pack_ = 1
        _fields_ = [("y", ctypes.c_uint64), ("x", ctypes.c_uint64), ("length", ctypes.c_int32)]

    @function(Scale)
    def scale(tpu, arguments): ...

A firmware file is JSON, and reading the file runs no code. `Firmware.functions` requires `execute=True`: it executes
the Python sources with all rights of this process. Load only files that you would run as a script.
"""

from __future__ import annotations

import ctypes
import json
import linecache
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tilewright.errors import InputError, ProgramError
from tilewright.fields import FieldError, naming, parsed, record
from tilewright.files import regular, replacing
from tilewright.targets.bm1684x.native.firmware import Library, is_library
from tilewright.targets.bm1684x.runtime.kernel import Function, kernel

#: The largest size of an argument, in bytes. The vendor's library has no such limit; this one catches mistakes.
MAX_ARGUMENT = 1 << 20
FORMAT = "tilewright bm1684x firmware"
VERSION = 1
MAX_BYTES = 1 << 24
MAX_MODULES = 256


def function(argument: Any = None) -> Callable[[Callable[..., None]], Function]:
    """Return a decorator that turns the body of a kernel into a firmware function.

    `argument` is the type of the kernel's argument: a ctypes.Structure, a NumPy struct type, a format of the module
    `struct` (the kernel receives a tuple), or None (the kernel receives bytes). Raises InputError for any other type.
    """
    size, unpacked = _struct(argument)
    return lambda body: Function(kernel(body), size, unpacked)


def _struct(argument: Any) -> tuple[int | None, Callable[[bytes], Any]]:
    if argument is None:
        return None, bytes
    if isinstance(argument, str):
        try:
            return struct.calcsize(argument), struct.Struct(argument).unpack
        except struct.error as error:
            raise InputError("function", f"'{argument}' is not a struct format: {error}") from None
    if isinstance(argument, type) and issubclass(argument, ctypes.Structure):
        return ctypes.sizeof(argument), argument.from_buffer_copy
    try:
        dtype = np.dtype(argument)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.names is None or dtype.hasobject:
        remedy = "give a ctypes.Structure, a NumPy type with fields, or a format of the module struct"
        raise InputError("function", f"the type {argument!r} has no fields of fixed size", remedy)
    return dtype.itemsize, lambda raw: np.frombuffer(raw, dtype)[0]


def packed(argument: Any) -> bytes:
    """Return the bytes of a function's argument: a ctypes or NumPy object, or any other object with a buffer.

    Raises InputError for an object without a buffer, or with more than MAX_ARGUMENT bytes.
    """
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


@dataclass(frozen=True)
class Firmware:
    """A firmware: its Python sources by module name."""

    sources: Mapping[str, str]

    @classmethod
    def build(cls, paths: Sequence[str | Path]) -> Firmware:
        """Build firmware from Python files, without running code. Raises InputError if a file does not compile."""
        sources: dict[str, str] = {}
        for path in map(Path, paths):
            try:
                text = regular(path).read_text(encoding="utf-8")
                compile(text, str(path), "exec", dont_inherit=True)
            except (OSError, ValueError, SyntaxError) as error:
                raise InputError(str(path), f"is not Python source: {error}") from None
            if path.stem in sources:
                raise InputError(str(path), f"two sources are called {path.stem}", "rename one")
            sources[path.stem] = text
        return cls(sources)

    def save(self, path: str | Path) -> None:
        """Write the firmware to a file, atomically. Raises ProgramError if `load` would refuse the file."""
        data = {"format": FORMAT, "version": VERSION, "modules": dict(self.sources)}
        content = json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"
        _parsed(str(path), content)
        with replacing(path) as file:
            file.write(content)

    @classmethod
    def load(cls, path: str | Path) -> Firmware:
        """Read firmware from a file without running code. Raises ProgramError if the file is unreadable or damaged."""
        try:
            with regular(path, ProgramError).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from None
        return cls(_parsed(str(path), content))

    def functions(self, execute: bool) -> dict[str, Function]:
        """Run the sources and return their functions by name.

        Raises InputError if `execute` is False, ProgramError if a source fails or two functions have the same name.
        """
        if not execute:
            reason = f"it holds Python ({', '.join(self.sources)}), which would run with all rights of this process"
            raise InputError("firmware", reason, "read it, then load it with execute=True")
        return by_name([function for name, source in self.sources.items() for function in _run(name, source)])


@dataclass(frozen=True)
class NativeFirmware:
    """A firmware in C: the path of a library that `tilewright firmware` has compiled."""

    path: Path

    def functions(self, execute: bool) -> dict[str, Function]:
        """Load the library in a separate process, and return its functions by name.

        Raises InputError if `execute` is False, ProgramError if the library is not firmware for this simulator.
        """
        if not execute:
            reason = "it is compiled code, which would run with all rights of this user"
            raise InputError(str(self.path), reason, "load it with execute=True if you trust it")
        return by_name(Library(self.path).functions)


def load_file(path: str | Path) -> Firmware | NativeFirmware:
    """Read firmware in Python or C, without running code. Raises ProgramError if the file is unreadable or damaged."""
    return NativeFirmware(Path(path)) if is_library(path) else Firmware.load(path)


def by_name(functions: Sequence[Function]) -> dict[str, Function]:
    """Return a dictionary of firmware functions by their names.

    Raises ProgramError if two functions have the same name, or a function is not decorated with @function.
    """
    by_names: dict[str, Function] = {}
    for function in functions:
        if not isinstance(function, Function):
            raise ProgramError("firmware", f"{function!r} is not a firmware function", "decorate it with @function(..)")
        if function.name in by_names:
            raise ProgramError("firmware", f"two functions are called {function.name}", "rename one")
        by_names[function.name] = function
    return by_names


def _run(name: str, source: str) -> list[Function]:
    place = f"<firmware {name}.py>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    module = ModuleType(name)
    try:
        exec(compile(source, place, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise ProgramError(f"firmware, module {name}", f"{type(error).__name__}: {error}") from error
    defined = [f for f in vars(module).values() if isinstance(f, Function) and f.kernel.body.__module__ == name]
    return list({id(f): f for f in defined}.values())  # two names may refer to one function


def _parsed(place: str, content: bytes) -> dict[str, str]:
    if len(content) > MAX_BYTES:
        raise ProgramError(place, "is too large for firmware", f"{MAX_BYTES} bytes is the limit")
    with naming(place, ProgramError, "build one with Firmware.build(..).save(..)"):
        try:
            data = record({"format": Literal[FORMAT], "version": int, "modules": dict[str, str]}, parsed(content), "")
        except ValueError as error:
            raise FieldError("", f"is damaged or not firmware: {error}") from None
        if data["version"] != VERSION:
            raise FieldError("", f"has version {data['version']}, this Tilewright reads {VERSION}", "build it again")
    modules: dict[str, str] = data["modules"]
    if not 1 <= len(modules) <= MAX_MODULES:
        raise ProgramError(place, f"has {len(modules)} modules", f"give 1 to {MAX_MODULES}")
    if odd := next((name for name in modules if not name.isidentifier()), None):
        raise ProgramError(place, f"module {odd[:40]!r} must have a Python name", "rename it")
    return modules
