"""`import tilewright` imports nothing before it is used, and all names are there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright


def modules(statement: str) -> set[str]:
    """The modules that a new process has imported after a statement."""
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_nothing_is_imported_before_it_is_used() -> None:
    found = modules("import tilewright")
    assert "numpy" not in found
    assert {name for name in found if name.startswith("tilewright")} == {"tilewright"}


def test_every_public_name_is_there() -> None:
    assert set(tilewright.__all__) <= set(dir(tilewright))
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = tilewright.no_such_name


def test_a_program_is_data() -> None:
    """The room of programs imports nothing that runs, reports or debugs them."""
    found = modules("import tilewright.program.program, tilewright.program.file, tilewright.program.cache")
    assert not {name for name in found if name.startswith(("tilewright.run", "tilewright.report", "tilewright.debug"))}
