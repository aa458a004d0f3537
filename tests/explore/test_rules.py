"""Rules of a study: what they allow, and that nothing else of Python is reached."""

from __future__ import annotations

import pytest

from tilewright.errors import InputError
from tilewright.explore.trial import Rule, Value
from tilewright.expressions import LONGEST

VALUES: dict[str, Value] = {"dsp": 220, "kib": 256.5, "alu": "fused", "LOG": 4}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("dsp <= 220", True),
        ("dsp < 220", False),
        ("0 < LOG < 5", True),
        ("0 < LOG < 4", False),
        ("alu == 'fused' and kib <= 300", True),
        ("alu != 'fused' or kib < 256", False),
        ("not dsp > 100", False),
        ("2 ** LOG == 16", True),
        ("-dsp + 3 * LOG // 5 % 2 < 0", True),
        ("dsp / LOG == 55", True),
    ],
)
def test_expressions(text: str, holds: bool) -> None:
    assert Rule(text).holds(VALUES) is holds


def test_names() -> None:
    assert Rule("dsp <= 220 and alu == 'fused'").names == {"dsp", "alu"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "dsp.real < 3",
        "[x for x in (1,)]",
        "(lambda: 1)()",
        "dsp <=",
        "x := 3",
        "dsp if LOG else 3",
        "b'a' == dsp",
        "dsp << 3 < 2",
        "dsp in alu",
        "(" * 300,
        "1" * (LONGEST + 1),
    ],
)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(InputError, match=r"rule has|expression|not allowed|cannot be computed"):
        Rule(text).holds(VALUES)


@pytest.mark.parametrize("text", ["nothing < 3", "alu < 3", "dsp / 0 < 1", "2 ** dsp < 1", "'a' * dsp == 'a'"])
def test_what_cannot_be_computed(text: str) -> None:
    with pytest.raises(InputError, match=r"^where"):
        Rule(text).holds(VALUES)
