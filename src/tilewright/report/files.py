"""The output values of a run as a file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.files import replacing


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
