"""Products of 8-bit codes by onnxruntime's integer kernels: several times as fast as BLAS, and exact on some CPUs only.

Without VNNI its kernels add pairs of products in 16 bits, which saturate (docs/arithmetic.md): then there is no such
function. The CPU's flags say whether it may be used, and a product of extreme codes confirms it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array

FLAGS = frozenset(("avx512_vnni", "avx_vnni"))


@cache
def available() -> bool:
    """Whether `matmul` may be used here."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").split()
        if FLAGS.isdisjoint(flags):
            return False
        codes = np.array([0, 1, 127, 128, 254, 255], np.uint8)[np.arange(64 * 300).reshape(64, 300) % 6]
        weights = np.array([-128, 127, -128, -1, 127], np.int8)[np.arange(300 * 48).reshape(300, 48) % 5]
        return bool((matmul(codes, weights) == codes.astype(np.int32) @ weights.astype(np.int32)).all())
    except (ImportError, OSError):
        return False


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` as int32: uint8 (M, K) by int8 (K, N)."""
    (product,) = _session().run(None, {"a": a, "b": b})
    return product


@cache
def _session() -> Any:
    import onnxruntime
    from onnx import TensorProto, helper

    ends = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (("a", TensorProto.UINT8), ("b", TensorProto.INT8))
    ]
    out = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", ends, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
