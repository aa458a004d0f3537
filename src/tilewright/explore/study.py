"""A study on disk: its definition, and a journal of its trials that survives a kill at any moment.

The folder has `study.json`, which is written once, and `trials.jsonl`, with one line per finished trial. A trial is
stored when its complete line is on disk (fsync). If a killed process has left an incomplete last line, this line is
removed when the study is opened again. All data is JSON: nothing is pickled.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from tilewright import targets
from tilewright.array import Array
from tilewright.errors import InputError, UnwritableError
from tilewright.explore.measure import Subject
from tilewright.explore.space import Space
from tilewright.explore.trial import BASE, EXCLUDED, PRUNED, REFUSED, Trial, dominates
from tilewright.fields import FieldError, decode, naming, parsed, read, record
from tilewright.files import sources, write_folder
from tilewright.program.cache import PACKAGE

DEFINITION = "study.json"
JOURNAL = "trials.jsonl"
_DEFINITION = {"sources": str, "subject": dict, "space": dict, "objectives": tuple[str, ...], "seed": int}
REMEDY = "give the folder of a study, or begin a new one"


@dataclass
class Study:
    """A study in progress: its subject, its space of machines, its objectives, and its trials by point.

    All objectives are minimised. Point BASE is the base machine.
    """

    subject: Subject
    space: Space
    objectives: tuple[str, ...]
    seed: int = 0
    trials: dict[int, Trial] = field(default_factory=dict)
    journal: IO[bytes] | None = None
    machines: dict[str, Trial] = field(default_factory=dict)  # {digest of the configuration: measured trial}
    _front: list[Trial] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Store a finished trial safely on disk. Raises UnwritableError if the journal cannot be written."""
        self.trials[trial.point] = trial
        self._count(trial)
        if self.journal:
            try:
                self.journal.write(json.dumps(trial.to_json(), separators=(",", ":")).encode() + b"\n")
                self.journal.flush()
                # Otherwise the trial could be lost if the computer fails.
                os.fsync(self.journal.fileno())
            except OSError as error:
                with suppress(OSError):
                    self.journal.close()
                reason = f"cannot be written: {error.strerror or error}"
                raise UnwritableError(self.journal.name, reason, "make room, and resume the study") from None

    def _kept(self, journal: IO[bytes], path: Path) -> list[Trial]:
        """Return the trials of a journal and remove an incomplete last line. Raises InputError for other damage."""
        journal.seek(0)
        trials = []
        whole = 0
        for number, line in enumerate(journal, 1):
            if not line.endswith(b"\n"):
                break
            with naming(f"{path}: line {number}", InputError, REMEDY):
                trials.append(self._trial(line))
            whole += len(line)
        journal.truncate(whole)
        return trials

    def _trial(self, line: bytes) -> Trial:
        """Return the trial in a line of the journal. Raises FieldError if the trial is not one of this study."""
        try:
            trial = Trial.from_json(parsed(line))
        except ValueError as error:
            raise FieldError("", f"is not JSON: {error}") from None
        # The journal may belong to a study of another space.
        if not BASE <= trial.point < self.space.size or (
            trial.point != BASE and trial.set != self.space.at(trial.point)
        ):
            raise FieldError("", f"has point {trial.point}, which is no machine of this study")
        if missing := set(self.objectives if trial.measured else ()) - trial.values.keys():
            raise FieldError("values", f"lacks '{min(missing)}'")
        for name in self.objectives if trial.measured else ():
            decode(float, trial.values[name], f"values.{name}")
        return trial

    def _count(self, trial: Trial) -> None:
        """Record a measured machine and update the front. Of machines with equal objectives, the first one stays."""
        if not trial.measured or trial.point == BASE or trial.digest in self.machines:
            return
        objectives = trial.objectives(self.objectives)
        front = [(old, old.objectives(self.objectives)) for old in self._front]
        self.machines[trial.digest] = trial
        if not any(dominates(theirs, objectives) or theirs == objectives for _, theirs in front):
            kept = [old for old, theirs in front if not dominates(objectives, theirs)]
            self._front = sorted([*kept, trial], key=lambda member: member.objectives(self.objectives))

    @property
    def base(self) -> Trial | None:
        return self.trials.get(BASE)

    @property
    def measured(self) -> list[Trial]:
        """The measured machines of the space, each once, even if several points describe the same machine."""
        return list(self.machines.values())

    @property
    def estimates(self) -> list[str]:
        """The names of results and sizes that are estimates for some measured machine."""
        trials = [*self.measured, *([self.base] if self.base else [])]
        return sorted({name for trial in trials for name in str(trial.values.get("estimates", "")).split()})

    def points(self) -> Array:
        """Return the objectives of the measured machines, float [trials, objectives]."""
        return np.array([trial.objectives(self.objectives) for trial in self.measured], np.float64).reshape(
            -1, len(self.objectives)
        )

    def front(self) -> list[Trial]:
        """Return the measured machines that no other machine dominates, sorted by the first objective."""
        return self._front

    def count(self, status: str) -> int:
        return sum(trial.status == status for point, trial in self.trials.items() if point != BASE)

    def refusals(self) -> dict[str, int]:
        """Return {reason: refused machines}, the most first. Reasons that differ only in numbers are one reason."""
        refused = [trial for point, trial in self.trials.items() if point != BASE and trial.status == REFUSED]
        reasons = {trial.rule: trial.reason for trial in reversed(refused)}
        return {reasons[rule]: count for rule, count in Counter(trial.rule for trial in refused).most_common()}

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.subject.target,
            "models": [model.name for model in self.subject.models],
            "objectives": list(self.objectives),
            "estimates": self.estimates,
            "points": self.space.size,
            "trials": len(self.measured),
            "refused": self.count(REFUSED),
            "excluded": self.count(EXCLUDED),
            "pruned": self.count(PRUNED),
            "rules": self.refusals(),
            "front": [{"config": self.config(trial), "set": dict(trial.set), **trial.values} for trial in self.front()],
        }

    def config(self, trial: Trial) -> dict[str, Any]:
        """Return the complete configuration of a trial's machine, as the content of a file for `-c`."""
        return self.subject.configured(trial.set).to_dict()

    def definition(self) -> dict[str, Any]:
        return {
            "sources": _sources(self.subject.target),
            "subject": self.subject.to_json(),
            "space": self.space.to_json(),
            "objectives": list(self.objectives),
            "seed": self.seed,
        }

    def keep(self, folder: Path) -> None:
        """Store the study in a folder from now on. Raises InputError if the folder is in use, or has another study."""
        definition = folder / DEFINITION
        if not definition.exists():
            journal = {} if (folder / JOURNAL).exists() else {JOURNAL: ""}
            write_folder(folder, {DEFINITION: json.dumps(self.definition(), indent=2), **journal})
        elif read(definition, InputError, REMEDY) != json.loads(json.dumps(self.definition())):
            raise InputError(
                folder, "has another study", "give the options of that study, resume it, or give another folder"
            )
        self.journal = _journal(folder)
        for trial in self._kept(self.journal, folder / JOURNAL):
            self.trials[trial.point] = trial
            self._count(trial)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a stored study to continue it. Raises InputError if the folder has no study, or is in use."""
        path = folder / DEFINITION
        if not path.is_file():
            raise InputError(folder, "has no study", REMEDY)
        with naming(path, InputError, REMEDY):
            data = record(_DEFINITION, read(path, InputError, REMEDY), "")
            subject = Subject.from_json(data["subject"])
            if data["sources"] != _sources(subject.target):
                reason = "was made by another version of Tilewright, whose cycles may differ"
                raise InputError(folder, reason, "begin a new study")
            space = Space.from_json(data["space"], str(path))
            study = cls(subject, space, data["objectives"], data["seed"])
        study.keep(folder)
        return study


def _sources(target: str) -> str:
    package = targets.folder(targets.get(target))
    return sha256((sources(PACKAGE) + sources(package)).encode()).hexdigest()


def _journal(folder: Path) -> IO[bytes]:
    """Open and lock the journal of a study. Raises InputError if another process has locked it."""
    journal = (folder / JOURNAL).open("a+b")
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        journal.close()
        raise InputError(folder, "is in use by another process", "wait for it, or end it") from None
    return journal
