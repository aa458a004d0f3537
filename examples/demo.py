"""The first ten minutes: handwritten digits on VTA, a page of the run, and a race that is planted and found.

python examples/demo.py [PAGE.html]        # demo.html unless you name another file
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPLANATION = """How to read the table:
- A row is a layer of the network. `cycles` is its time on the machine; at 100 MHz, a cycle takes 10 ns.
- `MACs` are its multiply-accumulates; `util` is the share of the multipliers' capacity that it used in these cycles.
- `DRAM read` and `DRAM write` are the bytes that it moves from and to external memory.
- The last column says which causes most cycles go to. For a layer on the host: why VTA cannot run it.
- `reference: all outputs are equal` means that every output equals exact integer arithmetic, bit for bit."""
RACE = """VTA units run in parallel, and wait for each other by tokens. In the compiled program, we clear
one bit, so that a matrix product no longer waits for its input. Then we check the program for races:
"""
FOUND = """
Each race names both instructions, the range that both touch, and the missing token. Without it, the result depends on
which unit is faster; with it, all orders give the same result."""
NEXT = """Try next:
  {run} explain {model} -t vta
      which layers run on VTA, with which tiles, and how close each is to its lower bound
  {run} run {model} -t bm1684x -i {samples}
      the same network on a TPU with 64 lanes
  {run} doctor
      what else this computer has, and how to install the rest
The tutorials begin at {tutorials}"""


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Print what is going on, and afterwards how long it took."""
    print(f"{text} ... ", end="", flush=True)
    start = time.perf_counter()
    yield
    print(f"{time.perf_counter() - start:.1f} s", flush=True)


def command() -> str:
    """Return how the user's shell starts the command `tilewright` of this Python."""
    own = Path(sys.executable).parent / "tilewright"
    found = shutil.which("tilewright")
    return "tilewright" if not own.exists() or (found and Path(found) == own) else os.path.relpath(own)


def heading(text: str) -> None:
    print(f"\n=== {text}\n", flush=True)


def main() -> int:
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "demo.html").resolve()
    model, samples = (os.path.relpath(HERE / "digits" / name) for name in ("digits.tflite", "samples.npz"))
    tutorials = HERE.parent / "docs" / "tutorials" / "index.md"
    heading("1 of 3: a network on an accelerator")
    with progress("importing Tilewright"):
        import tilewright as tw
        from tilewright.cli import main as tilewright
        from tilewright.model import inputs
    with progress("compiling the simulator's own loops, once for each installation"):
        program = tw.compile(model, target="vta", cache=True)
        assert program.graph is not None
        program.run(inputs.random(program.graph).values)
    print(f"{command()} run {model} -t vta -i {samples} --html {os.path.relpath(page)}\n", flush=True)
    status = tilewright(["run", model, "-t", "vta", "-i", samples, "--html", str(page)])
    print(f"\n{EXPLANATION}")
    heading("2 of 3: where the cycles go")
    print(f"Open this page in a browser. It has a timeline of all instructions:\n{page.as_uri()}")
    heading("3 of 3: find a race")
    print(RACE, flush=True)
    runpy.run_path(str(HERE / "missing_token.py"))["main"]()
    print(FOUND)
    heading("Done")
    where = os.path.relpath(tutorials) if tutorials.exists() else "docs/tutorials of the repository"
    print(NEXT.format(run=command(), model=model, samples=samples, tutorials=where))
    return status


if __name__ == "__main__":
    sys.exit(main())
