"""Random forms of operators, and random networks of them, against onnxruntime: equal, or refused by both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.model.onnx_forms import FORMS, random_form
from tests.model.onnx_nets import Net, answer, needs_vnni
from tests.model.onnx_random import random_network
from tests.model.test_onnx_ops import extents
from tilewright.errors import TilewrightError
from tilewright.graph import reference
from tilewright.model import load

pytestmark = needs_vnni
SAMPLES = 3


def compare(net: Net, outputs: Sequence[str], path: Path) -> str:
    """'equal', or who refuses; raises AssertionError where both run and differ."""
    net.save(path, *outputs)
    inputs = {
        name: (net.rng.standard_normal((SAMPLES, *shape)) * 1.2).astype(np.float32) for name, shape in extents(net)
    }
    try:
        theirs = answer(path, inputs)
    except Exception:  # onnxruntime raises several of its own
        theirs = None
    try:
        ours = list(reference.run(load(path), inputs).values())
    except TilewrightError as error:
        assert "\n" not in str(error)
        return "refused by us" if theirs else "refused by both"
    if theirs is None:
        return "refused by onnxruntime"
    for index, found in enumerate(ours):
        golden = np.stack([sample[index] for sample in theirs])
        assert (found.dtype, found.shape) == (golden.dtype, golden.shape)
        np.testing.assert_array_equal(found, golden)
    return "equal"


def check_forms(kind: str, seeds: range, folder: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        print(kind, "seed", seed)
        counts[compare(*random_form(kind, seed), folder / "form.onnx")] += 1
    assert counts["refused by us"] == 0 and counts["equal"] >= 0.8 * len(seeds), counts


@pytest.mark.parametrize("kind", FORMS)
def test_forms_of_an_operator_equal_onnxruntime(kind: str, tmp_path: Path) -> None:
    check_forms(kind, range(6), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMS)
def test_many_forms_of_an_operator_equal_onnxruntime(kind: str, tmp_path: Path) -> None:
    check_forms(kind, range(1000, 1200), tmp_path)


def check_networks(seeds: range, folder: Path) -> None:
    for seed in seeds:
        print("network", seed)
        assert compare(*random_network(seed), folder / "network.onnx") == "equal"


def test_random_networks_equal_onnxruntime(tmp_path: Path) -> None:
    check_networks(range(30), tmp_path)


@pytest.mark.slow
def test_many_random_networks_equal_onnxruntime(tmp_path: Path) -> None:
    check_networks(range(1000, 2000), tmp_path)
