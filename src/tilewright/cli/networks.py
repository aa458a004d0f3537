"""Commands that take a model: run, compile, explain, quantize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import inputs, options
from tilewright.cli.cosimulation import UserVerilog, user_verilog
from tilewright.cli.options import UserCfu, say, say_json, shared, taken
from tilewright.cli.simulation import Simulation, simulation
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.program.program import Program
    from tilewright.schedules import ScheduleComparison, UserSchedule


@dataclass(frozen=True)
class Compilation:
    """A model, and the options for compiling it."""

    model: str
    target: str
    config: str | None = shared(options.config)
    overrides: dict[str, str] = shared(options.overrides)
    rounding: str | None = shared(options.rounding)
    no_cache: bool = taken(
        "--no-cache",
        is_flag=True,
        envvar="TILEWRIGHT_NO_CACHE",
        help="Always compile; do not use the user's cache folder ($TILEWRIGHT_CACHE_DIR, else ~/.cache/tilewright).",
    )
    schedule: str | None = taken(
        "--schedule",
        metavar="FILE.json",
        help="Tile sizes, loop order and slots of layers, as `explain --save-schedule` writes them (vta).",
    )
    search: bool = taken("--search", is_flag=True, help="Search for plans that take fewer cycles than --schedule.")
    shapes: dict[str, tuple[int, ...]] = shared(inputs.shapes)
    until: tuple[str, ...] = shared(inputs.until)

    def planned(self) -> UserSchedule | None:
        """Return the user's schedule, or None. Raises InputError if it is invalid, or if a search has no schedule."""
        if self.schedule is None and self.search:
            raise InputError("--search", "starts from a schedule", "add --schedule FILE.json")
        if self.schedule is None:
            return None
        from tilewright import targets
        from tilewright.schedules import takes_schedules

        return takes_schedules(targets.get(self.target), "--schedule").schedule(self.schedule)


_MODEL = click.argument("model"), options.of_target("See `tilewright targets`.", required=True)
compilation = options.bundle("compilation", Compilation, *_MODEL)


@click.command()
@compilation
@simulation
@options.cfu
@options.firmware
@options.gdb
@user_verilog
@click.option("--verify", is_flag=True, help="Compare the import with the file, run by its own framework.")
def run(
    compilation: Compilation,
    simulation: Simulation,
    user_cfu: UserCfu,
    firmware: str | None,
    gdb: int | None,
    user_verilog: UserVerilog,
    verify: bool,
) -> int:
    """Run a model, compare with the reference, report each layer.

    Without -i, one sample of random codes is run. The file of -o has an array `outputs` (N, ...). --gdb connects GDB to
    the first launch on the first sample. With --verilog, the first sample also runs on Verilog of your own, as by
    `cosim`.
    """
    target = compilation.target
    rtl = user_verilog.rtl(simulation.timing if user_verilog.verilog else None)
    with options.with_firmware(target, firmware):
        program = _compiled(compilation, simulation.timing, firmware)

    def recompile(overrides: Mapping[str, str]) -> Program:
        from tilewright.api import compile as compile_model

        assert program.graph is not None
        machine = (program.target, program.config, overrides)
        cache = not (compilation.no_cache or firmware)
        planned = compilation.planned()
        same = planned and {key: value for key, value in planned.to_json().items() if key != "config"}
        return compile_model(
            program.graph,
            *machine,
            program.rounding,
            cache=cache,
            timing=simulation.timing,
            schedule=same,
            search=compilation.search,
        )

    with options.with_firmware(target, firmware), options.replaced(target, user_cfu), options.debugged(target, gdb):
        return simulation.run(program, compilation.model, verify, recompile, rtl=None if isinstance(rtl, str) else rtl)


@click.command(name="compile")
@compilation
@options.new_file(
    "-o", "--output", required=True, metavar="FILE.twp", about="The program to write.", suffixes=(".twp",)
)
@click.option(
    "--raw",
    metavar="DIR",
    help="Also write each launch as the raw binaries of onera/standalone-vta, with a random sample (vta).",
)
@options.firmware
@options.timing
@options.as_json
def compile_(
    compilation: Compilation, output: Path, raw: str | None, firmware: str | None, timing: str | None, as_json: bool
) -> None:
    """Compile a model into a program file.

    `exec` runs the file, `check` looks for hazards, `disasm` prints the instructions.
    """
    from tilewright.program import file

    with options.with_firmware(compilation.target, firmware):
        program = _compiled(compilation, timing, firmware)
    if raw and program.graph:
        from tilewright.conform import dump
        from tilewright.model.inputs import random

        dump(program, random(program.graph).values, raw)
    file.save(program, output)  # after `dump`: if the target has no --raw, neither file is written
    on_host = len(program.steps) - len(program.launches)
    said = f"{output}: {len(program.launches)} launches on {program.target}, {on_host} steps on the host"
    options.answer(as_json, {"file": str(output), **program.outline()}, said)


