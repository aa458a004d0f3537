"""The cache folder, input files, output files and .npz archives.

Input files must be regular files. An output file or folder is written completely, or not at all.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import struct
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from math import prod
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import numpy as np
from platformdirs import user_cache_path

from tilewright.array import Array
from tilewright.errors import InputError, TilewrightError, UnwritableError, printable

Result = TypeVar("Result")
#: The number of existing keys that an error about a missing key lists.
SHOWN = 3
#: The largest number of bytes of an array or of an unpacked archive.
MAX_BYTES = 1 << 31
#: An archive may unpack to FREE_BYTES or to MAX_RATIO times its file size, so that a small file cannot fill the memory.
FREE_BYTES = 1 << 27
MAX_RATIO = 100
#: The largest number of axes of an array.
MAX_RANK = 32
#: The largest code of a character, and the upper bits of surrogates.
MAX_CODE = 0x10FFFF
SURROGATES = 0xD800 >> 11
#: The largest number of characters of another package's message in an error.
MESSAGE = 200
#: Exceptions for damaged input from zipfile, zlib, struct, and NumPy's headers (which are Python literals).
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, SyntaxError, EOFError, MemoryError),
    *(ValueError, RuntimeError, LookupError, ArithmeticError, TypeError, OSError),
)
#: The name of the first output in an .npz file, and the length limit of the other names.
FIRST = "outputs"
NAME = 200
#: Exceptions from code that uses a wrong type or value from a file.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
#: The system's error codes for a disk that is full or read-only.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)
#: Names of the inode types that are not regular files.
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def user_folder() -> Path:
    """Return $TILEWRIGHT_CACHE_DIR, else `tilewright` in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""
    given = os.environ.get("TILEWRIGHT_CACHE_DIR")
    return Path(given) if given else user_cache_path("tilewright", appauthor=False)


def kept(folder: Path, make: Callable[[Path], Result]) -> Result:
    """Create a folder of a cache if necessary, call `make` with the folder, and return the result.

    If the folder cannot be written, `make` is called for a temporary folder, which is deleted when the process ends.
    """
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from None
        return make(folder)
    except UnwritableError as error:
        if not _instead.cache_info().currsize:  # printed once per process
            print(f"tilewright: {error}; a temporary folder is used, and nothing is kept", file=sys.stderr)
        folder = _instead() / folder.name
        folder.mkdir(parents=True, exist_ok=True)
        return make(folder)


def kept_places(folder: Path) -> list[Path]:
    """Return where to search for a cache folder's files: in `folder`, and in its temporary replacement if it exists."""
    return [folder, *([_instead() / folder.name] if _instead.cache_info().currsize else [])]


def writable(folder: Path) -> Path:
    """Return a folder of a cache, or a temporary folder if the cache cannot be written."""

    def tried(folder: Path) -> Path:
        with replacing(folder / ".tilewright") as file:
            file.write(b"\n")
        (folder / ".tilewright").unlink(missing_ok=True)
        return folder

    return kept(folder, tried)


@cache
def _instead() -> Path:
    with _room():
        folder = tempfile.mkdtemp(prefix="tilewright-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder that is deleted when the `with` block ends. Raises UnwritableError if the disk has no room."""
    with _room(), tempfile.TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL and error.filename:
            raise
        place = os.environ.get("TMPDIR") or "/tmp"
        reason = f"no temporary file can be written: {error.strerror or error}"
        raise UnwritableError(place, reason, "set TMPDIR to a folder that has room") from None


def regular(path: str | Path, error: type[TilewrightError] = InputError) -> Path:
    """Return the path of an input file. Raises `error` if the path is not a regular file (or a link to a regular file).

    Call this function before opening a file of the user: reading from a pipe may block, and a device may be endless.
    """
    path = Path(path)
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError) as cause:  # ValueError: a null character
        reason = cause.strerror if isinstance(cause, OSError) else str(cause)
        raise error(path, f"is not a file: {reason}") from None
    if kind != stat.S_IFREG:
        remedy = "" if kind == stat.S_IFDIR else "save its output to a file, and give that file"
        raise error(path, f"is not a file but {KINDS.get(kind, 'something else')}", remedy)
    return path


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files, as hexadecimal digits."""
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    state = hashlib.sha256()
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        state.update(f"{file.name} {digest(file)}\n".encode())
    return state.hexdigest()


def sources(package: Path) -> str:
    """Return a digest of a package's files, without the caches of Python and Numba."""
    state = hashlib.sha256()
    for path in sorted(_files(package)):
        content = path.read_bytes()
        state.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()


