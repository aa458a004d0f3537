"""Mode `ort` against onnxruntime's kernels, operator by operator: all pairs of codes, scales that make ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.model.onnx_nets import needs_vnni, onnx, onnxruntime
from tilewright.array import Array
from tilewright.graph import ops, ort, reference
from tilewright.graph.ir import Graph, Node, Quant, Tensor

pytestmark = needs_vnni
SEED = 20261121


def kernel(op_type: str, domain: str, inputs: list[Any], **attributes: Any) -> Array:
    """One of onnxruntime's operators; scalars are constants, arrays are fed."""
    arrays = [np.asarray(value) for value in inputs]
    names = [f"x{index}" for index in range(len(arrays))]
    helper = onnx.helper
    fed = {name: value for name, value in zip(names, arrays, strict=True) if value.shape}
    typed = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in fed.items()
    ]
    fixed = [onnx.numpy_helper.from_array(v, n) for n, v in zip(names, arrays, strict=True) if not v.shape]
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "one", typed, [onnx.ValueInfoProto(name="y")], fixed)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, fed)[0])


def evaluate(op: ops.Op, inputs: list[tuple[Array, Quant | None]], out: Tensor, rounding: str = "ort") -> Array:
    """One operator of the graph on one sample."""
    names = [f"x{index}" for index in range(len(inputs))]
    tensors = {n: Tensor(n, data.shape, data.dtype.name, quant) for n, (data, quant) in zip(names, inputs, strict=True)}
    graph = Graph("g", tensors | {"y": out}, (Node("n", op, tuple(names), ("y",)),), tuple(names), ("y",)).validate()
    return reference.run(graph, {n: data[None] for n, (data, _) in zip(names, inputs, strict=True)}, rounding)["y"][0]


def scales(rng: np.random.Generator, count: int) -> list[float]:
    """Random scales, or half-integer powers of two that make ties."""
    if rng.random() < 0.5:
        return [float(np.float32(2.0 ** -rng.integers(1, 6) * rng.choice([1.0, 1.5, 3.0]))) for _ in range(count)]
    return [float(np.float32(value)) for value in rng.uniform(0.002, 0.1, count)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op", [ops.Add(), ops.Mul()], ids=["add", "mul"])
def test_all_pairs_of_codes(op: ops.Op, dtype: type) -> None:
    rng, info = np.random.default_rng(SEED), np.iinfo(dtype)
    codes = np.arange(info.min, info.max + 1)
    pair: list[Array] = [grid.reshape(-1).astype(dtype) for grid in np.meshgrid(codes, codes)]
    a, b = pair
    for trial in range(12):
        sa, sb, sc = scales(rng, 3)
        sc = float(np.float32(sa * sb * 64)) if op.kind == "mul" else sc
        za, zb, zc = (int(z) for z in rng.integers(info.min, info.max + 1, 3))
        given = [a, np.float32(sa), dtype(za), b, np.float32(sb), dtype(zb), np.float32(sc), dtype(zc)]
        theirs = kernel(f"QLinear{op.kind.title()}", "com.microsoft", given)
        out = Tensor("y", a.shape, np.dtype(dtype).name, Quant((sc,), (zc,)))
        ours = evaluate(op, [(a, Quant((sa,), (za,))), (b, Quant((sb,), (zb,)))], out)
        different = int((ours != theirs).sum())
        assert different == 0, f"seed {SEED}, trial {trial}: {different} of {a.size} differ"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_of_products_at_ties(dtype: type) -> None:
    """Power-of-two scales: every other sum of an odd shift is a tie."""
    rng, info = np.random.default_rng(SEED), np.iinfo(dtype)
    x: Array = rng.integers(info.min, info.max + 1, (64, 40)).astype(dtype)
    w = rng.integers(-128, 128, (40, 24)).astype(np.int8)
    for trial in range(8):
        sx, sw, sy = (float(2.0 ** -int(rng.integers(3, 8))) for _ in range(3))
        sy = sx * sw * float(2 ** int(rng.integers(6, 12)))
        zx, zy = (int(z) for z in rng.integers(info.min, info.max + 1, 2))
        given = [x, np.float32(sx), dtype(zx), w, np.float32(sw), np.int8(0), np.float32(sy), dtype(zy)]
        theirs = kernel("QLinearMatMul", "", given)
        weights = Tensor("w", (24, 40), "int8", Quant((sw,), (0,)), np.ascontiguousarray(w.T))
        tensors = (
            Tensor("x", x.shape, np.dtype(dtype).name, Quant((sx,), (zx,))),
            weights,
            Tensor("y", theirs.shape, np.dtype(dtype).name, Quant((sy,), (zy,))),
        )
        node = Node("n", ops.FullyConnected(), ("x", "w"), ("y",))
        graph = Graph("g", {t.name: t for t in tensors}, (node,), ("x",), ("y",)).validate()
        ours = reference.run(graph, x[None], "ort")["y"][0]
        np.testing.assert_array_equal(ours, theirs, err_msg=f"seed {SEED}, trial {trial}")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_averages(dtype: type) -> None:
    rng, info = np.random.default_rng(SEED), np.iinfo(dtype)
    for trial in range(20):
        height, width, channels = (int(v) for v in rng.integers(3, 12, 3))
        x: Array = rng.integers(info.min, info.max + 1, (1, height, width, channels)).astype(dtype)
        s, t = scales(rng, 2)
        t = s * float(rng.choice([0.5, 1.0, 2.0]))
        z, zt = (int(v) for v in rng.integers(info.min, info.max + 1, 2))
        given = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.float32(s), dtype(z), np.float32(t), dtype(zt)]
        quant, result = Quant((s,), (z,)), Quant((t,), (zt,))
        whole = kernel("QLinearGlobalAveragePool", "com.microsoft", given).transpose(0, 2, 3, 1)
        name = np.dtype(dtype).name
        ours = evaluate(ops.Mean((1, 2), True), [(x, quant)], Tensor("y", whole.shape, name, result))
        np.testing.assert_array_equal(ours, whole, err_msg=f"seed {SEED}, trial {trial}")
        window = kernel("QLinearAveragePool", "com.microsoft", given, kernel_shape=[2, 3], pads=[1, 0, 0, 2])
        window = window.transpose(0, 2, 3, 1)
        op = ops.RealAveragePool2D(ops.Window((2, 3), padding=(1, 0, 0, 2)))
        ours = evaluate(op, [(x, quant)], Tensor("y", window.shape, name, result))
        np.testing.assert_array_equal(ours, window, err_msg=f"seed {SEED}, trial {trial}")