@click.command()
@options.bundle(
    "compilation",
    Compilation,
    click.argument("model", metavar="MODEL|FILE.twp|FOLDER"),
    options.of_target("The target of MODEL or FOLDER."),
)
@options.firmware
@options.timing
@options.new_file(
    "--save-schedule",
    metavar="FILE.json",
    about="Write the plans of all layers, for --schedule (vta).",
    suffixes=(".json",),
)
@click.option("--all", "everything", is_flag=True, help="Also show whole block walks, and the rows of LOADs (vta).")
@options.as_json
def explain(
    compilation: Compilation,
    firmware: str | None,
    timing: str | None,
    save_schedule: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show which layer runs where and why, and each compile stage.

    Cycles come from the timing model of `run`. On cfu, cycles depend on data, and --timing assumes a sample of zeros.
    --schedule compares each layer's cycles with the plan that the compiler's own search finds. FILE.twp is a compiled
    program, or one that was written by hand; FOLDER is a program of another compiler (see `exec`).

    \f
    Raises InputError if the target is missing, or if an option does not fit the input or the target.
    """
    from tilewright import schedules, targets
    from tilewright.files import replacing, untrusted
    from tilewright.program import stages
    from tilewright.report import explain as report
    from tilewright.run import machine_of, timing_model
    from tilewright.targets.base import ExplainsAll

    path = Path(compilation.model)
    if path.suffix == ".twp" or path.is_dir():
        program = _saved(compilation, {"--firmware": firmware, "--save-schedule": save_schedule})
    else:
        if compilation.target is None:
            raise InputError("--target", "is missing: only a program file names its target", "give one, such as -t vta")
        if save_schedule:
            schedules.takes_schedules(targets.get(compilation.target), "--save-schedule")
        with options.with_firmware(compilation.target, firmware):
            program = _compiled(compilation, timing, firmware)
    machine = targets.get(program.target)
    chosen = timing_model(machine, timing, machine_of(program))
    if everything and not isinstance(machine, ExplainsAll):
        raise InputError("--all", f"{machine.name} prints everything without it", "leave it out")
    shown = machine.explain_all if everything and isinstance(machine, ExplainsAll) else machine.explain
    with untrusted(path, "compile the program again"):
        text = stages.text(shown(program, timing))
    planner = machine if isinstance(machine, schedules.TakesSchedules) and program.graph else None
    if planner and save_schedule:
        with replacing(save_schedule) as file:
            file.write(planner.schedule_of(program).text().encode())
    comparison = None
    if wanted := compilation.planned():
        searched = _compiled(replace(compilation, schedule=None, search=False), timing, firmware)
        comparison = schedules.compare(program, searched, wanted, chosen)
    if not as_json:
        report.show(program, text)
        if comparison:
            _show_comparison(comparison)
        return
    layers = [row.to_json() for row in report.rows(program.graph)] if program.graph else []
    schedule = {"schedule": planner.schedule_of(program).to_json()} if planner else {}
    compared = {"comparison": comparison.to_json()} if comparison else {}
    say_json({**program.outline(), "timing": chosen, "analysis": layers, "text": text, **schedule, **compared})


@click.command()
@click.argument("model")
@click.option("--calibration", required=True, metavar="DATA", help="Samples: .npz, .npy, .png, or a folder of files.")
@options.new_file(
    "-o", "--output", metavar="OUT.onnx", about="The model to write [MODEL_SCHEME.onnx, here].", suffixes=(".onnx",)
)
@click.option(
    "--scheme",
    type=click.Choice(["affine", "symmetric", "tflm", "pow2"]),
    default="affine",
    show_default=True,
    help="affine: any scales and zero points; symmetric: no zero points, one scale of weights (gemmini); tflm: the "
    "integers of TFLite Micro; pow2: powers of two, shifts only.",
)
@click.option(
    "--activations", type=click.Choice(["int8", "uint8"]), default="int8", show_default=True, help="affine only."
)
@click.option(
    "--method",
    type=click.Choice(["minmax", "entropy", "percentile"]),
    default="minmax",
    show_default=True,
    help="How ranges of activations are found; not for pow2.",
)
@click.option(
    "--residuals",
    type=click.Choice(["sums", "rounded"]),
    default="sums",
    show_default=True,
    help="Add residuals to the sums of a convolution, or to its rounded result; pow2 only.",
)
@inputs.shapes
@inputs.until
@click.option("--evaluation", metavar="DATA", help="Samples to measure on [the calibration samples].")
@inputs.labels
@inputs.mean
@inputs.std
@inputs.bgr
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compare the outputs of the written file in `run` with onnxruntime.",
)
@options.as_json
def quantize(
    model: str,
    calibration: str,
    output: Path | None,
    scheme: str,
    activations: str,
    method: str,
    residuals: str,
    evaluation: str | None,
    labels: str | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    bgr: bool,
    shapes: dict[str, tuple[int, ...]],
    until: tuple[str, ...],
    verify: bool,
    as_json: bool,
) -> int:
    """Quantise a float .onnx or .tflite model to int8.

    Writes a QDQ model, and reports the difference of each tensor from the float model. See docs/quantize.md. The exit
    status is 1 if the written file gives different outputs in `run` and in onnxruntime.
    """
    from tilewright.quantize import Options, require
    from tilewright.quantize import quantize as quantised

    require()
    from tilewright.quantize import report

    settings = Options(scheme, method, activations, inputs.pixels(mean, std, bgr), residuals, shapes, until)
    output = output or Path(f"{Path(model).stem}_{scheme}.onnx")
    with options.progress_bar() as progress:
        outcome = quantised(model, calibration, output, settings, evaluation, labels, progress, verify)
    if as_json:
        say_json(outcome.to_json())
    else:
        report.show(outcome)
    return 1 if outcome.verification and outcome.verification.differences else 0


def _show_comparison(comparison: ScheduleComparison) -> None:
    from tilewright.report.render import console
    from tilewright.report.table import Grid

    to = console()
    to.print("\n== schedule ==", style="bold")
    grid = Grid(("layer", "plan", "cycles", "search finds", "difference"), {"cycles", "search finds", "difference"})
    for row in comparison.rows:
        more = "" if row.searched is None else f"{row.cycles - row.searched:+,}"
        grid.add_row(row.layer, row.plan, f"{row.cycles:,}", "" if row.searched is None else f"{row.searched:,}", more)
    grid.add_row(
        "total",
        "",
        f"{comparison.cycles:,}",
        f"{comparison.searched:,}",
        f"{comparison.cycles - comparison.searched:+,}",
    )
    to.print(grid)


def _saved(asked: Compilation, given: Mapping[str, object]) -> Program:
    """Load a program file, or a program of another compiler. Raises InputError for options that only compiling has."""
    from tilewright.cli.programs import Machine, load

    compiling = {"--rounding": asked.rounding, "--schedule": asked.schedule, "--search": asked.search, **given}
    reason = "is for models only: this program is compiled"
    options.refuse(compiling | {"--shape": asked.shapes, "--until": asked.until}, reason, "leave it out")
    if Path(asked.model).is_dir():
        return Machine(asked.target, asked.config, asked.overrides).folder(asked.model).program
    options.refuse({"--target": asked.target, "--set": asked.overrides}, "is not needed: a program names its machine")
    return load(asked.model, asked.config)


def _compiled(asked: Compilation, timing: str | None = None, firmware: str | None = None) -> Program:
    """Compile a model, and print a line on stderr if most of it computes real numbers on the host."""
    # At some stack depths, CPython 3.11 allocates and frees a chunk of the stack with each call. At such a depth, the
    # import of NumPy takes up to 30 ms longer, so NumPy is imported here and not by the modules below.
    import numpy as np  # noqa: F401

    from tilewright.api import compile as compile_model
    from tilewright.coverage import advice, on_host
    from tilewright.report.summary import HALF, real_share

    target = asked.target, asked.config, asked.overrides
    with options.progress_bar() as bar:  # the first run also compiles a firmware and the simulator's loops
        if bar:
            bar(0, 0, f"compiling for {asked.target}")
        program = compile_model(
            asked.model,
            *target,
            asked.rounding,
            cache=not (asked.no_cache or firmware),  # not with firmware, whose sources may change
            timing=timing,
            schedule=asked.planned(),
            search=asked.search,
            shapes=asked.shapes,
            until=asked.until,
        )
    share = real_share(program.graph, on_host(program)) if program.graph else 0.0
    if share > HALF:
        said = f"{share:.0%} of its MACs are on real numbers, which the host computes"
        say(f"tilewright: {asked.model}: {said}; {advice(program, asked.model)}", err=True)
    return program
