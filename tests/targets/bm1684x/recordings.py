"""A recording of a small kernel."""

from __future__ import annotations

import numpy as np

from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.functions import load_exponential, sigmoid
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.runtime.recording import Recording
from tilewright.targets.bm1684x.values.dtypes import F32

SHAPE = (2, 70, 4, 6)


def recorded() -> tuple[Device, Recording]:
    """Return a recording of a sigmoid, and the device that has its tensors."""

    def body(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a, b, c, d = (tpu.local(SHAPE, F32, bank) for bank in range(4))
        terms = tpu.local((1, 64, 1, 10), F32, bank=4)
        load_exponential(tpu, terms)
        tpu.gdma.copy(a, x)
        sigmoid(tpu, d, a, b, c, terms)
        tpu.gdma.copy(y, d)

    device = Device()
    launched = device.launch(kernel(body), device.empty(SHAPE, F32), device.put(np.ones(SHAPE, np.float32), F32))
    return device, device.record(launched)
