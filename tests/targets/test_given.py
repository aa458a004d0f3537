"""Keys of configurations: each says its range or its words in its own field."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tilewright.errors import ConfigError
from tilewright.targets.given import MachineConfig, number, word


@dataclass(frozen=True)
class Small(MachineConfig):
    where = "small"

    size: int = number(8, 2, 64, power=True)
    way: str = word("near", "far", "near")
    name: str = ""


def test_keys_within_their_limits_are_taken() -> None:
    assert Small(size=64, way="far").to_dict() == {"size": 64, "way": "far", "name": ""}
    assert Small.words() == {"way": ("far", "near")}


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"size": 1}, "size is 1, not an integer in 2..64"),
        ({"size": 65}, "size is 65, not an integer in 2..64"),
        ({"size": True}, "size is true, not an integer"),
        ({"size": 8.0}, "size is 8.0, not an integer"),
        ({"size": 12}, "size is 12, not a power of two"),
        ({"way": "here"}, 'way is "here"; choose one of far, near'),
    ],
)
def test_others_are_refused_by_name(keys: dict[str, int | str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Small(**keys)  # type: ignore[arg-type]


def test_tables_beside_the_fields_are_refused() -> None:
    with pytest.raises(TypeError, match=r"number\(\.\.\)"):

        class Old(MachineConfig):
            where, ranges = "old", {"size": (1, 2)}
