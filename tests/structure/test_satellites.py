"""What only some users need lies in rooms that a run does not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tilewright import targets

#: Rooms of all targets, then rooms inside a target.
SATELLITES = {
    "quantize",
    "hdl",
    "native",
    "template",
    "conform",
    "contract",
    "debug",
    "explore",
    "doctor",
    "examples",
}
INSIDE = {
    "vta": {"debug", "native", "runtime", "gateware"},
    "bm1684x": {"debug", "capi", "host", "native", "runtime", "conformance"},
    "zynq": {"debug", "runtime", "gateware"},
    "cfu": {"gateware"},
    "gemmini": {"debug", "native", "runtime", "conformance"},
}
RUN = """
import json, sys
from tilewright.cli import main
status = main(["run", *sys.argv[1:], "--json", "--no-cache"])
print(json.dumps([status, [name.split(".") for name in sys.modules if name.startswith("tilewright.")]]))
"""


@pytest.mark.parametrize("name", targets.names())
def test_a_run_imports_no_satellite(name: str) -> None:
    model = ROOT / "examples" / "digits" / "digits.tflite"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(model), "-t", name], capture_output=True, text=True, check=True
    )
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert not SATELLITES & {module[1] for module in modules}
    assert not INSIDE.get(name, set()) & {module[3] for module in modules if module[1] == "targets" and len(module) > 3}
    assert any(module[1:3] == ["targets", name] for module in modules)
