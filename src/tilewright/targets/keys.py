"""What configurations of all targets share: presets, files, overrides, refusal of unknown keys, a hash of all."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from tilewright.errors import ConfigError
from tilewright.files import regular

C = TypeVar("C")


def read(
    kind: type[C],
    where: str,
    presets: Mapping[str, Any],
    source: str | Path | Mapping[str, Any] | None,
    overrides: Mapping[str, str],
    words: Collection[str] = (),
) -> C:
    """A dataclass `kind` from a preset's name, a JSON file or its content (None: the first preset), then single keys.

    `presets` hold configurations or mappings; `overrides` are text, read as integers but for the keys `words`.
    Raises ConfigError, which `where` begins.
    """
    content = dict(_content(presets, next(iter(presets)) if source is None else source))
    refuse_unknown(where, kind, content)
    refuse_unknown(where, kind, overrides)
    changes = {key: text if key in words else integer(where, key, text) for key, text in overrides.items()}
    return kind(**content | changes)


def _content(presets: Mapping[str, Any], source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str) and source in presets:
        preset: Any = presets[source]
        return preset if isinstance(preset, Mapping) else asdict(preset)
    if isinstance(source, str) and not source.endswith(".json"):
        raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(presets)}")
    return json_file(source)


def json_file(path: str | Path) -> dict[str, Any]:
    """The object that a file holds. Raises ConfigError."""
    path = regular(path, ConfigError)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(str(path), "is not a JSON object", "give keys of a configuration")
    return data


def refuse_unknown(where: str, kind: type[Any], keys: Iterable[str]) -> None:
    """Raises ConfigError for a key that the dataclass `kind` does not have."""
    known = [field.name for field in fields(kind)]
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {close[0]}" if close else f"the keys are {', '.join(known)}"
            raise ConfigError(where, f"unknown key {key}", remedy)


def integer(where: str, key: str, text: str) -> int:
    """A key's value, 0x for hexadecimal. Raises ConfigError."""
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError(where, f"{key} is '{text}', not an integer") from None


def digest(keys: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of canonical JSON (sorted keys, no spaces): a saved program runs on the machine it was made for."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
