"""CPU seconds of `import tilewright` and of what follows first, beside `import numpy`: median of 20 processes each.

    python bench/import_time.py [--json]

`import tilewright` imports its modules when they are first used. The third row therefore uses three of its names.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from statistics import median

RUNS = 20
#: At most so many seconds above numpy.
LIMIT = 0.05
STATEMENTS = {
    "import numpy": "import numpy",
    "import tilewright": "import tilewright",
    "load, compile, run": "import tilewright as tw; tw.load, tw.compile, tw.run",
    "tilewright --version": "from tilewright.cli import main; main(['--version'])",
}


def cpu_seconds(statement: str) -> float:
    """Return the CPU seconds of a Python process that runs a statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(RUNS):  # in turns: the computer may become busy
        for name, statement in STATEMENTS.items():
            times[name].append(cpu_seconds(statement))
    found = {name: median(seconds) for name, seconds in times.items()}
    above = found["import tilewright"] - found["import numpy"]
    if "--json" in sys.argv:
        print(json.dumps({"median_cpu_seconds": found, "above_numpy": above, "limit": LIMIT}))
    else:
        for name, seconds in found.items():
            print(f"{name:22}{seconds:8.3f} s")
        print(f"import tilewright is {above:+.3f} s beside numpy; the limit is {LIMIT} s")
    return int(above > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
