"""Networks of real numbers: bit for bit what the machine's arithmetic gives, and how far that is from the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.model.onnx_nets import Net
from tilewright.array import Array
from tilewright.cli import main
from tilewright.debug.verbs import obey
from tilewright.program.program import HostStep
from tilewright.report.metrics import Deviation
from tilewright.targets.bm1684x.values import conv, elementwise
from tilewright.targets.bm1684x.values.dtypes import F32, DType, Rounding, dtype_of
from tilewright.targets.bm1684x.values.floats import as_stored, cast, narrow
from tilewright.targets.bm1684x.values.window import Window

onnx = pytest.importorskip("onnx")
SEED = 5
#: Least signal to noise against onnxruntime's float32, dB.
LEAST = {"f16": 50, "bf16": 30, "f32": 110}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """Two convolutions of which the second is added to the first, pools, a product; and its constants."""
    random = np.random.default_rng(SEED)
    constants: dict[str, Array] = {
        "w0": random.normal(size=(70, 40, 5, 5)).astype(np.float32) / 32,
        "b0": random.normal(size=70).astype(np.float32),
        "w1": random.normal(size=(70, 70, 3, 3)).astype(np.float32) / 25,
        "b1": random.normal(size=70).astype(np.float32),
        "w2": random.normal(size=(11, 70)).astype(np.float32) / 8,
        "w3": random.normal(size=(70, 1, 3, 3)).astype(np.float32) / 3,
        "b3": random.normal(size=70).astype(np.float32),
        "b2": random.normal(size=11).astype(np.float32),
    }
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "w0", "b0"], ["a"], name="first", strides=[2, 2], pads=[2, 2, 2, 2], kernel_shape=[5, 5]),
        make("Relu", ["a"], ["b"], name="relu"),
        make("MaxPool", ["b"], ["c"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        make("Conv", ["c", "w1", "b1"], ["d"], name="second", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        make("Add", ["d", "c"], ["e"], name="sum"),
        make("Conv", ["e", "w3", "b3"], ["h"], name="depthwise", group=70, pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        make("GlobalAveragePool", ["h"], ["f"], name="mean"),
        make("Flatten", ["f"], ["g"], name="flat"),
        make("Gemm", ["g", "w2", "b2"], ["y"], name="scores", transB=1),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "real",
        [value("x", 1, [1, 40, 33, 29])],
        [value("y", 1, [1, 11])],
        [onnx.numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=9)
    path = tmp_path_factory.mktemp("real") / "real.onnx"
    onnx.save(model, path)
    return path, constants


def by_hand(x: Array, constants: dict[str, Array], dtype: DType) -> Array:
    """The network without tiles, from the machine's arithmetic."""
    stored = {name: narrow(data, dtype) for name, data in constants.items()}

    def product(x: Array, name: str, window: Window) -> Array:
        bias = constants[f"b{name}"].reshape(1, -1, 1, 1)
        return conv.float_conv(
            x, stored[f"w{name}"].reshape(len(bias[0]), -1, *window.kernel), dtype, dtype, window, [bias]
        )

    a = product(narrow(x, dtype), "0", Window((5, 5), (2, 2, 2, 2), (2, 2)))
    b = elementwise.float_binary("max", a, np.zeros_like(a), dtype)
    pool = Window((3, 3), (1, 1, 1, 1), (2, 2))
    lowest = narrow(np.array([-np.inf], np.float32), dtype)[0]
    c = narrow(as_stored(pool.taps(b, lowest), dtype).max((2, 3)), dtype)
    d = product(c, "1", Window((3, 3), (1, 1, 1, 1)))
    e = elementwise.float_binary("add", d, c, dtype)
    taps = Window((3, 3), (1, 1, 1, 1)).taps(e)
    first = as_stored(stored["b3"], dtype).reshape(1, -1, 1, 1)
    h = conv.float_depthwise(taps, stored["w3"][:, 0], dtype, [first])
    wide = cast(h, dtype, F32, Rounding.HALF_TO_EVEN) if dtype is not F32 else h
    taps = Window(wide.shape[2:]).taps(wide)
    mean = conv.float_depthwise(taps, np.array(1 / np.prod(wide.shape[2:]), np.float32), F32, [])
    f = cast(mean, F32, dtype, Rounding.HALF_TO_EVEN) if dtype is not F32 else mean
    return as_stored(product(f, "2", Window((1, 1))), dtype).reshape(len(x), -1)


