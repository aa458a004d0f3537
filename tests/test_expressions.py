"""Small expressions: what each form allows, what they give, and that nothing else of Python is reached."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.expressions import BITS, DEEPEST, REAL, Expression, Form, FormError

RULES = Form(REAL, (int, float, str))
CONDITIONS = Form(BITS, (int, str), places=True)
NAMES: dict[str, Any] = {"n": 5, "half": 0.5, "unit": "load"}
PLACES = {"acc[37, 0]": 7, "dram.out[ 3 ]": 2}


def value(text: str, form: Form = RULES) -> Any:
    return Expression(text, form).value(NAMES.__getitem__, PLACES.__getitem__)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("n + 2", 7),
        ("n - 2", 3),
        ("n * 2", 10),
        ("n // 2", 2),
        ("n % 3", 2),
        ("n / 2", 2.5),
        ("n ** 2", 25),
        ("2 ** 64", 1 << 64),
        ("-n + half", -4.5),
        ("0.25", 0.25),
        (" 'a' ", "a"),
        ("n < 5", False),
        ("n <= 5", True),
        ("n > 5", False),
        ("n >= 5", True),
        ("n == 5", True),
        ("n != 5", False),
        ("4 < n < 6", True),
        ("4 < n < 5", False),
        ("5 < n < 6", False),
        ("not n", False),
        ("n and 0", False),
        ("n and half", True),
        ("0 or n", True),
        ("0 or 0", False),
        ("unit == 'load'", True),
    ],
)
def test_real_numbers(text: str, result: object) -> None:
    found = value(text)
    assert found == result and type(found) is type(result)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("n & 4", 4),
        ("n | 2", 7),
        ("n ^ 1", 4),
        ("n >> 1", 2),
        ("acc[37, 0] - dram.out[ 3 ]", 5),
        ("acc[37, 0] > n", True),
    ],
)
def test_bits_and_places(text: str, result: int) -> None:
    assert value(text, CONDITIONS) == result


def test_names_are_those_that_are_read_in_any_part() -> None:
    assert Expression("a + -b < c and not d or 1", RULES).names == {"a", "b", "c", "d"}
    assert Expression("acc[n] > 1", CONDITIONS).names == set()


@pytest.mark.parametrize(
    ("text", "form", "part"),
    [
        ("n << 1", CONDITIONS, "n << 1"),
        ("n & 1", RULES, "n & 1"),
        ("n / 2", CONDITIONS, "n / 2"),
        ("n ** 2", CONDITIONS, "n ** 2"),
        ("1 + f(n)", RULES, "f(n)"),
        ("n in unit", RULES, "n in unit"),
        ("n < 3 is n", RULES, "n < 3 is n"),
        ("~n", RULES, "~n"),
        ("acc[3] < 1", RULES, "acc[3]"),
        ("0.5 < n", CONDITIONS, "0.5"),
        ("b'a'", RULES, "b'a'"),
        ("n if n else 1", RULES, "n if n else 1"),
    ],
)
def test_a_part_that_the_form_does_not_allow_is_named(text: str, form: Form, part: str) -> None:
    with pytest.raises(FormError) as caught:
        Expression(text, form)
    assert str(caught.value) == f"'{part}' is not allowed"


@pytest.mark.parametrize("text", ["", "n <", "(" * 300, "n := 3", "\0", "-" * 20000 + "n"])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(SyntaxError):
        Expression(text, RULES)


def test_the_depth_is_limited() -> None:
    assert value("-" * DEEPEST + "n") == 5 * (-1) ** DEEPEST
    with pytest.raises(FormError, match="nested too deeply"):
        Expression("-" * (DEEPEST + 1) + "n", RULES)


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("unit * 2", TypeError, "'load' is not a number"),
        ("2 * unit", TypeError, "'load' is not a number"),
        ("-unit", TypeError, "'load' is not a number"),
        ("unit < 3", TypeError, "not supported"),
        ("n / 0", ZeroDivisionError, "division by zero"),
        ("2 ** 65", ArithmeticError, "the exponent 65 is above 64"),
        ("2 ** -65", ArithmeticError, "the exponent -65 is above 64"),
    ],
)
def test_values_that_do_not_fit(text: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        value(text)
