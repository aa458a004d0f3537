"""Run the digits, kws and ic on every target and print each cycle count that differs: `python -m .. [--update]`.

The table tests/golden/cycles.txt holds a line for each model, target and layer; vta is there under the timing model
chisel, too. `--update` writes it anew. A model whose file is missing is left out: kws and ic are golden data (../shared
or $TILEWRIGHT_SHARED).
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import tilewright as tw
from tilewright import targets
from tilewright.model.inputs import random
from tilewright.targets.cfu.compiler import firmware

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "golden" / "cycles.txt"
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared")) / "mlperf_tiny" / "models"
MODELS = {
    "digits": ROOT / "examples" / "digits" / "digits.tflite",
    "kws": SHARED / "kws_ref_model.tflite",
    "ic": SHARED / "pretrainedResnet_quant.tflite",
}


def measured() -> Iterator[str]:
    """Yield a line for each layer that a target runs, and the total, of one random sample with seed 0."""
    for model, path in MODELS.items():
        if not path.is_file():
            print(f"{model} left out: {path} is missing", file=sys.stderr)
            continue
        graph = tw.load(path)
        for target, timing in (*((name, None) for name in targets.names()), ("vta", "chisel")):
            with patch.object(firmware, "_gcc", return_value=None):  # cycles on cfu are those of the extra's compiler
                result = tw.compile(graph, target, timing=timing).run(random(graph).values, timing=timing)
            machine = f"{target}-{timing}" if timing else target
            yield f"{model} {machine} total {result.cycles}"
            yield from (f"{model} {machine} {layer.name} {layer.cycles}" for layer in result.layers if layer.cycles)


def main() -> None:
    lines = list(measured())
    if "--update" in sys.argv:
        if missing := [str(path) for path in MODELS.values() if not path.is_file()]:
            sys.exit(f"the table is left as it is, as models are missing: {', '.join(missing)}")
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    models = {line.split()[0] for line in lines}
    known = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.split()[0] in models]
    changes = [line for line in difflib.unified_diff(known, lines, lineterm="", n=0) if line[:1] in "+-"][2:]
    print("\n".join(changes) or f"all {len(lines)} cycle counts are those of {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
