"""Commands about the targets themselves: targets, conform, header, rtl, new-target, new-firmware, config."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import options
from tilewright.cli.options import say, say_json
from tilewright.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.targets.base import Config, Target
    from tilewright.targets.gateware import Occupies


@click.command()
@click.argument("target", required=False)
@options.machine
@options.as_json
def targets(target: str | None, config: str | None, overrides: dict[str, str], as_json: bool) -> None:
    """List the targets: presets, sizes, timing models.

    Each timing model is shown with its evidence. TARGET selects one target; -c and --set select one machine instead of
    its presets.

    \f
    Raises InputError if there is no such target, or if -c or --set come without TARGET.
    """
    from tilewright import targets as registry

    if (config or overrides) and not target:
        raise InputError("targets", "-c and --set need a TARGET", f"choose one of {', '.join(registry.names())}")
    machines = []
    for name in [target] if target else registry.names():
        try:
            machines.append(registry.get(name))
        except InputError as error:
            if target:
                raise
            say(f"tilewright: {error}", err=True)  # a package has the name of a target, but exports no target
    about = [_to_json(machine, config, overrides) for machine in machines]
    if as_json:
        say_json({"targets": about})
    else:
        for facts in about:
            _show(facts)


@click.command()
@click.argument("target")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@options.as_json
def conform(target: str, paths: tuple[str, ...], as_json: bool) -> int:
    """Replay golden vectors and count how many pass.

    PATH is an .npz file, or a folder that is searched for .npz files.
    """
    from tilewright import targets as registry
    from tilewright.conform import replay

    passed = 0
    failures = []
    counts: dict[str, tuple[int, int]] = {}
    for case in replay(registry.get(target), paths):
        for name, (equal, of) in case.counts.items():
            before = counts.get(name, (0, 0))
            counts[name] = before[0] + equal, before[1] + of
        if case.passed:
            passed += 1
            continue
        failures.append({"name": case.name, "reason": case.reason})
        if not as_json:
            say(f"FAILED {case.name}: {' '.join(case.reason.split())}")
    told = {"target": target, "passed": passed, "failed": len(failures), "failures": failures}
    lines = [f"passed {passed}, failed {len(failures)}"]
    for name, (equal, of) in sorted(counts.items()):
        lines.append(f"{name}: {equal} of {of} ({100 * equal / max(of, 1):.1f} %)")
    options.answer(as_json, {**told, **({"counts": counts} if counts else {})}, "\n".join(lines))
    return 1 if failures else 0


@click.command()
@click.argument("target")
@options.machine
@options.new_file("-o", "--output", metavar="FILE.h", about="The header to write [the terminal].")
@options.as_json
def header(target: str, config: str | None, overrides: dict[str, str], output: Path | None, as_json: bool) -> None:
    """Print a machine as a C header.

    The header defines sizes, codes and the bit fields of instructions, for gateware, drivers and runtimes.
    """
    from tilewright import targets
    from tilewright.files import replacing

    machine = targets.get(target)
    chosen = machine.config(config, overrides)
    text = machine.header(chosen)
    if output:
        with replacing(output) as file:
            file.write(text.encode())
    written = {"file": str(output)} if output else {"text": text}
    said = f"{output}: {text.count('#define ')} macros of {target}" if output else text.removesuffix("\n")
    options.answer(as_json, {"target": target, "config": chosen.to_dict(), **written}, said)


@click.command()
@click.argument("target", metavar="TARGET")
@options.machine
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.as_json
def rtl(target: str, config: str | None, overrides: dict[str, str], output: Path, as_json: bool) -> None:
    """Write the machine as Verilog, with a board's files.

    If the design does not fit the board of the configuration, a line on stderr reports this.

    \f
    Raises ConfigError if the target has no gateware.
    """
    from tilewright import targets
    from tilewright.files import write_folder
    from tilewright.targets.gateware import Gateware

    machine = targets.get(target)
    if not isinstance(machine, Gateware):
        raise ConfigError(target, "has no gateware", "choose another target, such as vta")
    chosen = machine.config(config, overrides)
    with options.progress_bar() as bar:
        if bar:
            bar(0, 1, f"{target}: modules from Python, then Verilog from Yosys")
        files = machine.rtl(chosen)
        excess = machine.excess(chosen)
    if excess:
        say(f"tilewright: {target}: the design {excess}", err=True)
    write_folder(output, files)
    paths = [str(output / name) for name in files]
    options.answer(as_json, {"target": target, "files": paths, "excess": excess}, *paths)


@click.command(name="new-target")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The folder to write the package into [the current one].",
)
@options.as_json
def new_target(name: str, folder: Path, as_json: bool) -> None:
    """Write a tested target to start from.

    The target is a machine with one multiply-accumulate per cycle, in the package tilewright_NAME.
    """
    from tilewright.template import new_target as write

    package = write(name, folder)
    files = sorted(path.name for path in package.iterdir())
    place = shlex.quote(str(folder))
    before = "" if folder.resolve() == Path.cwd() else f"cd {place} && "
    tries = [f"{before}python -m pytest {package.name}", f"tilewright --targets {place} run MODEL.tflite -t {name}"]
    said = f"{package}: a target of {len(files)} files: {', '.join(files)}"
    told = {"target": name, "folder": str(package), "files": files, "next": tries}
    options.answer(as_json, told, said, *(f"  {command}" for command in tries))


@click.command(name="new-firmware")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.of_target("The target that runs it.", default="cfu", show_default=True)
@options.machine
@options.as_json
def new_firmware(folder: Path, target: str, config: str | None, overrides: dict[str, str], as_json: bool) -> None:
    """Write firmware to start from: portable kernels that you change.

    `run MODEL -t cfu --firmware DIR` builds the firmware and runs a network with it. DIR must be new or empty.
    """
    from tilewright import targets

    processor = options.processor(target, "--target", "runs no firmware")
    files = processor.new_firmware(folder, targets.get(target).config(config, overrides))
    tries = f"tilewright run MODEL.tflite -t {target} --firmware {shlex.quote(str(folder))}"
    kernels = [name for name in files if name.startswith("src/")]
    told = {"target": target, "folder": str(folder), "files": files, "next": [tries]}
    options.answer(as_json, told, f"{folder}: {len(files)} files; the kernels are {', '.join(kernels)}", f"  {tries}")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", nargs=-1, metavar="[--TARGET]", type=click.UNPROCESSED)
@click.option("--cflags", "kinds", flag_value="cflags", multiple=True, help="Where the headers are.")
@click.option("--libs", "kinds", flag_value="libs", multiple=True, help="What to link; makes the library at first use.")
@options.machine
@options.as_json
def config(
    target: tuple[str, ...], kinds: tuple[str, ...], config: str | None, overrides: dict[str, str], as_json: bool
) -> None:
    """Print a compiler's arguments for hosts in C.

    Example: cc host.c $(tilewright config --vta --cflags --libs)

    \f
    Raises InputError unless exactly one target is given, and the target has a library for hosts.
    """
    from tilewright import targets
    from tilewright.targets.users import TakesHosts

    able = [name for name in targets.names() if isinstance(targets.get(name), TakesHosts)]
    if len(target) != 1:
        remedy = f"give one target: --{' or --'.join(able)}"
        raise InputError("config", f"{' and '.join(target) or 'no target'} is given", remedy)
    name = target[0].removeprefix("--")
    machine = targets.get(name)
    if not isinstance(machine, TakesHosts):
        raise InputError(name, "has no library for hosts in C", f"choose {' or '.join(able)}")
    host_flags = machine.host_flags(machine.config(config, overrides))
    wanted = {kind: list(host_flags[kind]) for kind in kinds or host_flags}
    options.answer(as_json, {"target": name, **wanted}, shlex.join(flag for flags in wanted.values() for flag in flags))


def _to_json(machine: Target, config: str | None, overrides: dict[str, str]) -> dict[str, Any]:
    from tilewright.run import timing_model
    from tilewright.targets.gateware import Occupies

    chosen = {name: machine.config(name, {}) for name in machine.presets}
    by_preset = {timing_model(machine, None, preset) for preset in chosen.values()}
    if config or overrides:
        chosen = {config or machine.presets[0]: machine.config(config, overrides)}
    presets = {name: machine.describe(configuration) for name, configuration in chosen.items()}
    if len(by_preset) > 1:
        for name, sizes in presets.items():
            sizes["default_timing"] = timing_model(machine, None, chosen[name])
    return {
        "name": machine.name,
        "title": machine.title,
        "passes": sorted(machine.passes),
        "presets": presets,
        "areas": {name: _area(machine, configuration) for name, configuration in chosen.items()}
        if isinstance(machine, Occupies)
        else {},
        "timing_models": [
            {"name": model.name, "evidence": model.evidence, "numbers": model.values} for model in machine.timing_models
        ],
    }


def _area(machine: Occupies, config: Config) -> dict[str, Any] | None:
    try:
        return machine.area(config)
    except ConfigError:
        return None


def _show(about: dict[str, Any]) -> None:
    from tilewright.report.render import console

    to = console()
    to.print(f"{about['name']}: {about['title']}", style="bold", soft_wrap=True)
    _show_presets(about["presets"], to)
    areas: dict[str, dict[str, Any] | None] = about["areas"]
    for name, area in areas.items() if len({str(area) for area in areas.values()}) > 1 else [*areas.items()][:1]:
        if area:
            of = f" of {name}" if len(areas) > 1 else ""
            to.print(f"area{of} ({area['family']}): {_cells(area)}", soft_wrap=True)
    for model in about["timing_models"]:
        to.print(f"timing model {model['name']}: {model['evidence']}", soft_wrap=True)
        if model["numbers"]:
            numbers = ", ".join(f"{key} {value}" for key, value in model["numbers"].items())
            to.print(f"  numbers (--timing {model['name']},KEY=VALUE changes them): {numbers}", soft_wrap=True)
    to.print(f"passes: {', '.join(about['passes'])}\n")


def _show_presets(presets: dict[str, dict[str, Any]], to: Console) -> None:
    from tilewright.report.table import Grid

    columns = ("macs_per_cycle", "clock_mhz")
    presets = _unequal_parts(presets)
    sizes = dict.fromkeys(key for preset in presets.values() for key in preset if key not in columns)
    same = [key for key in sizes if len({str(preset.get(key)) for preset in presets.values()}) == 1]
    shown = (*columns, *(key for key in sizes if key not in same))
    titles = [key.replace("_", " ").replace("macs per", "MAC /").replace("mhz", "MHz") for key in shown]
    grid = Grid(("preset", *titles), set(titles), titles[::-1])
    for name, preset in presets.items():
        grid.add_row(name, *(preset.get(key, "-") for key in shown))
    to.print(grid)
    first = next(iter(presets.values()))
    for key in same:
        value = first[key]
        text = "; ".join(f"{name} {of}" for name, of in value.items()) if isinstance(value, dict) else value
        to.print(f"{key.replace('_', ' ')}: {text}", soft_wrap=True)


def _unequal_parts(presets: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the presets with a size of its own for each part of a size ("memories": "uop") that differs by preset."""
    first = next(iter(presets.values()))
    parts = [(key, part) for key, value in first.items() if isinstance(value, dict) for part in value]
    unequal = [(key, part) for key, part in parts if len({p.get(key, {}).get(part) for p in presets.values()}) > 1]
    parted = {}
    for name, preset in presets.items():
        sizes = {
            key: {part: size for part, size in value.items() if (key, part) not in unequal}
            if isinstance(value, dict)
            else value
            for key, value in preset.items()
        }
        parted[name] = sizes | {part: preset[key].get(part) for key, part in unequal}
    return parted


def _cells(area: dict[str, Any]) -> str:
    counts = {"lut": "LUT", "ff": "FF", "dsp": "DSP48", "bram36": "BRAM36"}
    parts = [
        f"about {area[key]:,} {name} (estimate, error up to {100 * area['error'][key]:.0f} %)"
        if key in area["estimate"]
        else f"{area[key]:,g} {name}"
        for key, name in counts.items()
    ]
    return ", ".join(parts) + ("; beyond the measured designs" if area["extrapolated"] else "")
