"""The measurements of a run: one row per layer, and totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tilewright.array import Array
from tilewright.energy import DEFAULT, Energy, Table, estimate, read
from tilewright.errors import plain
from tilewright.sim.events import Events
from tilewright.sim.figures import Definition, Figures
from tilewright.sim.findings import Finding, grouped
from tilewright.sim.steps import Trace

if TYPE_CHECKING:
    from tilewright.program.program import Program

#: `Layer.where` of a step that the host runs.
HOST = "host"
#: `WhatIf.program` if the changed machine ran the program of the run.
SAME = "same"
#: `WhatIf.program` if the changed machine ran a program that was compiled for it.
RECOMPILED = "recompiled"


class LayerWhatIf(NamedTuple):
    """A layer's cycles on a changed machine. `change` says in words what was changed."""

    change: str
    cycles: int


@dataclass(frozen=True)
class WhatIf:
    """The cycles of a network on a changed machine, measured by timing the network on the changed machine.

    `change` says in words what was changed: the configuration keys `set` (as with --set) and the numbers `timing` of
    the timing model. `program` is SAME or RECOMPILED. `layers` are the cycles of each layer on the target, by name.
    """

    change: str
    set: Mapping[str, int | str]
    timing: Mapping[str, float]
    cycles: int
    program: str
    layers: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        shown = {"change": self.change, "set": dict(self.set), "timing": dict(self.timing)}
        return shown | {"cycles": self.cycles, "program": self.program}


@dataclass(frozen=True, eq=False)
class Layer(Figures):
    """The figures of a layer: a step of the host, a launch, or one node of a launch.

    `macs` counts the multiply-accumulates of the layer, including those with padding. `reason` says why the host runs
    the layer. Only the first layer of a launch has `trace` and `events`. `trace` is the trace of the whole launch, and
    `events` counts the events of the whole launch.
    """

    name: str
    op: str
    where: str
    macs: int = 0
    reason: str = ""
    seconds: float = 0.0
    whatifs: tuple[LayerWhatIf, ...] = ()
    trace: Trace | None = None
    events: Callable[[], Events] | None = None

    def to_json(self) -> dict[str, Any]:
        about = {"name": self.name, "op": self.op, "where": self.where, "macs": self.macs, "reason": self.reason}
        changed = [whatif._asdict() for whatif in self.whatifs]
        return {**about, **super().to_json(), "seconds": self.seconds, "whatifs": changed}

    def __repr__(self) -> str:
        name = plain(f"{self.name} ({self.op}) on {self.where}")
        if self.where == HOST:
            return plain(f"<Layer {name}: {self.reason}>")
        used = f", utilisation {100 * self.utilization:.1f} %" if self.executed_macs else ""
        most = f", mostly {self.binds}" if self.binds else ""
        return f"<Layer {name}: {self.cycles:,} cycles{used}{most}>"


