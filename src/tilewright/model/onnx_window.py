"""ONNX's window attributes as a Window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import ModelError
from tilewright.graph.ops import Window

LARGEST = 1 << 15


def window_of(
    where: str, attributes: Mapping[str, Any], kernel: tuple[int, ...], size: tuple[int, int], out: tuple[int, int]
) -> Window:
    """The window of a convolution or pool over an image of `size` that gives `out` positions.

    Where rounding up (`ceil_mode`) gives one position more, padding after the image makes room for it.
    """
    stride, dilation = _pair(where, attributes, "strides"), _pair(where, attributes, "dilations")
    if len(kernel) != 2 or not all(1 <= extent <= LARGEST for extent in kernel):
        raise ModelError(where, f"has a kernel of shape {list(kernel)}")
    pads = [int(pad) for pad in attributes.get("pads", (0, 0, 0, 0))]
    auto = attributes.get("auto_pad", "NOTSET")
    if len(pads) != 4 or not all(0 <= pad <= LARGEST for pad in pads):
        raise ModelError(where, f"has the padding {pads[:8]}")
    if auto == "VALID":
        pads = [0, 0, 0, 0]
    for axis in (0, 1):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        missing = max(0, (out[axis] - 1) * stride[axis] + extent - size[axis])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            less, more = missing // 2, missing - missing // 2
            pads[axis], pads[axis + 2] = (less, more) if auto == "SAME_UPPER" else (more, less)
        elif attributes.get("ceil_mode", 0):
            pads[axis + 2] = max(pads[axis + 2], missing - pads[axis])
    return Window((kernel[0], kernel[1]), stride, (pads[0], pads[2], pads[1], pads[3]), dilation)


def _pair(where: str, attributes: Mapping[str, Any], key: str) -> tuple[int, int]:
    values = attributes.get(key, (1, 1))
    if not isinstance(values, list | tuple) or len(values) != 2 or not all(1 <= v <= LARGEST for v in values):
        raise ModelError(where, f"has the {key} {values}")
    return int(values[0]), int(values[1])
