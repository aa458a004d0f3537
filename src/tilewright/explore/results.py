"""Files of a study's results: all trials as CSV or Parquet, and the machines of the front as configuration files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tilewright.errors import InputError, option
from tilewright.explore.study import Study
from tilewright.explore.trial import BASE
from tilewright.files import replacing, write_folder
from tilewright.install import hint

#: Spreadsheets treat a text with such a beginning as a formula, even with full-width characters.
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FIRST = ("point", "status", "reason", "on_front")


def rows(study: Study) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns and rows of a table with one row per trial. Keys come before sizes and results."""
    front = {trial.point for trial in study.front()}
    keys = [axis.key for axis in study.space.axes]
    trials = [trial for point, trial in sorted(study.trials.items()) if point != BASE]
    # The values of a trial include its keys, which have columns of their own.
    values = [name for name in dict.fromkeys(name for trial in trials for name in trial.values) if name not in keys]
    table = [
        dict[str, Any](zip(FIRST, (trial.point, trial.status, trial.reason, trial.point in front), strict=True))
        | {**trial.set, **{name: value for name, value in trial.values.items() if name not in keys}}
        | {"seconds": trial.seconds}
        for trial in trials
    ]
    return [*FIRST, *keys, *values, "seconds"], table


def write_csv(study: Study, path: Path) -> None:
    """Write all trials as CSV. Raises InputError if the file cannot be written."""
    columns, trials = rows(study)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(map(_cell, columns))
    table.writerows([_cell(row.get(name, "")) for name in columns] for row in trials)
    with replacing(path) as file:
        file.write(text.getvalue().encode(errors="replace"))


def _cell(value: Any) -> Any:
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    # With an apostrophe in front, a spreadsheet shows a formula as a text, and does not run it.
    mark = "'" if _FORMULA.match(normalize("NFKC", value)) else ""
    # Python's csv module does not quote a carriage return, but for other programs it ends the row.
    return (mark + value).replace("\r", " ")


def require_parquet() -> None:
    """Raises InputError if pyarrow, which writes Parquet files, is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError(option("--parquet"), "needs pyarrow", f"{hint('explore')}, or write CSV") from None


def write_parquet(study: Study, path: Path) -> None:
    """Write all trials as a Parquet file. Raises InputError if pyarrow is missing or the file cannot be written."""
    require_parquet()
    import pyarrow
    from pyarrow import parquet

    columns, trials = rows(study)
    table = pyarrow.table({name: _column([row.get(name) for row in trials]) for name in columns})
    with replacing(path) as file:
        parquet.write_table(table, file)


def _column(values: Sequence[Any]) -> list[Any]:
    """Convert the values of a column to one type: to text if one value is text, else to floats if they differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return list(values)
    as_text = str in kinds
    return [None if value is None else str(value) if as_text else float(value) for value in values]


def write_front(study: Study, folder: Path) -> list[Path]:
    """Write a configuration file (for `-c`) for each machine of the front. Return the paths in the same order."""
    files = {
        f"machine_{number}.json": json.dumps(study.config(trial), indent=2) + "\n"
        for number, trial in enumerate(study.front(), start=1)
    }
    write_folder(folder, files)
    for path in folder.glob("machine_*.json"):
        if path.name not in files:  # from an earlier search, whose front had more machines
            path.unlink()
    return [folder / name for name in files]
