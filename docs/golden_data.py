"""Make golden data of MLPerf Tiny for the tests, from the published models and TFLite Micro.

    python -m docs.golden_data FOLDER

FOLDER/mlperf_tiny/models must hold the four .tflite files; docs/golden-data.md says where they are published. Written
are, beside them, KEY/samples.npz (random inputs, and the outputs of TFLite Micro and LiteRT), KEY/layers_*.npz (every
tensor of some samples, by TFLite Micro) and KEY/graph.json (the file, as the package tflite reads it). The script
shares no code with Tilewright. It needs the extra `test`, and `pip install tflite-micro ai-edge-litert`.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_micro.python.tflite_micro import runtime

#: The published files: name, and the SHA-256 of the content.
MODELS = {
    "ic": ("pretrainedResnet_quant.tflite", "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415"),
    "kws": ("kws_ref_model.tflite", "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae"),
    "vww": ("vww_96_int8.tflite", "597a384c8c2c8a1276f04702f25013b7838f2f814f1ca7c174d295b73e3d6b7b"),
    "ad": ("ad01_int8.tflite", "87cf24194ef93d1d9b11a591d805526b98008e351655d29883c825c9c106ba24"),
}
SAMPLES, LAYERS, SEED, ARENA = 20, 3, 20261127, 1 << 24


def main(folder: Path) -> None:
    """Write the golden data of all models."""
    for key, (name, digest) in MODELS.items():
        content = (folder / "mlperf_tiny" / "models" / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            sys.exit(f"{name} is another file: its SHA-256 is not {digest}")
        here = folder / "mlperf_tiny" / key
        here.mkdir(exist_ok=True)
        description = parsed(name, content)
        (here / "graph.json").write_text(json.dumps(description))
        shape = tuple(description["tensors"][description["inputs"][0]]["shape"])[1:]
        rng = np.random.default_rng(SEED)
        inputs = rng.integers(-128, 128, (SAMPLES, *shape)).astype(np.int8)
        ends = np.stack([np.full(shape, end, np.int8) for end in (-128, 127)])
        stress = np.concatenate([ends, rng.integers(-128, 128, (6, *shape)).astype(np.int8)])
        values: dict[str, Any] = {
            "names": np.array([f"random_{index:03}" for index in range(SAMPLES)]),
            "inputs": inputs,
            "labels": np.full(SAMPLES, -1, np.int16),
            "golden": in_micro(content, inputs),
            "litert_ref": in_litert(content, inputs, OpResolverType.BUILTIN_REF),
            "litert_xnnpack": in_litert(content, inputs, OpResolverType.AUTO),
            "stress_inputs": stress,
            "stress_golden": in_micro(content, stress),
        }
        np.savez_compressed(here / "samples.npz", **values)
        for index in range(LAYERS):
            tensors: dict[str, Any] = layers(content, inputs[index], description)
            np.savez_compressed(here / f"layers_{index:03}.npz", **tensors)
        print(f"{key}: {SAMPLES} samples, {len(description['ops'])} operators")


def in_micro(content: bytes, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the outputs of TFLite Micro, one row a sample."""
    model, rows = runtime.Interpreter.from_bytes(content, arena_size=ARENA), []
    for sample in inputs:
        model.set_input(sample[None], 0)
        model.invoke()
        rows.append(model.get_output(0).reshape(-1).copy())
    return np.stack(rows)


def layers(content: bytes, sample: np.ndarray[Any, Any], description: dict[str, Any]) -> dict[str, Any]:
    """Return the output of every operator for one sample, by TFLite Micro."""
    keep = runtime.InterpreterConfig.kPreserveAllTensors
    model = runtime.Interpreter.from_bytes(content, arena_size=ARENA, intrepreter_config=keep)
    model.set_input(sample[None], 0)
    model.invoke()
    found, values = {"input": sample}, {description["inputs"][0]: sample[None]}
    for index, op in enumerate(description["ops"]):
        result, tensors = op["outputs"][0], description["tensors"]
        values[result] = model.GetTensor(result, 0)["tensor_data"].reshape(tensors[result]["shape"]).copy()
        found[f"op{index:02}_{op['op']}"] = values[result]
        if op["macs"]:
            real = values[op["inputs"][0]].astype(np.int32) - tensors[op["inputs"][0]]["zero_point"][0]
            found[f"acc{index:02}"] = sums(real, content, op["inputs"][1], op).reshape(tensors[result]["shape"])
    return found


