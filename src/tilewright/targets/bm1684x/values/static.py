"""Tables that static memory holds: coefficients of the exponential's series. The others are not known."""

from __future__ import annotations

import numpy as np

from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.bm1684x.values.iterate import series
from tilewright.targets.bm1684x.values.memory import Memories

#: Byte offsets in static memory, seen in compiled programs.
EXPONENTIAL = {F32: 1024, F16: 2368, BF16: 2432}


def load(memories: Memories) -> None:
    """Write the tables."""
    for dtype, offset in EXPONENTIAL.items():
        values = narrow(series(dtype), dtype)
        addresses = STATIC_BASE + offset + np.arange(len(values), dtype=np.int64) * dtype.bytes
        memories.fill(addresses, values)
