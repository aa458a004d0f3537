"""The solver proves each block, and stops to do so when a fault is planted in the block."""

from __future__ import annotations

import pytest

pytest.importorskip("bitwuzla", reason="needs the SMT solver bitwuzla (extra test)")

from tests.hdl.formal.bench import Proof
from tests.hdl.formal.proofs import ALL, faults

CASES = [pytest.param(proof, id=proof.block, marks=[pytest.mark.slow] if proof.slow else []) for proof in ALL]
#: Faults to try for each block, until a proof fails: some change nothing.
TRIES = 8
#: Milliseconds for a question about a fault.
LIMIT = 400


@pytest.mark.parametrize("proof", CASES)
def test_the_block_is_proved_and_a_planted_fault_makes_its_proof_fail(proof: Proof) -> None:
    outcome, _ = proof.run()
    assert not outcome.why, f"{proof.block}: {outcome.why}\n{outcome.trace}"
    assert any(why not in ("", "no answer") for _, why in faults(proof, TRIES, LIMIT)), (
        f"{proof.block}: no fault is noticed"
    )
