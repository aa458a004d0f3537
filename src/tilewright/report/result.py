"""The result of a run. Its methods import what they need, so that `import tilewright` stays fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.report.metrics import Result

if TYPE_CHECKING:
    from tilewright.report.compare import Comparison


class RunResult(Result):
    """The result of a run, with the fields of `Result`. A notebook shows the result as a table of layers."""

    def __repr__(self) -> str:
        from tilewright.report import notebook

        return f"<Result {notebook.line(self)}>"

    def _repr_html_(self) -> str:
        from tilewright.report import notebook

        return notebook.html(self)

    def table(self) -> Any:
        """Return one row per layer: a pandas DataFrame, or a list of dictionaries if pandas is not installed.

        The columns are the keys of `Layer.to_json` that have a single value. The column "causes.X" has the cycles of
        cause X.
        """
        from tilewright.report import notebook

        return notebook.table(self)

    def plot(self) -> Any:
        """Return a matplotlib Figure of the cycles by layer and cause. `Figure.savefig(path)` writes it to a file.

        Raises InputError if matplotlib is not installed, or if the run has no cycles.
        """
        from tilewright.report import notebook

        return notebook.plot(self)

    def to_html(self, path: str | Path) -> None:
        """Write the page of the run as `--html` does. Raises InputError if the file cannot be written."""
        from tilewright.report import notebook, page, record

        page.write(record.of(notebook.summary(self)), path)

    def save_trace(self, path: str | Path) -> None:
        """Write a timeline for ui.perfetto.dev, as `--trace` does. If the path ends in .json, use Chrome's format.

        Raises InputError if the run has no cycles, if the package `perfetto` is missing, or if the file cannot be
        written.
        """
        from tilewright.report import perfetto

        perfetto.write(self, path)

    def compare(self, other: Result) -> Comparison:
        """Return the cycles of `other` minus those of this run, by layer and cause. Layers are matched by name."""
        from tilewright.report.compare import compare

        return compare(self.to_json(), other.to_json())
