"""Parts of ONNX files: classifiers as scikit-learn's converter writes them, with a label and a sequence of maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.cli import main
from tilewright.errors import InputError, UnsupportedError
from tilewright.model import load

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
ML = "ai.onnx.ml"
SAMPLES = np.random.default_rng(46).normal(size=(8, 1, 4)).astype(np.float32)


def classifier(path: Path) -> Path:
    """A network of two layers; its classes are strings."""
    random = np.random.default_rng(3)
    weights = {"w": (4, 16), "b": (1, 16), "v": (16, 3), "c": (1, 3)}
    held = [onnx.numpy_helper.from_array(random.normal(size=s).astype(np.float32), n) for n, s in weights.items()]
    held.append(onnx.helper.make_tensor("classes", onnx.TensorProto.STRING, [3], [b"setosa", b"versicolor", b"x"]))
    nodes = [
        node("MatMul", ["X", "w"], ["h0"]),
        node("Add", ["h0", "b"], ["h1"]),
        node("Relu", ["h1"], ["h"]),
        node("MatMul", ["h", "v"], ["s0"]),
        node("Add", ["s0", "c"], ["scores"]),
        node("Softmax", ["scores"], ["probabilities"], axis=-1),
        node("ArgMax", ["probabilities"], ["place"], axis=1),
        node("ArrayFeatureExtractor", ["classes", "place"], ["names"], domain=ML),
        node("Reshape", ["names", "flat"], ["output_label"]),
        node("ZipMap", ["probabilities"], ["output_probability"], domain=ML, classlabels_int64s=[0, 1, 2]),
    ]
    held.append(onnx.numpy_helper.from_array(np.array([-1]), "flat"))
    kind = onnx.helper.make_map_type_proto(onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(1, []))
    maps = onnx.helper.make_value_info("output_probability", onnx.helper.make_sequence_type_proto(kind))
    ends = [value("X", 1, ["N", 4])], [value("output_label", onnx.TensorProto.STRING, ["N"]), maps]
    graph = onnx.helper.make_graph(nodes, "mlp", *ends, held)
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid(ML, 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def by_onnxruntime(path: Path, name: str) -> Array:
    model = onnx.load(path)
    model.graph.output.add().name = name
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([name], {"X": sample})[0] for sample in SAMPLES])


def test_a_part_runs_as_the_whole_does(tmp_path: Path) -> None:
    path, samples = classifier(tmp_path / "mlp.onnx"), tmp_path / "x.npy"
    np.save(samples, SAMPLES)
    for name in ("probabilities", "scores", "place"):
        arguments = ["run", str(path), "-t", "vta", "--until", name, "-i", str(samples), "-o", str(tmp_path / "y.npz")]
        assert main([*arguments, "--verify"]) == 0
        with np.load(tmp_path / "y.npz") as made:
            found: Any = next(iter(made.values()))
        np.testing.assert_allclose(found.reshape(by_onnxruntime(path, name).shape), by_onnxruntime(path, name), 1e-5)
    assert load(path, until=("scores", "h")).outputs == ("scores", "h")


@pytest.mark.parametrize("scheme", ["affine", "symmetric", "tflm", "pow2"])
def test_a_part_is_quantised(scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, samples, made = classifier(tmp_path / "mlp.onnx"), tmp_path / "x.npy", tmp_path / "q.onnx"
    np.save(samples, SAMPLES)
    options = ["--calibration", str(samples), "--scheme", scheme, "-o", str(made)]
    assert main(["quantize", str(path), *options, "--until", "probabilities"]) == 0
    assert "equals the file" in capsys.readouterr().out
    assert main(["run", str(made), "-t", "vta", "-i", str(samples), "--verify"]) == 0


def test_the_message_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = classifier(tmp_path / "mlp.onnx")
    np.save(tmp_path / "x.npy", SAMPLES)
    commands = (["run", str(path), "-t", "vta"], ["quantize", str(path), "--calibration", str(tmp_path / "x.npy")])
    for command in commands:
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "ArrayFeatureExtractor" in said
        assert "--until NAME runs the part that computes the value NAME, such as 'probabilities' or 'place'" in said
    with pytest.raises(UnsupportedError, match=r"until=\[NAME\] runs .* 'probabilities' or 'place'"):
        load(path)
    with pytest.raises(InputError, match=r"computes no value 'probabilties'.*did you mean probabilities"):
        load(path, until=["probabilties"])
