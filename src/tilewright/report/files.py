"""Output files, written whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends without an error.

    Raises InputError where it cannot be written.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # /dev/null, a pipe
        with target.open("wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(target)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_outputs(path: str | Path, outputs: Mapping[str, Array]) -> None:
    """An .npz with `outputs` (N, ...), the first output; with several outputs, also each by its name.

    `outputs` are (N, *shape); a model batch axis of 1 is dropped.
    """
    arrays = {name: _without_batch(array) for name, array in outputs.items()}
    first = next(iter(arrays.values()), np.zeros(0, np.int8))
    named = arrays if len(arrays) > 1 else {}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**named, "outputs": first}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _without_batch(array: Array) -> Array:
    drop = array.ndim > 2 and array.shape[1] == 1
    return np.ascontiguousarray(array.reshape(array.shape[0], *array.shape[2:]) if drop else array)
