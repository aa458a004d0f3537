"""Whether two programs are the same."""

from __future__ import annotations

import numpy as np

from tilewright.program.program import Program
from tilewright.program.serial import program_to_data


def same(a: Program, b: Program) -> bool:
    """Equality by the exact serial form (see test_serial)."""
    (data, arrays), (other, others) = program_to_data(a), program_to_data(b)
    return (
        data == other
        and arrays.keys() == others.keys()
        and all(
            arrays[key].dtype == others[key].dtype and np.array_equal(arrays[key], others[key], equal_nan=True)
            for key in arrays
            if arrays[key].dtype.kind == "f"
        )
        and all(arrays[key].tobytes() == others[key].tobytes() for key in arrays)
    )
