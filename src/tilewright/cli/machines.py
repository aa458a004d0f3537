"""Commands about the targets themselves: targets, conform."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import options
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.targets.base import Target


@click.command()
@options.as_json
def targets(as_json: bool) -> None:
    """List the targets: presets, sizes, timing models.

    Each timing model comes with the evidence behind it.
    """
    from tilewright import targets as found

    machines = []
    for name in found.names():
        try:
            machines.append(found.get(name))
        except InputError as error:  # a package that is called like a target and is none
            click.echo(f"tilewright: {error}", err=True)
    if as_json:
        click.echo(json.dumps({"targets": [_to_json(machine) for machine in machines]}))
    else:
        for machine in machines:
            _show(machine)


@click.command()
@click.argument("target")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@options.as_json
def conform(target: str, paths: tuple[str, ...], as_json: bool) -> int:
    """Replay golden vectors and count what passes.

    PATH is an .npz file, or a folder that is searched for them.
    """
    from tilewright import targets as found
    from tilewright.conform import replay

    passed, failures = 0, []
    for case in replay(found.get(target), paths):
        if case.passed:
            passed += 1
            continue
        failures.append({"name": case.name, "reason": case.reason})
        if not as_json:
            click.echo(f"FAILED {case.name}: {' '.join(case.reason.split())}")
    if as_json:
        counts = {"passed": passed, "failed": len(failures)}
        click.echo(json.dumps({"target": target, **counts, "failures": failures}))
    else:
        click.echo(f"passed {passed}, failed {len(failures)}")
    return 1 if failures else 0


def _to_json(machine: Target) -> dict[str, Any]:
    return {
        "name": machine.name,
        "title": machine.title,
        "passes": sorted(machine.passes),
        "presets": {name: machine.describe(machine.config(name, {})) for name in machine.presets},
        "timing_models": [{"name": model.name, "evidence": model.evidence} for model in machine.timing_models],
    }


def _show(machine: Target) -> None:
    from tilewright.report.text import console, table

    about, to = _to_json(machine), console()
    to.print(f"{machine.name}: {machine.title}", style="bold", soft_wrap=True)
    presets: dict[str, dict[str, Any]] = about["presets"]
    columns = ("macs_per_cycle", "clock_mhz")
    sizes = dict.fromkeys(key for preset in presets.values() for key in preset if key not in columns)
    same = [key for key in sizes if len({str(preset.get(key)) for preset in presets.values()}) == 1]
    shown = (*columns, *(key for key in sizes if key not in same))
    titles = {key: key.replace("_", " ").replace("macs per", "MAC /").replace("mhz", "MHz") for key in shown}
    made = table(to, ("preset", *titles.values()), set(titles.values()))
    for name, preset in presets.items():
        made.add_row(name, *(str(preset.get(key, "-")) for key in shown))
    to.print(made)
    first = next(iter(presets.values()))
    to.print("all presets:", ", ".join(f"{key.replace('_', ' ')} {first[key]}" for key in same))
    for model in machine.timing_models:
        to.print(f"timing model {model.name}: {model.evidence}")
    to.print(f"passes: {', '.join(about['passes'])}\n")


COMMANDS: tuple[click.Command, ...] = (targets, conform)
