"""Read a schedule of the user's (schedule.py) from a file or JSON values, which are untrusted: check their form."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from tilewright import fields
from tilewright.errors import SHOWN, InputError, shown
from tilewright.fields import FieldError, defaults, naming, record, types
from tilewright.targets.vta.schedule import TARGET, VERSION, Halvings, LayerSchedule, Schedule, Size, Slots

_SCHEDULE: dict[str, Any] = {"version": int, "target": str, "layers": list, "model": str, "rounding": str}
_SCHEDULE |= {"config": dict[str, Any] | None}
#: A layer's entries: `threads` stands for all three slots, of which some may be missing.
_LAYER = types(LayerSchedule) | {
    "form": Literal["plain", "strips", "rows"],
    "threads": Size,
    "slots": dict,
    "halvings": dict,
}
_ABSENT = defaults(LayerSchedule) | {"threads": 1, "slots": {}, "halvings": {}}


def read(source: object) -> Schedule:
    """Read a file, the JSON values of one, or a Schedule. The output of `explain --json` contains a schedule.

    Raises InputError if it has another form.
    """
    if isinstance(source, Schedule):  # its values may have any type
        try:
            return _schedule(source.to_json(), source.source)
        except (AttributeError, TypeError) as error:
            raise InputError("schedule", f"has a value of a wrong type: {error}") from None
    where, data = ("schedule", source) if isinstance(source, Mapping) else _file(source)
    inner = data.get("schedule")
    return _schedule(inner if isinstance(inner, Mapping) else data, where)


def close_to(name: str, known: Iterable[str]) -> str:
    """Return the remedy of an error about an unknown name: the closest known one, or some of them."""
    names = [*known]
    close = difflib.get_close_matches(name[:SHOWN], names, n=1)
    some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"did you mean {close[0]}?" if close else f"known: {some}" if names else ""


def _file(source: object) -> tuple[str, Mapping[str, Any]]:
    """Return a file's name and its JSON object. Raises InputError if there is no such file, or it is something else."""
    if not isinstance(source, str | Path):
        raise InputError("schedule", f"is {shown(source)}", "give a file, its JSON values, or a Schedule")
    return str(source), fields.read(source, InputError, "`tilewright explain --save-schedule FILE` writes one")


def _schedule(data: Mapping[str, Any], where: str) -> Schedule:
    with naming(where, InputError):
        for key, only in (("version", VERSION), ("target", TARGET)):
            if key in data and (data[key] != only or isinstance(data[key], bool)):
                raise FieldError(key, f"is {shown(data[key])}", f"only {key} {only} has schedules of this form")
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
        threads = values.pop("threads")
        slots = record(types(Slots), values.pop("slots"), "slots", dict.fromkeys(types(Slots), threads))
        halvings = record(types(Halvings), values.pop("halvings"), "halvings", defaults(Halvings))
        return LayerSchedule(**values, slots=Slots(**slots), halvings=Halvings(**halvings))
