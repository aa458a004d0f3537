"""Read a schedule of the user's (schedule.py) from a file or JSON values, which are untrusted: check their form."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from tilewright.errors import SHOWN, InputError, shown
from tilewright.files import regular
from tilewright.targets.vta.schedule import TARGET, VERSION, Halvings, LayerSchedule, Schedule, Slots, Tile

#: Most bytes of a file, and the largest number in it.
BYTES, LARGEST = 1 << 24, (1 << 31) - 1
#: What the outer loop may be over, and the forms of a layer (see lowered.Lowered.form).
LOOPS, FORMS = ("space", "channels"), ("plain", "strips", "rows")
T = TypeVar("T")


def read(source: object) -> Schedule:
    """Read a file, the JSON values of one, or a Schedule. The output of `explain --json` contains a schedule.

    Raises InputError if it has another form.
    """
    if isinstance(source, Schedule):  # its values may have any type
        try:
            return _schedule(source.to_json(), source.source)
        except (AttributeError, TypeError) as error:
            raise InputError("schedule", f"has a value of a wrong type: {error}") from None
    where, data = ("schedule", source) if isinstance(source, Mapping) else _file(source)
    inner = data.get("schedule")
    return _schedule(inner if isinstance(inner, Mapping) else data, where)


def close_to(name: str, known: Iterable[str]) -> str:
    """Return the remedy of an error about an unknown name: the closest known one, or some of them."""
    names = [*known]
    close = difflib.get_close_matches(name[:SHOWN], names, n=1)
    some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"did you mean {close[0]}?" if close else f"known: {some}" if names else ""


def _file(source: object) -> tuple[str, Mapping[str, Any]]:
    """Return a file's name and its JSON object. Raises InputError if there is no such file, or it is something else."""
    if not isinstance(source, str | Path):
        raise InputError("schedule", f"is {shown(source)}", "give a file, its JSON values, or a Schedule")
    path = regular(source)
    if path.stat().st_size > BYTES:
        raise InputError(path, f"has more than {BYTES:,} bytes: it is no schedule")
    try:
        data = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            path, f"cannot be read as JSON: {error}", "`tilewright explain --save-schedule FILE` writes one"
        ) from None
    if not isinstance(data, dict):
        raise InputError(path, "is not a JSON object", "`tilewright explain --save-schedule FILE` writes one")
    return str(source), data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of JSON pairs. Raises ValueError if a key occurs twice, as only one of them could count."""
    if twice := _repeated(key for key, _ in pairs):
        raise ValueError(f"key {shown(twice[0])} occurs twice in an object")
    return dict(pairs)


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _schedule(data: Mapping[str, Any], where: str) -> Schedule:
    read = _Object(data, where, "")
    for key, only in (("version", VERSION), ("target", TARGET)):
        if (value := read.taken(key)) != only or isinstance(value, bool):
            raise InputError(where, f"{key} is {shown(value)}", f"only {key} {only} has schedules of this form")
    config = read.optional("config", lambda of, key: of.mapping(key), None)
    model, rounding = (read.optional(key, _Object.text, "") for key in ("model", "rounding"))
    layers = read.taken("layers")
    read.end()
    if not isinstance(layers, list | tuple):
        raise InputError(where, f"layers is {shown(layers)}, not a list")
    found = tuple(_layer(layer, where, number) for number, layer in enumerate(layers))
    if twice := _repeated(layer.layer for layer in found):
        raise InputError(where, f"layer {shown(twice[0])} occurs twice", "keep one of them")
    return Schedule(found, config, model, rounding, where)


def _layer(data: object, where: str, number: int) -> LayerSchedule:
    read = _Object(data, f"{where}, layers[{number}]", "")
    name = read.text("layer")
    read.where = f"{where}, layer {shown(name)}"
    tile = read.sizes("tile", Tile)
    threads = read.optional("threads", _Object.number, 1)
    slots = read.optional("slots", lambda of, key: of.sizes(key, Slots, dict.fromkeys(("inp", "wgt", "acc"), threads)))
    halvings = read.optional("halvings", lambda of, key: of.sizes(key, Halvings, {"first": 0, "last": 0}, least=0))
    found = LayerSchedule(
        name,
        tile,
        read.optional("outer_loop", lambda of, key: of.word(key, LOOPS), "space"),
        slots or Slots(threads, threads, threads),
        halvings or Halvings(),
        read.optional("form", lambda of, key: of.word(key, FORMS), "plain"),
        read.optional("nodes", _Object.texts, ()),
        read.optional("of", lambda of, key: of.sizes(key, Tile)),
        read.optional("alone", _Object.flag, False),
    )
    read.end()
    return found


class _Object:
    """A JSON object whose keys are taken one by one; `field` is its own name, for errors."""

    def __init__(self, data: object, where: str, field: str) -> None:
        if not isinstance(data, Mapping):
            raise InputError(where, f"{f'{field} ' if field else ''}is {shown(data)}, not an object")
        self.where, self._left, self._known = where, dict(data), list[str]()
        self._field = f"{field}." if field else ""

    def refuse(self, key: str, reason: str, remedy: str = "") -> InputError:
        return InputError(self.where, f"{self._field}{key} {reason}", remedy)

    def taken(self, key: str) -> Any:
        """Return the value of a key. Raises InputError if it is missing."""
        self._known.append(key)
        if key not in self._left:
            raise self.refuse(key, "is missing")
        return self._left.pop(key)

    def optional(self, key: str, read: Callable[[_Object, str], T], default: T | None = None) -> T:
        """Return what `read` returns for a key, or the default if it is missing."""
        self._known.append(key)
        return read(self, key) if key in self._left else cast(T, default)

    def end(self) -> None:
        """Check that all keys were taken. Raises InputError if one is left: nobody knows it."""
        for key in self._left:
            raise InputError(self.where, f"unknown key {shown(f'{self._field}{key}')}", close_to(str(key), self._known))

    def number(self, key: str, least: int = 1) -> int:
        value = self.taken(key)
        if type(value) is not int or not least <= value <= LARGEST:
            raise self.refuse(key, f"is {shown(value)}, not an integer of at least {least} (at most {LARGEST:,})")
        return value

    def text(self, key: str) -> str:
        value = self.taken(key)
        if not isinstance(value, str):
            raise self.refuse(key, f"is {shown(value)}, not a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.taken(key)
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self.refuse(key, f"is {shown(value)}, not a list of texts")
        return tuple(value)

    def flag(self, key: str) -> bool:
        value = self.taken(key)
        if not isinstance(value, bool):
            raise self.refuse(key, f"is {shown(value)}, not true or false")
        return value

    def word(self, key: str, words: tuple[str, ...]) -> str:
        value = self.taken(key)
        if value not in words:
            raise self.refuse(key, f"is {shown(value)}", f"choose one of {', '.join(words)}")
        return str(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.taken(key)
        return dict(_Object(value, self.where, f"{self._field}{key}")._left)

    def sizes(self, key: str, kind: type[T], defaults: Mapping[str, int] = {}, least: int = 1) -> T:
        """Return an object of a dataclass `kind` of integers; `defaults`: those that may be missing."""
        inner = _Object(self.taken(key), self.where, f"{self._field}{key}")
        names = [field.name for field in fields(cast(Any, kind))]
        made = {
            name: inner.optional(name, lambda of, own: of.number(own, least), defaults[name])
            if name in defaults
            else inner.number(name, least)
            for name in names
        }
        inner.end()
        return kind(**made)
