"""The files of a host driver in C: templates with @name@ placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def filled(folder: Path, names: Sequence[str], values: Mapping[str, object]) -> dict[str, bytes]:
    """Return templates of a folder with their placeholders filled in, as {name: text}."""

    def value(match: re.Match[str]) -> str:
        return str(values.get(match[1], match[0]))

    # In one pass, so that inserted values are not searched: the name of a segment may look like a placeholder.
    return {name: re.sub("@([a-z_]+)@", value, (folder / name).read_text("ascii")).encode("ascii") for name in names}


def string(text: str) -> str:
    # Octal escapes end after three digits. Hexadecimal escapes would continue with any digits that follow.
    data = text.encode("utf-8", "replace")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in data)
    return f'"{"".join(plain)}"'
