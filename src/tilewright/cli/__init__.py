"""The command `tilewright`. Status 0: done, 1: a finding, 2: bad usage or input (one line on stderr), 130: interrupted.

A bug in Tilewright itself shows a traceback and ends with status 70.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from tilewright import __version__
from tilewright.cli import debug, explore, machines, native, networks, programs, registered, runs, setup
from tilewright.cli.terminal import say
from tilewright.errors import LONGEST, HazardError, TilewrightError, at_shell, shortened

FOUND, BAD, DEFECT, INTERRUPTED, PIPE_CLOSED = 1, 2, 70, 130, 141


class Interrupted(click.ClickException):
    """The error that replaces KeyboardInterrupt on Ctrl-C, so that click does not print its own message."""


class Commands(click.Group):
    """The click group that has all commands of `tilewright`, with those that single targets have."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *registered.commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Targets are imported only for a name that is not a command of every target."""
        return super().get_command(ctx, cmd_name) or registered.commands().get(cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """Run the chosen command. Raises Interrupted on Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@machines.target_folders
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


for module in (machines, networks, programs, debug, runs, explore, native, setup):
    for command in module.COMMANDS:
        cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (None: the process's own) and return the exit status."""
    if asked := os.environ.get(setup.COMPLETE):  # a shell completes a line
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "tilewright", setup.COMPLETE, asked)
    with at_shell():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    try:
        # Not cli.main: it exits with status 1 for a closed pipe, which means a finding here.
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
            say(err=True)  # the terminal shows ^C
        return _refuse("interrupted", INTERRUPTED)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tilewright"
        return _refuse(f"{error.format_message()} (see {command} --help)", BAD)
    except click.ClickException as error:
        return _refuse(error.format_message(), BAD)
    except HazardError as error:
        return _refuse(str(error), FOUND)
    except TilewrightError as error:
        return _refuse(str(error), BAD)
    except BrokenPipeError:
        return PIPE_CLOSED
    except MemoryError as error:
        return _refuse(f"not enough memory: {error or 'fewer samples may fit'}", BAD)
    except OSError as error:  # files that are written name themselves: files.replacing
        where = "standard output" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else "input or output"
        return _refuse(f"{error.filename or where}: {error.strerror or error}", BAD)
    except Exception:  # a bug in Tilewright: not status 1, which means a finding
        say(traceback.format_exc(), err=True)
        return DEFECT


def _refuse(message: str, status: int) -> int:
    with suppress(OSError):  # nobody reads the errors
        say(f"tilewright: {shortened(' '.join(message.split()), 3 * LONGEST)}", err=True)
    return status
