"""Test Tilewright as users get it: `nox` runs all sessions; `nox -s tests-3.12` runs one.

An interpreter that is not installed is skipped. Sessions make environments of their own in .nox.
"""

from __future__ import annotations

from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
LOWEST = PYTHONS[0]
ROOT = Path(__file__).resolve().parent
SMOKE = str(ROOT / "tests" / "package" / "smoke.py")
#: Tests that need no golden data and no gateware tools, and that touch every target.
QUICK = ("tests/cli", "tests/contract", "tests/graph", "tests/model", "tests/structure")

nox.options.error_on_missing_interpreters = False
nox.options.default_venv_backend = "venv"


def built(session: nox.Session, kind: str) -> str:
    """Build a wheel or an sdist, and return its path."""
    folder = Path(session.create_tmp())
    session.run("python", "-m", "build", f"--{kind}", "--outdir", str(folder), str(ROOT), silent=True)
    return str(max(folder.glob("*.whl" if kind == "wheel" else "*.tar.gz"), key=lambda path: path.stat().st_mtime))


@nox.session(python=PYTHONS)
@nox.parametrize("kind", ["wheel", "sdist"])
def package(session: nox.Session, kind: str) -> None:
    """Install the built package alone, and use it outside of the repository."""
    session.install("build")
    session.install(built(session, kind))
    session.chdir(session.create_tmp())
    session.run("python", SMOKE)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests (`nox -s tests -- tests/cli` runs some)."""
    session.install("-e", ".[test,cfu,rtl,dev]")
    session.run("pytest", *(session.posargs or QUICK))


@nox.session(python=LOWEST)
def lowest(session: nox.Session) -> None:
    """Run the tests with the oldest versions of the core's dependencies that pyproject.toml allows."""
    session.install("uv", "build")
    constraints = str(Path(session.create_tmp()) / "lowest.txt")
    resolve = ("uv", "pip", "compile", "--resolution", "lowest-direct", "--python-version", LOWEST)
    session.run(*resolve, "pyproject.toml", "-o", constraints, silent=True)
    session.install("-c", constraints, built(session, "wheel"))
    session.run("python", SMOKE)
