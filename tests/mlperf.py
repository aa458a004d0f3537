"""The MLPerf Tiny golden data, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FILES = {
    "ic": "pretrainedResnet_quant.tflite",
    "kws": "kws_ref_model.tflite",
    "vww": "vww_96_int8.tflite",
    "ad": "ad01_int8.tflite",
}


def model_path(shared: Path, key: str) -> Path:
    return shared / "mlperf_tiny" / "models" / FILES[key]


def samples(shared: Path, key: str) -> dict[str, Any]:
    with np.load(shared / "mlperf_tiny" / key / "samples.npz") as archive:
        return dict(archive)


def layers(shared: Path, key: str) -> list[dict[str, Any]]:
    """Every stored set of intermediate tensors, in the order of the samples."""
    found = []
    for path in sorted((shared / "mlperf_tiny" / key).glob("layers_*.npz")):
        with np.load(path) as archive:
            found.append(dict(archive))
    return found
