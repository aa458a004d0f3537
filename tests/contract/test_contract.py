"""What every target promises (tilewright/contract.py), checked for each that is found."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import contract, targets
from tilewright.errors import InputError

DIGITS = ROOT / "examples" / "digits"


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("name", targets.names())
def test_contract(name: str, check: contract.Check) -> None:
    check(targets.get(name))


@pytest.mark.parametrize("name", targets.names())
def test_a_trained_network_is_exact(name: str) -> None:
    with np.load(DIGITS / "samples.npz") as archive:
        codes, labels = archive["inputs"], archive["labels"]
    result = tw.compile(DIGITS / "digits.tflite", target=name).run(codes)
    assert (result.matches_reference, result.findings) == (True, ())
    (scores,) = result.outputs.values()
    assert (scores.reshape(len(codes), -1).argmax(1) == labels).sum() == 99


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="vta"):
        targets.get("nothing")
