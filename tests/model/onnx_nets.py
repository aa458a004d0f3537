"""Small quantised ONNX models, built node by node, and onnxruntime's answer to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.array import Array

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def exact_cpu() -> bool:
    """Whether onnxruntime's uint8 x int8 kernels do not saturate here."""
    info = Path("/proc/cpuinfo")
    return info.is_file() and "vnni" in info.read_text()


needs_vnni = pytest.mark.skipif(not exact_cpu(), reason="without VNNI onnxruntime's u8 x s8 kernels saturate")


class Net:
    """A model under construction; values are names. `codes` is the type of activations."""

    def __init__(self, seed: int, codes: type = np.uint8, opset: int = 17) -> None:
        self.rng = np.random.default_rng(seed)
        self.codes: np.dtype[Any] = np.dtype(codes)
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: dict[str, Any] = {}
        self.count = 0

    def name(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def const(self, data: Any, dtype: Any = None) -> str:
        name = self.name("c")
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [self.name(kind) for _ in range(outputs)]
        self.nodes.append(onnx.helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def input(self, shape: Sequence[int], dtype: Any = np.float32) -> str:
        name = self.name("in")
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs[name] = onnx.helper.make_tensor_value_info(name, kind, shape)
        return name

    def scales(self, low: float = 0.01, high: float = 0.05, zero: int | None = None) -> tuple[str, str]:
        """A random scale, often a power of two so that ties occur, and a zero point."""
        scale = float(self.rng.uniform(low, high))
        scale = float(2.0 ** np.round(np.log2(scale))) if self.rng.random() < 0.5 else scale
        info = np.iinfo(str(self.codes))
        middle = (int(info.min) + int(info.max) + 1) // 2
        code = int(self.rng.integers(middle - 40, middle + 40)) if zero is None else zero
        return self.const(scale, np.float32), self.const(code, self.codes)

    def quantized(self, x: str, pair: tuple[str, str] | None = None, **kinds: Any) -> str:
        """x through QuantizeLinear and DequantizeLinear."""
        pair = pair or self.scales(**kinds)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *pair), *pair)

    def weights(self, shape: Sequence[int], axis: int | None = 0, dtype: Any = np.int8) -> str:
        """Dequantised constant weights, per channel along `axis` or per tensor."""
        info = np.iinfo(dtype)
        data = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        count = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.001, 0.004, count).astype(np.float32)
        zero = np.full(count, 0 if info.min < 0 else 121, dtype)
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        return str(self.op("DequantizeLinear", self.const(data), self.const(scale), self.const(zero), **attributes))

    def bias(self, x: str, w: str) -> str:
        """A dequantised bias whose scale is that of the products of x and w."""
        scales = [self.scale_of(name) for name in (x, w)]
        scale = np.asarray(scales[0] * scales[1])
        count = self._channels_of(w)
        data = self.rng.integers(-5000, 5000, count).astype(np.int32)
        zero = np.zeros(scale.shape, np.int32)
        attributes: dict[str, Any] = {"axis": 0} if scale.shape else {}
        inputs = (self.const(data), self.const(scale), self.const(zero))
        return str(self.op("DequantizeLinear", *inputs, **attributes))

    def _writer(self, name: str) -> Any:
        return next(node for node in self.nodes if name in node.output)

    def _array(self, name: str) -> Array:
        return np.asarray(onnx.numpy_helper.to_array(next(c for c in self.constants if c.name == name)))

    def scale_of(self, name: str) -> Array:
        return self._array(self._writer(name).input[1])

    def _channels_of(self, w: str) -> int:
        scale = self.scale_of(w)
        return len(scale) if scale.shape else int(self._array(self._writer(w).input[0]).shape[0])

    def model(self, *outputs: str) -> Any:
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = onnx.helper.make_graph(self.nodes, "net", list(self.inputs.values()), results, self.constants)
        versions = [onnx.helper.make_opsetid("", self.opset), onnx.helper.make_opsetid("com.microsoft", 1)]
        return onnx.helper.make_model(graph, opset_imports=versions, ir_version=8)

    def save(self, path: Path, *outputs: str) -> Path:
        path.write_bytes(self.model(*outputs).SerializeToString())
        return path


def answer(path: Path, inputs: dict[str, Array]) -> list[list[Array]]:
    """onnxruntime's outputs, one list a sample, with integer kernels for int8 too."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    count = len(next(iter(inputs.values())))
    return [session.run(None, {name: array[index] for name, array in inputs.items()}) for index in range(count)]
