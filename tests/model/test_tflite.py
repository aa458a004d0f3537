"""The .tflite reader: quantisation kept exactly, and one clear error for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tflite

from tests.mlperf import FILES, model_path, samples
from tilewright.errors import InputError, ModelError, TilewrightError, UnsupportedError
from tilewright.graph import reference
from tilewright.graph.rounding import Requant, quantize_multiplier
from tilewright.model import load


@pytest.mark.parametrize("key", FILES)
def test_tensors_and_multipliers_equal_the_parsed_golden(shared: Path, key: str) -> None:
    graph = load(model_path(shared, key))
    golden = json.loads((shared / "mlperf_tiny" / key / "graph.json").read_text())
    assert len(graph.nodes) == len(golden["ops"])
    assert sum(site.node.op.macs(site) for site in graph.sites()) == golden["total_macs"]
    for site, op in zip(graph.sites(), golden["ops"], strict=True):
        stored = golden["tensors"][op["outputs"][0]]
        quant = site.output.quant
        assert quant is not None
        assert list(site.output.shape) == stored["shape"]
        assert [np.float32(s) for s in quant.scale] == [np.float32(s) for s in stored["scale"]]
        assert list(quant.zero_point) == stored["zero_point"]
        assert site.node.op.macs(site) == op["macs"]
        if op["macs"]:
            requant = Requant.of_product(site.input(0), site.input(1), site.output, "none")
            q, shift = quantize_multiplier(requant.real)
            assert q.tolist() == op["requant"]["multiplier"]
            assert shift.tolist() == op["requant"]["shift"]


# The last bytes of the file are padding.
def test_truncated_at_every_length_is_one_error(shared: Path, tmp_path: Path) -> None:
    content = model_path(shared, "ad").read_bytes()
    lengths = np.unique(np.concatenate([np.arange(64), np.linspace(64, len(content) - 8, 150).astype(int)]))
    for length in lengths:
        path = tmp_path / "cut.tflite"
        path.write_bytes(content[:length])
        with pytest.raises(TilewrightError, match=r"cut\.tflite"):
            load(path)


@pytest.mark.parametrize("key", [pytest.param(key, marks=[pytest.mark.slow] * (key == "vww")) for key in FILES])
def test_mutated_files_load_or_are_refused(shared: Path, tmp_path: Path, key: str) -> None:
    """Random damage: whatever still loads must still run. Nothing but TilewrightError may come out."""
    content = model_path(shared, key).read_bytes()
    inputs = samples(shared, key)["inputs"][:1]
    seed = 20261121
    rng = np.random.default_rng(seed)
    loaded = 0
    for trial in range(60):
        damaged = np.frombuffer(content, np.uint8).copy()
        # Tables lie at the end of the file in these models, weights in front: damage both.
        span = len(content) if trial % 2 else min(len(content), 20_000)
        at = len(content) - 1 - rng.integers(0, span, rng.integers(1, 8))
        damaged[at] = rng.integers(0, 256, len(at))
        path = tmp_path / "mutated.tflite"
        path.write_bytes(damaged.tobytes())
        try:
            reference.run(load(path), inputs)
            loaded += 1
        except TilewrightError as error:
            assert "\n" not in str(error), f"seed {seed}, trial {trial}"
    assert loaded > 5  # damaged weights alone are a legal model: the test reaches both sides


def test_not_a_model(tmp_path: Path) -> None:
    for name, content, kind in (
        ("x.tflite", b"", ModelError),
        ("x.tflite", b"\0" * 100, ModelError),
        ("x.txt", b"hello", ModelError),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(kind):
            load(path)
    with pytest.raises(InputError, match="not a file"):
        load(tmp_path / "absent.tflite")


def test_unknown_operator_is_named(shared: Path, tmp_path: Path) -> None:
    """Rewrite SOFTMAX (25) as LSTM (16) in the operator codes."""
    content = bytearray(model_path(shared, "ic").read_bytes())
    model = tflite.Model.GetRootAs(content, 0)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.DeprecatedBuiltinCode() == tflite.BuiltinOperator.SOFTMAX:
            for field in (4, 10):
                at = code._tab.Offset(field)
                if at:
                    content[code._tab.Pos + at] = tflite.BuiltinOperator.LSTM
    path = tmp_path / "lstm.tflite"
    path.write_bytes(bytes(content))
    with pytest.raises(UnsupportedError, match="LSTM is not supported"):
        load(path)
