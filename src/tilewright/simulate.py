"""Run a program and collect the other contents of its report: comparisons, what-ifs, predictions, advice."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import coverage
from tilewright.energy import Table
from tilewright.model import verify
from tilewright.model.inputs import Samples
from tilewright.program.program import Program
from tilewright.report.summary import HALF, Summary, predict, ranked
from tilewright.run import Progress, run, run_bare
from tilewright.targets.users import Loaded
from tilewright.whatif import Compile, beside_built_in, whatifs


@dataclass(frozen=True)
class Simulation:
    """The settings of a run and of its report.

    `timing` names the timing model (None: the target's first). `check` enables the search for hazards, and `reset`
    starts each sample from the network's initial states. `thorough` includes slow what-ifs: machines that need another
    program, or a complete run. `table` is the table of energies.
    """

    timing: str | None = None
    check: bool = True
    reset: bool = False
    thorough: bool = False
    table: Table | None = None
    class_names: tuple[str, ...] | None = None

    def of_network(
        self,
        program: Program,
        samples: Samples,
        *,
        model: str | None = None,
        recompile: Compile | None = None,
        progress: Progress | None = None,
    ) -> Summary:
        """Run a compiled network on samples.

        If `model`, the network's file, is given, the imported network is compared with the framework of this file.
        `recompile` compiles the network for a changed machine (a what-if). Raises the errors of `tilewright.run.run`.
        """
        graph = program.graph
        assert graph is not None
        verification = verify(model, graph, samples.values) if model else None
        result = run(program, samples.values, timing=self.timing, check=self.check, progress=progress, reset=self.reset)
        values = samples.values if self.thorough else None
        what_ifs = whatifs(program, result, values, recompile=self.thorough and (recompile or True))
        kernels = beside_built_in(program, samples.values, self.timing) if recompile else None
        return Summary(
            result.with_whatifs(what_ifs),
            samples.source,
            predict(graph, result.outputs),
            samples.classes,
            verification,
            coverage.advice(program) if result.coverage < HALF else str(coverage.best_offer(program) or ""),
            self.table,
            kernels,
            ranked(graph, result.outputs),
            self.class_names,
        )

    def of_bare(self, program: Program, loaded: Loaded | None = None) -> Summary:
        """Run a program without a network. `loaded` describes its origin. Raises the errors of `run.run_bare`."""
        expected, findings = (loaded.expected, loaded.findings) if loaded else ({}, ())
        result = run_bare(program, timing=self.timing, check=self.check, expected=expected, findings=findings)
        result = result.with_whatifs(whatifs(program, result, None, recompile=self.thorough))
        return Summary(result, "the program's own data", table=self.table)
