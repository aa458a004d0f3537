"""A user's schedule: tile sizes, loop order and slots of layers, as frozen dataclasses and as a file.

This module checks the form of files and JSON values, which are untrusted. compiler/legal.py checks that a plan is legal
on a machine.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from tilewright import fields
from tilewright.errors import SHOWN, InputError, shown
from tilewright.fields import FieldError, Range, defaults, naming, record, types

#: The version of the file format, and the only target whose schedules have this format.
VERSION = 1
TARGET = "vta"
LARGEST = (1 << 31) - 1
Size: TypeAlias = Annotated[int, Range(1, LARGEST)]
Times: TypeAlias = Annotated[int, Range(0, LARGEST)]


@dataclass(frozen=True)
class Tile:
    """Sizes of a group of output tiles that are summed together, or of a whole layer.

    A group is `rows` x `columns` pixels of `output_tiles` channel tiles. Its sums are computed from chunks of
    `input_tiles` input channel tiles. The number of channels in a channel tile is the machine's block (16 by default).
    Pixels side by side in one tile count as one column.
    """

    rows: Size
    columns: Size
    output_tiles: Size
    input_tiles: Size


@dataclass(frozen=True)
class Slots:
    """The number of equal parts of inp, wgt and acc, which limits how many groups or chunks can overlap."""

    inp: Size = 1
    wgt: Size = 1
    acc: Size = 1


@dataclass(frozen=True)
class Halvings:
    """How often the first and the last group are halved, so that sums start earlier and stores end sooner."""

    first: Times = 0
    last: Times = 0


@dataclass(frozen=True)
class LayerSchedule:
    """The schedule of the layer whose first (or only) node is `layer`.

    `outer_loop`: "space" if all output channels of an image tile come before the next image tile, else "channels".
    `nodes`: all nodes that the layer computes. `of`: the size of the whole layer. If given, `nodes` and `of` are
    compared with the network. `form`: the layout of the layer in tiles: "plain", "strips" of an image row, or image
    "rows" in the place of channels. `alone`: whether the launch that begins with this layer is split into one launch
    per layer.
    """

    layer: str
    tile: Tile
    outer_loop: Literal["space", "channels"] = "space"
    slots: Slots = Slots()
    halvings: Halvings = Halvings()
    form: str = "plain"
    nodes: tuple[str, ...] = ()
    of: Tile | None = None
    alone: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the layer as JSON values; `form`, `nodes` and `alone` are left out at their defaults."""
        entry: dict[str, Any] = {"layer": self.layer}
        if self.nodes not in ((), (self.layer,)):
            entry["nodes"] = list(self.nodes)
        if self.form != "plain":
            entry["form"] = self.form
        if self.alone:
            entry["alone"] = self.alone
        if self.of is not None:
            entry["of"] = asdict(self.of)
        entry |= {"tile": asdict(self.tile), "outer_loop": self.outer_loop}
        return entry | {"slots": asdict(self.slots), "halvings": asdict(self.halvings)}


@dataclass(frozen=True)
class Schedule:
    """Schedules of some or all layers of a network; the compiler searches plans for the other layers.

    `config`: the keys of the schedule's machine. `rounding`: the schedule's rounding mode. If given, other machines and
    modes are refused. `model`: the network's name. `source`: the file's name, for errors.
    """

    layers: tuple[LayerSchedule, ...]
    config: Mapping[str, Any] | None = None
    model: str = ""
    rounding: str = ""
    source: str = "schedule"

    def to_json(self) -> dict[str, Any]:
        head = {"version": VERSION, "target": TARGET, "model": self.model, "rounding": self.rounding}
        machine = {} if self.config is None else {"config": dict(self.config)}
        layers = [layer.to_json() for layer in self.layers]
        return {key: value for key, value in head.items() if value != ""} | machine | {"layers": layers}

    def text(self) -> str:
        """Return the schedule as the text of a file, with a line for each key of a layer."""
        data = self.to_json()
        layers = (",\n     ".join(_pairs(layer)) for layer in data.pop("layers"))
        listed = ",\n".join(f"    {{{layer}}}" for layer in layers)
        return ",\n".join(["{\n  " + ",\n  ".join(_pairs(data)), f'  "layers": [\n{listed}\n  ]\n}}\n'])


#: The empty schedule.
NONE = Schedule(())
_SCHEDULE: dict[str, Any] = {"version": int, "target": str, "layers": list, "model": str, "rounding": str}
_SCHEDULE |= {"config": dict[str, Any] | None}
#: A layer's entries. `threads` sets all three slots; single slots may be missing.
_LAYER = types(LayerSchedule) | {
    "form": Literal["plain", "strips", "rows"],
    "threads": Size,
    "slots": dict,
    "halvings": dict,
}
_ABSENT = defaults(LayerSchedule) | {"threads": 1, "slots": {}, "halvings": {}}


def _pairs(data: Mapping[str, Any]) -> list[str]:
    return [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]


def read(source: object) -> Schedule:
    """Return the schedule in a file, in the JSON values of a file, or in a Schedule.

    The output of `explain --json` contains a schedule, too. Raises InputError for malformed input.
    """
    if isinstance(source, Schedule):  # its values may have any type
        try:
            return _schedule(source.to_json(), source.source)
        except (AttributeError, TypeError) as error:
            raise InputError("schedule", f"has a value of a wrong type: {error}") from None
    where = "schedule"
    data = source
    if isinstance(source, str | Path):
        remedy = "`tilewright explain --save-schedule FILE` writes one"
        where = str(source)
        data = fields.read(source, InputError, remedy)
    if not isinstance(data, Mapping):
        raise InputError("schedule", f"is {shown(source)}", "give a file, its JSON values, or a Schedule")
    inner = data.get("schedule")
    return _schedule(inner if isinstance(inner, Mapping) else data, where)


def close_to(name: str, choices: Iterable[str]) -> str:
    """Return the remedy of an error about an unknown name: the closest known name, or some known names."""
    names = [*choices]
    close = difflib.get_close_matches(name[:SHOWN], names, n=1)
    some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"did you mean {close[0]}?" if close else f"known: {some}" if names else ""


def _schedule(data: Mapping[str, Any], where: str) -> Schedule:
    with naming(where, InputError):
        for key, only in (("version", VERSION), ("target", TARGET)):
            if key in data and (data[key] != only or isinstance(data[key], bool)):
                raise FieldError(key, f"is {shown(data[key])}", f"give {key} {only}; no other is supported")
        values = record(_SCHEDULE, data, "", {"config": None, "model": "", "rounding": ""})
        layers = tuple(_layer(layer, where, number) for number, layer in enumerate(values.pop("layers")))
        names = [layer.layer for layer in layers]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise FieldError("", f"layer {shown(twice)} occurs twice", "keep one of them")
        return Schedule(layers, values["config"], values["model"], values["rounding"], where)


def _layer(data: object, where: str, number: int) -> LayerSchedule:
    name = data.get("layer") if isinstance(data, Mapping) else None
    place = f"layer {shown(name)}" if isinstance(name, str) else f"layers[{number}]"
    with naming(f"{where}, {place}", InputError):
        values = record(_LAYER, data, "", _ABSENT)
        # `threads` gives all three memories the same number of slots, and `slots` overrides single numbers.
        threads = values.pop("threads")
        slots = record(types(Slots), values.pop("slots"), "slots", dict.fromkeys(types(Slots), threads))
        halvings = record(types(Halvings), values.pop("halvings"), "halvings", defaults(Halvings))
        return LayerSchedule(**values, slots=Slots(**slots), halvings=Halvings(**halvings))
