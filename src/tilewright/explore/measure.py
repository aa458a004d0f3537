"""Measure one machine of a study: the machine's sizes, and the cycles and traffic of the networks on the machine.

The functions do not depend on the state of a study: any process that has the models can measure any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from tilewright import targets
from tilewright.energy import DEFAULT, estimate, read
from tilewright.errors import ConfigError, InputError, TilewrightError
from tilewright.explore.trial import BASE, EXCLUDED, MEASURED, REFUSED, Rule, Trial, Value
from tilewright.fields import record, types
from tilewright.files import kept, kept_places, regular, user_folder, write_folder
from tilewright.graph import ort
from tilewright.graph.ir import Graph
from tilewright.model import inputs, load
from tilewright.model.shapes import Shapes
from tilewright.program.program import Configuration, Program
from tilewright.run import layer_figures, run, timed, timing_model
from tilewright.sim.events import Events
from tilewright.targets.base import Target
from tilewright.targets.gateware import Occupies
from tilewright.whatif import Explores


@runtime_checkable
class Remembers(Protocol):
    """A target whose compiler can reuse results of earlier compilations, also of compilations for other machines."""

    def remembering(self, folder: Path) -> AbstractContextManager[None]:
        """Store the compiler's results of a `with` block in a folder, which several processes may use at once."""


class Model(NamedTuple):
    """A network of a study: its name in results, its file, and the SHA-256 (hex) of the file.

    `shapes` are pairs (name, shape) for the inputs that have undefined extents in the file.
    """

    name: str
    path: str
    digest: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, path: str | Path, shapes: Shapes | None = None) -> Self:
        """Return the model in a file. Only the shapes of the model's own inputs are used.

        Raises InputError if the path is not a regular file.
        """
        path = regular(path)
        input_names = _inputs(path) if shapes else ()
        kept = tuple((name, tuple(shape)) for name, shape in (shapes or {}).items() if name in input_names)
        return cls(path.stem, str(path.resolve()), sha256(path.read_bytes()).hexdigest(), kept)

    def load(self) -> Graph:
        """Return the network. Raises InputError if the file has changed since the start of the study."""
        return _loaded(self)

    @property
    def here(self) -> bool:
        return any(path.is_file() and _digest(path, path.stat().st_mtime_ns) == self.digest for path in self._places)

    def keep(self, data: bytes) -> None:
        """Store the file's content in the user's cache folder. Raises InputError if the content has another hash."""
        if sha256(data).hexdigest() != self.digest:
            raise InputError(self.name, "the content that was sent is not the model's")
        kept(_models(), lambda folder: write_folder(folder, {self._name: data}))

    @property
    def _name(self) -> str:
        return f"{self.digest}{Path(self.path).suffix}"

    @property
    def _places(self) -> list[Path]:
        return [Path(self.path), *(place / self._name for place in kept_places(_models()))]


def _models() -> Path:
    return user_folder() / "models"


def _inputs(path: Path) -> frozenset[str]:
    if path.suffix != ".onnx":
        return frozenset()
    try:
        model = ort.package("onnx").load(str(path), load_external_data=False)
    except Exception:  # an error of protobuf; when the model is loaded later, a clear error is raised
        return frozenset()
    return frozenset(value.name for value in model.graph.input)


@lru_cache(maxsize=64)
def _digest(path: Path, modified: int) -> str:
    return sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=64)
def _loaded(model: Model) -> Graph:
    for path in model._places:
        if path.is_file() and _digest(path, path.stat().st_mtime_ns) == model.digest:
            return load(path, dict(model.shapes))
    raise InputError(model.path, "is not the file that the study began with", "begin a new study")


