"""Golden vector files: arrays and descriptions, as they are; section "ops" of their README. Replays those of layouts.

An InputError names the file and what it lacks.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.files import Entries
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts.tensor import Matrix, Tensor
from tilewright.targets.bm1684x.values.dtypes import dtype_of

REMEDY = "give the files of tpu_vectors"
CONFIG = Config()


def arrays(path: Path) -> Mapping[str, Array]:
    """The arrays of an .npz. Raises InputError, also where one is asked for that it does not have."""
    try:
        return Entries(path, "array", REMEDY, files.arrays(path))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), f"cannot be read: {error}", REMEDY) from None


def described(path: Path) -> Any:
    """A .json beside the arrays. Raises InputError, also where a key is asked for that an object does not have."""
    try:
        text = files.regular(path).read_text(encoding="utf-8")
        return json.loads(text, object_hook=partial(Entries, path, "key", REMEDY))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(path), f"cannot be read: {error}", REMEDY) from None


def replay_layouts(path: Path) -> Iterator[ConformCase]:
    """Every case of layout_addresses.npz."""
    golden = arrays(path)
    for case in described(path.with_suffix(".json")):
        found = addresses(case)
        expected = golden[case["id"]]
        same = found.shape == expected.shape and bool((found == expected).all())
        reason = "" if same else f"{case['kind']} {case['shape']} from lane {case['start_lane']}: addresses differ"
        yield ConformCase(f"layout {case['id']}", same, reason)


def addresses(case: Mapping[str, Any]) -> Array:
    """Addresses within local memory, as the vector stores them."""
    find = KINDS.get(case["kind"], _strided)
    return find(case) if case["kind"] == "bcast" else find(case) - LOCAL_BASE


def _place(case: Mapping[str, Any]) -> tuple[int, int]:
    return case["start_lane"], case["lane_offset"]


def _tensor(case: Mapping[str, Any], shape: Sequence[int], kind: str) -> Array:
    return Tensor.local(*_place(case), tuple(shape), dtype_of(case["dtype"]), CONFIG, kind).addresses


def _strided(case: Mapping[str, Any]) -> Array:
    """The vectors' `aligned` is a DMA copy's default."""
    return _tensor(case, case["shape"], {"aligned": "dma"}.get(case["kind"], case["kind"]))


def _free(case: Mapping[str, Any]) -> Array:
    return Tensor.free(*_place(case), case["shape"], case["param"], dtype_of(case["dtype"]), CONFIG).addresses


def _matrix(case: Mapping[str, Any]) -> Array:
    rows, columns = case["shape"] if len(case["shape"]) == 2 else (1, *case["shape"])
    matrix = Matrix.local(*_place(case), (rows, columns), case["param"][0], dtype_of(case["dtype"]), CONFIG)
    return matrix.addresses.reshape(case["shape"])


def _transposed_matrix(case: Mapping[str, Any]) -> Array:
    return _matrix({**case, "shape": case["shape"][::-1]}).T


def _turned(*order: int) -> Callable[[Mapping[str, Any]], Array]:
    """A transpose: axes in another order, which is its own inverse."""
    return lambda case: _tensor(case, [case["shape"][axis] for axis in order], "aligned").transpose(order)


def _broadcast(case: Mapping[str, Any]) -> Array:
    """Rows: source element, address; ordered by address as the vector is."""
    n, _, h, w = case["shape"]
    places = _tensor(case, (n, case["param"][0], h, w), "dma") - LOCAL_BASE
    source = np.broadcast_to(np.arange(n * h * w).reshape(n, 1, h, w), places.shape)
    order = np.argsort(places.ravel(), kind="stable")
    return np.stack([source.ravel()[order], places.ravel()[order]])


KINDS: dict[str, Callable[[Mapping[str, Any]], Array]] = {
    "free": _free,
    "matrix": _matrix,
    "vector": _matrix,
    "matrix_T": _transposed_matrix,
    "nc_trans": _turned(1, 0, 2, 3),
    "cw_trans": _turned(0, 3, 2, 1),
    "bcast": _broadcast,
}
