"""Published int8 .tflite networks equal their framework on every machine that takes them.

None of them is part of this repository. `TILEWRIGHT_MODELS` names a folder with OWNER/REPOSITORY/PATH of each, such as
clones of the repositories; docs/models.md lists digests.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import SHARED
from tilewright import targets
from tilewright.array import Array
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.model.tflite_verify import in_tflite_micro

FOLDER = Path(os.environ.get("TILEWRIGHT_MODELS", SHARED / "public_models"))
MICRO, WAKE = "tensorflow/tflite-micro", "esphome/micro-wake-word-models/models/v2"
MODELS = {
    "hello_world": f"{MICRO}/tensorflow/lite/micro/examples/hello_world/models/hello_world_int8.tflite",
    "micro_speech": f"{MICRO}/tensorflow/lite/micro/examples/micro_speech/models/micro_speech_quantized.tflite",
    "person_detect": f"{MICRO}/tensorflow/lite/micro/models/person_detect.tflite",
    "mnist_lstm": f"{MICRO}/tensorflow/lite/micro/examples/mnist_lstm/trained_lstm_int8.tflite",
    "alexa": f"{WAKE}/alexa.tflite",
    "hey_jarvis": f"{WAKE}/hey_jarvis.tflite",
    "okay_nabu": f"{WAKE}/okay_nabu.tflite",
    "vad": f"{WAKE}/vad.tflite",
    "mobilenet_v2": f"{MICRO}/third_party/xtensa/examples/pytorch_to_tflite/mobilenet_v2_quantized_1x3x224x224.tflite",
}
#: Networks that take more than a few seconds on some machine.
LARGE = ("person_detect", "mobilenet_v2")


def found(name: str) -> Path:
    path = FOLDER / MODELS[name]
    if not path.is_file():
        pytest.skip(f"needs {MODELS[name]} in {FOLDER}: clone the repository there, or set TILEWRIGHT_MODELS")
    return path


def codes(graph: Graph, count: int) -> dict[str, Array]:
    rng = np.random.default_rng(20)
    return {name: rng.integers(-128, 128, (count, *graph.tensors[name].shape)).astype(np.int8) for name in graph.inputs}


def golden(path: Path, samples: dict[str, Array], reset: bool = False) -> dict[str, Array]:
    results = in_tflite_micro(path, samples, reset)
    if results is None:
        pytest.skip("needs tflite-micro: pip install tflite-micro")
    return results


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_equals_tflite_micro(name: str) -> None:
    graph = tw.load(path := found(name))
    samples = codes(graph, 1 if name in LARGE else 20)
    for reset in (False, True) if graph.states else (False,):
        theirs, ours = golden(path, samples, reset), reference.run(graph, samples, reset=reset)
        for output, values in theirs.items():
            np.testing.assert_array_equal(ours[output], values, f"reset={reset}")


@pytest.mark.slow
@pytest.mark.parametrize("target", targets.names())
@pytest.mark.parametrize("name", MODELS)
def test_machines_equal_tflite_micro(name: str, target: str) -> None:
    graph = tw.load(path := found(name))
    samples = codes(graph, 20)
    result = tw.compile(graph, target).run(samples)
    assert result.matches_reference and not result.findings
    for output, values in golden(path, samples).items():
        np.testing.assert_array_equal(result.outputs[output], values)


def test_a_stream_differs_from_single_samples() -> None:
    """A wake word hears more than one sample: with `reset`, it hears each alone."""
    graph = tw.load(found("vad"))
    program, samples = tw.compile(graph, "vta"), codes(graph, 6)
    stream, alone = program.run(samples), program.run(samples, reset=True)
    assert stream.matches_reference and alone.matches_reference and stream.samples == alone.samples == 6
    (name,) = graph.outputs
    assert not np.array_equal(stream.outputs[name], alone.outputs[name])
    np.testing.assert_array_equal(stream.outputs[name][:1], alone.outputs[name][:1])
