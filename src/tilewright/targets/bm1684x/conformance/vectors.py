"""Read golden vector files (section "ops" of their README), and replay the golden vectors of layouts.

An InputError names the file and the missing array or key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import files
from tilewright.array import Array
from tilewright.fields import parsed
from tilewright.files import Entries, untrusted
from tilewright.targets.base import ConformCase
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts.placement import LayoutRequest, place

REMEDY = "give a golden vector file of tpu_vectors"
CONFIG = Config()
#: Transposed layouts: the stored layout that elements are read from, and the order of its axes.
TURNED: Mapping[str, tuple[str, Sequence[int]]] = {
    "matrix_T": ("matrix", (1, 0)),
    "nc_trans": ("aligned", (1, 0, 2, 3)),
    "cw_trans": ("aligned", (0, 3, 2, 1)),
}


def arrays(path: Path) -> Mapping[str, Array]:
    """Return the arrays of an .npz by name. Raises InputError if it is unreadable, or on access to a missing array."""
    return Entries(path, "array", REMEDY, files.arrays(path, remedy=REMEDY))


def described(path: Path) -> Any:
    """Return the contents of a .json. Raises InputError if it is unreadable, or on access to a missing key."""
    with untrusted(path, REMEDY):
        return _entries(path, parsed(files.regular(path).read_bytes()))


def _entries(path: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return Entries(path, "key", REMEDY, {key: _entries(path, each) for key, each in value.items()})
    return [_entries(path, each) for each in value] if isinstance(value, list) else value


def replay_layouts(path: Path) -> Iterator[ConformCase]:
    """Compare the layouts in layout_addresses.npz with those computed here, and yield the result of each case."""
    golden = arrays(path)
    for case in described(path.with_suffix(".json")):
        found = addresses(case)
        expected = golden[case["id"]]
        same = found.shape == expected.shape and bool((found == expected).all())
        reason = "" if same else f"{case['kind']} {case['shape']} from lane {case['start_lane']}: addresses differ"
        yield ConformCase(f"layout {case['id']}", same, reason)


def addresses(case: Mapping[str, Any]) -> Array:
    """Return the byte offset in local memory of each element of a test case, in the shape that golden vectors store.

    The layout that they call `aligned` is called `dma` here: the default layout of a DMA copy.
    """
    kind, shape = case["kind"], case["shape"]
    if kind == "bcast":
        return _broadcast(case)
    kind, order = TURNED.get(kind, ({"aligned": "dma"}.get(kind, kind), range(len(shape))))
    return _laid(case, kind, [shape[axis] for axis in order]).transpose(order)


def _laid(case: Mapping[str, Any], kind: str, shape: Sequence[int]) -> Array:
    stride = case["param"] if kind == "free" else None
    width = case["param"][0] if kind in ("matrix", "vector") else None
    wanted = LayoutRequest(kind, shape, case["dtype"], case["start_lane"], case["lane_offset"], stride, width)
    return (place(wanted, CONFIG).operand.addresses - LOCAL_BASE).reshape(shape)


def _broadcast(case: Mapping[str, Any]) -> Array:
    """Return two rows in ascending order of byte offsets: the numbers of source elements, and their copies' offsets."""
    n, _, h, w = case["shape"]
    places = _laid(case, "dma", (n, case["param"][0], h, w))
    source = np.broadcast_to(np.arange(n * h * w).reshape(n, 1, h, w), places.shape)
    order = np.argsort(places.ravel(), kind="stable")
    return np.stack([source.ravel()[order], places.ravel()[order]])
