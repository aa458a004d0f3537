"""Libraries for hosts in C. Each library is compiled at first use, and cached in the user's folder.

A library starts a Python process that simulates the device (c/connection.h).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.files import kept, user_folder, write_folder
from tilewright.native.build import library

CONNECTION = Path(__file__).parent / "c"


@dataclass(frozen=True)
class HostLibrary:
    """A library `lib<name>.so`: its C sources, and the folder of the headers that hosts include.

    `server` is a module whose function `main` runs in the device's process (connection.h). `requests` are the names of
    the requests that the process answers. For the C sources, a generated header `requests.h` defines the numbers of the
    requests, under their names in capitals. If `config` is not None, the process gets this machine configuration as a
    JSON file. `generated` has further headers for hosts, {name: text}. `links` are linker arguments for hosts.
    """

    name: str
    server: str
    requests: Sequence[str]
    sources: Sequence[Path]
    include: Path
    config: Mapping[str, Any] | None = None
    generated: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[str] = ()

    def flags(self) -> Mapping[str, Sequence[str]]:
        """Return the compiler's arguments for a host in C, by kind: `cflags` and `libs`.

        The library is compiled first if it is missing, if its sources have changed, or if another Python has compiled
        it. Raises InputError if the library does not compile.
        """
        folder = self.built().parent
        generated = [f"-I{folder / 'include'}"] if self.generated else []
        return {
            "cflags": [*generated, f"-I{self.include}"],
            "libs": [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{self.name}", *self.links],
        }

    def built(self) -> Path:
        """Return the path of the library, and compile it if it is missing. Raises InputError if compiling fails."""
        sources = [*self.sources, CONNECTION / "connection.c"]
        headers = sorted({*self.include.rglob("*.h"), *(h for path in sources for h in path.parent.glob("*.h"))})
        parts = [repr((sys.executable, CONNECTION, self)).encode()]
        parts += [path.read_bytes() for path in (*sources, *headers)]
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        return kept(user_folder() / f"{self.name}-{digest}", lambda folder: self._build(folder, sources))

    def _build(self, folder: Path, sources: Sequence[Path]) -> Path:
        path = folder / f"lib{self.name}.so"
        if path.exists():
            return path
        files = {f"include/{name}": text for name, text in self.generated.items()}
        macros = {"TW_PYTHON": sys.executable, "TW_ROOT": str(Path(__file__).resolve().parents[2])}
        macros["TW_SERVER"] = self.server
        if self.config is not None:
            files["machine.json"] = json.dumps(self.config)
            macros["TW_MACHINE"] = str(folder / "machine.json")
        write_folder(folder, files)
        quoted = [f'-D{name}="{_escaped(value)}"' for name, value in macros.items()]
        searched = [f"-I{place}" for place in (folder / "include", self.include, CONNECTION)]
        numbers = {"requests.h": f"enum {{ {', '.join(self.requests).upper()} }};\n"}
        library("the library for hosts", path, sources, ["-O2", *searched, *quoted], numbers)
        return path


def _escaped(text: str) -> str:
    plain = set(range(32, 127)) - set(b'"\\?')
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in os.fsencode(text))
