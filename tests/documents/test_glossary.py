"""The glossary defines every cause of cycles that a machine can have, from the definitions that the targets declare."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

import tilewright as tw
from docs import glossary
from tests.conftest import ROOT
from tilewright import targets
from tilewright.model import inputs
from tilewright.report import record
from tilewright.report.summary import Summary
from tilewright.run import Defines
from tilewright.sim.causes import NAMES
from tilewright.targets.bm1684x.isa.elaborate import ENGINES
from tilewright.targets.cfu.runtime.execute import CATEGORIES
from tilewright.targets.cfu.timing.state import Cause
from tilewright.targets.zynq.config import STORES

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
#: Machines beside the default one whose traces have other causes.
MACHINES = {
    "vta": [{"stages": "4", "alu": "fused"}],
    "zynq": [{"frames": "2", "weight_bits": "16", "result_bits": "16", "block_bits": "11", "relayout": "1"}],
}
#: Causes in `waits` of every trace, which a machine without fetches or without DRAM port does not have.
SHARED = {"", "instruction fetch"}


def definitions(name: str) -> dict[str, str]:
    target = targets.get(name)
    assert isinstance(target, Defines), f"{name} declares no causes"
    return {cause: str(text) for cause, text in target.causes.items()}


def shown(name: str, overrides: dict[str, str]) -> set[str]:
    """Return all names of causes that a run of the digits shows, or can show, on a machine."""
    program = tw.compile(DIGITS, name, overrides=overrides)
    result = program.run(inputs.random(tw.load(DIGITS), count=1).values)
    saved = record.of(Summary(result, "random")).run
    names = {cause for layer in saved["summary"]["layers"] for cause in (*layer["causes"], *layer["stalls"])}
    for launch, trace in zip(saved["launches"], result.trace.values(), strict=True):
        names |= set(launch["waits"]) - SHARED
        if trace.path:
            names |= set(trace.kinds()[0])
    return names


@pytest.mark.parametrize("name", targets.names())
def test_every_cause_of_a_run_is_defined(name: str) -> None:
    for overrides in [{}, *MACHINES.get(name, [])]:
        assert not shown(name, overrides) - definitions(name).keys(), f"{name} {overrides}"


def test_causes_that_the_digits_do_not_have_are_defined() -> None:
    """Names that follow from the declarations of the machines."""
    assert definitions("vta").keys() >= set(NAMES)
    assert definitions("bm1684x").keys() >= {*ENGINES, *(f"{a}->{b} token" for a, b in permutations(ENGINES, 2))}
    assert definitions("zynq").keys() >= {f"{store} blocks" for store in STORES}
    assert definitions("cfu").keys() >= {*CATEGORIES, *(cause.name.lower() for cause in Cause)}


def test_a_missing_cause_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.get("zynq")
    assert isinstance(target, Defines)
    less = {cause: text for cause, text in target.causes.items() if cause != "weight blocks"}
    monkeypatch.setattr(type(target), "causes", less)
    assert shown("zynq", {}) - definitions("zynq").keys() == {"weight blocks"}


def test_the_page_has_every_definition() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert glossary.page(text) == text, "python -m docs.glossary writes the page anew"
    for name in targets.names():
        assert f"### {name}\n" in text
        for cause in definitions(name):
            assert f"`{cause}`" in text.partition(f"### {name}\n")[2], f"{name}: {cause}"


def test_a_definition_is_one_sentence_and_one_remedy() -> None:
    for name in targets.names():
        target = targets.get(name)
        assert isinstance(target, Defines)
        for cause, (means, remedy) in target.causes.items():
            for text in (means, remedy):
                assert text.endswith(".") and len(text) <= 120, f"{name}: {cause}: {text}"
                assert text[0].isupper(), f"{name}: {cause}: {text}"


def test_terms_are_defined_once() -> None:
    """A person who searches for one of these terms finds it defined in one place."""
    headings = ("utilisation", "bound", "serial", "optimal", "stall", "energy")
    for page in Path(ROOT / "docs").rglob("*.md"):
        lines = page.read_text(encoding="utf-8").lower().splitlines()
        for term in headings:
            count = lines.count(f"### {term}") + lines.count(f"**{term}**")
            assert count == (page.name == "glossary.md"), f"{page}: {term} is defined {count} times"


def test_words_of_the_code_have_one_meaning() -> None:
    """A word stands in one row; a class of this name is defined once outside of targets, and its room exists."""
    source = ROOT / "src" / "tilewright"
    section = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Words of the code")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    words = [word for row in rows for word in row[0].split(" (")[0].split(", ")]
    assert not {word for word in words if words.count(word) > 1}
    shared = [path.read_text(encoding="utf-8") for path in source.rglob("*.py") if "targets" not in path.parts]
    for row in rows:
        room = row[2].strip("`") if len(row) > 2 else ""
        assert (source / room).is_dir(), f"{row[0]}: there is no room {room}"
        for name in re.findall(r"`([A-Z]\w+)`", row[0]):
            count = sum(len(re.findall(rf"^class {name}\b", text, re.M)) for text in shared)
            assert count == 1, f"{name} is the name of {count} classes"