class Deviation(NamedTuple):
    """The deviation of a real-valued output from the reference.

    `largest` is the largest difference. `error` is the sum of the squared differences, and `signal` is the sum of the
    squared values of the reference. These fields ignore all elements that are infinite or NaN. `overflowed` counts the
    elements that differ and are infinite or NaN in the output or in the reference.
    """

    largest: float
    error: float
    signal: float
    overflowed: int = 0

    @classmethod
    def of(cls, values: Array, expected: Array) -> Deviation:
        finite = np.isfinite(values) & np.isfinite(expected)
        same = finite | (values == expected) | (np.isnan(values) & np.isnan(expected))
        difference = values[finite].astype(np.float64) - expected[finite]
        return cls(
            float(np.abs(difference).max(initial=0)),
            float(np.square(difference).sum()),
            float(np.square(expected[finite], dtype=np.float64).sum()),
            int((~same).sum()),
        )

    def with_more(self, other: Deviation) -> Deviation:
        """Return the deviation over all samples of the two deviations."""
        error = self.error + other.error
        signal = self.signal + other.signal
        return Deviation(max(self.largest, other.largest), error, signal, self.overflowed + other.overflowed)

    @property
    def snr_db(self) -> float | None:
        """The ratio of `signal` to `error` in dB, or None if one of them is zero."""
        return 10 * math.log10(self.signal / self.error) if self.error and self.signal else None

    def to_json(self) -> dict[str, Any]:
        return {"largest": self.largest, "snr_db": self.snr_db, "overflowed": self.overflowed}

    def __repr__(self) -> str:
        ratio = "" if self.snr_db is None else f", SNR {self.snr_db:.1f} dB"
        over = f", {self.overflowed:,} values overflow" if self.overflowed else ""
        return f"<Deviation up to {self.largest:.3g}{ratio}{over}>"


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run: outputs {tensor: (S, *shape)}, layers in order, and findings.

    `matches_reference` is None if the outputs were not compared with the reference. It is also None if the target
    computes real numbers in its own number format. Then `deviations` has the deviation of each output. `seconds` is the
    time that the whole run took on the host. `bound` is a lower bound of `cycles`: the fewest cycles in which this
    machine can do the work of the launches, one launch after the other. `whatifs` are the cycles on changed machines,
    the fewest cycles first. `clock_mhz` is the machine's clock (0: unknown), and `checked` says whether the run looked
    for hazards. `machine` is the result of `Target.describe` for the configuration of the run. `definitions` explain
    each cause of cycles.
    """

    model: str
    target: str
    config: Mapping[str, Any]
    rounding: str
    timing: str
    evidence: str
    samples: int
    outputs: Mapping[str, Array]
    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]
    matches_reference: bool | None
    macs_per_cycle: int
    seconds: float
    deviations: Mapping[str, Deviation] = field(default_factory=dict)
    bound: int = 0
    whatifs: tuple[WhatIf, ...] = ()
    clock_mhz: float = 0.0
    checked: bool = True
    program: Program | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    definitions: Mapping[str, Definition] = field(default_factory=dict)

    def with_whatifs(self, answers: Iterable[WhatIf]) -> Self:
        """Return this result with these what-ifs, sorted by cycles, in `whatifs` and in each layer."""
        whatifs = tuple(sorted(answers, key=lambda whatif: whatif.cycles))
        layers = [
            replace(
                layer,
                whatifs=tuple(LayerWhatIf(w.change, w.layers[layer.name]) for w in whatifs if layer.name in w.layers),
            )
            for layer in self.layers
        ]
        return replace(self, whatifs=whatifs, layers=tuple(layers))

    @cached_property
    def total(self) -> Figures:
        return Figures.total(self.layers)

    @property
    def cycles(self) -> int:
        return self.total.cycles

    @property
    def causes(self) -> Mapping[str, int]:
        """The cycles by cause, the largest first. Their sum is `cycles`."""
        return self.total.causes

    @property
    def serial_cycles(self) -> int | None:
        return self.total.serial_cycles

    @property
    def executed_macs(self) -> int:
        return self.total.executed_macs

    @property
    def trace(self) -> Mapping[str, Trace]:
        """The trace of each launch, by the name of its first layer."""
        return {layer.name: layer.trace for layer in self.layers if layer.trace}

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def macs_on_target(self) -> int:
        return sum(layer.macs for layer in self.layers if layer.where != HOST)

    @property
    def complete(self) -> bool:
        """Whether `cycles` cover the network: the host ran no MACs (in a network without MACs, no steps)."""
        if self.macs:
            return self.macs_on_target == self.macs
        return all(layer.where != HOST for layer in self.layers)

    @property
    def coverage(self) -> float:
        """The share (0 to 1) of the multiply-accumulates on the target. Without any, the share of layers."""
        if self.macs:
            return self.macs_on_target / self.macs
        return sum(layer.where != HOST for layer in self.layers) / max(1, len(self.layers))

    def energy(self, table: str | Path | Table = DEFAULT) -> Energy | None:
        """Return the estimated energy of the launches for one sample, or None if the target counts no events.

        `table` is a table of energies, the name of such a table, or the path of its file (see docs/energy.md). The
        estimate excludes the work of the host. Raises ConfigError if the table does not exist, or if the file is
        malformed.
        """
        chosen = table if isinstance(table, Table) else read(table)
        counted = [layer.events() for layer in self.layers if layer.events]
        return estimate(Events.total(counted), chosen) if counted else None

    @property
    def peak_macs(self) -> int:
        """The number of multiply-accumulates that the array could do in `cycles`."""
        return sum(layer.cycles * (layer.macs_per_cycle or self.macs_per_cycle) for layer in self.layers)

    @property
    def utilization(self) -> float:
        """The share (0 to 1) of `peak_macs` that the target executed."""
        return self.executed_macs / self.peak_macs if self.peak_macs else 0.0

    def to_json(self, energy: Energy | None = None) -> dict[str, Any]:
        """Return the object that `--json` prints. Its keys are stable. `energy` is None for the default table."""
        energy = energy or self.energy()
        return {
            "model": self.model,
            "target": self.target,
            "config": dict(self.config),
            "rounding": self.rounding,
            "timing": self.timing,
            "timing_evidence": self.evidence,
            "samples": self.samples,
            "cycles": self.cycles,
            "serial_cycles": self.serial_cycles,
            "bound": self.bound,
            "causes": dict(self.causes),
            "binds": self.total.binds,
            "macs": self.macs,
            "macs_on_target": self.macs_on_target,
            "executed_macs": self.executed_macs,
            "complete": self.complete,
            "utilization": self.utilization,
            "seconds": self.seconds,
            "clock_mhz": self.clock_mhz,
            "matches_reference": self.matches_reference,
            "deviation": {name: deviation.to_json() for name, deviation in self.deviations.items()},
            "hazards": len(self.findings),
            "findings": [finding.to_json() for finding in self.findings],
            "hazard_causes": [group.to_json() for group in grouped(self.findings)],
            "whatifs": [whatif.to_json() for whatif in self.whatifs],
            "layers": [layer.to_json() for layer in self.layers],
            "energy": energy.to_json() if energy else None,
        }


@dataclass(frozen=True)
class UserKernels:
    """The kernels of a program with the user's firmware.

    `firmware` is the folder or file of the firmware, and `beside` is the name of the built-in firmware with which it is
    compared. `kernels` has the kernel of each layer, and `cycles` has the layer's cycles with the built-in firmware.
    """

    firmware: str
    compiler: str
    beside: str
    kernels: Mapping[str, str]
    cycles: Mapping[str, int]

    def by_kernel(self, result: Result) -> dict[str, tuple[int, int]]:
        """Return two sums for each kernel: the cycles of its layers in `result`, and with the built-in firmware.

        The kernel with the most cycles in `result` is first.
        """
        totals: dict[str, tuple[int, int]] = {}
        for layer in result.layers:
            if (kernel := self.kernels.get(layer.name)) is not None:
                cycles, built_in = totals.get(kernel, (0, 0))
                totals[kernel] = cycles + layer.cycles, built_in + self.cycles[layer.name]
        return dict(sorted(totals.items(), key=lambda item: -item[1][0]))

    def to_json(self, result: Result) -> dict[str, Any]:
        rows = [(row.name, row.cycles) for row in result.layers if row.name in self.kernels]
        layers = [
            {"name": name, "kernel": self.kernels[name], "cycles": cycles, "built_in": self.cycles[name]}
            for name, cycles in rows
        ]
        told = {"path": self.firmware, "compiler": self.compiler, "beside": self.beside}
        return {**told, "layers": layers, "cycles": result.cycles, "built_in": sum(self.cycles.values())}
