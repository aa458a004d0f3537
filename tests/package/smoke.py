"""Use an installed Tilewright as its documentation says, in an empty folder: `python smoke.py`.

It needs the core package only. It must not import from a checkout, and every run must equal the reference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: The targets that the core package runs alone.
TARGETS = ("vta", "cfu", "zynq", "bm1684x", "gemmini")
DIGITS = "examples/digits"


def tilewright(*arguments: str) -> str:
    """Return what a command prints. Exits if it fails."""
    done = subprocess.run([sys.executable, "-m", "tilewright", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tilewright {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    folder = tempfile.mkdtemp(prefix="tilewright-smoke-")
    os.chdir(folder)
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(Path(folder, "cache"))
    about = json.loads(tilewright("doctor", "--json"))
    if about["origin"].startswith("checkout") and "--checkout" not in sys.argv:
        sys.exit(f"this is not an installed package but a {about['origin']}")
    tilewright("examples", "copy", "examples")
    for target in TARGETS:
        inputs = ("-t", target, "-i", f"{DIGITS}/samples.npz")
        found = json.loads(tilewright("run", f"{DIGITS}/digits.tflite", *inputs, "--json"))
        if found["hazards"] or not found["matches_reference"]:
            sys.exit(f"{target}: {found['hazards']} hazards, matches_reference {found['matches_reference']}")
        print(f"{target}: {found['cycles']} cycles, exact")
    for shell in ("bash", "zsh", "fish"):
        tilewright("completion", shell)
    demo = subprocess.run([sys.executable, "examples/demo.py"], capture_output=True, text=True, check=False)
    if demo.returncode or "race in conv2d_3" not in demo.stdout or not Path("demo.html").exists():
        sys.exit(f"examples/demo.py: status {demo.returncode}\n{demo.stdout}{demo.stderr}")
    tilewright("new-target", "npu")
    print(f"Tilewright {about['tilewright']} works on Python {about['python']} ({about['origin']})")


if __name__ == "__main__":
    main()
