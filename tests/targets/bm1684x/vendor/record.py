"""Write random_calls/digests.txt from the vendor's model: `python -m tests.targets.bm1684x.vendor.record`.

Each line is the digest of what a chunk of random calls changes, the chunk's number and length, and the family. A line
is written only if our side gives the same; the others are printed.
"""

from __future__ import annotations

from tests.targets.bm1684x.random_calls.digest import digest, text
from tests.targets.bm1684x.random_calls.families import FAMILIES, calls
from tests.targets.bm1684x.random_calls.ours import Ours
from tests.targets.bm1684x.random_calls.table import CHUNKS, TABLE, Line
from tests.targets.bm1684x.vendor.sampled import results


def main() -> None:
    """Write the table, line by line."""
    ours = Ours()
    with TABLE.open("w", encoding="utf-8") as file:
        for chunk, count in CHUNKS:
            for family in FAMILIES:
                made = list(calls(family, chunk, count))
                theirs = [text(call, found) for call, found in zip(made, results(made), strict=True)]
                mine = [text(call, ours.changes(call)) for call in made]
                wrong = sum(one != other for one, other in zip(mine, theirs, strict=True))
                if wrong:
                    print(f"{family}, chunk {chunk}: {wrong} of {count} differ", flush=True)
                else:
                    print(Line(family, chunk, count, digest(theirs)), file=file, flush=True)


if __name__ == "__main__":
    main()
