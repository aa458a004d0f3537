"""Archives of plain data, for program files (.twp) and saved runs (.twr): zip files with a JSON object and arrays.

Files are untrusted: all sizes are checked before anything is unpacked, and the headers of arrays (`.npy` members) are
matched by a regular expression, not evaluated. With the same zlib, equal data gives equal bytes.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError
from tilewright.fields import parsed
from tilewright.files import DAMAGE, regular, replacing
from tilewright.program.serial import DTYPES

#: The size limit of all unpacked members together. Archives up to this size need no zip64.
MAX_BYTES = (1 << 31) - (1 << 24)
MAX_JSON_BYTES = 1 << 25
MAX_MEMBERS = 1 << 14
MAX_TEXT_BYTES = 1 << 28
MAX_DIRECTORY_BYTES = 128 * MAX_MEMBERS
#: A file may unpack to FREE_BYTES, or to MAX_RATIO times its own size if this is more.
FREE_BYTES = 1 << 26
MAX_RATIO = 100


_MEMBER = re.compile(r"[a-z]+(/[0-9]{1,9}){1,3}\.npy")
_END = struct.Struct("<20x4s4H2LH")  # zip: end of central directory, preceded by the 20 bytes of a zip64 locator
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '([<|][a-z][0-9])', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,19}(?:, [0-9]{1,19}){0,63},?)?)\), \} *\n"
)
_DTYPES = {np.dtype(name).newbyteorder("<").str.encode(): np.dtype(name).newbyteorder("<") for name in DTYPES}


@dataclass(frozen=True)
class Format:
    """A kind of archive. The member `header` is a JSON object with the `name` and `version` of the format.

    In messages, `what` is the kind of file ("program file"), and `again` is the remedy for a damaged file ("compile it
    again").
    """

    name: str
    header: str
    what: str
    again: str
    version: int = 1


def write(path: str | Path, form: Format, data: Mapping[str, Any], arrays: Mapping[str, Array], compress: bool) -> None:
    """Write an archive completely, or not at all.

    Without `compress`, the file is larger, but writing is several times as fast. Raises ProgramError if the file cannot
    be written, or if `read` would reject it.
    """
    path = Path(path)
    if path.is_dir():
        raise ProgramError(str(path), "is a directory", "name a file in it")
    with naming(path):
        header = {"format": form.name, "version": form.version, **data}
        text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
        total = len(text) + sum(array.nbytes + 1024 for array in arrays.values())
        if total > MAX_BYTES or len(text) > MAX_JSON_BYTES or len(arrays) >= MAX_MEMBERS:
            raise ProgramError("", f"needs {total} bytes in {len(arrays) + 1} files", f"the limit is {MAX_BYTES} bytes")
    members = {form.header: text} | {f"{name}.npy": arrays[name] for name in sorted(arrays)}
    try:
        with replacing(path) as file, tempfile.SpooledTemporaryFile(FREE_BYTES) as archive:
            # Very regular data must stay uncompressed, or `read` would reject its compression ratio.
            if not compress or not _plausible(total, _pack(archive, members, zipfile.ZIP_DEFLATED)):
                _pack(archive, members, zipfile.ZIP_STORED)
            archive.seek(0)
            shutil.copyfileobj(archive, file)  # the path may be a pipe
    except InputError as error:
        raise ProgramError(error.where, error.reason) from None


def read(path: str | Path, form: Format) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the JSON object of an archive, without format and version, and the arrays by name.

    Raises ProgramError, naming the file, if the file cannot be read or is malformed in any way.
    """
    path = regular(path, ProgramError)
    try:
        with naming(path), damage_of(form):
            with path.open("rb") as file:
                members = _members(file, form)
            header = members.pop(form.header)
            arrays = {name.removesuffix(".npy"): _array(name, members.pop(name)) for name in sorted(members)}
            data = parsed(header)
            return _body(data, form), arrays
    except OSError as error:
        raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from None


@contextmanager
def damage_of(form: Format) -> Iterator[None]:
    """Run a `with` block that decodes an archive. Raises ProgramError in place of the exceptions in DAMAGE."""
    try:
        yield
    except DAMAGE as error:
        reason = f"is damaged or not a {form.what} ({str(error) or type(error).__name__})"
        raise ProgramError("", reason, form.again) from None


def _body(data: Any, form: Format) -> dict[str, Any]:
    if type(data) is not dict or data.pop("format", None) != form.name:
        raise ProgramError(form.header, f"is not a '{form.name}'")
    version = data.pop("version", None)
    if type(version) is not int or version < 1:
        raise ProgramError(form.header, "has no valid version")
    if version > form.version:
        reason = f"has version {version} of the format; this Tilewright reads up to {form.version}"
        raise ProgramError("", reason, f"upgrade Tilewright, or {form.again}")
    return data


def _pack(file: IO[bytes], members: Mapping[str, bytes | Array], method: int) -> int:
    file.seek(0)
    file.truncate()
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content if isinstance(content, bytes) else _npy(content))
    return file.seek(0, os.SEEK_END)


