"""The space of a study: the configuration keys that vary, and the values of each key.

A file of a space is a JSON object: {"config": PRESET or object, "set": {KEY: VALUE}, "keys": {KEY: VALUES}, "where":
[RULE]}. Only `keys` is required. VALUES is a list, or a text such as "13..17" (each integer), "64..1024 * 2" (each
value is twice the previous value), "0..64 + 16" (steps of 16), or "upstream, fused".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tilewright import fields
from tilewright.errors import InputError, option
from tilewright.fields import decode, naming, record
from tilewright.targets import given

#: Limits of a space: the values of one key, and the keys.
MOST_VALUES = 4096
MOST_KEYS = 64
FORM = 'write {"keys": {KEY: [VALUE, ...]}}'
_SPACE = {"config": str | dict[str, Any] | None, "set": dict[str, int | float | bool | str], "keys": dict[str, Any]}
_SPACE |= {"where": tuple[str, ...], "about": Any}
_RANGE = re.compile(r"\s*(-?\w+)\s*\.\.\s*(-?\w+)\s*(?:([*+])\s*(\w+)\s*)?")


@runtime_checkable
class Spaces(Protocol):
    """A target that offers named spaces of machines to explore. Each space has the form of a space file."""

    spaces: Mapping[str, Mapping[str, Any]]


class Axis(NamedTuple):
    """A configuration key and its values, as texts for `--set`. `ordered`: the values are ascending numbers."""

    key: str
    values: tuple[str, ...]
    ordered: bool

    @classmethod
    def of(cls, key: str, values: object) -> Axis:
        """Read the values of a key from a list or a text. Raises InputError for other types and repeated values."""
        with naming(key, InputError, 'give a list, or a text such as "13..17"'):
            given = decode(str | tuple[int | bool | str, ...], values, "")
        if isinstance(given, str):
            texts = _expanded(key, given)
        else:
            texts = [str(int(value) if isinstance(value, bool) else value) for value in given]
        if not 0 < len(texts) <= MOST_VALUES:
            raise InputError(key, f"has {len(texts)} values", f"give 1 to {MOST_VALUES}")
        if len(set(texts)) < len(texts):
            raise InputError(key, f"has a value twice: {', '.join(texts[:20])}", "give each value once")
        return cls(key, tuple(texts), _ascending(texts))


@dataclass(frozen=True)
class Space:
    """The machines of a study: all combinations of the values of some axes. A point is the index of a combination.

    The last axis varies fastest. `config`, the base of all machines, is a configuration or the name of a preset.
    `fixed` has keys with one value for all machines. `rules` are conditions that each machine must fulfil.
    """

    axes: tuple[Axis, ...]
    config: str | Mapping[str, Any] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError if the space has no key, too many keys, or a repeated key."""
        keys = [axis.key for axis in self.axes]
        if not 0 < len(keys) <= MOST_KEYS:
            raise InputError(option("--space"), f"has {len(keys)} keys that vary", f"give 1 to {MOST_KEYS}")
        if twice := next((key for key in keys if keys.count(key) > 1 or key in self.fixed), None):
            raise InputError(option("--space"), f"sets {twice} twice", "give each key once")

    @property
    def size(self) -> int:
        return prod(len(axis.values) for axis in self.axes)

    def at(self, point: int) -> dict[str, str]:
        return {axis.key: axis.values[index] for axis, index in zip(self.axes, self.indices(point), strict=True)}

    def indices(self, point: int) -> tuple[int, ...]:
        indices = list[int]()
        for axis in reversed(self.axes):
            point, index = divmod(point, len(axis.values))
            indices.insert(0, index)
        return tuple(indices)

    def point(self, indices: Sequence[int]) -> int:
        point = 0
        for axis, index in zip(self.axes, indices, strict=True):
            point = point * len(axis.values) + index
        return point

    def neighbours(self, point: int) -> Iterator[int]:
        """Yield the points that differ in one key: by one step on an ordered axis, by any other value on other axes."""
        indices = self.indices(point)
        for place, axis in enumerate(self.axes):
            steps = (indices[place] - 1, indices[place] + 1) if axis.ordered else range(len(axis.values))
            for index in steps:
                if 0 <= index < len(axis.values) and index != indices[place]:
                    yield self.point((*indices[:place], index, *indices[place + 1 :]))

    def to_json(self) -> dict[str, Any]:
        return {
            "config": dict(self.config) if isinstance(self.config, Mapping) else self.config,
            "set": dict(self.fixed),
            "keys": {axis.key: list(axis.values) for axis in self.axes},
            "where": list(self.rules),
        }

    @classmethod
    def from_json(
        cls,
        data: Mapping[str, Any],
        where: str = "space",
        vary: Mapping[str, Any] = MappingProxyType({}),
        rules: Sequence[str] = (),
    ) -> Space:
        """Read a space from the JSON values of its file. `vary` adds or replaces keys, and `rules` adds rules.

        Raises InputError, with `where`, if the values are malformed.
        """
        with naming(where, InputError):
            values = record(_SPACE, data, "", {"config": None, "set": {}, "keys": {}, "where": (), "about": None})
            axes = tuple(Axis.of(key, values_of_key) for key, values_of_key in {**values["keys"], **vary}.items())
            fixed = {key: str(value) for key, value in values["set"].items()}
            return cls(axes, values["config"], fixed, (*values["where"], *rules))

    @classmethod
    def read(cls, path: Path) -> Space:
        """Read a space from a file. Raises InputError if the file is malformed."""
        try:
            return cls.from_json(fields.read(path, InputError, FORM), str(path))
        except InputError as error:
            raise error.within(path) from None


def _expanded(key: str, text: str) -> list[str]:
    if not (match := _RANGE.fullmatch(text)):
        return [part.strip() for part in text.split(",") if part.strip()]
    low, high = (given.integer(key, "the range", part) for part in match.group(1, 2))
    step = given.integer(key, "its step", match[4] or "1")
    times = match[3] == "*"
    if low > high or step < (2 if times else 1) or (times and low < 1):
        raise InputError(key, f"'{text}' is not a range", "write LOW..HIGH, LOW..HIGH + STEP, or LOW..HIGH * FACTOR")
    values = list[str]()
    value = low
    while value <= high and len(values) <= MOST_VALUES:
        values.append(str(value))
        value = value * step if times else value + step
    return values


def _ascending(texts: Sequence[str]) -> bool:
    try:
        numbers = [int(text, 0) for text in texts]
    except ValueError:
        return False
    return numbers == sorted(numbers)
