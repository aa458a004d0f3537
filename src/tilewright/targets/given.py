"""What targets check of what they are given: the numbers of a machine, saved programs, launches."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tilewright.array import Array
from tilewright.errors import ConfigError, HazardError, ProgramError
from tilewright.files import regular
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.targets.base import Config, ConformCase

C = TypeVar("C", bound=Config)


def number(default: int, low: int, high: int, power: bool = False) -> Any:
    """A key of a MachineConfig that is an integer in `low`..`high`, and a power of two if it must be."""
    return field(default=default, metadata={"range": (low, high, power)})


def word(default: str, *words: str) -> Any:
    """A key of a MachineConfig that is one of some words."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True)
class MachineConfig:
    """Base of a frozen dataclass of a machine's integers and words. `where` begins its errors (ConfigError).

    `presets` are configurations or mappings, the default first. Keys are a `number` or a `word` each, or text.
    """

    where: ClassVar[str]
    presets: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls) -> None:
        if tables := {"ranges", "powers", "choices"} & cls.__dict__.keys():
            raise TypeError(
                f"{cls.__name__}.{min(tables)} is not read: say it in each field, as number(..) or word(..)"
            )

    def __post_init__(self) -> None:
        for key in fields(self):
            name, value = key.name, getattr(self, key.name)
            low, high, power = key.metadata.get("range", (None, None, False))
            if low is not None and (type(value) is not int or not low <= value <= high):
                raise ConfigError(self.where, f"{name} is {value!r}, not an integer in {low}..{high}")
            if power and value & (value - 1):
                raise ConfigError(self.where, f"{name} is {value}, not a power of two")
            if value not in (words := key.metadata.get("words", (value,))):
                raise ConfigError(self.where, f"{name} is {value!r}", f"choose one of {', '.join(words)}")

    @classmethod
    def words(cls) -> dict[str, tuple[str, ...]]:
        """The words of each key that has some."""
        return {key.name: key.metadata["words"] for key in fields(cls) if "words" in key.metadata}

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Self:
        """A preset's name, a JSON file or its content (None: the first preset), then single keys as text."""
        content = dict(_content(cls.presets, next(iter(cls.presets)) if source is None else source))
        refuse_unknown(cls.where, cls, content)
        refuse_unknown(cls.where, cls, overrides)
        words = {field.name for field in fields(cls) if field.type in (str, "str")}
        changes = {key: text if key in words else integer(cls.where, key, text) for key, text in overrides.items()}
        return cls(**content | changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        return digest(self.to_dict())


def _content(presets: Mapping[str, Any], source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str) and source in presets:
        preset: Any = presets[source]
        return preset if isinstance(preset, Mapping) else asdict(preset)
    if isinstance(source, str) and not source.endswith(".json"):
        raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(presets)}")
    return json_file(source)


def json_file(path: str | Path) -> dict[str, Any]:
    """The object that a file holds. Raises ConfigError."""
    path = regular(path, ConfigError)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(str(path), "is not a JSON object", "give keys of a configuration")
    return data


def refuse_unknown(where: str, kind: type[Any], keys: Iterable[str]) -> None:
    """Raises ConfigError for a key that the dataclass `kind` does not have."""
    known = [field.name for field in fields(kind)]
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {close[0]}" if close else f"the keys are {', '.join(known)}"
            raise ConfigError(where, f"unknown key {key}", remedy)


def integer(where: str, key: str, text: str) -> int:
    """A key's value, 0x for hexadecimal. Raises ConfigError."""
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError(where, f"{key} is '{text}', not an integer") from None


def digest(keys: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of canonical JSON (sorted keys, no spaces): a saved program runs on the machine it was made for."""
    return hashlib.sha256(json.dumps(keys, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Machine(Generic[C]):
    """What every target does alike with what it is given; a target adds the rest of the contract (base.py).

    `kind` is the class of its configurations, `no_vectors` says why it has no golden vectors.
    """

    name: str
    kind: type[C]
    no_vectors = ""

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> C:
        return self.kind.read(source, overrides)

    def own(self, config: Config) -> C:
        """The configuration itself, where it is the target's. Raises ConfigError."""
        if not isinstance(config, self.kind):
            raise ConfigError("config", f"is {type(config).__name__}, not of {self.name}")
        return config

    def config_of(self, program: Program) -> C:
        """The configuration that a program was saved with. Raises ProgramError where its digest is another."""
        config = self.kind.read(program.config, {})
        if config.digest() != program.digest:
            reason = "its configuration does not have the digest it was saved with"
            raise ProgramError("program", reason, "compile it again")
        return config

    def check(self, program: Program) -> Iterator[Finding]:
        config = self.config_of(program)
        for launch in program.launches:
            yield from (finding.inside(launch.name) for finding in self.hazards(program, launch, config))

    def hazards(self, program: Program, launch: Launch, config: C) -> Iterable[Finding]:
        """What `check` reports of one launch."""
        raise NotImplementedError

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        return ConformCase(path.stem, False, self.no_vectors)


@contextmanager
def untrusted(launch: Launch) -> Iterator[None]:
    """A saved launch says itself how its data lies: what does not fit is the file's fault, a ProgramError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        reason = f"its layout does not fit its network or its data: {error}"
        raise ProgramError(f"launch '{launch.name}'", reason, "compile it again") from None


@contextmanager
def named(launch: Launch) -> Iterator[None]:
    """Name the launch in a HazardError and in its findings."""
    try:
        yield
    except HazardError as error:
        found = tuple(finding.inside(launch.name) for finding in error.findings)
        raise HazardError(f"launch '{launch.name}'", error.reason, error.remedy, found) from None


def left_by(program: Program, launch: Launch, left: Mapping[str, Array]) -> dict[str, Array]:
    """What a launch without a network leaves in memory; several launches may use the same names."""
    prefix = f"{launch.name}/" if len(program.launches) > 1 else ""
    return {prefix + name: data for name, data in left.items()}