def _members(file: IO[bytes], form: Format) -> dict[str, bytes]:
    """Return the members of an archive as {name: bytes}.

    Raises ProgramError for an illegal size or name, before anything is unpacked. Raises an exception in DAMAGE if
    unpacking fails.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END.size))
    # zipfile would also accept data before the archive, and several directories. Here, the file must be one archive.
    tail = file.read(_END.size).rjust(_END.size, b"\0")
    mark, _, _, _, count, length, start, _ = _END.unpack(tail)
    if mark != b"PK\5\6" or tail.startswith(b"PK\6\7") or start + length + _END.size - 20 != size:
        raise ProgramError("", f"is truncated or not a {form.what} (it has no archive directory)", form.again)
    if count > MAX_MEMBERS or length > MAX_DIRECTORY_BYTES:
        raise ProgramError("", f"contains {count} files", f"the limit is {MAX_MEMBERS}")
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = {info.filename for info in infos}
        if form.header not in names:
            raise ProgramError("", f"is no {form.what} (it has no {form.header})", form.again)
        if len(names) != len(infos) or not all(name == form.header or _MEMBER.fullmatch(name) for name in names):
            raise ProgramError("", "contains a file with an unknown or repeated name")
        if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
            reason = "contains a file that is compressed in another way than deflate"
            raise ProgramError("", reason, form.again)
        total = sum(info.file_size for info in infos)
        if total > MAX_BYTES or not _plausible(total, size):
            raise ProgramError("", f"would unpack to {total} bytes, too many for a file of {size}")
        if archive.getinfo(form.header).file_size > MAX_JSON_BYTES:
            raise ProgramError("", f"has a {form.header} of more than {MAX_JSON_BYTES} bytes")
        return {info.filename: _member(archive, info) for info in infos}


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    # Unpack at most one byte more than the declared size, because the member may be larger than it declares.
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
    """Return the array of a `.npy` member. It must be in C order, of a type in DTYPES, and as long as declared."""
    match = _NPY.match(content)
    dtype = _DTYPES.get(match[1]) if match else None
    if match is None or dtype is None or match.end() != 10 + int.from_bytes(content[8:10], "little"):
        raise ProgramError(name, "is not an array of plain numbers in C order")
    shape = tuple(int(extent) for extent in match[2].decode().replace(",", " ").split())
    if prod(shape) * dtype.itemsize != len(content) - match.end():
        raise ProgramError(name, f"has {len(content) - match.end()} bytes of data for {dtype}{list(shape)}")
    values = np.frombuffer(content, dtype, prod(shape), match.end()).reshape(shape)
    return values.astype(dtype.newbyteorder("="))  # a copy, because the buffer is read-only


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Run a `with` block. Raises ProgramError with the path of the file added, in place of a ProgramError."""
    try:
        yield
    except ProgramError as error:
        raise ProgramError(f"{path}: {error.where}" if error.where else str(path), error.reason, error.remedy) from None
