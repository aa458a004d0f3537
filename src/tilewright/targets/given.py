"""Checks of inputs that targets share: machine configurations, saved programs and launches."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from tilewright.array import Array
from tilewright.errors import SHOWN, ConfigError, HazardError, InputError, ProgramError, one_of, option, shown
from tilewright.fields import read
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.targets.base import Config, ConformCase, Number, TimingModel

if TYPE_CHECKING:
    from tilewright.program.listing import LaunchText

C = TypeVar("C", bound=Config)


class HasSource(Protocol):
    """A timing model in the form that a target uses. `source` has the name and evidence of this model."""

    @property
    def source(self) -> TimingModel: ...


M = TypeVar("M", bound=HasSource)
#: A named tuple of numbers.
N = TypeVar("N", bound=NamedTuple)


#: Metadata of a configuration key that changes only the time of a compiled program.
ONLY_TIME = {"only_time": True}
#: The key of a configuration file that names the file's preset.
PRESET = "preset"
FORM = 'write {"KEY": VALUE, ...} with the keys to set'
#: The largest number that a what-if may set in a timing model.
LARGEST = 1 << 20


def number(default: int, low: int, high: int, power: bool = False, multiple: int = 1, only_time: bool = False) -> Any:
    """Declare a MachineConfig key that is an integer in `low`..`high`, a multiple of `multiple`.

    With `power`, the value must be a power of two. With `only_time`, the key changes only the time of a compiled
    program.
    """
    return field(default=default, metadata={"range": (low, high, power, multiple), "only_time": only_time})


def word(default: str | int, *words: str | int, only_time: bool = False) -> Any:
    """Declare a MachineConfig key that is one of `words`, which may be numbers. `number` explains `only_time`."""
    return field(default=default, metadata={"words": words, "only_time": only_time})


def only_time(config: Config) -> list[str]:
    return [key.name for key in fields(config) if key.metadata.get("only_time")] if is_dataclass(config) else []


@dataclass(frozen=True)
class MachineConfig:
    """The base class of machine configurations (frozen dataclasses). Each key is a `number`, a `word` or free text.

    `where` is the subject of error messages. `presets` are configurations or mappings by name, the default first.
    """

    where: ClassVar[str]
    presets: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls) -> None:
        if tables := {"ranges", "powers", "choices"} & cls.__dict__.keys():
            raise TypeError(
                f"{cls.__name__}.{min(tables)} has no effect: declare each field with number(..) or word(..)"
            )

    def __post_init__(self) -> None:
        for key in fields(self):
            name, value = key.name, getattr(self, key.name)
            low, high, power, multiple = key.metadata.get("range", (None, None, False, 1))
            if low is not None and (type(value) is not int or not low <= value <= high):
                raise ConfigError(self.where, f"{name} is {shown(value)}, not an integer in {low}..{high}")
            if power and value & (value - 1):
                raise ConfigError(self.where, f"{name} is {value}, not a power of two")
            if multiple > 1 and value % multiple:
                raise ConfigError(self.where, f"{name} is {value}, not a multiple of {multiple}")
            words = key.metadata.get("words", (value,))
            if value not in words or type(value) is not type(words[0]):
                raise ConfigError(self.where, f"{name} is {shown(value)}", one_of(value, words))

    @classmethod
    def words(cls) -> dict[str, tuple[Any, ...]]:
        return {key.name: key.metadata["words"] for key in fields(cls) if "words" in key.metadata}

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Self:
        """Read a preset, a JSON file or its content (None: the first preset), and replace the values in `overrides`.

        Raises ConfigError if a preset, a file, a key or a value is wrong.
        """
        content = dict(_content(cls.presets, next(iter(cls.presets)) if source is None else source))
        refuse_unknown(cls.where, cls, content)
        refuse_unknown(cls.where, cls, overrides)
        # Overrides are texts from a command line, in which numbers may be hexadecimal.
        words = {field.name for field in fields(cls) if field.type in (str, "str")}
        changes = {key: text if key in words else integer(cls.where, key, text) for key, text in overrides.items()}
        return cls(**content | changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        return digest(self.to_dict())


def _content(presets: Mapping[str, Any], source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, str) and not source.endswith(".json"):
        return preset_named(presets, source, option("--config"))
    where = "config" if isinstance(source, Mapping) else str(source)
    return on_preset(presets, source if isinstance(source, Mapping) else read(source, ConfigError, FORM), where)


def preset_named(presets: Mapping[str, Any], name: object, where: str) -> Mapping[str, Any]:
    """Return the keys of a preset. Raises ConfigError, naming `where`, if there is no preset of this name."""
    if not isinstance(name, str) or name not in presets:
        raise ConfigError(where, f"there is no preset {shown(name)}", one_of(name, presets))
    preset: Any = presets[name]
    return preset if isinstance(preset, Mapping) else getattr(preset, "to_dict", lambda: asdict(preset))()


def on_preset(presets: Mapping[str, Any], data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the keys of a configuration file. If the file names a `preset`, missing keys are from this preset.

    Raises ConfigError, naming `where`, if the preset does not exist.
    """
    if PRESET not in data:
        return data
    keys = {key: value for key, value in data.items() if key != PRESET}
    return {**preset_named(presets, data[PRESET], f"{where}: {PRESET}"), **keys}


