"""Limits the memory of a quantisation before any computation, because model files are untrusted."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import ModelProto, helper

from tilewright.errors import UnsupportedError, option
from tilewright.graph.tensor import MAX_COMPUTED

#: The limit of the activations in memory, in bytes: three times those of the largest model in docs/models.md.
MAX_ACTIVATION_BYTES = 6 << 30
#: The number of models whose activations are in memory: the comparison runs the float model and the quantised model.
MODELS = 2
#: With these methods, onnxruntime's quantiser (HistogramCalibrater) stores the activations of all samples.
KEEPING = ("entropy", "percentile")


def activations(model: ModelProto) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return {tensor: (shape, bytes)} for the computed tensors with a declared shape."""
    sizes = {}
    for info in (*model.graph.value_info, *model.graph.output):
        kind = info.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        if kind.elem_type and kind.HasField("shape") and all(extent > 0 for extent in shape):
            width = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).itemsize
            sizes[info.name] = shape, prod(shape) * width
    return sizes


def check_tensors(model: ModelProto, where: str) -> None:
    """Raises UnsupportedError, naming the largest activation, if one activation or all together are too large.

    The model must have inferred shapes.
    """
    sizes = activations(model)
    name, (shape, _) = max(sizes.items(), key=lambda item: prod(item[1][0]), default=("", ((), 0)))
    if prod(shape) > MAX_COMPUTED:
        reason = f"tensor '{name}' has the shape {list(shape)}; the limit is {MAX_COMPUTED:,} elements"
        raise UnsupportedError(where, reason, _smaller())
    check_total(model, where)


def check_total(model: ModelProto, where: str, samples: int = 1, method: str = "minmax") -> None:
    """Raises UnsupportedError, naming the largest activation, if calibration by `method` would need too much memory."""
    sizes = activations(model)
    sample_bytes = sum(size for _, size in sizes.values())
    keeps_all = method in KEEPING and samples > MODELS
    if sample_bytes * (samples if keeps_all else MODELS) <= MAX_ACTIVATION_BYTES:
        return
    name, (shape, _) = max(sizes.items(), key=lambda item: item[1][1])
    reason = f"has {len(sizes)} activations of {_mib(sample_bytes)} in total (the largest: '{name}' {list(shape)})"
    if keeps_all and sample_bytes * MODELS <= MAX_ACTIVATION_BYTES:
        reason += (
            f", and the method {method} keeps those of all {samples} samples; the limit is {_mib(MAX_ACTIVATION_BYTES)}"
        )
        most = MAX_ACTIVATION_BYTES // sample_bytes
        remedy = f"give at most {most} calibration samples, or {option('--method minmax', 'method=`minmax`')}"
        raise UnsupportedError(where, reason, remedy)
    raise UnsupportedError(where, f"{reason}; the limit is {_mib(MAX_ACTIVATION_BYTES // MODELS)}", _smaller())


def _smaller() -> str:
    return "export the model for a smaller input" + option(", or fix open extents by --shape", ", or give `shapes`")


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB"
