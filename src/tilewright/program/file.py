"""The program file `FILE.twp`: a zip archive of one `program.json` and plain `.npy` arrays, never Python code.

Files are untrusted: every size is checked before anything is unpacked, and each array's header is matched, not
evaluated. The same program gives the same bytes (with the same zlib). A file of assembly text starts with comment lines
that name the machine.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite, prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.files import regular, replacing
from tilewright.program.program import Program
from tilewright.program.serial import DTYPES, program_from_data, program_to_data

FORMAT = "tilewright program"
VERSION = 1

MAX_BYTES = (1 << 31) - (1 << 24)  # of all members, unpacked: archives of this size need no zip64
MAX_JSON_BYTES = 1 << 25
MAX_MEMBERS = 1 << 14
MAX_TEXT_BYTES = 1 << 28
MAX_DIRECTORY_BYTES = 128 * MAX_MEMBERS
#: A file may unpack to FREE_BYTES, or to MAX_RATIO times its own size if that is more.
FREE_BYTES, MAX_RATIO = 1 << 26, 100

_HEADER = "program.json"
_TARGET, _CONFIG = "# target ", "# config "
_MEMBER = re.compile(r"[a-z]+(/[0-9]{1,9}){1,3}\.npy")
_END = struct.Struct("<20x4s4H2LH")  # zip: end of central directory, preceded by the 20 bytes of a zip64 locator
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '([<|][a-z][0-9])', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,19}(?:, [0-9]{1,19}){0,63},?)?)\), \} *\n"
)
_DTYPES = {np.dtype(name).newbyteorder("<").str.encode(): np.dtype(name).newbyteorder("<") for name in DTYPES}
#: All exceptions that zipfile, zlib and json raise when their input is damaged.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError),
    *(ValueError, RuntimeError, LookupError, ArithmeticError, TypeError),
)


def save(program: Program, path: str | Path, *, compress: bool = True) -> None:
    """Write a program, whole or not at all.

    Without `compress`, the file is larger but is written and read several times as fast. Raises ProgramError if the
    file cannot be written, or if `load` would refuse it.
    """
    path = Path(path)
    if path.is_dir():
        raise ProgramError(str(path), "is a directory", "name a file in it")
    with naming(path):
        data, arrays = program_to_data(program)
        program_from_data(data, arrays)
        header = {"format": FORMAT, "version": VERSION} | data
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        total = len(text) + sum(array.nbytes + 1024 for array in arrays.values())
        if total > MAX_BYTES or len(text) > MAX_JSON_BYTES or len(arrays) >= MAX_MEMBERS:
            raise ProgramError("", f"needs {total} bytes in {len(arrays) + 1} files", f"the limit is {MAX_BYTES} bytes")
    try:
        with replacing(path) as file, tempfile.SpooledTemporaryFile(FREE_BYTES) as archive:
            if not compress or not _plausible(total, _write(archive, text, arrays, zipfile.ZIP_DEFLATED)):
                _write(archive, text, arrays, zipfile.ZIP_STORED)
            archive.seek(0)
            shutil.copyfileobj(archive, file)  # which may be a pipe
    except InputError as error:
        raise ProgramError(error.where, error.reason) from None


def load(path: str | Path) -> Program:
    """Read a program and validate its graph. The digest of its configuration is left for the target to check.

    Raises ProgramError, naming the file, if it cannot be read or is malformed in any way.
    """
    path = regular(path, ProgramError)
    try:
        with naming(path):
            with path.open("rb") as file:
                members = _read(file)
            arrays = {
                name.removesuffix(".npy"): _array(name, members.pop(name))
                for name in sorted(members.keys() - {_HEADER})
            }
            data = json.loads(members[_HEADER].decode(), parse_float=_finite, parse_constant=_finite)
            return program_from_data(_body(data), arrays)
    except OSError as error:
        raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        reason = f"is damaged or not a program file ({str(error) or type(error).__name__})"
        raise ProgramError(str(path), reason, "compile or assemble it again") from None


def _body(data: Any) -> Any:
    """Check format and version of `program.json`, and return the rest."""
    if type(data) is not dict or data.pop("format", None) != FORMAT:
        raise ProgramError(_HEADER, f"is not a '{FORMAT}'")
    version = data.pop("version", None)
    if type(version) is not int or version < 1:
        raise ProgramError(_HEADER, "has no valid version")
    if version > VERSION:
        reason = f"has version {version} of the format; this Tilewright reads up to {VERSION}"
        raise ProgramError("", reason, "upgrade Tilewright, or compile the model again")
    return data


def _write(file: IO[bytes], text: bytes, arrays: Mapping[str, Array], method: int) -> int:
    """Replace the file's contents by an archive with fixed dates and sorted names. Return its size in bytes."""
    file.seek(0)
    file.truncate()
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        for name in (_HEADER, *sorted(arrays)):
            info = zipfile.ZipInfo(name if name == _HEADER else f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type, info.create_system, info.external_attr = method, 3, 0o644 << 16
            archive.writestr(info, text if name == _HEADER else _npy(arrays[name]))
    return file.seek(0, os.SEEK_END)


def _read(file: IO[bytes]) -> dict[str, bytes]:
    """Return the bytes of each member of a program file, a zip archive, by name.

    Raises ProgramError if a size or name is not allowed, before anything is unpacked, and an exception in _DAMAGE if
    unpacking fails.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END.size))
    tail = file.read(_END.size).rjust(_END.size, b"\0")
    mark, _, _, _, count, length, start, _ = _END.unpack(tail)
    if mark != b"PK\5\6" or tail.startswith(b"PK\6\7") or start + length + _END.size - 20 != size:
        raise ProgramError("", "is truncated or not a program file (it has no archive directory)", "compile it again")
    if count > MAX_MEMBERS or length > MAX_DIRECTORY_BYTES:
        raise ProgramError("", f"contains {count} files", f"the limit is {MAX_MEMBERS}")
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = {info.filename for info in infos}
        if len(names) != len(infos) or not all(name == _HEADER or _MEMBER.fullmatch(name) for name in names):
            raise ProgramError("", "contains a file with an unknown or repeated name")
        if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
            reason = "contains a file that is compressed in another way than deflate"
            raise ProgramError("", reason, "compile the model again")
        total = sum(info.file_size for info in infos)
        if total > MAX_BYTES or not _plausible(total, size):
            raise ProgramError("", f"would unpack to {total} bytes, too many for a file of {size}")
        if _HEADER not in names or archive.getinfo(_HEADER).file_size > MAX_JSON_BYTES:
            raise ProgramError("", f"has no {_HEADER}, or one of more than {MAX_JSON_BYTES} bytes")
        return {info.filename: _member(archive, info) for info in infos}


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of an archive's member; unpack at most one byte more than its declared size."""
    with archive.open(info) as stream:
        content = stream.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise ProgramError(info.filename, f"declares {info.file_size} bytes and has {len(content)}")
    return content


def _plausible(total: int, size: int) -> bool:
    return total <= max(FREE_BYTES, MAX_RATIO * size)


def _npy(array: Array) -> bytes:
    stream = io.BytesIO()
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    np.lib.format.write_array(stream, little, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _array(name: str, content: bytes) -> Array:
    """Return the array of a `.npy` member: C order, one of DTYPES, exactly as long as its header says."""
    match = _NPY.match(content)
    dtype = _DTYPES.get(match[1]) if match else None
    if match is None or dtype is None or match.end() != 10 + int.from_bytes(content[8:10], "little"):
        raise ProgramError(name, "is not an array of plain numbers in C order")
    shape = tuple(int(extent) for extent in match[2].decode().replace(",", " ").split())
    if prod(shape) * dtype.itemsize != len(content) - match.end():
        raise ProgramError(name, f"has {len(content) - match.end()} bytes of data for {dtype}{list(shape)}")
    values = np.frombuffer(content, dtype, prod(shape), match.end()).reshape(shape)
    return values.astype(dtype.newbyteorder("="))  # a copy, so that it is writable


def _finite(text: str) -> float:
    """Parse a JSON number. Raises ValueError for NaN, Infinity, and numbers that overflow to infinity."""
    if not isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Run a `with` block. Raises its ProgramError again, with the path of the file added."""
    try:
        yield
    except ProgramError as error:
        raise ProgramError(f"{path}: {error.where}" if error.where else str(path), error.reason, error.remedy) from None


def with_machine(program: Program, text: str) -> str:
    """Return `text` after two comment lines (#) that name the program's target and configuration."""
    return f"{_TARGET}{program.target}\n{_CONFIG}{json.dumps(dict(program.config), sort_keys=True)}\n{text}"


def read_text(path: str | Path) -> str:
    """Read a text file. Raises ProgramError if it is larger than MAX_TEXT_BYTES or not UTF-8 text."""
    path = regular(path, ProgramError)
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise ProgramError(str(path), f"is larger than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProgramError(str(path), f"is not text: {error.reason} at byte {error.start}") from None


def machine_of(text: str, where: str) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return the target and configuration named by the leading comment lines of a text; None for each that is missing.

    Raises ProgramError if the configuration is not a JSON object.
    """
    target, config = None, None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("#"):
            break
        if line.startswith(_TARGET):
            target = line.removeprefix(_TARGET).strip()
        elif line.startswith(_CONFIG):
            try:
                config = json.loads(line.removeprefix(_CONFIG))
            except (ValueError, RecursionError) as error:
                raise ProgramError(f"{where}: line {number}", f"the configuration is not JSON: {error}") from None
            if not isinstance(config, dict):
                raise ProgramError(f"{where}: line {number}", "the configuration is not a JSON object")
    return target, config
