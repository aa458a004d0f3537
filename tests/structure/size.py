"""Print the lines of Python in each room of src/tilewright, beside those of another commit: `python -m .. [REV]`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import PurePosixPath

ROOT = "src/tilewright"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def room(path: str) -> str:
    """The folder that a file counts for: two levels below targets, one elsewhere."""
    parts = PurePosixPath(path).relative_to(ROOT).parts
    depth = 3 if parts[0] == "targets" else 1
    return "/".join(parts[:-1][:depth]) or "(top)"


def lines(revision: str | None) -> Counter[str]:
    """Lines by room: of a commit, or (None) of the work tree."""
    found: Counter[str] = Counter()
    if revision is None:
        for path in git("ls-files", "--cached", "--others", "--exclude-standard", f"{ROOT}/*.py").split():
            try:
                with open(path, encoding="utf-8") as file:  # noqa: PTH123
                    found[room(path)] += sum(1 for _ in file)
            except FileNotFoundError:  # removed, not yet committed
                continue
        return found
    for line in git("grep", "-c", "", revision, "--", f"{ROOT}/*.py").splitlines():
        _, path, count = line.split(":")
        found[room(path)] += int(count)
    return found


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else "main"
    known = subprocess.run(["git", "rev-parse", "--quiet", "--verify", revision], capture_output=True, check=False)
    before, now = lines(revision) if known.returncode == 0 else Counter[str](), lines(None)
    rows = [*((name, before[name], now[name]) for name in sorted(before | now)), ("all", before.total(), now.total())]
    print(f"{'room':<36}{revision[:12]:>12}{'now':>8}{'change':>8}")
    for name, old, new in rows:
        print(f"{name:<36}{old:>12,}{new:>8,}{new - old:>+8,}")


if __name__ == "__main__":
    main()