def test_quantize_dequantize_and_from_one_scale_to_another() -> None:
    rng = np.random.default_rng(SEED)
    for trial in range(10):
        s, t = scales(rng, 2)
        z, u = (int(v) for v in rng.integers(0, 256, 2))
        x = np.concatenate([(np.arange(-300, 300) + 0.5) * s, rng.standard_normal(500) * 50 * s]).astype(np.float32)
        theirs = kernel("QuantizeLinear", "", [x, np.float32(s), np.uint8(z)])
        codes = evaluate(ops.Quantize(), [(x, None)], Tensor("y", x.shape, "uint8", Quant((s,), (z,))))
        np.testing.assert_array_equal(codes, theirs, err_msg=f"seed {SEED}, trial {trial}")
        real = kernel("DequantizeLinear", "", [codes, np.float32(s), np.uint8(z)])
        out = Tensor("y", x.shape, "float32")
        np.testing.assert_array_equal(evaluate(ops.Dequantize(), [(codes, Quant((s,), (z,)))], out), real)
        again = kernel("QuantizeLinear", "", [real, np.float32(t), np.uint8(u)])
        out = Tensor("y", x.shape, "uint8", Quant((t,), (u,)))
        np.testing.assert_array_equal(evaluate(ops.Quantize(), [(codes, Quant((s,), (z,)))], out), again)


def test_sums_do_not_depend_on_where_a_value_lies() -> None:
    """onnxruntime's reductions add in another order at another alignment; odd samples of a batch lie anywhere."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((5, 37, 1001)).astype(np.float32)
    op = ops.OnnxOp("ReduceMean", "", 13, (("axes", "[1]"), ("keepdims", "0")))
    tensors = {"x": Tensor("x", (37, 1001), "float32"), "y": Tensor("y", (37,), "float32")}
    graph = Graph("g", tensors, (Node("n", op, ("x",), ("y",)),), ("x",), ("y",)).validate()
    together = reference.run(graph, x, "ort")["y"]
    for index, sample in enumerate(x):
        room = np.empty(sample.size + 1, np.float32)
        room[1:] = sample.reshape(-1)
        alone = reference.run(graph, room[1:].reshape(1, *sample.shape), "ort")["y"]
        np.testing.assert_array_equal(alone[0], together[index])


def test_nodes_of_one_kind_share_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of 10,000 host nodes makes few sessions: making one takes longer than running it."""
    made, whole = list[object](), ort.session

    def counted(model: Any, **settings: Any) -> Any:
        made.append(model)
        return whole(model, **settings)

    monkeypatch.setattr(ort, "session", counted)
    monkeypatch.setattr(ort, "_SESSIONS", {})
    kind = ort.ValueType("float32", (1, 3))
    for number in range(9):
        call = ort.Call(f"node {number}", ("Sin", "Neg")[number % 2], "", 17, (), (kind,), 1)
        ort.run(call, (kind,), [np.ones((1, 3), np.float32)], {})
    assert len(made) == 2
