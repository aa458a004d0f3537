"""What `run` and `exec` take as inputs: folders, prepared images, labels, names of classes; how it reports scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.model.onnx_nets import onnx, onnxruntime
from tilewright.cli import main

Capture = pytest.CaptureFixture[str]
MEAN, STD = (10.0, 20.0, 30.0), (50.0, 60.0, 70.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A float network that scores 6 classes of an image of 4x6 pixels, in B, G, R."""
    generator = np.random.default_rng(3)
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    arrays = {"w": generator.standard_normal((4, 3, 3, 3)), "v": generator.standard_normal((96, 6))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", real, ["N", 3, 4, 6])]
    outputs = [helper.make_tensor_value_info("y", real, ["N", 6])]
    constants = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in arrays.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    generator = np.random.default_rng(4)
    for index in range(3):
        Image.fromarray(generator.integers(0, 256, (4, 6, 3), np.uint8)).save(tmp_path / "images" / f"{index}.png")
    return tmp_path / "images"


def prepared(folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The images of the folder as the network takes them, by NumPy alone: (3, 1, 3, 4, 6)."""
    images = [np.asarray(Image.open(path)).astype(np.float32)[..., ::-1] for path in sorted(folder.iterdir())]
    made = [
        ((image - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(2, 0, 1)[None] for image in images
    ]
    return np.stack(made)


HOW = ["--mean", "10,20,30", "--std", "50,60,70", "--bgr"]


def test_the_quantised_file_keeps_how_images_are_prepared(
    model: Path, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    made = tmp_path / "q.onnx"
    assert main(["quantize", str(model), "--calibration", str(folder), *HOW, "-o", str(made)]) == 0
    np.save(tmp_path / "x.npy", prepared(folder))
    program, found = tmp_path / "q.twp", []
    assert main(["compile", str(made), "-t", "vta", "-o", str(program)]) == 0
    capsys.readouterr()
    for command in (["run", str(made), "-t", "vta"], ["exec", str(program)]):
        for source in (folder, tmp_path / "x.npy"):
            out = tmp_path / "out.npz"
            assert main([*command, "-i", str(source), "-o", str(out), "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["matches_reference"]
            found.append(np.load(out)["outputs"])
    assert len({each.tobytes() for each in found}) == 1
    # Options replace what the file says.
    assert main(["run", str(made), "-t", "vta", "-i", str(folder), "--mean", "0", "-o", str(out), "--json"]) == 0
    assert not np.array_equal(np.load(out)["outputs"], found[0])


def test_scores_labels_and_names(model: Path, folder: Path, tmp_path: Path, capsys: Capture) -> None:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    scores = np.stack([session.run(None, {"x": sample})[0][0] for sample in prepared(folder)])
    order = np.argsort(-scores, 1)
    labels = [int(order[0, 0]), int(order[1, 3]), int(order[2, 5])]  # right, in the top 5, not in it
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels)))
    (tmp_path / "names.txt").write_text("\n".join(f"class{index}" for index in range(6)))
    files = ["--labels", str(tmp_path / "labels.txt"), "--class-names", str(tmp_path / "names.txt")]
    command = ["run", str(model), "-t", "vta", "-i", str(folder), *HOW, *files]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["correct"], found["correct_in_top"]) == (3, 1, 2)
    assert [[entry["class"] for entry in best] for best in found["top"]] == order[:, :5].tolist()
    np.testing.assert_allclose(found["top"][0][0]["score"], scores[0].max(), rtol=1e-5)
    assert found["top"][0][0]["name"] == f"class{order[0, 0]}"
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"{order[0, 0]} (class{order[0, 0]})" in out
    assert "2 of 3 among the best 5" in out
    assert main([*command, "--samples", "2", "--json"]) == 0  # labels of the first two
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["correct"], found["correct_in_top"]) == (2, 1, 2)


def test_inputs_that_are_refused(model: Path, folder: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "labels.txt").write_text("1 2")
    (tmp_path / "one.txt").write_bytes(b"\xff\xfe")
    command = ["run", str(model), "-t", "vta"]
    for arguments, said in (
        (["-i", str(folder)], "does not tell how the model's pixels were prepared"),
        (["-i", str(folder), *HOW, "--labels", str(tmp_path / "labels.txt")], "give 3 integers, one per sample"),
        (["--labels", str(tmp_path / "labels.txt")], "--labels: needs samples"),
        (["-i", str(folder), "--std", "0"], "--std: is zero"),
        (["-i", str(folder), "--mean", "1,2"], "--mean: has 2 numbers"),
        (["--class-names", str(tmp_path / "one.txt")], "is not UTF-8 text"),
    ):
        assert main([*command, *arguments]) == 2, said
        assert said in capsys.readouterr().err


def test_several_random_samples(model: Path, capsys: Capture) -> None:
    assert main(["run", str(model), "-t", "vta", "--samples", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 5
