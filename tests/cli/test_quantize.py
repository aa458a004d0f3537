"""The command quantize: a table, JSON, and one line for what cannot be quantised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import ModelProto, helper  # noqa: E402

from tests.quantize.models import model, residual, samples, save  # noqa: E402
from tilewright.cli import main  # noqa: E402
from tilewright.install import hint  # noqa: E402

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments MODEL --calibration DATA, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    path, data = save(tmp_path, residual(), samples())
    return ["quantize", path, "--calibration", data]


def test_the_table_names_layers_shifts_and_the_file(files: list[str], capsys: Capture) -> None:
    assert main([*files, "--scheme", "pow2"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert out.isascii()
    for text in ("layer", "SNR dB", "conv0", "Conv+Relu", "2^-", "output        scores: SNR ", "m_pow2.onnx"):
        assert text in out
    assert onnx.load("m_pow2.onnx").metadata_props[0].value == "pow2"


def test_json_has_every_field(files: list[str], capsys: Capture) -> None:
    assert main([*files, "--json", "-o", "out.onnx", "--activations", "uint8", "--method", "percentile"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out)
    assert (found["scheme"], found["method"], found["activations"]) == ("affine", "percentile", "uint8")
    assert (found["samples"], found["output"]) == (16, "out.onnx")
    assert set(found["layers"][0]) == {"name", "op", "tensor", "scale", "shift", "snr_db", "exact"}
    assert found["outputs"][0]["snr_db"] > 20
    assert set(found["top1"]) == {"agreement", "float", "quantised"}
    assert found["host"] == []


def test_the_same_command_writes_the_same_file(files: list[str]) -> None:
    for scheme in ("pow2", "affine"):
        for name in ("a.onnx", "b.onnx"):
            assert main([*files, "--scheme", scheme, "-o", name, "--json"]) == 0
        assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_a_free_batch_is_one(files: list[str], tmp_path: Path) -> None:
    save(tmp_path, residual(batch="N"), samples())
    assert main([*files, "-o", "out.onnx"]) == 0
    shape = onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in shape] == [1, 3, 8, 8]


def _custom() -> ModelProto:
    made = residual()
    made.graph.node[2].domain = "my.ops"
    made.opset_import.append(helper.make_opsetid("my.ops", 1))
    return made


def _without_weights() -> ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], {}, [1, 4], {"y": [1, 4]})


def _free_width() -> ModelProto:
    made = residual()
    made.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "W"
    return made


def _half() -> ModelProto:
    made = residual()
    made.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return made


def _not_finite() -> ModelProto:
    made = residual()
    raw = bytearray(made.graph.initializer[0].raw_data)
    raw[:4] = b"\0\0\x80\x7f"  # float32 infinity
    made.graph.initializer[0].raw_data = bytes(raw)
    return made


BAD_MODELS: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "custom operator": (_custom, "is my.ops::"),
    "nothing to quantise": (_without_weights, "has nothing to quantise"),
    "free width": (
        _free_width,
        "input 'x': has the open extent 'W' at axis 3; give a number for it: --shape x=1,3,8,W",
    ),
    "infinite weight": (_not_finite, "constant 'w0': holds NaN or infinity"),
    "half precision": (_half, "FLOAT16"),
}


def refused(arguments: list[str], capsys: Capture, said: str) -> None:
    capsys.readouterr()
    before = set(Path.cwd().iterdir())
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("tilewright: ")
    assert err.count("\n") == 1
    assert said in err
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(("make", "said"), BAD_MODELS.values(), ids=BAD_MODELS.keys())
def test_models_that_cannot_be_quantised(
    files: list[str], capsys: Capture, make: Callable[[], ModelProto], said: str
) -> None:
    onnx.save(make(), "m.onnx")
    refused(files, capsys, said)


@pytest.mark.parametrize("scheme", ["affine", "pow2"])
def test_a_quantised_model_is_refused(files: list[str], capsys: Capture, scheme: str) -> None:
    assert main([*files, "--scheme", scheme, "-o", "q.onnx"]) == 0
    refused(["quantize", "q.onnx", *files[2:]], capsys, "q.onnx: is already quantised: node '")


def test_another_dialect_of_quantised_models_is_named(files: list[str], capsys: Capture, shared: Path) -> None:
    model = shared / "onnx_models" / "deeploy_requantshift" / "KeywordSpotting" / "network.onnx"
    refused(["quantize", str(model), *files[2:]], capsys, "is already quantised: node '")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x08", bytes(100), b"\x3a\x00"])
def test_what_is_no_onnx_file(files: list[str], capsys: Capture, content: bytes) -> None:
    Path("m.onnx").write_bytes(content)
    refused(files, capsys, "m.onnx: is not a")


def test_data_that_does_not_fit(files: list[str], capsys: Capture) -> None:
    np.save("x.npy", np.zeros((4, 3, 9, 9), np.float32))
    refused(files, capsys, "has the shape [4, 3, 9, 9]")
    np.save("x.npy", np.full((4, 3, 8, 8), np.nan, np.float32))
    refused(files, capsys, "holds NaN")
    refused([*files[:2], "--calibration", "missing"], capsys, "missing: is not a file")
    refused(files[:2], capsys, "Missing option '--calibration'")
    refused(["quantize", "missing.onnx", *files[2:]], capsys, "missing.onnx: is not a file")
    refused([*files, "--scheme", "pow2", "--activations", "uint8"], capsys, "are not for the scheme pow2")
    refused([*files, "--mean", "a,b"], capsys, "'a,b' is not a number")


def test_without_the_packages_it_says_what_to_install(
    files: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.quantize.find_spec", lambda name: None)
    refused(files, capsys, f"needs onnx and onnxruntime; {hint('onnx')}")


def test_names_that_are_not_text_are_refused(tmp_path: Path, capfd: Capture) -> None:
    model, data = save(tmp_path, residual(1), samples(1))
    content = Path(model).read_bytes()
    Path(model).write_bytes(content.replace(b"GlobalAveragePool", b"GlobalAverage\xff\xfe\xfd\xfc"))
    assert main(["quantize", model, "--calibration", data, "-o", str(tmp_path / "o.onnx")]) == 2
    assert "is not a valid ONNX model" in capfd.readouterr().err
