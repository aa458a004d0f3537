"""The text form: what is written comes back, and errors name the word."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.errors import ProgramError
from tilewright.program import listing
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.words import NAME, QUOTED, Word, WordType, choice, number


def shout(words: Sequence[Word]) -> str:
    if not words[0].text.isalpha():
        words[0].refuse("letters")
    return " ".join(word.text for word in words).upper()


GRAMMAR = Grammar(
    {
        ".part": Directive(
            {"name": NAME, "kind": choice(["rom", "ram"])},
            {"at": number("#x"), "size": number()},
            required=("at",),
            unique=True,
            data=lambda values: values.get("size") if values["kind"] == "rom" else 0,
        ),
        ".list": Directive({"name": QUOTED}, more=number()),
        ".code": Directive(code=shout),
        ".more": Directive(code=shout),
    },
    launch={"version": number()},
)
TEXT = """\
.launch a 3
.part x rom at=0x10 size=40
000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
zero 8
.part "b c" ram at=0x0
.list "y" 1 2 3
.code
add x
"""


def parts() -> Text:
    (found,) = GRAMMAR.read(TEXT)
    return found


def test_what_a_text_says() -> None:
    found = parts()
    assert (found.name, found.values) == ("a", {"version": 3})
    first, second = found.of(".part")
    assert first.values == {"name": "x", "kind": "rom", "at": 16, "size": 40}
    assert (first.data, second.values["name"]) == (bytes(range(32)) + bytes(8), "b c")
    assert found.of(".list")[0].values == {"name": "y", "more": [1, 2, 3]}
    assert found.code(".code") == ["ADD X"]


def test_what_is_read_is_written_again() -> None:
    found = parts()
    for section in found.sections:
        section.code = [line.lower() for line in section.code]
    assert GRAMMAR.write(found) == TEXT


def test_bytes_and_code_take_turns() -> None:
    """Code goes on behind bytes that are complete, and behind directives that hold nothing."""
    (found,) = GRAMMAR.read(".launch a 1\n.code\none\n.part x rom at=0 size=1\n07\ntwo\n.list z\nthree\n.more\nfour\n")
    assert (found.code(".code"), found.code(".more")) == (["ONE", "TWO", "THREE"], ["FOUR"])
    assert found.data(".part") == b"\7"


def test_comments_stand_anywhere_but_in_quotes() -> None:
    (found,) = GRAMMAR.read('# c\n.launch "a#b" 1 # c\n.part x rom at=1 #\n00 # c\n 01 02\n')
    assert (found.name, found.data(".part")) == ("a#b", b"\0\1\2")


@pytest.mark.parametrize("name", ["plain", "a b", "a#b", 'a"b', "é", "", "a\\b", "\ud800"])
@pytest.mark.parametrize("kind", [NAME, QUOTED])
def test_any_name_comes_back(name: str, kind: WordType) -> None:
    grammar = Grammar({}, name=kind)
    assert [text.name for text in grammar.read(grammar.write(Text(name)))] == [name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("add", "line 1, column 1: found 'add'; expected .launch before everything else"),
        (".launch a", "line 1, column 9: found 'a'; expected a version after it"),
        (".launch a 1 2", "line 1, column 13: found '2'; expected the end of the line"),
        (".launch a x", "line 1, column 11: found 'x'; expected a number, decimal or 0x.."),
        (".launch a 1\n.launch a 1", "line 2, column 9: found 'a'; expected a name that is not taken"),
        (".launch a 1\n .odd", "line 2, column 2: found '.odd'; expected one of .launch, .part, .list, .code, .more"),
        (".launch a 1\nadd", "line 2, column 1: found 'add'; expected one of .launch"),
        (".launch a 1\n.part x rim at=0", "line 2, column 9: found 'rim'; expected one of rom, ram"),
        (".launch a 1\n.part x rom size=1", "line 2, column 13: found 'size=1'; expected at= after it"),
        (".launch a 1\n.part x rom at=0 at=1", "line 2, column 18: found 'at=1'; expected at only once"),
        (".launch a 1\n.part x rom at=0 in=1", "line 2, column 18: found 'in=1'; expected at=, size="),
        (".launch a 1\n.part x ram at=0\n00", "line 3, column 1: found '00'; expected a directive: 'x' has no bytes"),
        (".launch a 1\n.part x rom at=0 size=1\n00 0", "line 3, column 4: found '0'; expected bytes of two hex"),
        (".launch a 1\n.part x rom at=0 size=1\n0000", "line 3, column 1: found '0000'; expected at most 1 more"),
        (".launch a 1\n.part x rom at=0 size=1\nzero 2", "line 3, column 6: found '2'; expected 0..0x1"),
        (".launch a 1\n.code\n 7", "line 3, column 2: found '7'; expected letters"),
    ],
)
def test_errors_name_the_word(text: str, said: str) -> None:
    with pytest.raises(ProgramError) as raised:
        GRAMMAR.read(text)
    assert str(raised.value).startswith(said)


def test_zeros_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text cannot ask for more memory than MAX_BYTES, in all its sections together."""
    monkeypatch.setattr(listing, "MAX_BYTES", 10)
    given = ".launch a 1\n.part x rom at=0\nzero 6\n.part y rom at=9"
    with pytest.raises(ProgramError, match=r"line 5, column 6: found '5'; expected 0\.\.0x4"):
        GRAMMAR.read(f"{given}\nzero 5")
    with pytest.raises(ProgramError, match=r"found '5'; expected 0\.\.0x4"):
        GRAMMAR.read(f"{given} size=5")


def test_a_section_without_directive_is_what_follows_alone() -> None:
    assert GRAMMAR.write(Text("a", {"version": 1}, [Section("", code=["x", "y"])])) == ".launch a 1\nx\ny\n"
