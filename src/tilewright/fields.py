"""Parse untrusted JSON and TOML files within limits, and check their values against declared types.

Types are declared by annotations: a scalar, a Literal, a tuple, list or mapping of types, a union, a dataclass or named
tuple, or a number with a range, such as `Annotated[int, Range(1, 64)]`. An error names the file and the field, the
reason and the remedy.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from tilewright.errors import SHOWN, InputError, ProgramError, TilewrightError, one_of, printable, shown
from tilewright.files import regular

#: Limits of a file: its bytes, the digits of an integer, and the nested levels of lists and objects.
MAX_BYTES = 1 << 25
DIGITS = 20
DEPTH = 100
_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NAMES: dict[Any, str] = {
    **{int: "an integer", float: "a number", str: "a text", bool: "true or false"},
    **dict.fromkeys((dict, Mapping), "an object"),
    **dict.fromkeys((list, tuple, Sequence), "a list"),
}
_hints = cache(get_type_hints)


class Range(NamedTuple):
    """The limits of a number, for Annotated."""

    low: float
    high: float = inf


class Open(NamedTuple):
    """The type of a JSON object with declared keys and any other keys. Declared keys in `absent` are optional."""

    hints: Mapping[str, Any]
    absent: Mapping[str, Any] = MappingProxyType({})


class FieldError(ProgramError):
    """A value that does not have the declared type. `naming` replaces this error by an error that names the file."""


def read(path: str | Path, error: type[TilewrightError] = InputError, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file, or the tables in a .toml file. Raises `error` for other content."""
    path = regular(path, error)
    with naming(path, error, remedy):
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise FieldError("", f"is larger than {MAX_BYTES >> 20} MiB")
        form = "TOML" if path.suffix == ".toml" else "JSON"
        try:
            data = tomllib.loads(content.decode()) if form == "TOML" else parsed(content)
        except (ValueError, RecursionError) as cause:
            raise FieldError("", f"cannot be read as {form}: {cause}", remedy) from None
        if not isinstance(data, dict):
            raise FieldError("", "is not a JSON object", remedy)
        return data


@contextmanager
def naming(path: str | Path, error: type[TilewrightError], remedy: str = "") -> Iterator[None]:
    """Run a `with` block. Raises `error`, naming the file, instead of a FieldError. `remedy` is a default remedy."""
    try:
        yield
    except FieldError as cause:
        where = f"{path}: {cause.where}" if cause.where else str(path)
        raise error(where, cause.reason, cause.remedy or remedy) from None
    except OSError as cause:
        raise error(path, f"cannot be read: {cause.strerror or cause}", remedy) from None


