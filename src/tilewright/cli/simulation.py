"""The options of a run, and functions that write the result to files and print the report."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli import inputs, options
from tilewright.cli.cosimulation import compared
from tilewright.cli.options import new_file, say, say_json, shared, taken
from tilewright.errors import HazardError

if TYPE_CHECKING:
    from tilewright.hdl.verilog import Rtl
    from tilewright.model.inputs import Samples
    from tilewright.program.program import Program
    from tilewright.report.summary import Summary
    from tilewright.sim.findings import Finding
    from tilewright.targets.users import Loaded


@dataclass(frozen=True)
class Simulation:
    """The command-line options of a run: the file with the samples, the files for the results, and the settings."""

    source: str | None = taken(
        "-i",
        "--input",
        metavar="DATA",
        help="Samples: .npz, .npy, .bin, an image, or a folder of files [random codes].",
    )
    samples: int | None = taken(
        "--samples", type=click.IntRange(1), metavar="N", help="Run the first N samples, or N random ones."
    )
    labels: str | None = shared(inputs.labels)
    class_names: str | None = taken("--class-names", metavar="FILE", help="The names of the classes, one per line.")
    mean: tuple[float, ...] | None = shared(inputs.mean)
    std: tuple[float, ...] | None = shared(inputs.std)
    bgr: bool = shared(inputs.bgr)
    output: Path | None = shared(
        new_file("-o", "--output", metavar="OUT.npz", about="Write the output values.", suffixes=(".npz",))
    )
    timing: str | None = shared(options.timing)
    html: Path | None = shared(
        new_file("--html", metavar="FILE", about="Write the run as a page, one HTML file.", suffixes=options.HTML)
    )
    save: Path | None = shared(
        new_file(
            "--save", metavar="RUN.twr", about="Keep the whole run, for `report` and `compare`.", suffixes=(".twr",)
        )
    )
    trace: Path | None = shared(
        new_file(
            "--trace",
            metavar="FILE.pftrace",
            about="Write a timeline for ui.perfetto.dev (.json: Chrome's format).",
            suffixes=options.TRACES,
        )
    )
    as_json: bool = shared(options.as_json)
    check: bool = taken("--check/--no-check", default=True, show_default=True, help="Look for races and other hazards.")
    what_if: bool | None = taken(
        "--what-if/--no-what-if",
        default=None,
        help="Also time changed machines that need another program, or a whole run (cfu) [with --html].",
    )
    energy: str | None = taken(
        "--energy",
        metavar="TABLE|FILE.toml",
        help="Estimate the energy by this table: default, horowitz, ddr3, or your own [--json: default].",
    )
    reset: bool = taken(
        "--reset", is_flag=True, help="Start each sample from the initial states (networks with states)."
    )

    def run(
        self,
        program: Program,
        path: str,
        verify: bool = False,
        recompile: Callable[[Mapping[str, str]], Program] | None = None,
        loaded: Loaded | None = None,
        rtl: Rtl | None = None,
    ) -> int:
        """Run a program from the file `path`, write the requested files and return the exit status.

        `verify` also compares the imported graph with the framework of the file. `recompile` compiles the network for a
        changed machine (a what-if). `loaded` describes a program from another compiler. With `rtl`, the program is also
        compared with RTL, on the first sample.
        """
        from tilewright.files import write_outputs
        from tilewright.report import perfetto, render

        if self.trace:
            perfetto.require(self.trace)
        try:
            summary = self._summary(program, path if verify else None, recompile, loaded)
        except HazardError as error:
            if self.as_json:
                findings = [finding.to_json() for finding in error.findings]
                say_json({"target": program.target, "hazards": max(1, len(findings)), "findings": findings})
            else:
                show_where(program, path, error.findings)
            raise
        if self.output:
            write_outputs(self.output, summary.result.outputs)
        self.write(summary, path)
        if not self.as_json:
            render.show(summary)
            show_where(program, path, summary.result.findings)
        comparison = compared(program, self._samples(program), rtl, self.as_json) if rtl else None
        if self.as_json:
            say_json(summary.to_json() | ({"verilog": comparison.to_json()} if comparison else {}))
        elif comparison:
            comparison.show()
        return 1 if not summary.passed or (comparison and comparison.differ) else 0

    def _samples(self, program: Program) -> Samples | None:
        prepared = inputs.pixels(self.mean, self.std, self.bgr)
        return inputs.samples_of(program, self.source, self.samples, self.labels, prepared)

    def _summary(
        self,
        program: Program,
        model: str | None,
        recompile: Callable[[Mapping[str, str]], Program] | None,
        loaded: Loaded | None,
    ) -> Summary:
        from tilewright import simulate
        from tilewright.energy import read
        from tilewright.run import differing

        thorough = self.html is not None if self.what_if is None else self.what_if
        table = read(self.energy) if self.energy else None
        names = inputs.class_names(self.class_names)
        samples = self._samples(program)
        simulation = simulate.Simulation(self.timing, self.check, self.reset, thorough, table, names)
        if samples is None:
            summary = simulation.of_bare(program, loaded)
            for sentence in differing(summary.result.outputs, loaded.expected if loaded else {}):
                say(sentence, err=True)
            return summary
        with options.progress_bar() as progress:
            return simulation.of_network(program, samples, model=model, recompile=recompile, progress=progress)

    def write(self, summary: Summary, path: str) -> None:
        """Write the requested files of a run of `path`: the page, the saved run and the timeline."""
        from tilewright.files import digest
        from tilewright.report import perfetto

        if self.html or self.save:
            from tilewright import __version__
            from tilewright.report import page, record

            command = click.get_current_context().find_root().obj or ""
            origin = record.Origin(command, path, digest(Path(path)), f"Tilewright {__version__}")
            saved = record.of(summary, origin)
            if self.html:
                page.write(saved, self.html)
            if self.save:
                record.save(saved, self.save)
        if self.trace:
            perfetto.write(summary.result, self.trace)


def show_where(program: Program, path: str, findings: Sequence[Finding]) -> None:
    """Print the command that opens a program file in the debugger at the first finding about an instruction."""
    from tilewright import targets
    from tilewright.targets.base import Walks

    named = next((finding for finding in findings if finding.steps), next(iter(findings), None))
    if named is None or not path.endswith(".twp") or not isinstance(targets.get(program.target), Walks):
        return
    launch = f" --launch {shlex.quote(named.launch)}" if named.launch and len(program.launches) > 1 else ""
    at = f" --at {named.steps[0]}" if named.steps else ""
    say(f"to look at it: tilewright debug {shlex.quote(path)}{launch}{at}")


simulation = options.bundle("simulation", Simulation)
