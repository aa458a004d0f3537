"""ONNX models through the command line: run, compile, exec, explain; inputs in the model's own layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.model.onnx_nets import Net, answer
from tilewright.cli import main


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, str]:
    """A small int8 network with a real input and output, and its input's name."""
    net = Net(4, np.int8)
    x = net.quantized(net.input((1, 3, 8, 8)), low=0.01, high=0.02)
    w = net.weights((8, 3, 3, 3))
    a = net.quantized(net.op("Relu", net.op("Conv", x, w, net.bias(x, w), pads=[1, 1, 1, 1])), zero=-128)
    b = net.quantized(net.op("GlobalAveragePool", a))
    w = net.weights((5, 8))
    y = net.op("Gemm", net.op("Reshape", b, net.const([1, 8])), w, transB=1)
    path = net.save(tmp_path / "net.onnx", net.quantized(y))
    return path, next(iter(net.inputs))


def test_run_compile_exec_and_explain(
    model: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name = model
    x = np.random.default_rng(1).standard_normal((3, 1, 3, 8, 8)).astype(np.float32)
    golden = np.stack([sample[0] for sample in answer(path, {name: x})])
    np.savez(tmp_path / "x.npz", inputs=x)
    np.save(tmp_path / "x.npy", x[:, 0])
    program = str(tmp_path / "net.twp")
    assert main(["compile", str(path), "-t", "vta", "-o", program]) == 0
    capsys.readouterr()
    for number, (command, source) in enumerate(
        (
            (["run", str(path), "-t", "vta"], "x.npz"),
            (["run", str(path), "-t", "vta"], "x.npy"),
            (["exec", program], "x.npz"),
        )
    ):
        out = tmp_path / f"{number}.npz"
        assert main([*command, "-i", str(tmp_path / source), "-o", str(out), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["rounding"], report["matches_reference"], report["hazards"]) == ("ort", True, 0)
        where = {layer["op"]: layer["where"] for layer in report["layers"]}
        assert where["conv2d"] == where["fully_connected"] == "vta"
        with np.load(out) as archive:
            np.testing.assert_array_equal(archive["outputs"].reshape(golden.shape), golden)
    assert main(["explain", str(path), "-t", "vta"]) == 0
    assert "conv2d" in capsys.readouterr().out


def test_rounding_may_be_overridden(model: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model[0]), "-t", "vta", "--rounding", "tflm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounding"] == "tflm"


def test_codes_of_a_type_that_vta_does_not_hold_stay_on_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Net(4, np.uint8)
    path = net.save(
        tmp_path / "u.onnx",
        net.quantized(net.op("Conv", net.quantized(net.input((1, 3, 8, 8))), net.weights((4, 3, 3, 3)))),
    )
    assert main(["run", str(path), "-t", "vta", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["matches_reference"]


@pytest.mark.parametrize("command", ["run", "compile", "explain"])
def test_a_float_model_is_told_how_to_become_int8(
    command: str, model: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Net(4)
    w = net.const(np.ones((4, 3, 3, 3)), np.float32)
    path = str(net.save(tmp_path / "f.onnx", net.op("Conv", net.input((1, 3, 8, 8)), w)))
    rest = ["-o", str(tmp_path / "f.twp")] if command == "compile" else []
    assert main([command, path, "-t", "vta", *rest]) == 0
    told = capsys.readouterr().err
    assert f"tilewright quantize {path} --calibration DATA" in told
    assert "100% of its MACs" in told
    assert main([command, str(model[0]), "-t", "vta", *rest]) == 0
    assert "tilewright quantize" not in capsys.readouterr().err
