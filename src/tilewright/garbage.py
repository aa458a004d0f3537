"""Python's cyclic garbage collector, and when it is in the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: a launch or a design makes 100,000s of objects that stay, and few cycles.

    Looking through them and all that is imported took a sixth of ResNet-18's first run, and a quarter of the time in
    which a 16x16 machine of Amaranth becomes RTLIL.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
