"""The command `tilewright`. Status 0: done, 1: a finding, 2: bad usage or input (one line on stderr), 130: interrupted.

A bug in Tilewright itself prints a traceback and ends with status 70.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import click

from tilewright import __version__
from tilewright.cli.options import say
from tilewright.errors import LONGEST, HazardError, TilewrightError, at_shell, shortened

#: The modules with the commands that all targets share. A module is imported when one of its commands runs.
COMMANDS = {
    **dict.fromkeys(("compile", "explain", "quantize", "run"), "networks"),
    **dict.fromkeys(("asm", "check", "compare", "cosim", "disasm", "exec", "report"), "programs"),
    **dict.fromkeys(("config", "conform", "header", "new-firmware", "new-target", "rtl", "targets"), "machines"),
    **dict.fromkeys(("explore", "sweep"), "explore"),
    **dict.fromkeys(("completion", "doctor", "examples"), "setup"),
    "debug": "debug",
}
#: A shell's completion script sets this environment variable to request completions.
COMPLETE = "_TILEWRIGHT_COMPLETE"
FINDING = 1
BAD = 2
DEFECT = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


class Interrupted(click.ClickException):
    """The error that replaces KeyboardInterrupt on Ctrl-C, so that click does not print its own message."""


class Commands(click.Group):
    """The click group with all commands of `tilewright`, including the commands of single targets."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_registered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Targets are imported only for names that are not in COMMANDS."""
        if cmd_name not in COMMANDS:
            return _registered().get(cmd_name)
        module = import_module(f"{__name__}.{COMMANDS[cmd_name]}")
        return next(
            value for value in vars(module).values() if isinstance(value, click.Command) and value.name == cmd_name
        )

    def invoke(self, ctx: click.Context) -> object:
        """Run the chosen command. Raises Interrupted on Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


def _registered() -> dict[str, click.Command]:
    from tilewright import targets

    commands: dict[str, click.Command] = {}
    for name in targets.names():
        try:
            target = targets.get(name)
        except TilewrightError:
            continue  # `tilewright targets` prints the reason
        if (targets.folder(target) / "cli.py").is_file():
            module = import_module(f"{type(target).__module__}.cli")
            commands |= {command.name: command for command in module.COMMANDS}
    return commands


def _name_folders(context: click.Context, parameter: click.Parameter, folders: tuple[Path, ...]) -> None:
    if not folders:
        return
    from tilewright import targets

    before = os.environ.get(targets.FOLDERS)

    def restore() -> None:
        os.environ.pop(targets.FOLDERS, None)
        if before is not None:
            os.environ[targets.FOLDERS] = before

    context.call_on_close(restore)
    for folder in folders:
        targets.add_folder(folder)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--targets",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    callback=_name_folders,
    expose_value=False,
    is_eager=True,
    help="Run targets of your own: packages tilewright_NAME in this folder. Before the command's name.",
)
@click.version_option(__version__, package_name="tilewright")
@click.pass_context
def cli(context: click.Context) -> int:
    """Run quantised networks on real accelerator designs without the hardware: bit-exact, cycle-exact,
    race-checked and explained.

    Exit status: 0 done, 1 a finding (mismatch, hazard, failed vector), 2 bad usage or input.
    """
    if context.invoked_subcommand is None:
        say(context.get_help())
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit status. None stands for the arguments of this process."""
    if asked := os.environ.get(COMPLETE):  # a shell requests completions
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "tilewright", COMPLETE, asked)
    with at_shell():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    try:
        # click's own `cli.main` would exit with status 1 if the pipe is closed, but 1 means a finding here.
        given = list(sys.argv[1:] if arguments is None else arguments)
        with cli.make_context("tilewright", given.copy(), obj=shlex.join(["tilewright", *given])) as context:
            status = cli.invoke(context) or 0
        if sys.stdout:
            sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except (Interrupted, click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            say(err=True)  # on a terminal, the line already has ^C
        return _refuse("interrupted", INTERRUPTED)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tilewright"
        return _refuse(f"{error.format_message()} (see {command} --help)", BAD)
    except click.ClickException as error:
        return _refuse(error.format_message(), BAD)
    except TilewrightError as error:
        return _refuse(str(error), FINDING if isinstance(error, HazardError) else BAD)
    except BrokenPipeError:
        return PIPE_CLOSED
    except MemoryError as error:
        return _refuse(f"not enough memory: {error or 'fewer samples may fit'}", BAD)
    except OSError as error:
        # A file that cannot be written raises an UnwritableError with its name, so this is mostly standard output.
        where = "standard output" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else "input or output"
        return _refuse(f"{error.filename or where}: {error.strerror or error}", BAD)
    except Exception:  # a bug in Tilewright; Python's own status 1 would mean a finding
        say(traceback.format_exc(), err=True)
        return DEFECT


def _refuse(message: str, status: int) -> int:
    with suppress(OSError):  # stderr is closed
        say(f"tilewright: {shortened(' '.join(message.split()), 3 * LONGEST)}", err=True)
    return status
