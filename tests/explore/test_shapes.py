"""Studies of ONNX files with open extents: --shape fixes them, for a study's whole life."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tilewright as tw  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.quantize.models import residual  # noqa: E402
from tilewright.cli import main  # noqa: E402
from tilewright.errors import InputError  # noqa: E402
from tilewright.explore import Space, Study, explore, study_of  # noqa: E402
from tilewright.quantize import Options, quantize  # noqa: E402

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
SPACE = Space.from_json({"keys": {"batch": [1, 2]}})


@pytest.fixture
def open_width(tmp_path: Path) -> str:
    """A quantised network whose file leaves the width of its image open."""
    given, made = tmp_path / "float.onnx", tmp_path / "wide.onnx"
    onnx.save(residual(), given)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype(np.float32))
    quantize(given, tmp_path / "x.npy", made, Options(), verify=False)
    model = onnx.load(made)
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "W"
    del model.graph.value_info[:]
    onnx.save(model, made)
    return str(made)


def test_a_shape_is_of_the_models_with_its_input_and_is_kept(open_width: str, tmp_path: Path) -> None:
    shapes = {"x": (1, 3, 8, 12)}
    study = study_of([open_width, DIGITS], "bm1684x", SPACE, shapes=shapes)
    assert [dict(model.shapes) for model in study.subject.models] == [shapes, {}]
    study.keep(tmp_path / "study")
    explore(study, grid=True)
    alone = tw.compile(tw.load(open_width, shapes), "bm1684x", study.config(study.measured[0]))
    assert study.measured[0].layers["wide"].keys() <= {node for launch in alone.launches for node in launch.nodes}
    assert study.journal
    study.journal.close()
    again = Study.open(tmp_path / "study")
    assert again.subject == study.subject
    assert again.subject.models[0].load().tensors["x"].shape == (1, 3, 8, 12)


def test_shapes_that_no_model_takes_are_refused(open_width: str) -> None:
    with pytest.raises(InputError, match="shapes: no model has an input 'y'"):
        study_of([open_width, DIGITS], "bm1684x", SPACE, shapes={"y": (1, 3), "x": (1, 3, 8, 12)})


def test_the_command_line(open_width: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["explore", open_width, "-t", "bm1684x", "--vary", "batch=1, 2", "--objective", "cycles"]
    asked += ["-o", str(tmp_path / "study")]
    assert main([*asked, "--json"]) == 2
    assert "--shape x=1,3,8,W" in capsys.readouterr().err
    assert main([*asked, "--shape", "x=1,3,8,12"]) == 0
    out = capsys.readouterr().out
    assert f"tilewright run {open_width} --shape x=1,3,8,12 -t bm1684x -c " in out
    assert main(["run", open_width, "--shape", "x=1,3,8,12", "-t", "bm1684x", "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["cycles"] > 0
    assert main(["explore", "--resume", str(tmp_path / "study"), "--shape", "x=1,3,8,12"]) == 2
    assert "give --resume alone" in capsys.readouterr().err
