"""Every measured result in README.md and docs/ is a claim that can be repeated (docs/claims.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from docs import claims
from tests.conftest import ROOT
from tests.documents.commands import commands, wrong

#: Pages whose results are not marked yet. It stays empty.
EXEMPT: set[str] = set()
PAGES = [path for path in claims.pages() if path.relative_to(ROOT).as_posix() not in EXEMPT]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_result_is_a_claim(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [f"line {part.line} states {part.states}" for part in claims.unmarked(text)]
    assert not found, f"{page}: {found}; mark it (docs/claims.py says how)"


def test_markers_and_claims_belong_together() -> None:
    known, marked = claims.read(), set[str]()
    for page in claims.pages():
        marked |= set(claims.marks(page.read_text(encoding="utf-8")))
    assert not marked - known.keys(), "markers without a claim in docs/claims.toml"
    assert not known.keys() - marked, "claims in docs/claims.toml that no page states"


def test_values_are_those_of_the_pages() -> None:
    """A value that an expression finds stands in a page that states the claim."""
    texts: dict[str, str] = {}
    for page in claims.pages():
        text = page.read_text(encoding="utf-8")
        for name in claims.marks(text):
            texts[name] = texts.get(name, "") + text.replace(",", "")
    for name, claim in claims.read().items():
        numbers = [value.replace(",", "") for value in claim.value.split(", ")] if claim.find else []
        for number in numbers if name in texts else []:
            assert number == "passed" or re.search(rf"(?<!\d){re.escape(number)}(?!\d)", texts[name]), (
                f"{name}: {number}"
            )


def test_claims_are_complete() -> None:
    for name, claim in claims.read().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert claim.claim and claim.command and claim.value.strip("?") and claim.minutes > 0, name
        assert re.fullmatch(r"[0-9a-f]{7,10}", claim.commit), f"{name}: {claim.commit} is no commit"
        assert set(claim.needs) <= claims.NEEDS.keys(), name
        assert re.compile(claim.find).groups == bool(claim.find), f"{name}: `find` has one group"
        lines = re.split(r"&&|;| do ", claim.command)
        found = [reason for line in lines for words in commands(line) if (reason := wrong(words))]
        assert not found, f"{name}: {found}"
        assert "/home/" not in claim.command and "/work/" not in claim.command, name
        for file in re.findall(r"(?:bench|tests|docs|examples)/[\w./-]+\.\w+", claim.command):
            assert (ROOT / file).exists() or "/digits_cnn" in file, f"{name}: there is no {file}"


def test_the_page_is_that_of_the_script() -> None:
    assert claims.page() == claims.PAGE.read_text(encoding="utf-8"), "python -m docs.claims writes the page"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The digits take 5,329 cycles.", 1),
        ("<!-- claim: digits-vta -->\n\nThe digits take 5,329 cycles.\n\nOthers 6 million cycles.", 1),
        ("The digits take 5,329 cycles. <!-- claim: digits-vta -->", 0),
        ("- 3 % less\n- it is 2.5 times as fast <!-- not measured: a rule -->", 0),
        ("## A\n\n<!-- claim section: a -->\n\n1 ms\n\n2 ms\n\n## B\n\n3 ms", 1),
        ("| network | cycles |\n|---|---|\n| a | 12,345 |", 1),
        ("<!-- claim: a -->\n\n| network | cycles |\n|---|---|\n| a | 12,345 |", 0),
        ("| key | meaning |\n|---|---|\n| a | 12 |", 0),
        ("    $ tilewright run x\n    time  5,329 cycles", 1),
        ("The option `--limit 10 s` and version 1.2 of 16 samples in table 3", 0),
    ],
)
def test_an_unmarked_result_is_noticed(text: str, count: int) -> None:
    assert len(list(claims.unmarked(text))) == count


def test_a_value_that_differs_is_noticed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def one(**changes: object) -> Mapping[str, claims.Claim]:
        fields = {"claim": "a", "command": "echo 12 cycles", "minutes": 0.1, "value": "12", "commit": "0"}
        return {"a": claims.Claim(**{**fields, "find": r"(\d+) cycles", **changes})}  # type: ignore[arg-type]

    for changes, differ in (
        ({}, 0),
        ({"value": "13"}, 1),
        ({"value": "13", "margin": 10}, 0),
        ({"command": "false"}, 1),
    ):
        monkeypatch.setattr(claims, "read", lambda changes=changes: one(**changes))
        assert claims.check(["a"]) == differ
    assert "stated: 13" in capsys.readouterr().out


@pytest.mark.slow
def test_quick_claims_hold() -> None:
    assert claims.check([]) == 0
