"""Run the fuzzer: one line for each kind of file, and one for each case that fails."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.fuzz.kinds import KINDS
from tests.fuzz.run import cases

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} [all]")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--first", type=int, default=0, help="the number of the first case")
parser.add_argument("--count", type=int, default=20, help="cases of each kind")
given = parser.parse_args()
failed = 0
with TemporaryDirectory() as folder:
    begin = perf_counter()
    for kind, result in cases(given.kinds or list(KINDS), given.seed, given.first, given.count, Path(folder)):
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(result.statuses.items()))
        print(f"{kind.name}: tried {given.count}, failed {len(result.failures)} (status {statuses})", end=" ")
        print(f"in {perf_counter() - begin:.1f} s", *result.failures, sep="\n  ", flush=True)
        failed += len(result.failures)
        begin = perf_counter()
sys.exit(bool(failed))
