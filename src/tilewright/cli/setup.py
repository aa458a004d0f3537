"""Commands about the installation: doctor, examples, completion."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from tilewright.cli import COMPLETE, options
from tilewright.cli.options import say, say_json
from tilewright.errors import InputError


@click.command()
@options.as_json
def doctor(as_json: bool) -> None:
    """Show what Tilewright finds here: packages of each extra, compilers, tools, processor, caches.

    For each missing part, the command that installs it is shown. Nothing is changed.
    """
    from tilewright import doctor as finding

    facts = finding.report()
    if as_json:
        say_json(facts)
    else:
        _show(facts)


def _show(facts: dict[str, Any]) -> None:
    cpu = facts["processor"]
    say(f"Tilewright {facts['tilewright']} ({facts['origin']})")
    say(f"Python {facts['python']} at {facts['executable']}, {facts['platform']}")
    features = ", ".join(cpu["features"]) or "none of the instruction sets that make loops faster"
    say(f"processor {cpu['name']} ({cpu['machine']}), cores {cpu['cores']}, {features}")
    say("\nextras")
    for name, extra in facts["extras"].items():
        missing = [package["name"] for package in extra["packages"] if package["installed"] is None]
        state = "yes" if extra["packages"] and not missing else "no"
        say(f"  {state:<4}{name:<9}{extra['use']}")
        if missing:
            say(f"{'':15}missing: {', '.join(missing)}; {extra['install']}")
    say("\ntools")
    for tool in facts["tools"]:
        say(f"  {'yes' if tool['path'] else 'no':<4}{tool['title']:<17}{tool['use']}")
        detail = f"{tool['path']}: {tool['version']}" if tool["path"] else tool["remedy"]
        say(f"{'':23}{detail}")
    say(f"\ncaches in {facts['cache_folder']} (safe to remove)")
    for cache in facts["caches"]:
        say(f"  {Path(cache['folder']).name:<40}{cache['bytes'] / 2**20:8.1f} MiB")


@click.group()
def examples() -> None:
    """List or copy the example programs and models."""


@examples.command(name="list")
@options.as_json
def list_examples(as_json: bool) -> None:
    """List the example files."""
    from tilewright import examples as shipped

    names = [str(path) for path in shipped.files()]
    options.answer(as_json, {"files": names}, *names)


@examples.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@options.as_json
def copy(folder: Path, as_json: bool) -> None:
    """Copy the examples into DIR, which must be new or empty.

    With the DIR `examples`, the commands of the documentation work as they are printed.
    """
    from tilewright import examples as shipped

    paths = shipped.copy(folder)
    digits = shlex.quote(str(folder / "digits"))
    tries = f"tilewright run {digits}/digits.tflite -t vta -i {digits}/samples.npz"
    told = {"folder": str(folder), "files": [str(path) for path in paths], "next": [tries]}
    options.answer(as_json, told, f"{folder}: {len(paths)} files", f"  {tries}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    bash: tilewright completion bash > ~/.local/share/bash-completion/completions/tilewright
    zsh:  tilewright completion zsh > a folder of $fpath/_tilewright
    fish: tilewright completion fish > ~/.config/fish/completions/tilewright.fish

    \f
    Raises InputError if click knows no such shell.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise InputError("completion", f"click has no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "tilewright", COMPLETE)
    # click's method `source` starts bash to check its version, so the script is made from the template instead.
    text = script.source_template % script.source_vars()
    say(text.replace("complete -o nosort", "complete -o nosort -o default"))  # bash completes paths if no word matches