@pytest.mark.parametrize("precision", list(LEAST))
def test_outputs_are_what_the_machines_arithmetic_gives(precision: str, network: tuple[Path, dict[str, Array]]) -> None:
    path, constants = network
    x = np.random.default_rng(SEED).normal(size=(3, 1, 40, 33, 29)).astype(np.float32)
    program = tw.compile(path, "bm1684x", overrides={"precision": precision, "batch": "2"})
    assert program.launches[0].meta["notes"][0] == ""  # taps as channels would be added in another order
    assert len(program.steps) == len(program.launches) == 1
    result = program.run(x)
    np.testing.assert_array_equal(result.outputs["y"][:, 0], by_hand(x[:, 0], constants, dtype_of(precision)))
    assert result.matches_reference is None
    assert result.findings == ()
    ratio = result.deviations["y"].snr_db
    assert ratio is not None
    assert ratio > LEAST[precision]


def test_without_a_precision_the_host_computes(network: tuple[Path, dict[str, Array]]) -> None:
    program = tw.compile(network[0], "bm1684x")
    reasons = [step.reason for step in program.steps if isinstance(step, HostStep)]
    assert any("precision=f16" in reason for reason in reasons)
    assert program.run(np.zeros((1, 40, 33, 29), np.float32)).matches_reference


def test_the_command_line_says_how_far_off(
    network: tuple[Path, dict[str, Array]], capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(network[0])
    assert main(["run", model, "-t", "bm1684x", "--set", "precision=f16"]) == 0
    printed = capsys.readouterr()
    assert "y differs by up to" in printed.out
    assert not printed.err
    assert main(["run", model, "-t", "bm1684x", "--set", "precision=bf16", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["matches_reference"] is None
    assert answer["deviation"]["y"]["snr_db"] > LEAST["bf16"]


@pytest.mark.parametrize("size", range(6, 13))
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_pools_that_round_their_size_up(kind: str, size: int, tmp_path: Path) -> None:
    """The last windows of a maximum may reach beyond the input; those of an average must not."""
    net = Net(SEED, np.int8)
    x = net.input((1, 5, size, size + 1))
    net.op(
        kind, x, kernel_shape=[3, 3], strides=[2, 3], pads=[1, 0, 0, 1] if kind == "MaxPool" else [0] * 4, ceil_mode=1
    )
    path = net.save(tmp_path / "net.onnx", net.nodes[-1].output[0])
    program = tw.compile(path, "bm1684x", overrides={"precision": "f32"})
    whole = (size - 3) % 2 == 0 and (size + 1 - 3) % 3 == 0
    assert bool(program.launches) is (kind == "MaxPool" or whole)
    values = np.random.default_rng(SEED).normal(size=(2, 1, 5, size, size + 1)).astype(np.float32)
    result = program.run(values)
    assert all(deviation.snr_db is None or deviation.snr_db > LEAST["f32"] for deviation in result.deviations.values())
    assert result.findings == ()


def test_deviations_add_up() -> None:
    expected = np.array([3.0, -4.0])
    both = Deviation.of(np.array([3.0, -3.0]), expected).with_more(Deviation.of(expected, expected))
    assert both == Deviation(1.0, 1.0, 50.0)
    assert both.snr_db == pytest.approx(16.99, abs=0.01)
    assert Deviation.of(expected, expected).snr_db is None


def test_values_that_overflow_are_counted_and_left_out() -> None:
    expected = np.array([1e6, -2.0, np.inf, np.nan])
    deviation = Deviation.of(np.array([np.inf, -2.5, np.inf, np.nan]), expected)
    assert deviation == Deviation(0.5, 0.25, 4.0, 1)
    assert deviation.with_more(deviation).overflowed == 2


def test_the_debugger_shows_real_numbers_and_does_not_compare_them(network: tuple[Path, dict[str, Array]]) -> None:
    program = tw.compile(network[0], "bm1684x", overrides={"precision": "f16"})
    assert program.graph is not None
    shapes = {name: program.graph.tensors[name].shape for name in program.graph.inputs}
    values = {name: np.random.default_rng(SEED).normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    session = program.debug({name: value[None] for name, value in values.items()})
    assert obey(session, "differs")[0].startswith("no code differs from the reference; real numbers are not compared")
    session.end()
    name = session.walk.tensors[-1]
    expected = session._launches.golden[name][0]
    shown = session.read(f"'{name}'")
    assert shown.dtype == np.float32
    np.testing.assert_allclose(shown, expected, atol=0.05 * np.abs(expected).max())
    assert obey(session, f"show '{name}' real")[0].startswith(f"'{name}': float32")
