"""The library for hosts in C: made at first use, and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.files import user_folder
from tilewright.targets.bm1684x.native.build import library
from tilewright.targets.bm1684x.native.headers import FIXED

INCLUDE = Path(__file__).parent / "include"
NAME = "tilewright_bm1684x"


def flags() -> Mapping[str, Sequence[str]]:
    """Return the compiler's arguments for a host in C, by kind: `cflags` and `libs`.

    The library is made if it is missing, or if this Python or this version of Tilewright has changed. Raises InputError
    if it cannot be made.
    """
    folder = made().parent
    return {"cflags": [f"-I{INCLUDE}"], "libs": [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{NAME}"]}


def made() -> Path:
    """Return the path of the library, which is made if it is missing. Raises InputError if it cannot be made."""
    root = Path(__file__).resolve().parents[4]  # the folder with the package tilewright
    own = {"TW_PYTHON": sys.executable, "TW_ROOT": str(root)}
    parts = [repr(own).encode(), (FIXED / "host.c").read_bytes(), (INCLUDE / "bmlib_runtime.h").read_bytes()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    path = user_folder() / f"{NAME}-{digest}" / f"lib{NAME}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        quoted = [f'-D{name}="{_escaped(value)}"' for name, value in own.items()]
        library(path, [FIXED / "host.c"], [f"-I{INCLUDE}", *quoted])
    return path


def _escaped(text: str) -> str:
    """Return text for a string of C."""
    return "".join(f"\\{byte:03o}" if chr(byte) in '"\\?' or byte < 32 else chr(byte) for byte in os.fsencode(text))