def sums(real: np.ndarray[Any, Any], content: bytes, weights: int, op: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the int32 sums of products before the bias; `real` are the input's codes less the zero point."""
    model = tflite.Model.GetRootAsModel(content, 0)
    tensor = model.Subgraphs(0).Tensors(weights)
    w = model.Buffers(tensor.Buffer()).DataAsNumpy().view(np.int8).reshape(tensor.ShapeAsNumpy()).astype(np.int32)
    if op["op"] == "FULLY_CONNECTED":
        return real.reshape(-1, w.shape[1]) @ w.T
    pads = [(0, 0)]
    for size, kernel, stride in zip(real.shape[1:3], w.shape[1:3], op["stride"], strict=True):
        missing = max(0, (-(-size // stride) - 1) * stride + kernel - size) if op["same"] else 0
        pads.append((missing // 2, missing - missing // 2))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(real, [*pads, (0, 0)]), w.shape[1:3], (1, 2))
    windows = windows[:, :: op["stride"][0], :: op["stride"][1]]  # [1, rows, columns, channels, kernel rows, columns]
    products = "byxcij,oijc->byxo" if op["op"] == "CONV_2D" else "byxcij,oijc->byxc"
    made: np.ndarray[Any, Any] = np.einsum(products, windows, w)
    return made


def in_litert(content: bytes, inputs: np.ndarray[Any, Any], resolver: OpResolverType) -> np.ndarray[Any, Any]:
    """Return the outputs of LiteRT with the kernels of a resolver, one row a sample."""
    model, rows = Interpreter(model_content=content, experimental_op_resolver_type=resolver), []
    model.allocate_tensors()
    source, result = (details()[0]["index"] for details in (model.get_input_details, model.get_output_details))
    for sample in inputs:
        model.set_tensor(source, sample.reshape(model.get_input_details()[0]["shape"]))
        model.invoke()
        rows.append(model.get_tensor(result).reshape(-1).copy())
    return np.stack(rows)


def parsed(name: str, content: bytes) -> dict[str, Any]:
    """Return a file's tensors and operators, with multiply-accumulates and requantisation, as JSON values."""
    model = tflite.Model.GetRootAsModel(content, 0)
    graph = model.Subgraphs(0)
    tensors = [_tensor(graph.Tensors(index)) for index in range(graph.TensorsLength())]
    codes = {value: key for key, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    ops = []
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        kind = codes[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        inputs, outputs = operator.InputsAsNumpy().tolist(), operator.OutputsAsNumpy().tolist()
        macs = _macs(kind, tensors, inputs, outputs)
        op: dict[str, Any] = {"op": kind, "inputs": inputs, "outputs": outputs, "macs": macs}
        if options := {"CONV_2D": tflite.Conv2DOptions, "DEPTHWISE_CONV_2D": tflite.DepthwiseConv2DOptions}.get(kind):
            table = operator.BuiltinOptions()
            window = options()
            window.Init(table.Bytes, table.Pos)
            op |= {"stride": [window.StrideH(), window.StrideW()], "same": window.Padding() == tflite.Padding.SAME}
        ops.append(op | ({"requant": _requant(tensors, inputs, outputs)} if macs else {}))
    total = sum(int(op["macs"]) for op in ops)
    ends = graph.InputsAsNumpy().tolist(), graph.OutputsAsNumpy().tolist()
    return {"model": name, "tensors": tensors, "ops": ops, "inputs": ends[0], "outputs": ends[1], "total_macs": total}


def _tensor(tensor: Any) -> dict[str, Any]:
    found = {"name": tensor.Name().decode(), "shape": tensor.ShapeAsNumpy().tolist() if tensor.ShapeLength() else []}
    quant = tensor.Quantization()
    if quant and quant.ScaleLength():
        found |= {"scale": quant.ScaleAsNumpy().tolist(), "zero_point": quant.ZeroPointAsNumpy().tolist()}
    return found


def _macs(kind: str, tensors: Sequence[dict[str, Any]], inputs: Sequence[int], outputs: Sequence[int]) -> int:
    if kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    weights = tensors[inputs[1]]["shape"]
    taps = math.prod(weights[1:3]) if kind == "DEPTHWISE_CONV_2D" else math.prod(weights[1:])
    return math.prod(tensors[outputs[0]]["shape"]) * int(taps)


def _requant(tensors: Sequence[dict[str, Any]], inputs: Sequence[int], outputs: Sequence[int]) -> dict[str, Any]:
    """Return the multiplier (int32, 31 fraction bits) and the shift of each channel."""
    (source,), (result,) = tensors[inputs[0]]["scale"], tensors[outputs[0]]["scale"]
    pairs = [math.frexp(source * weight / result) for weight in tensors[inputs[1]]["scale"]]
    rounded = [(round(fraction * (1 << 31)), shift) for fraction, shift in pairs]
    carried = [(q >> 1, shift + 1) if q == 1 << 31 else (q, shift) for q, shift in rounded]
    kept = [(q, shift) if shift >= -31 else (0, 0) for q, shift in carried]
    return {"multiplier": [q for q, _ in kept], "shift": [shift for _, shift in kept]}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
