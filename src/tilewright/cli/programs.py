"""Commands that take a program: exec, check, disasm, asm, cosim."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import inputs, options
from tilewright.cli.native import compiler_flags, flags_of
from tilewright.cli.options import OwnCfu, Simulation
from tilewright.cli.terminal import say, say_json
from tilewright.errors import InputError, ProgramError, TilewrightError

if TYPE_CHECKING:
    from tilewright.program.program import Program
    from tilewright.targets.gateware import CosimCase
    from tilewright.targets.users import Execution


@click.command(name="exec")
@click.argument("path", metavar="FILE.twp|FILE.elf|FILE.c|FOLDER")
@options.of_target("The target that runs FILE.elf, FILE.c or FOLDER.")
@options.machine
@compiler_flags
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop FILE.elf after N instructions.")
@options.cfu
@options.gdb
@options.new_file(
    "--profile", metavar="FILE", about="Write FILE.elf's profile for speedscope.app.", suffixes=(".json",)
)
@options.simulation
def exec_(
    path: str,
    target: str | None,
    config: str | None,
    overrides: dict[str, str],
    include: tuple[str, ...],
    define: tuple[str, ...],
    limit: int | None,
    own: OwnCfu,
    gdb: int | None,
    profile: Path | None,
    simulation: Simulation,
) -> int:
    """Run a saved program on the machine it was compiled for, or an ELF file on a target's processor.

    With a program, --set changes keys of its machine that only change time; for any other key, compile it again. -c
    gives the machine's file, for code that the file names (ALU operations of your own, in `vta`). FOLDER holds a
    program that another compiler wrote, for `vta` that of onera/standalone-vta. FILE.c is a host in C, which is
    compiled and run: for `gemmini`, a program with the commands of gemmini.h.

    \f
    Raises InputError if an option does not fit the kind of file, or if the target cannot run it.
    """
    from tilewright.whatif import on_machine

    code = {"--limit": limit, "--profile": profile, "--gdb": gdb is not None}
    for_c = {"-I": include, "-D": define}
    if Path(path).is_dir():
        own_cfu = {"--cfu": own.files, "--initial-states": own.states}
        _refuse(code | own_cfu, "is for ELF files only, not for folders")
        _refuse(for_c, "is for C files only, not for folders")
        return _exec_folder(path, target, config, overrides, simulation)
    for_elf = {"--target": target, **code}
    run = simulation
    for_program = {
        **{"--input": run.source, "--output": run.output},
        **{"--what-if": run.what_if, "--energy": run.energy},
    }
    if path.endswith(".c"):
        _refuse(code | {"--cfu": own.files, "--initial-states": own.states}, "is for ELF files only, not for C files")
        _refuse(for_program, "is for program files only, not for C files")
        return _exec_c(path, target, config, overrides, flags_of(include, define), simulation)
    _refuse(for_c, "is for C files only")
    if not is_elf(path):
        _refuse(for_elf, "is for ELF files only: a program file names its own machine")
        program = load(path, config)
        with options.replaced(program.target, own):
            return run.run(on_machine(program, overrides) if overrides else program, path)
    _refuse(for_program, "is for program files only, not for ELF files")

    from tilewright import targets
    from tilewright.files import replacing
    from tilewright.run import timing_model
    from tilewright.targets.users import Executes

    if target is None:
        raise InputError("--target", "is missing: an ELF file does not name its target", "give one, such as -t cfu")
    machine = targets.get(target)
    if not isinstance(machine, Executes):
        raise InputError("--target", f"{target} has no processor that runs ELF files", "compile a model for it instead")
    chosen = machine.config(config, overrides)
    with options.replaced(target, own), options.debugged(target, gdb):
        done = machine.execute(Path(path), chosen, timing_model(machine, run.timing), limit)
    if profile:
        with replacing(profile) as file:
            file.write(json.dumps(done.speedscope).encode())
    return _report(done, run, path)


def _report(done: Execution, run: Simulation, path: str) -> int:
    """Write the requested files of an execution, print its report and return the exit status."""
    from tilewright.report.summary import Summary
    from tilewright.run import executed

    if run.html or run.save or run.trace:
        result = executed(done, Path(path).name)
        run.write(Summary(result, "the program's own data", result.clock_mhz), path)
    options.answer(run.as_json, done.data, done.text)
    return 0 if done.passed else 1


def _exec_c(
    path: str,
    target: str | None,
    config: str | None,
    overrides: dict[str, str],
    flags: Sequence[str],
    simulation: Simulation,
) -> int:
    """Compile and run a host in C."""
    from tilewright import targets
    from tilewright.files import regular
    from tilewright.run import timing_model
    from tilewright.targets.users import RunsC

    if target is None:
        raise InputError("--target", "is missing: a C file does not name its target", "give one, such as -t gemmini")
    machine = targets.get(target)
    if not isinstance(machine, RunsC):
        raise InputError("--target", f"{target} runs no C files", "give -t gemmini, or compile it for this target")
    timing_model(machine, simulation.timing)
    done = machine.run_c(regular(path), machine.config(config, overrides), flags)
    return _report(done, simulation, path)


def _exec_folder(
    path: str, target: str | None, config: str | None, overrides: dict[str, str], simulation: Simulation
) -> int:
    """Run a program that another compiler wrote as a folder, and compare its outputs with those expected there."""
    from tilewright import targets
    from tilewright.targets.users import Folders

    if target is None:
        raise InputError("--target", "is missing: a folder does not name its target", "give one, such as -t vta")
    machine = targets.get(target)
    if not isinstance(machine, Folders):
        raise InputError("--target", f"{target} reads no folders of programs", "give a program file (.twp)")
    loaded = machine.load(Path(path), machine.config(config, overrides))
    return simulation.run(loaded.program, path, loaded=loaded)


@click.command()
@click.argument("path", metavar="FILE.twp")
@options.as_json
def check(path: str, as_json: bool) -> int:
    """Look for races, deadlocks and other hazards.

    It also looks for behaviour in which the target's implementations differ. The status is 1 if there is a finding.
    """
    from tilewright import targets
    from tilewright.report.render import show_findings
    from tilewright.sim.grouped import grouped

    program = load(path)
    found = tuple(targets.get(program.target).check(program))
    if as_json:
        told = {"target": program.target, "hazards": len(found), "findings": [finding.to_json() for finding in found]}
        told["causes"] = [group.to_json() for group in grouped(found)]
        say_json(told)
    else:
        show_findings(found)
        options.show_where(program, path, [group.place for group in grouped(found)])
    return 1 if found else 0


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
@options.of_target("[the one that the text names]")
@options.machine
@options.as_json
def asm(
    path: str, output: Path, target: str | None, config: str | None, overrides: dict[str, str], as_json: bool
) -> None:
    """Assemble text into a program file without a network.

    The first lines may name target and config, as `disasm` prints them.

    \f
    Raises ProgramError if the text does not name its target and TARGET is missing.
    """
    from tilewright import targets
    from tilewright.program import archive, file

    text = file.read_text(path)
    named, numbers = file.machine_of(text, path)
    if not (target or named):
        raise ProgramError(path, "does not name its target", "give -t, or a first line '# target NAME'")
    machine = targets.get(target or str(named))
    chosen = machine.config(config if config or named != machine.name else numbers, overrides)
    with archive.naming(path):
        program = machine.assemble(text, chosen)
    file.save(program, output)
    options.answer(as_json, {"file": str(output), **program.outline()})


@click.command()
@click.argument("path", metavar="FILE.twp")
@click.option("-i", "--input", "source", metavar="FILE", help="Samples; only the first is run [random codes].")
@click.option("-c", "--config", metavar="FILE.json", help="The machine's file, if it names lanes of your own.")
@click.option("--engine", metavar="ENGINE", default="verilator", show_default=True, help="verilator or cxxrtl.")
@options.new_file(
    "--wave",
    metavar="FILE.vcd",
    about="Write a waveform around the first difference (by cxxrtl, for any ENGINE).",
    suffixes=(".vcd",),
)
@click.option("--whole", is_flag=True, help="Show that whole launch, or the first launch if none differs.")
@options.as_json
def cosim(
    path: str, source: str | None, config: str | None, engine: str, wave: Path | None, whole: bool, as_json: bool
) -> int:
    """Run a program on the compiled gateware and compare cycles and the data of every STORE with the simulator.

    Status 1 if there is a difference; the first one is named by instruction, cycle and signal.

    \f
    Raises InputError if --whole comes without --wave.
    """
    from tilewright.conform import Wave
    from tilewright.conform import cosim as compare

    program = load(path, config)
    samples = inputs.samples_of(program, source, None, None, None)
    if whole and wave is None:
        raise InputError("--whole", "needs --wave: it sets the length of the waveform", "give a file with --wave")
    cases = compare(program, samples.values if samples else None, engine, Wave(wave, whole) if wave else None)
    found = _shown(program, cases, as_json)
    differ = sum(bool(case.differences) for case in found)
    left_out = inputs.left_out(program, samples)
    if not found:
        left_out.append("nothing was compared: no layer runs on the machine")
    if wave and not found:
        left_out.append(f"{wave} is not written: there is no launch")
    elif wave and not (whole or differ):
        left_out.append(f"{wave} is not written: no launch differs; --whole writes the first one")
    elif wave and len(found) > 1:
        shown = next((case.name for case in found if case.differences), found[0].name)
        left_out.append(f"{wave} shows the launch {shown} only")
    if as_json:
        launches = [asdict(case) for case in found]
        say_json({"target": program.target, "launches": launches, "left_out": left_out})
    else:
        say(f"{len(found)} launches, {differ} differ")
        if wave and found and (whole or differ):
            say(str(wave))
        for line in left_out:
            say(line)
    return 1 if differ else 0


def _shown(program: Program, cases: Iterable[CosimCase], as_json: bool) -> list[CosimCase]:
    """Return the cases of a comparison. Print each one when it comes, or all after a progress bar."""
    found: list[CosimCase] = []
    names = [*(launch.name for launch in program.launches), ""]
    with options.progress_bar() as bar:
        if bar:
            bar(0, len(names) - 1, f"{names[0]}: the gateware is compiled first")
        for case in cases:
            found.append(case)
            if bar:
                bar(len(found), len(names) - 1, names[len(found)])
            elif not as_json:
                _tell(case)
    if bar and not as_json:
        for case in found:
            _tell(case)
    return found


def _tell(case: CosimCase) -> None:
    same = "same" if not case.differences else f"{case.mismatched_bytes} bytes differ"
    say(f"{case.name}: {case.instructions} instructions, {case.rtl_cycles} cycles, {same}")
    for difference in case.differences:
        say(f"  {difference}")


def is_elf(path: str) -> bool:
    """Return whether a file is an ELF file, by its first bytes and not by its name."""
    from tilewright.files import regular

    with regular(path, ProgramError).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _refuse(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value:
            raise InputError(name, reason)


def load(path: str, config: str | None = None) -> Program:
    """Load a program, with the code that its machine's file `config` names.

    Raises ProgramError, naming the file, if it is malformed or its machine does not exist, and if `config` is another
    machine; InputError if machines of its target name no code.
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
        remedy = f"leave it out: machines of {program.target} name no code"
        raise InputError("--config", "is not needed: a program file names its own machine", remedy)
    return machine.with_code(program, machine.config(config, {}))


COMMANDS: tuple[click.Command, ...] = (exec_, check, disasm, asm, cosim)
