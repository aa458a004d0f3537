"""Write tests/long.txt, the tests that `make quick` leaves out, from the output of `pytest --durations=0` on stdin."""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONG = Path(__file__).resolve().parents[1] / "long.txt"
#: Seconds that the slowest case of a test may take in the quick tier.
LIMIT = 0.3
LINE = re.compile(r"\s*([\d.]+)s (?:call|setup|teardown)\s+([^\s\[]+)(\S*)")


def main() -> None:
    cases: dict[tuple[str, str], float] = {}
    for line in sys.stdin:
        if found := LINE.match(line):
            seconds, test, case = found.groups()
            cases[test, case] = cases.get((test, case), 0) + float(seconds)
    long = sorted({test for (test, _), seconds in cases.items() if seconds > LIMIT})
    first = f"# Tests that take more than {LIMIT} s, by function; made by tests/structure/tiers.py."
    LONG.write_text("\n".join([first, *long]) + "\n", encoding="utf-8")
    print(f"{len(long)} of {len({test for test, _ in cases})} tests are long")


if __name__ == "__main__":
    main()