def only_time_differs(first: Config, second: Config) -> bool:
    ignored = dict.fromkeys(only_time(first))
    return type(first) is type(second) and first.to_dict() | ignored == second.to_dict() | ignored


def refuse_unknown(where: str, kind: type[Any], keys: Iterable[str]) -> None:
    """Check the keys of a configuration. Raises ConfigError if a key is not a field of the dataclass `kind`."""
    names = [field.name for field in fields(kind)]
    for key in keys:
        if key not in names:
            close = difflib.get_close_matches(str(key)[:SHOWN], names, n=1)
            remedy = f"did you mean {close[0]}" if close else f"the keys are {', '.join(names)}"
            raise ConfigError(where, f"unknown key {shown(key)}", remedy)


def integer(where: str, key: str, text: str) -> int:
    """Return the integer written in `text`, decimal or 0x... Raises ConfigError, naming `key`, for other text."""
    try:
        if abs(value := int(text, 0)) < 1 << 64:
            return value
    except ValueError:
        pass
    raise ConfigError(where, f"{key} is '{text[:SHOWN]}', not an integer of at most 64 bits")


def digest(keys: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of a configuration as canonical JSON, by which a program identifies its machine."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_digest(program: Program, config: Config) -> None:
    """Check the digest of a program's configuration `config`. Raises ProgramError if the configuration was changed."""
    if config.digest() != program.digest:
        reason = "its configuration was changed: it does not match the saved digest"
        raise ProgramError("program", reason, "compile it again")


def timing_model(models: Iterable[TimingModel], name: str, owner: str = "the target") -> TimingModel:
    """Return the timing model called `name`: one of `models`, or a what-if "NAME,KEY=VALUE,...".

    The name of a what-if is the whole text. Raises InputError if a model or number does not exist, or if a value is
    illegal. `owner` is the subject of error messages.
    """
    by_name = {model.name: model for model in models}
    name, *changes = text.split(",") if "," in (text := name) else [name]
    if name not in by_name:
        raise InputError(option("--timing"), f"{owner} has no timing model '{name}'", one_of(name, by_name))
    model = by_name[name]
    numbers = dict[str, Number]()
    for change in changes:
        key, _, value = change.partition("=")
        if key not in model.numbers:
            remedy = (
                f"its numbers are {', '.join(model.numbers)}"
                if model.numbers
                else f"give {option('--timing', 'timing')} {name}"
            )
            raise InputError(option("--timing"), f"{name} has no number '{key}' that can be changed", remedy)
        if key in numbers:
            raise InputError(option("--timing"), f"{key} is given twice", "give it once")
        numbers[key] = model.numbers[key]._replace(value=_changed(key, value, model.numbers[key]))
    if not changes:
        return model
    evidence = f"a what-if of {name} with {', '.join(changes)}; {name}: {model.evidence}"
    return TimingModel(text, evidence, {**model.numbers, **numbers})


def _changed(key: str, text: str, number: Number) -> float:
    """Parse a new value for `number`. Raises InputError if the type is wrong or the value is out of range."""
    kind = "an integer" if isinstance(number.value, int) else "a number"
    try:
        value = int(text, 0) if isinstance(number.value, int) else float(text)
    except ValueError:
        value = math.nan
    if not number.least <= value <= LARGEST:
        raise InputError(option("--timing"), f"{key} is '{text}'", f"give {kind} in {number.least}..{LARGEST}")
    return value


class Numbers(NamedTuple, Generic[N]):
    """A timing model that is a named tuple of numbers, with its evidence."""

    numbers: N
    source: TimingModel


class Models(dict[str, M]):
    """The timing models of a target by name. `models["NAME,KEY=VALUE,..."]` is the model NAME with changed numbers.

    `numbers(model)` returns the numbers that a what-if may change. `change(model, source)` returns a copy of the model
    with the numbers and the name of `source`.
    """

    def __init__(
        self,
        models: Iterable[M],
        numbers: Callable[[M], Mapping[str, Number]],
        change: Callable[[M, TimingModel], M],
    ) -> None:
        super().__init__({model.source.name: model for model in models})
        self._change = change
        self.sources = tuple(replace(model.source, numbers=numbers(model)) for model in self.values())

    @classmethod
    def of(cls, models: Iterable[M], **least: float) -> Models[M]:
        """Return timing models that are dataclasses. `least` has the minimum of each changeable number."""
        return cls(
            models,
            lambda model: {key: Number(getattr(model, key), low) for key, low in least.items()},
            lambda model, source: replace(model, source=source, **source.values),  # type: ignore[type-var]
        )

    @classmethod
    def of_numbers(cls, *models: Numbers[N], least: Callable[[str], float]) -> Models[Numbers[N]]:
        """Return timing models. A what-if may change each number to `least(key)` or more."""
        return Models(
            models,
            lambda model: {key: Number(value, least(key)) for key, value in model.numbers._asdict().items()},
            lambda model, source: Numbers(model.numbers._replace(**source.values), source),
        )

    def __missing__(self, text: str) -> M:
        name = text.partition(",")[0]
        if name not in self:
            raise KeyError(text)
        return self._change(self[name], timing_model(self.sources, text))


class Machine(Generic[C]):
    """The part of the contract (base.py) with the same implementation in all targets.

    `kind` is the class of the target's configurations. `no_vectors` is the reason why the target has no golden vectors.
    """

    name: str
    kind: type[C]
    no_vectors = ""
    time_needs_values = False

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> C:
        return self.kind.read(source, overrides)

    def config_of(self, program: Program) -> C:
        """Return the configuration of a compiled program. Raises ProgramError if the digest does not match."""
        config = self.kind.read(program.config, {})
        require_digest(program, config)
        return config

    def check(self, program: Program) -> Iterator[Finding]:
        config = self.config_of(program)
        for launch in program.launches:
            yield from (finding.inside(launch.name) for finding in self.hazards(program, launch, config))

    def hazards(self, program: Program, launch: Launch, config: C) -> Iterable[Finding]:
        raise NotImplementedError

    def text(self, config: C) -> LaunchText:
        raise NotImplementedError

    def disassemble(self, program: Program) -> str:
        return self.text(self.config_of(program)).write(program.launches)

    def assemble(self, text: str, config: C) -> Program:
        return Program.bare(self.name, config, self.text(config).read(text))

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        reason = self.no_vectors or f"{self.name} has no golden vectors; implement `conform` to replay your own"
        return ConformCase(path.stem, False, reason)


@contextmanager
def untrusted(launch: Launch) -> Iterator[None]:
    """Run a `with` block that uses a saved launch.

    Raises ProgramError if the block fails, because the layout of the launch does not fit its network or its data.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        reason = f"its memory layout does not fit the network or the data: {error}"
        raise ProgramError(f"launch '{launch.name}'", reason, "compile it again") from None


@contextmanager
def named(launch: Launch) -> Iterator[None]:
    """Run a `with` block. Raises its HazardError again, with the launch's name in the error and in the findings."""
    try:
        yield
    except HazardError as error:
        findings = tuple(finding.inside(launch.name) for finding in error.findings)
        raise HazardError(f"launch '{launch.name}'", error.reason, error.remedy, findings) from None


def left_by(program: Program, launch: Launch, left: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays `left`, with the launch's name before each key if the program has several launches."""
    prefix = f"{launch.name}/" if len(program.launches) > 1 else ""
    return {prefix + name: data for name, data in left.items()}
