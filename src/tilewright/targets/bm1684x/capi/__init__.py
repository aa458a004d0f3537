"""The vendor's device API under its C names, so that published C kernels can be ported line by line."""

from tilewright.targets.bm1684x.capi.names import *  # noqa: F403 (as a C program includes a header)
from tilewright.targets.bm1684x.capi.tpu import DeviceApi as DeviceApi
