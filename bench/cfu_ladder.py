"""The ladder of the CFU document on ResNet-8: each firmware variant's cycles, beside what the document measured.

Steps are those of the published article, then what lies beyond it; or its asides; or the alternatives to its machine,
one at a time, each with the firmware made for it. Firmware is built by the compiler that is found, and the table names
it. The document's figures go with GCC. If clang is found, three of the steps are built so that its code has what the
document's had (AS_GCC); --plain leaves that out. docs/cfu-firmware.md has the figures of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright.run import run as run_program
from tilewright.targets.cfu import TARGET
from tilewright.targets.cfu.bill import bill
from tilewright.targets.cfu.compiler.compile import compile_graph
from tilewright.targets.cfu.compiler.firmware import find as compiler
from tilewright.targets.cfu.compiler.project import Project
from tilewright.targets.cfu.compiler.variants import VARIANTS
from tilewright.targets.cfu.config import BEYOND

SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
MODEL = SHARED / "mlperf_tiny" / "models" / "pretrainedResnet_quant.tflite"
SAMPLES = SHARED / "mlperf_tiny" / "ic" / "samples.npz"
CLOCK_MHZ = 75
#: What clang is given to make code like GCC's, by step: the baseline computes addresses in its innermost loop, and the
#: steps with implicit im2col keep the order of the source, in which loads are directly before their use.
IN_ORDER = ("-mllvm", "-enable-misched=false")
AS_GCC = {"baseline": ("-DAS_GCC",), **dict.fromkeys(("implicit", "post", "published"), IN_ORDER)}
#: What the document weighs before it chooses `published`, one choice at a time: what to change in it.
ALTERNATIVES: dict[str, dict[str, str]] = {
    **{f"addressed{n}": {"array": str(n), "transfer": "addressed"} for n in (4, 8, 16, 32)},
    **{f"counter{n}": {"array": str(n), "transfer": "counter"} for n in (4, 8)},
    "paired32": {"array": "32"},
    **{f"rows{n}": {"buffer_rows": str(n)} for n in (1024, 256, 64)},
    "random": {"readout": "random"},
    "blocking": {"start": "blocking"},
    "single": {"srdhm": "single"},
}


def run(
    preset: str | None,
    overrides: Mapping[str, str],
    model: Path,
    codes: Any,
    timing: str,
    flags: tuple[str, ...] = (),
    own: Path | None = None,
) -> tuple[int, int, Any]:
    """Of a machine and its firmware: cycles, those lost to misses of the data cache, and the output.

    `flags` are for clang, and are not used with another compiler. `own` is firmware of the user's.
    """
    config, how = TARGET.config(preset, overrides), compiler()
    if how.name == "zig":
        how = replace(how, flags=(*how.flags, *flags))
    graph, variant = tw.load(model), VARIANTS[config.firmware]
    project = Project.at(own) if own else None
    program = compile_graph(graph, config, graph.rounding, variant, how, project)
    result = run_program(program, codes, timing=timing)
    (output,) = result.outputs.values()
    return result.cycles, sum((layer.stalls or {}).get("load_miss", 0) for layer in result.layers), output


def of_variant(name: str) -> dict[str, str]:
    """The keys of a machine that runs a firmware variant."""
    return {"firmware": name, "extensions": ",".join(VARIANTS[name].extensions)}


def first_sample(samples: Path) -> tuple[Any, Any]:
    """Its codes (1, ...), and its golden output."""
    with np.load(samples) as archive:
        return archive["inputs"][:1], archive["golden"][0]


def measure(
    model: Path,
    samples: Path,
    timing: str,
    only: tuple[str, ...] = (),
    asides: bool = False,
    plain: bool = False,
    own: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """One row a step. `speedup` is over the step before; of an aside over `beside`."""
    codes, golden = first_sample(samples)
    kind = "aside" if asides else "step"
    names: dict[str, str | None] = {name: None for name, variant in VARIANTS.items() if variant.kind == kind}
    names |= {name: name for name in (() if asides else (*BEYOND, "tuned"))}
    if own:
        names = {"published": None, str(own): None}
    before: tuple[float | None, float | None] = None, None
    for name, preset in names.items():
        if only and name not in only:
            continue
        flags = () if plain or own or preset else AS_GCC.get(name, ())
        mine = own if own and name == str(own) else None
        machine = {} if preset or mine else of_variant(name)
        cycles, misses, output = run(preset, machine, model, codes, timing, flags, mine)
        variant = VARIANTS["coupled" if preset or mine else name]
        ours, theirs = cycles / CLOCK_MHZ, variant.measured
        if variant.compared_with:
            before = run(None, of_variant(variant.compared_with), model, codes, timing)[0] / CLOCK_MHZ, None
        yield {
            "step": name,
            "cycles": cycles,
            "load_miss_cycles": misses,
            "microseconds": ours,
            "speedup": before[0] / ours if before[0] else None,
            "document_microseconds": theirs,
            "document_speedup": before[1] / theirs if before[1] and theirs else None,
            "matches_golden": bool(np.array_equal(output.ravel(), golden.ravel())),
            "bram36": bill(TARGET.config(preset, {}))["bram36"],
            "beside": variant.compared_with,
            "compiler": " ".join((compiler().version, *flags)) if compiler().name == "zig" else compiler().version,
        }
        before = ours, theirs


def alternatives(model: Path, samples: Path, timing: str, only: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """One row for each alternative to the published machine; `speedup` is over it."""
    codes, golden = first_sample(samples)
    published = run(None, {}, model, codes, timing)[0]
    for name, changes in {"published": {}, **ALTERNATIVES}.items():
        if only and name not in only:
            continue
        cycles, misses, output = run(None, changes, model, codes, timing)
        yield {
            "step": name,
            "cycles": cycles,
            "load_miss_cycles": misses,
            "microseconds": cycles / CLOCK_MHZ,
            "speedup": published / cycles,
            "document_microseconds": None,
            "document_speedup": None,
            "matches_golden": bool(np.array_equal(output.ravel(), golden.ravel())),
            "bram36": bill(TARGET.config(None, changes))["bram36"],
            "beside": "published",
            "compiler": compiler().version,
        }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.option("--timing", default="sourced", show_default=True, help="The timing model: sourced or fitted.")
@click.option("--asides", is_flag=True, help="What the document mentions in passing, instead of its steps.")
@click.option(
    "--alternatives", "others", is_flag=True, help="Alternatives to the published array and its instructions."
)
@click.option("--firmware", "own", type=click.Path(exists=True, path_type=Path), help="Only your own, and published.")
@click.option("--plain", is_flag=True, help="With clang: the firmware's own flags and kernels in every step.")
@click.option("--step", "steps", multiple=True, help="Only this step; may be repeated.  [all]")
@click.option("--model", type=click.Path(exists=True, path_type=Path), default=MODEL, help="ResNet-8, .tflite.")
@click.option(
    "--samples", type=click.Path(exists=True, path_type=Path), default=SAMPLES, help="inputs and golden, .npz."
)
def main(
    as_json: bool,
    timing: str,
    asides: bool,
    others: bool,
    own: Path | None,
    plain: bool,
    steps: tuple[str, ...],
    model: Path,
    samples: Path,
) -> None:
    if asides and others:
        raise click.UsageError("--asides and --alternatives are two tables: choose one")
    rows = (
        alternatives(model, samples, timing, steps)
        if others
        else measure(model, samples, timing, steps, asides, plain, own)
    )
    if as_json:
        click.echo(json.dumps(list(rows), indent=1))
        return
    click.echo(f"ResNet-8 at {CLOCK_MHZ} MHz, timing model '{timing}', {compiler().version}")
    click.echo(
        f"{'step':18} {'cycles':>12} {'load miss':>12} {'ms':>9} {'document':>9} {'error':>7} {'speed-up':>9}"
        f" {'document':>9} golden"
    )
    for row in rows:
        theirs, ours = row["document_microseconds"], row["microseconds"]
        cells = [f"{row['step']:18} {row['cycles']:12,} {row['load_miss_cycles']:12,} {ours / 1000:9.2f}"]
        cells.append(f"{theirs / 1000:9.2f} {100 * (ours / theirs - 1):+6.1f}%" if theirs else f"{'-':>9} {'-':>7}")
        cells += [f"{row[key]:9.3f}" if row[key] else f"{'-':>9}" for key in ("speedup", "document_speedup")]
        special = row["compiler"].removeprefix(compiler().version)
        click.echo(" ".join([*cells, "yes" if row["matches_golden"] else "NO"]) + special)


if __name__ == "__main__":
    main()