def parsed(content: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for any other text, and for valid JSON that few programs can read: a number that is not finite or
    has more than DIGITS digits, a repeated name in an object, half of a surrogate pair, or more than DEPTH levels.
    """
    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    # Calling a function for each integer is slow, so `_integer` is used only if the text has a long number.
    whole = _integer if re.search(rf"\d{{{DIGITS}}}", text) else None
    try:
        value = json.loads(
            text, parse_int=whole, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique
        )
        if _depth(text) > DEPTH:
            raise RecursionError
    except RecursionError:
        raise ValueError(f"it has more than {DEPTH} levels") from None
    if re.search(r"\\u[dD][89a-fA-F]", text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half of a surrogate pair, which is no character") from None
    return value


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text[:DIGITS]} is not a finite number")
    return value


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a number has {len(text)} digits; at most {DIGITS} are possible")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {shown(max(names, key=names.count))} occurs twice in an object")
    return values


def _depth(text: str) -> int:
    # Remove escaped quotes, and split at the others: parts 0, 2, 4 .. lie outside of strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2]).encode()
    brackets = np.frombuffer(outside.translate(None, _BRACKETS), np.uint8)
    # ASCII bit 2 is set in ] and }, and clear in [ and {: an opening bracket adds 1, a closing bracket subtracts 1.
    return int(np.cumsum(1 - (brackets & 4).astype(np.int64) // 2).max(initial=0))


def types(kind: Any) -> dict[str, Any]:
    hints = _hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)} if is_dataclass(kind) else hints


def defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass as {field: default}, without the fields that have no default."""
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def decode(hint: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to the declared type `hint`. A list or dict without element types is returned unchanged.

    Raises FieldError, naming `where`, if the value does not have this type.
    """
    if hint is Any:
        return value
    if isinstance(hint, Open):
        declared = {key: value[key] for key in hint.hints if key in value} if isinstance(value, Mapping) else value
        return record(hint.hints, declared, where, hint.absent)
    if isinstance(hint, type) and (is_dataclass(hint) or (issubclass(hint, tuple) and hint is not tuple)):
        return hint(**record(types(hint), value, where))
    origin = get_origin(hint)
    args = get_args(hint)
    if origin is Annotated:
        return _in_range(decode(args[0], value, where), args[1], where)
    if origin in (Union, UnionType):
        return _one_of(args, value, where)
    if origin is Literal:
        # In Python, 1 == 1.0 == True, so the types must be equal, too.
        if any(type(value) is type(arg) and value == arg for arg in args):
            return value
        raise FieldError(where, f"is {shown(value)}", one_of(value, args))
    if origin in (tuple, list, Sequence) and type(value) in (list, tuple):
        # A tuple without an ellipsis has one type for each element. Otherwise, all elements have the first type.
        hints = args if origin is tuple and args[-1] is not Ellipsis else args[:1] * len(value)
        if len(hints) == len(value):
            parts = [decode(h, v, f"{where}[{i}]") for i, (h, v) in enumerate(zip(hints, value, strict=True))]
            return tuple(parts) if origin is tuple else parts
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {key: decode(args[1], item, f"{where}.{printable(key[:SHOWN])}") for key, item in value.items()}
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    # JSON writers may write 1.0 as 1; a float holds integers below 2**53 exactly.
    if hint is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if type(value) is hint and (hint is not float or isfinite(value)):
        return value
    raise FieldError(where, f"is {shown(value)}, not {_wanted(hint)}")


def record(
    hints: Mapping[str, Any], value: Any, where: str, absent: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Decode an object with the keys of `hints` (`absent`: defaults). Raises FieldError for other keys or values."""
    if not isinstance(value, Mapping):
        raise FieldError(where, f"is {shown(value)}, not an object")
    if missing := hints.keys() - absent.keys() - value.keys():
        raise FieldError(where, f"lacks '{min(missing)}'")
    if unknown := [name for name in value if name not in hints]:
        raise FieldError(where, f"has {shown(unknown[0])}, which is unknown", one_of(unknown[0], hints))
    inner = f"{where}." if where else ""
    return {
        name: decode(hint, value[name], inner + name) if name in value else absent[name] for name, hint in hints.items()
    }


def _in_range(value: Any, limits: Range, where: str) -> Any:
    if not limits.low <= value <= limits.high:
        least = f"at least {limits.low:,}" if limits.high == inf else f"{limits.low:,} to {limits.high:,}"
        raise FieldError(where, f"is {shown(value)}; it must be {least}")
    return value


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and NoneType in hints:
        return None
    *earlier, last = (hint for hint in hints if hint is not NoneType)
    for hint in earlier:
        with suppress(FieldError):
            return decode(hint, value, where)
    try:
        return decode(last, value, where)
    except FieldError as error:
        if not earlier:
            raise  # the type is `X | None`, and the error about X has more details
        wanted = " or ".join(map(_wanted, (*earlier, last)))
        raise FieldError(where, f"is {shown(value)}, not {wanted}", error.remedy) from None


def _wanted(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind is Annotated:
        return _wanted(get_args(hint)[0])
    return _NAMES.get(kind) or ("one of its words" if kind is Literal else str(hint))
