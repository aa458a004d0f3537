"""All proofs, and faults planted in their blocks."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from tests.hdl.formal import addresses, arbiters, floats, queues, rounding
from tests.hdl.formal.bench import Proof

ALL: list[Proof] = [*queues.PROOFS, *arbiters.PROOFS, *addresses.PROOFS, *rounding.PROOFS, *floats.PROOFS]


def faults(proof: Proof, count: int, limit: int) -> Iterator[tuple[str, str]]:
    """Plant up to `count` faults in the block, one at a time. Yield each, and why the proof fails ("": it holds).

    A question about a fault may take `limit` milliseconds. The proof still holds where a fault changes nothing, such as
    a bit that is cut off.
    """
    design = proof.design
    kinds = design.faults()
    rng = np.random.default_rng(crc32(proof.block.encode()))
    for place in rng.permutation(len(kinds))[:count].tolist():
        kind, number = kinds[place]
        node = design.nodes[number]
        yield f"{kind} of {node.op} {number}", proof.check(design.faulty(kind, number), limit).why
