"""Compare two runs, each given as its `--json` object: the difference in cycles by layer and by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.errors import InputError, plain
from tilewright.report.summary import share

#: A line names this many causes, and gives the sum of the others.
NAMED = 4
#: `Comparison.__repr__` names this many layers.
SHOWN = 1


@dataclass(frozen=True)
class Change:
    """The cycles of one layer in two runs: `before` and `after`.

    `causes` are the differences by cause, the largest first. Their sum is `cycles`. `where` says for each run where the
    layer ran: on the target, on the "host", or "" if the run has no layer of this name.
    """

    name: str
    before: int
    after: int
    causes: Mapping[str, int]
    where: tuple[str, str]

    @property
    def cycles(self) -> int:
        """The difference in cycles, which is positive if the second run takes longer."""
        return self.after - self.before

    @property
    def moved(self) -> bool:
        """Whether the layer exists in only one of the runs, or ran on the host in only one of the runs."""
        return "" in self.where or (self.where[0] == "host") != (self.where[1] == "host")

    def __str__(self) -> str:
        text = f"{self.name} {self.cycles:+,}"
        if self.moved:
            text += f" ({' -> '.join(where or 'no such layer' for where in self.where)})"
        return f"{text}: {_listed(self.causes)}" if self.causes else text

    def __repr__(self) -> str:
        return plain(f"<Change {self}>")


@dataclass(frozen=True)
class Comparison:
    """The difference of two runs: the second run minus the first run, in cycles per sample.

    `names` are the titles of the runs. `causes` are the differences by cause, the largest first. `layers` has the
    layers of both runs, in the order of the first run. `macs` has two counts for each run: the multiply-accumulates on
    the target, which the cycles measure, and the multiply-accumulates of the whole network. `settings` has the settings
    that differ, with their values in both runs. The value None stands for a default.
    """

    names: tuple[str, str]
    cycles: tuple[int, int]
    causes: Mapping[str, int]
    layers: tuple[Change, ...]
    macs: tuple[tuple[int, int], tuple[int, int]]
    settings: Mapping[str, tuple[Any, Any]]

    @property
    def difference(self) -> int:
        return self.cycles[1] - self.cycles[0]

    @property
    def changed(self) -> list[Change]:
        """The layers that `moved`, or that have other cycles or causes. The largest difference is first."""
        differing = [layer for layer in self.layers if layer.cycles or layer.causes or layer.moved]
        return sorted(differing, key=lambda layer: -abs(layer.cycles))

    @property
    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.names[0]} -> {self.names[1]}"
        if self.settings:
            yield "settings: " + ", ".join(
                f"{key} {setting(a)} -> {setting(b)}" for key, (a, b) in self.settings.items()
            )
        (mine, macs), (theirs, their_macs) = self.macs
        shares = [share(part, whole) if whole else "all" for part, whole in self.macs]
        same = (mine, macs) == (theirs, their_macs)
        stands = f"for {shares[0]} of the MACs" if same else f"for {shares[0]} -> {shares[1]} of the MACs"
        ratio = f", {100 * self.difference / self.cycles[0]:+.1f} %" if self.cycles[0] else ""
        causes = f": {_listed(self.causes)}" if self.causes else ""
        yield f"cycles {self.cycles[0]:,} -> {self.cycles[1]:,} ({self.difference:+,}{ratio}), {stands}{causes}"
        for layer in self.changed:
            yield f"  {layer}"
        if not self.changed:
            yield "  no layer differs"

    def to_json(self) -> dict[str, Any]:
        layers = [asdict(layer) | {"cycles": layer.cycles, "where": list(layer.where)} for layer in self.layers]
        macs = [{"macs_on_target": mine, "macs": whole} for mine, whole in self.macs]
        runs = [{"run": n, "cycles": c, **m} for n, c, m in zip(self.names, self.cycles, macs, strict=True)]
        return {
            "runs": runs,
            "cycles": self.difference,
            "causes": dict(self.causes),
            "settings": {key: list(pair) for key, pair in self.settings.items()},
            "layers": layers,
        }

    def __repr__(self) -> str:
        most = "; ".join(str(layer) for layer in self.changed[:SHOWN]) or "no layer differs"
        return plain(f"<Comparison {self.names[0]} -> {self.names[1]}: {self.difference:+,} cycles; {most}>")


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Compare two runs, each given as the object of `Result.to_json` or `--json`.

    Layers are matched by name, so that runs on different targets can be compared. Raises InputError if one of the
    objects does not describe a run.
    """
    runs = (first, second)
    for number, run in zip(("first", "second"), runs, strict=True):
        if missing := {"model", "target", "cycles", "causes", "layers", "macs", "macs_on_target"} - run.keys():
            reason = f"the {number} run has no {', '.join(sorted(missing))}"
            raise InputError("compare", reason, "give the objects that `tilewright run --json` prints")
    before, after = ({layer["name"]: layer for layer in run["layers"]} for run in runs)
    names = [*before, *(name for name in after if name not in before)]
    titles = [f"{run['model']} on {run['target']}" for run in runs]
    macs = [(int(run["macs_on_target"]), int(run["macs"])) for run in runs]
    return Comparison(
        names=(titles[0], titles[1]),
        cycles=(int(first["cycles"]), int(second["cycles"])),
        causes=_difference(first["causes"], second["causes"]),
        layers=tuple(_change(name, before.get(name, {}), after.get(name, {})) for name in names),
        macs=(macs[0], macs[1]),
        settings=_settings(first, second),
    )


def _change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    causes = _difference(before.get("causes", {}), after.get("causes", {}))
    where = before.get("where", ""), after.get("where", "")
    return Change(name, int(before.get("cycles", 0)), int(after.get("cycles", 0)), causes, where)


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    total = Counter(after)
    total.subtract(before)
    return dict(sorted(((name, n) for name, n in total.items() if n), key=lambda item: -abs(item[1])))


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = ("timing", "rounding", "clock_mhz")
    differing = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    if first["target"] != second["target"]:  # the keys of the configurations mean different things
        return differing
    mine = first.get("config", {})
    theirs = second.get("config", {})
    keys_of_both = dict.fromkeys([*mine, *theirs])
    return differing | {
        key: (mine.get(key), theirs.get(key)) for key in keys_of_both if mine.get(key) != theirs.get(key)
    }


def setting(value: Any) -> str:
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _listed(causes: Mapping[str, int]) -> str:
    named = [f"{name} {cycles:+,}" for name, cycles in list(causes.items())[:NAMED]]
    rest = list(causes.values())[NAMED:]
    return ", ".join(named + ([f"{len(rest)} others {sum(rest):+,}"] if rest else []))
