"""Trained networks keep what they were trained for: float and quantised outputs on real images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort

from tilewright.quantize import Options, quantize

Images = Callable[[Path], Any]


def channels_first(images: Any, scale: Any, shift: Any, bgr: bool = False) -> Any:
    images = images[..., ::-1] if bgr else images
    return ((images.astype(np.float32) + np.float32(shift)) * np.float32(scale)).transpose(0, 3, 1, 2)


def archive(path: Path, name: str) -> Any:
    with np.load(path) as held:
        found = held[name]
    return found if found.ndim == 4 else found[None]


#: Model, its samples, and the least SNR of any output in dB, for affine and pow2: some 2 dB below what was measured.
MODELS: dict[str, tuple[str, Images, float, float]] = {
    "mobilenetv2": (
        "mobilenetv2_05_128/mobilenet_v2_128_0.5_fp32.onnx",
        lambda shared: channels_first(archive(shared / "mobilenetv2_05_128/golden.npz", "images_u8"), 2 / 255, -127.5),
        38,
        22,
    ),
    "ultraface": (
        "ultraface_rfb320/ultraface_rfb320_fp32.onnx",
        lambda shared: channels_first(archive(shared / "ultraface_rfb320/golden.npz", "image_u8"), 1 / 128, -127),
        43,
        36,
    ),
    "yunet": (
        "yunet_n_320/yunet_n_320_fp32.onnx",
        lambda shared: channels_first(archive(shared / "yunet_n_320/golden.npz", "image_bgr_u8"), 1, 0),
        20,
        15,
    ),
}


@pytest.mark.parametrize("scheme", ["affine", pytest.param("pow2", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [name if name == "mobilenetv2" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_outputs_stay_close(shared: Path, tmp_path: Path, name: str, scheme: str) -> None:
    file, images, affine, pow2 = MODELS[name]
    np.save(tmp_path / "x.npy", images(shared / "onnx_models"))
    report = quantize(shared / "onnx_models" / file, tmp_path / "x.npy", tmp_path / "q.onnx", Options(scheme))
    assert min(row.snr_db for row in report.fidelity.outputs) > (affine if scheme == "affine" else pow2)
    ort.InferenceSession(str(tmp_path / "q.onnx"))  # with all of its optimisations


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["affine", "pow2"])
def test_squeezenet_names_the_same_things(shared: Path, tmp_path: Path, scheme: str) -> None:
    folder = shared / "onnx_models" / "squeezenet1.0"
    with np.load(folder / "images_u8_rgb_224.npz") as held:
        images, labels = held["images"], held["labels"]
    data = channels_first(images, 1, (-104, -117, -123), bgr=True)
    np.savez(tmp_path / "x.npz", inputs=data, labels=labels)
    report = quantize(folder / "squeezenet1.0_fp32.onnx", tmp_path / "x.npz", tmp_path / "q.onnx", Options(scheme))
    top1 = report.fidelity.top1
    assert top1 is not None
    assert top1.agreement == 1
    assert top1.accuracy == top1.float_accuracy == 0.75  # the fish's label is not certain
    assert report.fidelity.outputs[0].snr_db > (27 if scheme == "affine" else 24)
    session = ort.InferenceSession(str(tmp_path / "q.onnx"))
    with np.load(folder / "golden_outputs.npz") as held:
        golden = held["fp32"].argmax(-1)
    found = [session.run(None, {session.get_inputs()[0].name: x[None]})[0].argmax() for x in data]
    assert np.array_equal(found, golden)
