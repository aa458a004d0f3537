"""VGG16 and VGG11 at 224x224, random weights, and the trained example: bit-exact, cycles as the what-if table's."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.targets.zynq.machines import whatif
from tests.targets.zynq.networks import Chain
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.timing.service import schedule


def vgg(counts: tuple[int, ...]) -> Chain:
    chain = Chain(16, (224, 224, 3))
    for width, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            chain.conv(width)
        chain.pool()
    return chain.flat().dense(4096, relu=True).dense(4096, relu=True).dense(1000)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "preset"), [((2, 2, 3, 3, 3), "repaired"), ((1, 1, 2, 2, 2), "fast")])
def test_vgg_is_exact(counts: tuple[int, ...], preset: str) -> None:
    chain = vgg(counts)
    program = tw.compile(chain.graph(), "zynq", preset, {}, "ort")
    assert [step.name for step in program.steps if step not in program.launches] == [f"n{sum(counts) + 5}"]  # flat
    result = program.run(chain.inputs(1))
    assert (result.matches_reference, result.findings) == (True, ())
    assert len(np.unique(next(iter(result.outputs.values())))) > 100
    if sum(counts) == 13:
        layers = whatif.vgg16(Config(**PRESETS[preset]))
        assert [layer.cycles for layer in result.layers if layer.cycles] == [
            schedule(image_layer).cycles for image_layer in layers
        ]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_trained_vgg_runs_wholly_on_the_engine(preset: str) -> None:
    with np.load(ROOT / "examples" / "digits" / "samples.npz") as archive:
        codes, labels = archive["inputs"], archive["labels"]
    program = tw.compile(ROOT / "examples" / "digits_vgg" / "digits_vgg.tflite", "zynq", preset)
    result = program.run(codes)
    assert (result.matches_reference, result.findings) == (True, ())
    assert {layer.op for layer in result.layers if layer.where == "host"} == {"reshape", "softmax"}
    (scores,) = result.outputs.values()
    assert (scores.reshape(len(codes), -1).argmax(1) == labels).sum() == 98


def test_the_batch_shares_fc_weights() -> None:
    """Cycles for one sample: with a batch of eight, weight blocks come once for eight."""
    chain = Chain(2, (8, 8, 4)).flat().dense(4000)
    graph, data = chain.graph(), chain.inputs(8)
    alone, together = (tw.compile(graph, "zynq", "fast", {"fc_batch": n}, "ort").run(data) for n in ("1", "8"))
    assert together.cycles < alone.cycles / 3
    assert together.layers[1].dram_read_bytes < alone.layers[1].dram_read_bytes / 3
    for name, values in alone.outputs.items():
        np.testing.assert_array_equal(together.outputs[name], values)