def _files(package: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(package):
        inner[:] = [name for name in inner if name != "__pycache__"]
        yield from (Path(folder, name) for name in names)


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a binary file that replaces `path` when the `with` block ends without an error.

    A pipe or a device such as /dev/null is written in place. Raises UnwritableError if the file cannot be written.
    """
    path = Path(path)
    temporary = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        # A link stays a link: the file that it names is replaced. The temporary file is in the same folder, because a
        # file cannot be renamed to another file system.
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def write_folder(folder: str | Path, files: Mapping[str, str | bytes]) -> None:
    """Write files {name: content} to a folder, which is created if necessary. Other files stay in the folder.

    If one file cannot be written, no file is written. Raises UnwritableError if the folder cannot be written.
    """
    folder = Path(folder)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    inside = folder if folder.exists() else folder.parent  # another file system may be mounted at the folder
    temporary = inside / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
        if folder.exists():
            _move(temporary, folder)
        else:
            temporary.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        for place in missing:
            with suppress(OSError):  # the folder contains the written files, so it stays
                place.rmdir()


def _move(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        if path.is_dir() and (folder / path.name).is_dir():
            _move(path, folder / path.name)
        else:
            path.replace(folder / path.name)


def _unwritable(path: Path, error: OSError) -> UnwritableError:
    return UnwritableError(path, f"cannot be written: {error.strerror or error}")


def arrays(
    path: str | Path,
    error: type[TilewrightError] = InputError,
    remedy: str = "write the file again",
    chosen: Callable[[list[str]], Iterable[str]] = iter,
) -> dict[str, Array]:
    """Return arrays of an .npz file as {name: array}. `chosen` gets all names and returns the names to read.

    Raises `error` if the path is not a regular file, or not a complete archive.
    """
    path = regular(path, error)
    with damage_of(path, "an .npz archive", error, remedy), zipfile.ZipFile(path) as archive:
        infos = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")
        }
        # The declared sizes are checked before memory is allocated, because the file is untrusted.
        total = sum(info.file_size for info in archive.infolist())
        limit = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
        if total > min(limit, MAX_BYTES):
            raise error(path, f"unpacks to {total} bytes; the limit is {min(limit, MAX_BYTES)}", "split the data")
        loaded = {}
        for name in chosen(list(infos)):
            if infos[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} is compressed in another way than deflate")
            with archive.open(infos[name]) as file:
                loaded[name] = _array(file, infos[name].file_size)
        return loaded


def array(path: str | Path, error: type[TilewrightError] = InputError) -> Array:
    """Return the array of a .npy file. Raises `error` if the path is not a regular file, or not a .npy file."""
    path = regular(path, error)
    with damage_of(path, "a .npy file", error, "write the file again"), path.open("rb") as file:
        return _array(file, path.stat().st_size)


def _array(file: IO[bytes], size: int) -> Array:
    """Return the array of a .npy file of `size` bytes. Raises an exception of DAMAGE for other content."""
    # NumPy's reader is not used, because its errors advise the user to allow pickles, which is unsafe.
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format version {version[0]}.{version[1]} is not supported")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, column_major, dtype = header(file)
    if dtype.hasobject or not dtype.itemsize or len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise ValueError(f"it is no array of plain values: {dtype}, {len(shape)} axes")
    needed = dtype.itemsize * prod(shape)
    if needed > min(size, MAX_BYTES):
        raise ValueError(f"it declares {needed} bytes of data; at most {min(size, MAX_BYTES)} are possible")
    data = bytearray(needed)
    have = 0
    while have < needed and (count := file.readinto(memoryview(data)[have:])):  # type: ignore[attr-defined]
        have += count
    if have < needed:
        raise ValueError(f"it has {have} bytes of data, and declares {needed}")
    if dtype.kind == "U":  # NumPy accepts invalid code points, and Python fails later when it uses the text
        codes = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if ((codes > MAX_CODE) | (codes >> 11 == SURROGATES)).any():
            raise ValueError("a text has a number that is no character")
    values: Array = np.ndarray(shape, dtype, data, order="F" if column_major else "C")
    return values


@contextmanager
def damage_of(path: Path, what: str, error: type[TilewrightError], remedy: str) -> Iterator[None]:
    """Run a `with` block that decodes a file, and raise `error` in place of an exception in DAMAGE."""
    try:
        yield
    except DAMAGE as cause:
        reason = " ".join(str(cause.args[0] if cause.args else type(cause).__name__).split())[:MESSAGE]
        raise error(path, f"is damaged or not {what}: {reason}", remedy) from None


class Entries(dict[str, Any]):
    """The entries of a file, or of a JSON object in a file, by name.

    Reading a missing entry raises InputError, which names the file and the entry. In this error, `what` is the kind of
    entry, such as "array".
    """

    def __init__(self, path: Path, what: str, remedy: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._path = path
        self._what = what
        self._remedy = remedy

    def __missing__(self, name: str) -> NoReturn:
        beside = ", ".join([*list(self)[:SHOWN], *["..."] * (len(self) > SHOWN)]) or "nothing"
        raise InputError(self._path, f"has no {self._what} '{name}' (found: {beside})", self._remedy)


@contextmanager
def untrusted(path: Path, remedy: str) -> Iterator[None]:
    """Run a `with` block that uses the content of a file, and replace Python's exceptions by InputError.

    Raises InputError if an entry is missing, or if the block cannot use its type or value.
    """
    try:
        yield
    except _WRONG as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise InputError(path, f"has missing or malformed content: {reason}", remedy) from None


def write_outputs(path: str | Path, outputs: Mapping[str, Array]) -> None:
    """Write the outputs of a network to an .npz file. Its array `outputs` is the first output.

    If the network has several outputs, each is also written under its own name (see `_file_names`). Arrays are
    (N, *shape) for N samples; a model's batch axis of 1 is dropped.
    """
    arrays = list(map(_without_batch, outputs.values()))
    first = arrays[0] if arrays else np.zeros(0, np.int8)
    named = dict(zip(_file_names(outputs), arrays, strict=True)) if len(arrays) > 1 else {}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**named, FIRST: first}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _file_names(names: Iterable[str]) -> list[str]:
    """Return a distinct file name for each tensor: printable and without folders, so that unpacking is safe."""
    file_names: list[str] = []
    for name in names:
        safe = re.sub(r"[/\\?]|\.\.|^[A-Za-z]:|^[.~]", "_", printable(name))[:NAME] or "_"
        forms = (safe if number == 1 else f"{safe}_{number}" for number in count(1))
        file_names.append(next(form for form in forms if form not in file_names and (form != FIRST or not file_names)))
    return file_names


def _without_batch(array: Array) -> Array:
    drop = array.ndim > 2 and array.shape[1] == 1
    return np.ascontiguousarray(array.reshape(array.shape[0], *array.shape[2:]) if drop else array)
