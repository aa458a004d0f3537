"""Commands that take a program or a saved run: exec, check, disasm, asm, cosim, report, compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import inputs, options
from tilewright.cli.cosimulation import UserVerilog, compared, user_verilog
from tilewright.cli.options import UserCfu, compiler_flags, flags_of, refuse, say, say_json, shared
from tilewright.cli.simulation import Simulation, show_where, simulation
from tilewright.errors import InputError, ProgramError, TilewrightError

if TYPE_CHECKING:
    from tilewright.program.program import Program
    from tilewright.targets.base import Config
    from tilewright.targets.gateware import CosimCase
    from tilewright.targets.users import Execution, Loaded


@dataclass(frozen=True)
class Machine:
    """The target (None: not given on the command line) and the configuration of its machine."""

    target: str | None
    config: str | None = shared(options.config)
    overrides: dict[str, str] = shared(options.overrides)

    def of(self, kind: type[Any], file: str, such_as: str, lacks: str, remedy: str) -> tuple[Any, Config]:
        """Return the target and the configuration.

        Raises InputError with the text `file` if no target is given, and with the text `lacks` if the target does not
        have the protocol `kind`.
        """
        if self.target is None:
            raise InputError("--target", f"is missing: {file}", f"give one, such as -t {such_as}")
        machine = options.able(kind, self.target, "--target", lacks, remedy)
        return machine, machine.config(self.config, self.overrides)

    def folder(self, path: str) -> Loaded:
        from tilewright.targets.users import Folders

        lacks = "reads no folders of programs", "give a program file (.twp)"
        machine, config = self.of(Folders, "a folder does not name its target", "vta", *lacks)
        loaded: Loaded = machine.load(Path(path), config)
        return loaded


def on_machine(text: str) -> Callable[[Any], Any]:
    """Return a decorator that adds the argument `machine`: the options of a target and of its configuration."""
    return options.bundle("machine", Machine, options.of_target(text))


@click.command(name="exec")
@click.argument("path", metavar="FILE.twp|FILE.elf|FILE.c|FOLDER")
@on_machine("The target that runs FILE.elf, FILE.c or FOLDER.")
@compiler_flags
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop FILE.elf after N instructions.")
@options.cfu
@options.gdb
@options.new_file(
    "--profile", metavar="FILE", about="Write FILE.elf's profile for speedscope.app.", suffixes=(".json",)
)
@simulation
def exec_(
    path: str,
    machine: Machine,
    include: tuple[str, ...],
    define: tuple[str, ...],
    simulation: Simulation,
    user_cfu: UserCfu,
    **for_elf: Any,
) -> int:
    """Run a saved program on the machine it was compiled for, or an ELF file on a target's processor.

    For FILE.twp, --set changes keys of the machine that only affect time; another key needs a new compilation. -c names
    the file of the machine, if the file names code, such as your own ALU operations in `vta`. FOLDER is a program of
    another compiler (for `vta`: onera/standalone-vta). FILE.c is a host in C, which is compiled and run (for `gemmini`:
    a program with the commands of gemmini.h).

    \f
    Raises InputError if an option does not fit the kind of file, or if the target cannot run it.
    """
    code = {f"--{name}": value is not None for name, value in for_elf.items()}
    cfu = {"--cfu": user_cfu.files, "--initial-states": user_cfu.states}
    for_c = {"-I": include, "-D": define}
    for_program = {
        **{"--input": simulation.source, "--output": simulation.output},
        **{"--what-if": simulation.what_if, "--energy": simulation.energy},
    }
    if Path(path).is_dir():
        refuse(code | cfu, "is for ELF files only, not for folders")
        refuse(for_c, "is for C files only, not for folders")
        loaded = machine.folder(path)
        return simulation.run(loaded.program, path, loaded=loaded)
    if path.endswith(".c"):
        refuse(code | cfu, "is for ELF files only, not for C files")
        refuse(for_program, "is for program files only, not for C files")
        return _exec_c(path, machine, flags_of(include, define), simulation)
    refuse(for_c, "is for C files only")
    if is_elf(path):
        refuse(for_program, "is for program files only, not for ELF files")
        return _exec_elf(path, machine, user_cfu, simulation, **for_elf)
    from tilewright.whatif import on_machine

    refuse({"--target": machine.target, **code}, "is for ELF files only: a program file names its own machine")
    program = load(path, machine.config)
    with options.replaced(program.target, user_cfu):
        return simulation.run(on_machine(program, machine.overrides) if machine.overrides else program, path)


def _exec_elf(
    path: str,
    machine: Machine,
    user_cfu: UserCfu,
    simulation: Simulation,
    *,
    limit: int | None,
    gdb: int | None,
    profile: Path | None,
) -> int:
    from tilewright.files import replacing
    from tilewright.run import timing_model
    from tilewright.targets.users import Processor

    lacks = "has no processor that runs ELF files", "compile a model for it instead"
    processor, config = machine.of(Processor, "an ELF file does not name its target", "cfu", *lacks)
    with options.replaced(processor.name, user_cfu), options.debugged(processor.name, gdb):
        done = processor.execute(Path(path), config, timing_model(processor, simulation.timing, config), limit)
    if profile:
        with replacing(profile) as file:
            file.write(json.dumps(done.speedscope).encode())
    return _report(done, simulation, path)


def _exec_c(path: str, machine: Machine, flags: list[str], simulation: Simulation) -> int:
    from tilewright.files import regular
    from tilewright.run import timing_model
    from tilewright.targets.users import RunsC

    lacks = "runs no C files", "give -t gemmini, or compile it for this target"
    compiler, config = machine.of(RunsC, "a C file does not name its target", "gemmini", *lacks)
    timing_model(compiler, simulation.timing, config)
    return _report(compiler.run_c(regular(path), config, flags), simulation, path)


def _report(done: Execution, simulation: Simulation, path: str) -> int:
    from tilewright.report.summary import Summary
    from tilewright.run import executed

    if simulation.html or simulation.save or simulation.trace:
        simulation.write(Summary(executed(done, Path(path).name), "the program's own data"), path)
    options.answer(simulation.as_json, done.data, done.text)
    return 0 if done.passed else 1


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def check(path: str, as_json: bool) -> int:
    """Look for races, deadlocks and other hazards.

    Behaviour that differs between implementations of the target is a finding, too. With a finding, the status is 1.
    """
    from tilewright import targets
    from tilewright.report.render import show_findings
    from tilewright.sim.findings import grouped

    program = load(path)
    findings = tuple(targets.get(program.target).check(program))
    if as_json:
        told = {
            "target": program.target,
            "hazards": len(findings),
            "findings": [finding.to_json() for finding in findings],
        }
        told["causes"] = [group.to_json() for group in grouped(findings)]
        say_json(told)
    else:
        show_findings(findings)
        show_where(program, path, [group.place for group in grouped(findings)])
    return 1 if findings else 0


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def disasm(path: str, as_json: bool) -> None:
    """Print a program as text that `asm` reads back."""
    from tilewright import targets
    from tilewright.program import file

    program = load(path)
    text = file.with_machine(program, targets.get(program.target).disassemble(program))
    told = {"target": program.target, "config": dict(program.config), "text": text}
    options.answer(as_json, told, text.removesuffix("\n"))


@click.command()
@click.argument("path", metavar="FILE.txt")
@options.new_file(
    "-o", "--output", required=True, metavar="FILE.twp", about="The program to write.", suffixes=(".twp",)
)
@on_machine("[the one that the text names]")
@options.as_json
def asm(path: str, output: Path, machine: Machine, as_json: bool) -> None:
    """Assemble text into a program file without a network.

    The first lines may name target and config, as `disasm` prints them.

    \f
    Raises ProgramError if the text does not name its target and TARGET is missing.
    """
    from tilewright import targets
    from tilewright.program import archive, file

    text = file.read_text(path)
    named, numbers = file.machine_of(text, path)
    if not (machine.target or named):
        raise ProgramError(path, "does not name its target", "give -t, or a first line '# target NAME'")
    target = targets.get(machine.target or str(named))
    numbers = None if named != target.name else numbers
    with archive.naming(path):
        program = target.assemble(text, target.config(machine.config or numbers, machine.overrides))
    file.save(program, output)
    options.answer(as_json, {"file": str(output), **program.outline()})


@click.command()
@click.argument("path", metavar="FILE.twp")
@click.option("-i", "--input", "source", metavar="FILE", help="Samples; only the first is run [random codes].")
@click.option("-c", "--config", metavar="FILE.json", help="The machine's file, if it names lanes of your own.")
@user_verilog
@options.timing
@options.new_file(
    "--wave",
    metavar="FILE.vcd",
    about="Write a waveform around the first difference.",
    suffixes=(".vcd",),
)
@click.option("--whole", is_flag=True, help="Show that whole launch, or the first launch if none differs.")
@options.as_json
def cosim(
    path: str,
    source: str | None,
    config: str | None,
    user_verilog: UserVerilog,
    timing: str | None,
    wave: Path | None,
    whole: bool,
    as_json: bool,
) -> int:
    """Run a program on the compiled gateware, or on Verilog of your own, and compare it with the simulator.

    Cycles and the data of every STORE are compared. Status 1 if there is a difference; the first one is named by
    instruction, cycle and signal.

    \f
    Raises InputError if --whole comes without --wave, or --timing without --verilog.
    """
    from tilewright.conform import Wave

    program = load(path, config)
    samples = inputs.samples_of(program, source, None, None, None)
    if whole and wave is None:
        raise InputError("--whole", "needs --wave: it sets the length of the waveform", "give a file with --wave")
    comparison = compared(program, samples, user_verilog.rtl(timing), as_json, Wave(wave, whole) if wave else None)
    comparison.left_out.extend(_not_shown(comparison.launches, wave, whole))
    if as_json:
        say_json(comparison.to_json())
    else:
        written = [str(wave)] if wave and comparison.launches and (whole or comparison.differ) else []
        comparison.show(*written)
    return 1 if comparison.differ else 0


def _not_shown(compared: list[CosimCase], wave: Path | None, whole: bool) -> Iterator[str]:
    differ = [case.name for case in compared if case.differences]
    if not compared:
        yield "nothing was compared: no layer runs on the machine"
    if wave and not compared:
        yield f"{wave} is not written: there is no launch"
    elif wave and not (whole or differ):
        yield f"{wave} is not written: no launch differs; --whole writes the first one"
    elif wave and len(compared) > 1:
        yield f"{wave} shows the launch {(differ or [compared[0].name])[0]} only"


def is_elf(path: str) -> bool:
    from tilewright.files import regular

    with regular(path, ProgramError).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def load(path: str, config: str | None = None) -> Program:
    """Load a program. `config` is a machine file that names code, such as the user's own operations.

    Raises ProgramError, naming the file, if the program is malformed, if its machine does not exist, or if `config` is
    another machine. Raises InputError if a machine file of this target cannot name code.
    """
    from tilewright import targets
    from tilewright.graph.rounding import rounding_mode
    from tilewright.program import file
    from tilewright.targets.users import NamesCode

    program = file.load(path)
    try:
        machine = targets.get(program.target)
    except InputError as error:
        raise error.within(Path(path)) from None
    try:
        machine.config(program.config, {})
        rounding_mode(program.rounding)
    except TilewrightError as error:
        raise ProgramError(f"{path}: {error.where}", error.reason, "compile it again") from None
    if config is None:
        return program
    if not isinstance(machine, NamesCode):
        remedy = f"leave it out: machine files of {program.target} cannot name code"
        raise InputError("--config", "is not needed: a program file names its own machine", remedy)
    return machine.with_code(program, machine.config(config, {}))


@click.command()
@click.argument("path", metavar="RUN.twr")
@options.new_file(
    "-o", "--output", required=True, metavar="FILE.html", about="The page to write.", suffixes=options.HTML
)
def report(path: str, output: Path) -> None:
    """Write a saved run as a page, one HTML file that opens without network."""
    from tilewright.report import page, record

    page.write(record.load(path), output)
    say(f"{output}: the page of {path}")


@click.command()
@click.argument("before", metavar="A.twr")
@click.argument("after", metavar="B.twr")
@options.new_file(
    "--html", metavar="FILE", about="Write the differences as a page, one HTML file.", suffixes=options.HTML
)
@options.as_json
def compare(before: str, after: str, html: Path | None, as_json: bool) -> None:
    """Show what takes more or fewer cycles in run B than in run A, by layer and by cause.

    The runs may be on different machines. Layers are matched by name.
    """
    from tilewright.report import compare as differences
    from tilewright.report import record
    from tilewright.report.page import difference

    runs = record.load(before), record.load(after)
    comparison = differences.compare(*(run.run["summary"] for run in runs))
    if html:
        difference.write(*runs, html)
    options.answer(as_json, comparison.to_json(), comparison.text)
