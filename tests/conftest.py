"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, settings

from tilewright.targets.cfu.compiler import firmware
from tilewright.targets.vta.compiler import compiler, search, tune

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background; commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/* anew; review the diff")


def chromium() -> str | None:
    """Return the path of a Chromium that Playwright can drive, or None."""
    found = which("chromium") or which("chromium-browser") or which("google-chrome")
    return found if find_spec("playwright") else None


#: What some tests need, by marker: whether it is here, and what to do where it is not.
NEEDS: dict[str, tuple[Callable[[], object], str]] = {
    "gxx": (lambda: which("g++") and which("cc"), "needs a C and a C++ compiler: apt-get install g++"),
    "riscv": (firmware.compilers, "needs a RISC-V compiler: apt-get install gcc-riscv64-unknown-elf"),
    "gdb": (lambda: which("gdb-multiarch"), "needs GDB for RISC-V: apt-get install gdb-multiarch"),
    "chromium": (chromium, "needs Chromium and Playwright: apt-get install chromium; pip install playwright"),
    "vendor": (
        (Path(os.environ.get("TILEWRIGHT_TPU_MLIR", "/nowhere")) / "tpu_mlir" / "lib").is_dir,
        "needs the wheel tpu_mlir 1.15.1, unpacked: set TILEWRIGHT_TPU_MLIR (tests/targets/bm1684x/vendor/__init__.py)",
    ),
    "golden": (SHARED.is_dir, f"needs golden data at {SHARED}: set TILEWRIGHT_SHARED to the folder with mlperf_tiny/"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark long tests (tests/long.txt, and slow ones), which the quick tier leaves out; skip what lacks its tools."""
    long = set((ROOT / "tests" / "long.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid.partition("[")[0] in long or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.long)
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.golden)
    for name, (found, reason) in NEEDS.items():  # looked for only where a test needs it
        needy = [item for item in items if item.get_closest_marker(name)]
        if needy and not found():
            for item in needy:
                item.add_marker(pytest.mark.skip(reason=reason))
    if config.option.markexpr != "slow" and any(item.get_closest_marker("gxx") for item in items):
        compile_quickly()


def compile_quickly() -> None:
    """Compile gateware without optimisation, in half of the time: only slow tests run it for long."""
    from tilewright.hdl import build

    build.FLAGS = {engine: ("-O0", *flags[1:]) for engine, flags in build.FLAGS.items()}


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden data: $TILEWRIGHT_SHARED, else ../shared beside the checkout."""
    return SHARED


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests find no programs in the user's cache folder, and leave none there."""
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")


@pytest.fixture
def brief_search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """VTA's compiler takes its first plan that fits: for tests of values, which most of the search only delays.

    Slow tests search as users do.
    """
    if request.node.get_closest_marker("slow"):
        yield
        return
    caches = search._ranked, compiler._code
    for cache in caches:
        cache.cache_clear()  # plans of other tests
    for module, name, value in ((search, "EFFORT", 0), (search, "REFINING", 0), (search, "LEAST", 1)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(tune, "EFFORT", 500)
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` requires `text` to equal the file tests/golden/<name>; --update-golden writes it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        how = "run pytest with --update-golden and review the diff"
        assert path.is_file(), f"{path} is missing: {how}"
        expected = path.read_text(encoding="utf-8")
        assert text.splitlines() == expected.splitlines(), f"differs from {path}: fix it, or {how}"
        assert text == expected, f"line ends differ from {path}: {how}"

    return check
