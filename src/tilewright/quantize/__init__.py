"""Quantises float ONNX and .tflite models to int8: docs/quantize.md.

The scheme `affine` is onnxruntime's quantiser. `symmetric` is `affine` without zero points, and with one scale for the
weights of a layer. `tflm` is `affine` with the integer arithmetic of TensorFlow Lite Micro. `pow2` needs only shifts.

`tflite_nodes.py` and `tflite_float.py` convert a .tflite file to ONNX. `model.py` reads and prepares the float model.
`samples.py` has the samples and the options, `memory.py` has the memory limit, and `names.py` makes names for new
nodes. `affine.py` runs onnxruntime's quantiser. `pow2/` is a separate quantiser: `plan.py` selects the nodes that run
in integers, `scales.py` chooses the scales, and `emit.py` writes the model. `report.py` compares the result with the
float model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.array import Array
from tilewright.errors import InputError, ModelError, UnsupportedError
from tilewright.graph.ir import Pixels
from tilewright.install import hint
from tilewright.quantize.samples import RESIDUALS, SCHEMES, Options, Progress

if TYPE_CHECKING:
    from tilewright.model.verification import Verification
    from tilewright.quantize.report import Report

__all__ = ["RESIDUALS", "SCHEMES", "Options", "Pixels", "Progress", "quantize", "require"]


def require() -> None:
    """Raises InputError if a package that reads or runs ONNX models is not installed."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise InputError("quantize", f"needs {' and '.join(missing)}", hint("onnx"))


def quantize(
    model: str | Path,
    calibration: str | Path,
    output: str | Path,
    options: Options | None = None,
    evaluation: str | Path | None = None,
    labels: str | Path | None = None,
    progress: Progress | None = None,
    verify: bool = True,
) -> Report:
    """Quantise a float model, write it to `output`, and measure it on `evaluation` (default: the calibration samples).

    `labels` is a file with the true classes of the evaluation samples. `verify` imports the written file, as `run`
    does, and compares its outputs with onnxruntime on the first samples. Raises InputError if an option, a file or a
    sample is wrong, ModelError if the model is malformed, and UnsupportedError if the scheme cannot quantise the model.
    """
    require()
    options = options or Options()
    options.check()
    from tilewright.files import replacing
    from tilewright.model.onnx_file import PIXELS
    from tilewright.quantize import affine, memory, pow2, report, samples
    from tilewright.quantize import model as models
    from tilewright.quantize.pow2.emit import exact

    original = models.read(model, options.shapes, options.until)
    inputs = models.signature(original)
    calibrating = samples.read(calibration, inputs, options.pixels, None if evaluation else labels)
    measuring = samples.read(evaluation, inputs, options.pixels, labels) if evaluation else calibrating
    memory.check_total(original, str(model), calibrating.count, options.method)
    unbounded = models.unbounded(original, samples.feeds(calibrating))
    task = samples.Task(original, calibrating, options, progress, unbounded)
    pow2_result = pow2.quantize(task) if options.scheme == "pow2" else None
    quantised = pow2_result.model if pow2_result else affine.quantize(task)
    # onnxruntime would round ties of a pow2 model to even. `exact` converts the model so that onnxruntime computes with
    # the rounding of the scheme.
    evaluated = exact(quantised) if pow2_result else quantised
    if options.pixels is not None:
        quantised.metadata_props.add(key=PIXELS, value=json.dumps(asdict(options.pixels)))
    fidelity = report.compare(original, quantised, evaluated, measuring, progress)
    with replacing(output) as file:
        file.write(quantised.SerializeToString())
    in_float32 = report.float_nodes(original, quantised, pow2_result)
    shifts = report.shifts_of(pow2_result) if pow2_result else {}
    verification = _verified(Path(output), measuring.values) if verify else None
    sources = calibrating.source, measuring.source
    return report.Report(str(model), str(output), options, *sources, fidelity, shifts, in_float32, verification)


def _verified(output: Path, samples: Mapping[str, Array]) -> Verification:
    """Compare the outputs that Tilewright and onnxruntime compute from the written file."""
    from tilewright.model import load, verify
    from tilewright.model.verification import Verification

    try:
        return verify(output, load(output), samples)
    except (ModelError, UnsupportedError) as error:
        return Verification("onnxruntime", reason=f"Tilewright does not read the file: {error}")
