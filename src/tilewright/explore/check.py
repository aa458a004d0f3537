"""Checks machines of a study: each network runs alone, with values, and must give what the study has found."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.explore.measure import Model, Subject
from tilewright.explore.study import Study
from tilewright.explore.trial import Trial
from tilewright.model import inputs
from tilewright.program.program import Configuration
from tilewright.run import run


def differences(study: Study, trial: Trial) -> list[str]:
    """Run each network of a study on a trial's machine, on a random sample, and return how the runs contradict it.

    The cycles of the networks must add up to the trial's, outputs must be those of the reference, bit by bit (on
    targets that do not approximate it), and there must be no hazards.
    """
    subject, found, cycles = study.subject, list[str](), 0
    config = subject.configured(trial.set)
    for model in subject.models:
        try:
            taken, wrong = _run(subject, model, config)
        except TilewrightError as error:
            return [*found, f"{model.name}: {error}"]
        cycles += taken
        found += [f"{model.name}: {text}" for text in wrong]
    if cycles != trial.values["cycles"]:
        found.append(f"{cycles:,} cycles, {trial.values['cycles']:,} in the study")
    return found


def _run(subject: Subject, model: Model, config: Configuration) -> tuple[int, list[str]]:
    """Return the cycles of a network on a machine, and what is wrong with the run."""
    graph = model.load()
    program, timing = subject.compiled(graph, config)
    result = run(program, inputs.random(graph).values, timing=timing)
    wrong = [str(finding) for finding in result.findings]
    if result.matches_reference is False:
        wrong.append("outputs differ from the reference")
    return result.cycles, wrong
