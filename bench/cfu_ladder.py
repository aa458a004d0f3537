"""The ladder of the CFU document on ResNet-8: each firmware variant's cycles, beside what the document measured.

Steps are those of the published article, then what lies beyond it. Firmware is built by the compiler that is found;
the published figures go with GCC (docs/cfu-firmware.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright.targets.cfu.config import BEYOND
from tilewright.targets.cfu.variants import VARIANTS

SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
MODEL = SHARED / "mlperf_tiny" / "models" / "pretrainedResnet_quant.tflite"
SAMPLES = SHARED / "mlperf_tiny" / "ic" / "samples.npz"
CLOCK_MHZ = 75


def measure(
    model: Path, samples: Path, timing: str, only: tuple[str, ...] = (), asides: bool = False
) -> Iterator[dict[str, Any]]:
    """One row a step. `speedup` is over the step before; `matches_golden`: the outputs are the golden ones."""
    with np.load(samples) as archive:
        codes, golden = archive["inputs"][:1], archive["golden"][0]
    before: dict[str, float] = {}
    kind = "aside" if asides else "step"
    document = {name: variant.document_microseconds for name, variant in VARIANTS.items() if variant.kind == kind}
    for name, theirs in {**document, **dict.fromkeys(() if asides else BEYOND)}.items():
        if only and name not in only:
            continue
        config, overrides = (None, {"firmware": name}) if name in document else (name, {})
        if name in document:
            overrides["extensions"] = ",".join(VARIANTS[name].extensions)
        result = tw.compile(model, "cfu", config, overrides).run(codes, timing=timing)
        (output,) = result.outputs.values()
        now: dict[str, float | None] = {"": result.cycles / CLOCK_MHZ, "document_": theirs}
        row: dict[str, Any] = {"step": name, "cycles": result.cycles}
        for whose, microseconds in now.items():
            row[f"{whose}microseconds"] = microseconds
            row[f"{whose}speedup"] = before[whose] / microseconds if microseconds and before.get(whose) else None
        before = {whose: microseconds for whose, microseconds in now.items() if microseconds}
        row["matches_golden"] = bool(np.array_equal(output.ravel(), golden.ravel()))
        yield row


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.option("--timing", default="sourced", show_default=True, help="The timing model: sourced or fitted.")
@click.option("--asides", is_flag=True, help="What the document mentions in passing, instead of its steps.")
@click.option("--step", "steps", multiple=True, help="Only this step; may be repeated.  [all]")
@click.option("--model", type=click.Path(exists=True, path_type=Path), default=MODEL, help="ResNet-8, .tflite.")
@click.option(
    "--samples", type=click.Path(exists=True, path_type=Path), default=SAMPLES, help="inputs and golden, .npz."
)
def main(as_json: bool, timing: str, asides: bool, steps: tuple[str, ...], model: Path, samples: Path) -> None:
    rows = measure(model, samples, timing, steps, asides)
    if as_json:
        click.echo(json.dumps(list(rows), indent=1))
        return
    click.echo(f"ResNet-8 at {CLOCK_MHZ} MHz, timing model '{timing}'")
    click.echo(
        f"{'step':18} {'cycles':>12} {'ms':>9} {'document':>9} {'error':>7} {'speed-up':>9} {'document':>9} golden"
    )
    for row in rows:
        theirs, ours = row["document_microseconds"], row["microseconds"]
        cells = [f"{row['step']:18} {row['cycles']:12,} {ours / 1000:9.2f}"]
        cells.append(f"{theirs / 1000:9.2f} {100 * (ours / theirs - 1):+6.1f}%" if theirs else f"{'-':>9} {'-':>7}")
        cells += [f"{row[key]:9.3f}" if row[key] else f"{'-':>9}" for key in ("speedup", "document_speedup")]
        click.echo(" ".join([*cells, "yes" if row["matches_golden"] else "NO"]))


if __name__ == "__main__":
    main()
