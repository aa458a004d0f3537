"""Print the table of proofs: `python -m tests.hdl.formal [PATTERN]`. The pattern selects blocks."""

from __future__ import annotations

import re
import sys

from tests.hdl.formal.proofs import ALL, faults


def main(pattern: str = "") -> None:
    proofs = [proof for proof in ALL if re.search(pattern, proof.block)]
    held = planted = failed = 0
    print("| block | properties | method | seconds | faults |\n|---|---|---|---|---|")
    for proof in proofs:
        outcome, seconds = proof.run()
        tried = list(faults(proof, 20, 10_000))
        noticed = sum(why not in ("", "no answer") for _, why in tried)
        held += not outcome.why
        planted += len(tried)
        failed += noticed
        method = f"{proof.method.__name__}, {proof.depth}"
        note = f" **{outcome.why}**" if outcome.why else ""
        print(
            f"| {proof.block} | {proof.properties}{note} | {method} | {seconds:.2f} | {noticed} of {len(tried)} |",
            flush=True,
        )
    print(f"\n{held} of {len(proofs)} proofs hold. {failed} of {planted} faults make a proof fail.")


main(*sys.argv[1:2])
