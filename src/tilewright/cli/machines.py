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
@click.argument("target", required=False)
@options.machine
@options.as_json
def targets(target: str | None, config: str | None, overrides: dict[str, str], as_json: bool) -> None:
    """List the targets: presets, sizes, timing models.

    Each timing model comes with the evidence behind it. With TARGET, that one's presets, or the machine that -c and
    --set name.
    """
    from tilewright import targets as found

    if (config or overrides) and not target:
        raise InputError("targets", "-c and --set need a TARGET", f"choose one of {', '.join(found.names())}")
    machines = []
    for name in [target] if target else found.names():
        try:
            machines.append(found.get(name))
        except InputError as error:
            if target:
                raise
            click.echo(f"tilewright: {error}", err=True)  # a package that is called like a target and is none
    about = [_to_json(machine, config, overrides) for machine in machines]
    if as_json:
        click.echo(json.dumps({"targets": about}))
    else:
        for facts in about:
            _show(facts)


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


def _to_json(machine: Target, config: str | None, overrides: dict[str, str]) -> dict[str, Any]:
    presets = {name: machine.describe(machine.config(name, {})) for name in machine.presets}
    if config or overrides:
        presets = {config or machine.presets[0]: machine.describe(machine.config(config, overrides))}
    return {
        "name": machine.name,
        "title": machine.title,
        "passes": sorted(machine.passes),
        "presets": presets,
        "timing_models": [{"name": model.name, "evidence": model.evidence} for model in machine.timing_models],
    }


def _show(about: dict[str, Any]) -> None:
    from tilewright.report.text import console, table

    to = console()
    to.print(f"{about['name']}: {about['title']}", style="bold", soft_wrap=True)
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
    for key in same:
        value = first[key]
        text = "; ".join(f"{name} {of}" for name, of in value.items()) if isinstance(value, dict) else value
        to.print(f"{key.replace('_', ' ')}: {text}", soft_wrap=True)
    for model in about["timing_models"]:
        to.print(f"timing model {model['name']}: {model['evidence']}", soft_wrap=True)
    to.print(f"passes: {', '.join(about['passes'])}\n")


COMMANDS: tuple[click.Command, ...] = (targets, conform)
