"""Measures the debugger on a network of examples/networks.py, with random weights and a random sample.

    python bench/debug.py resnet18 -t vta [--scheme pow2|affine] [--set KEY=VALUE ...] [--json]

All times are CPU seconds, which other processes change little. open: from a saved program to the first instruction of
the longest launch, its tables and times included. step, back: the median and the slowest of 200 single steps in the
middle of that launch, each with the line that the debugger prints. end: one jump to the end. far_back: from there back
by 10,000 instructions, or to the start. who: the last writer of an element of the result.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import click

import tilewright as tw
from tilewright.cli import options
from tilewright.debug.session import Session
from tilewright.debug.verbs import obey
from tilewright.model import inputs
from tilewright.program import file

NETWORKS: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("networks.py")))
FAR, STEPS = 10_000, 200


def seconds(act: Callable[[], object]) -> float:
    start = process_time()
    act()
    return process_time() - start


def measure(path: Path) -> dict[str, float | int | str]:
    """Return the figures of a saved program."""
    program = file.load(path)
    assert program.graph is not None
    values = inputs.random(program.graph).values
    lengths = [len(launch.arrays["insns"]) for launch in program.launches]
    longest = str(lengths.index(max(lengths)))
    opened: list[Session] = []

    def start() -> None:
        opened.append(Session(file.load(path), values))
        if longest != "0":
            opened[0].launch(longest)
        obey(opened[0], "where")

    found: dict[str, float | int | str] = {"open": seconds(start)}
    session = opened[0]
    count = len(session.walk.table)
    found |= {"launch": session.walk.name, "instructions": count}
    session.to(count // 2)
    for name in ("step", "back"):
        each = [seconds(lambda name=name: obey(session, name)) for _ in range(min(STEPS, count // 3))]  # type: ignore[misc]
        found |= {name: median(each), f"slowest_{name}": max(each)}
    found["end"] = seconds(session.end)
    found["far_back"] = seconds(lambda: session.back(FAR))
    session.end()
    found["who"] = seconds(lambda: session.writer(f"t{len(session.walk.tensors) - 1}"))
    return found


@click.command()
@click.argument("name")
@click.option("-t", "--target", required=True)
@click.option("--scheme", default="pow2")
@click.option("--seed", default=0)
@options.machine
@options.as_json
def main(
    name: str, target: str, scheme: str, seed: int, config: str | None, overrides: dict[str, str], as_json: bool
) -> None:
    model, _ = NETWORKS["prepare"](name, seed, scheme, NETWORKS["CACHE"])
    program = tw.compile(model, target, config, overrides, cache=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.twp"
        file.save(program, path)
        found = measure(path)
    if as_json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:14} {value:.4f}" if isinstance(value, float) else f"{key:14} {value}")


if __name__ == "__main__":
    main()
