"""Faults in Verilog: a design with many of them, of which an environment variable selects one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

VARIABLE = "TILEWRIGHT_TEST_FAULT"
#: An assignment in the Verilog that Yosys writes.
ASSIGNMENT = re.compile(r"^(\s+assign \S.*? = )(.+);$", re.MULTILINE)
#: A fault: what to look for in an expression, and its replacement.
KINDS = (
    (" == ", " != "),
    (" != ", " == "),
    (" + ", " - "),
    (" - ", " + "),
    (" & ", " | "),
    (" | ", " & "),
    (" && ", " || "),
    ("1'h1", "1'h0"),
    ("1'h0", "1'h1"),
    ("", ""),  # the lowest bit is inverted
)
#: The number of the selected fault, read when a model is made.
SELECTED = (
    f"\n  reg [31:0] selected_fault;\n"
    f'  initial selected_fault = $c32("atoi(getenv(\\"{VARIABLE}\\") ? getenv(\\"{VARIABLE}\\") : \\"0\\")");\n'
)


def faulty(files: Mapping[str, str], rng: np.random.Generator, count: int) -> tuple[dict[str, str], list[str]]:
    """Return the files with `count` faults, and a text about each: fault 1 is the first; 0 selects none."""
    places = [
        (name, match.start(), match[1], match[2], kind)
        for name, text in files.items()
        for match in ASSIGNMENT.finditer(text)
        for kind in KINDS
        if kind[0] in match[2] and "signed" not in match[2]
    ]
    chosen, taken = list[tuple[str, int, str, str, tuple[str, str]]](), set[tuple[str, int]]()
    for number in rng.permutation(len(places)).tolist():
        if len(chosen) < count and (places[number][:2] not in taken):
            chosen.append(places[number])
            taken.add(places[number][:2])
    mutated, told = dict(files), list[str]()
    for name in files:
        text = files[name]
        mine = sorted((place for place in enumerate(chosen, 1) if place[1][0] == name), key=lambda place: -place[1][1])
        for number, (_, start, left, right, (old, new)) in mine:
            wrong = right.replace(old, new, 1) if old else f"({right}) ^ 1'h1"
            line = f"{left}selected_fault == {number} ? ({wrong}) : ({right});"
            text = text[:start] + line + text[start + len(left) + len(right) + 1 :]
        if mine:
            head = re.search(r"^module .*?\);$", text, re.MULTILINE | re.DOTALL)
            assert head is not None
            text = text[: head.end()] + SELECTED + text[head.end() :]
        mutated[name] = text
    for name, _, left, right, (old, new) in chosen:
        told.append(f"{name}: {left.strip()} {right}: {old!r} -> {new!r}")
    return mutated, told


@contextmanager
def selected(number: int) -> Iterator[None]:
    os.environ[VARIABLE] = str(number)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
