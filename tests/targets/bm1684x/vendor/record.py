"""Write random_calls/digests.txt from the vendor's model: `python -m tests.targets.bm1684x.vendor.record [FAMILY ..]`.

Each line is the digest of what a chunk of random calls changes, the chunk's number and length, and the family. A line
is written only if our side gives the same; the others are printed. Lines of families that are not given stay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.targets.bm1684x.random_calls.digest import digest, text
from tests.targets.bm1684x.random_calls.families import FAMILIES, calls
from tests.targets.bm1684x.random_calls.ours import Ours
from tests.targets.bm1684x.random_calls.table import CHUNKS, TABLE, Line, lines
from tests.targets.bm1684x.vendor.sampled import settled


def recorded(ours: Ours, family: str, chunk: int, count: int) -> Line | None:
    """Return the line of a chunk, or None if our side changes something else. Then it prints how many calls differ."""
    drawn = list(calls(family, chunk, count))
    changes = [ours.changes(call) for call in drawn]
    mine = [text(call, change) for call, change in zip(drawn, changes, strict=True)]
    theirs = [text(call, change) for call, change in zip(drawn, settled(drawn, changes), strict=True)]
    wrong = sum(left != right for left, right in zip(mine, theirs, strict=True))
    print(f"{family}, chunk {chunk}: {wrong} of {count} differ, {theirs.count(b'refused')} are refused", flush=True)
    return None if wrong else Line(family, chunk, count, digest(theirs))


def main(families: Sequence[str]) -> None:
    """Write the lines of families, all of them if none is given."""
    ours, names = Ours(), list(families) or list(FAMILIES)
    counts = [recorded(ours, family, chunk, count) for family in names for chunk, count in CHUNKS]
    kept = [line for line in lines() if line.family in FAMILIES and line.family not in names]
    order = list(FAMILIES)
    table = sorted([*kept, *filter(None, counts)], key=lambda line: (line.chunk, order.index(line.family)))
    TABLE.write_text("".join(f"{line}\n" for line in table), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
