"""Kernels of one call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.capi import (
    DeviceApi,
)
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Launched, Tpu, kernel
from tilewright.targets.bm1684x.values.dtypes import DType

CONFIG = Config(lanes=4)


BANK = CONFIG.bank_bytes


Body = Callable[..., None]


def run(body: Body, out: tuple[int, ...], dtype: DType, *sources: tuple[Array, DType]) -> tuple[Array, Launched]:
    """`body(c, y, *x)` with addresses in DDR; y and what was done."""
    device = Device(CONFIG)
    y = device.put(np.full(out, 9, dtype.storage), dtype)
    places = [device.put(values, kind).address for values, kind in sources]

    @kernel
    def whole(tpu: Tpu) -> None:
        c = DeviceApi(tpu)
        c.tpu_initialize()
        body(c, y.address, *places)
        c.tpu_poll()

    launched = device.launch(whole)
    return device.get(y), launched