@dataclass(frozen=True)
class Subject:
    """The subject of a study: networks on machines of a target, with a rounding mode and a timing model.

    `config` is the base machine's configuration. `rules` are conditions that each machine must fulfil. `energy` is the
    name or the file of a table of energies.
    """

    target: str
    models: tuple[Model, ...]
    config: Mapping[str, Any]
    rounding: str | None = None
    timing: str | None = None
    rules: tuple[str, ...] = ()
    energy: str = DEFAULT

    @property
    def machine(self) -> Target:
        return targets.get(self.target)

    def configured(self, keys: Mapping[str, str]) -> Configuration:
        return self.machine.config(self.config, keys)

    def compiled(self, graph: Graph, config: Configuration) -> tuple[Program, str | None]:
        """Compile a network for a machine. Return the program and the study's timing model."""
        timing = timing_model(self.machine, self.timing, config)
        return self.machine.compile(graph, config, self.rounding or graph.rounding, timing), timing

    def to_json(self) -> dict[str, Any]:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        models = [model._asdict() for model in self.models]
        return shown | {"models": models, "config": dict(self.config), "rules": list(self.rules)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON values of `to_json`. Raises FieldError if the data are malformed."""
        return cls(**record(types(cls), data, ""))


def sizes(subject: Subject, config: Configuration) -> dict[str, Value]:
    """Return the values of a machine that need no run: its keys, the numbers of `describe`, and FPGA cells.

    FPGA cells (lut, ff, dsp, bram36) and `area` are included if gateware can be built with this configuration.
    `estimates` lists the names of inexact values, separated by spaces.
    """
    keys: dict[str, Any] = {}
    if is_dataclass(config):
        given = {key.name: getattr(config, key.name) for key in fields(config)}
        keys = {name: value for name, value in given.items() if value is not None}  # None: use `describe`
    target = subject.machine
    about = target.describe(config)
    if isinstance(target, Occupies):
        with suppress(ConfigError):
            about |= target.area(config)
            about["estimates"] = " ".join(about["estimate"])
    return {name: value for name, value in {**about, **keys}.items() if isinstance(value, int | float | str)}


def machine(subject: Subject, point: int, keys: Mapping[str, str]) -> Configuration | Trial:
    """Return the configuration of a point. If the machine is refused or excluded, return its trial instead."""
    try:
        config = subject.configured(keys)
    except TilewrightError as error:
        return Trial(point, keys, REFUSED, reason=error.reason)
    return _excluded(subject, point, keys, config, sizes(subject, config)) or config


def measured(subject: Subject, point: int, keys: Mapping[str, str]) -> Trial:
    """Measure a point and return its trial. The rules do not apply to the base machine (point BASE)."""
    began = perf_counter()
    if point == BASE:
        subject = replace(subject, rules=())
    config = machine(subject, point, keys)
    if isinstance(config, Trial):
        return config
    target = subject.machine
    remembering = target.remembering(user_folder() / "plans") if isinstance(target, Remembers) else nullcontext()
    try:
        with remembering:
            networks = {model.name: _network(subject, model.load(), config) for model in subject.models}
    except TilewrightError as error:
        return Trial(point, keys, REFUSED, config.digest(), error.reason, seconds=perf_counter() - began)
    values = {**sizes(subject, config), **_totals(networks, target.describe(config))}
    if "energy" in values:
        values["estimates"] = f"{values.get('estimates', '')} energy".strip()
    causes = list(
        dict.fromkeys(
            cause for analysed in networks.values() for by_cause in analysed.layers.values() for cause in by_cause
        )
    )
    layers = {
        name: {layer: [by_cause.get(cause, 0) for cause in causes] for layer, by_cause in network.layers.items()}
        for name, network in networks.items()
    }
    host = {name: network.host for name, network in networks.items()}
    seconds = perf_counter() - began
    broken = _excluded(subject, point, keys, config, values)
    unknown = sorted({name for text in subject.rules for name in Rule(text).names} - values.keys())
    # A rule that excludes the machine is the clearer reason, even if another rule cannot be evaluated.
    if unknown and not broken:
        reason = f"a rule needs {unknown[0]}, which this machine does not have"
        return Trial(point, keys, REFUSED, config.digest(), reason, values, seconds=seconds)
    return broken or Trial(point, keys, MEASURED, config.digest(), "", values, causes, layers, host, seconds)


def differences(subject: Subject, trial: Trial) -> list[str]:
    """Run each network on the machine of a trial with a random sample, and return the contradictions to the trial.

    A contradiction is another number of cycles, a hazard, or an output that is not bit-exact to the reference (unless
    the target only approximates the reference).
    """
    config = subject.configured(trial.set)
    contradictions = list[str]()
    cycles = 0
    for model in subject.models:
        try:
            graph = model.load()
            program, timing = subject.compiled(graph, config)
            result = run(program, inputs.random(graph).values, timing=timing)
        except TilewrightError as error:
            return [*contradictions, f"{model.name}: {error}"]
        cycles += result.cycles
        contradictions += [f"{model.name}: {finding}" for finding in result.findings]
        if result.matches_reference is False:
            contradictions.append(f"{model.name}: outputs differ from the reference")
    if cycles != trial.values["cycles"]:
        contradictions.append(f"{cycles:,} cycles, {trial.values['cycles']:,} in the study")
    return contradictions


class _Network(NamedTuple):
    """The results of one network on one machine: cycles by layer and cause, DRAM traffic, and nodes on the host.

    `picojoules` is the estimated energy, or None if the target counts no events.
    """

    layers: dict[str, Mapping[str, int]]
    dram_bytes: int
    executed_macs: int
    host: tuple[str, ...]
    picojoules: float | None

    @property
    def cycles(self) -> int:
        return sum(sum(causes.values()) for causes in self.layers.values())


def _network(subject: Subject, graph: Graph, config: Configuration) -> _Network:
    target = subject.machine
    program, timing = subject.compiled(graph, config)
    on_machine = {node for launch in program.launches for node in launch.nodes}
    host = tuple(node.name for node in graph.nodes if node.name not in on_machine)
    # If the cycles do not depend on values, timing the launches is enough, which is much faster than a run.
    if isinstance(target, Explores) and not target.time_needs_values:
        layers = dict[str, Mapping[str, int]]()
        traffic = 0
        macs = 0
        counted = list[Events]()
        for launch, launched in timed(program, timing):
            layers |= {name: figures.causes for name, figures in layer_figures(launch, launched).items()}
            macs += launched.total.executed_macs
            counted += [launched.events()] if launched.events else []
            if launched.trace:
                traffic += int(launched.trace.bytes_read.sum() + launched.trace.bytes_written.sum())
                traffic += launched.trace.fetch_bytes
        spent = estimate(Events.total(counted), read(subject.energy)).picojoules if counted else None
        return _Network(layers, traffic, macs, host, spent)
    result = run(program, inputs.random(graph).values, timing=timing, check=False, compare=False)
    rows = [layer for layer in result.layers if layer.where == subject.target]
    traffic = sum(layer.dram_read_bytes + layer.dram_write_bytes for layer in rows)
    energy = result.energy(subject.energy)
    layers = {layer.name: layer.causes for layer in rows}
    return _Network(layers, traffic, result.executed_macs, host, energy.picojoules if energy else None)


def _totals(networks: Mapping[str, _Network], about: Mapping[str, Any]) -> dict[str, Value]:
    every = networks.values()
    cycles = sum(network.cycles for network in every)
    peak = about["macs_per_cycle"] * cycles
    clock = about["clock_mhz"]
    totals: dict[str, Value] = {
        "cycles": cycles,
        "dram_bytes": sum(network.dram_bytes for network in every),
        "utilization": sum(network.executed_macs for network in every) / peak if peak else 0.0,
        "host_layers": sum(len(network.host) for network in every),
    }
    spent = [network.picojoules for network in every if network.picojoules is not None]
    # A sum without the energy of one network would be too small.
    if len(spent) == len(networks):
        totals["energy"] = sum(spent)
    if clock:
        totals["microseconds"] = cycles / clock
    if len(networks) > 1:
        totals |= {f"cycles_{name}": network.cycles for name, network in networks.items()}
    return totals


def _excluded(
    subject: Subject, point: int, keys: Mapping[str, str], config: Configuration, values: Mapping[str, Value]
) -> Trial | None:
    """Return the trial of a machine that breaks a rule, or None. Rules about missing values are not checked."""
    for text in subject.rules:
        rule = Rule(text)
        if rule.names <= values.keys() and not rule.holds(values):
            return Trial(point, keys, EXCLUDED, config.digest(), text, values)
    return None
