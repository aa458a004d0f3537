"""The declaration of state: records of named numbers. Each number has a rule by which a snapshot saves it.

A record is a class whose attributes are fields. `registers` and `table` allocate a record in the machine's array
(layout.py). They return a module with the places of the fields as attributes, because Numba treats attributes of
modules as constants. These declarations also define the content of snapshots, the values after reset, and the state
that tests corrupt. There is no second list of the state that could become incomplete.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple, TypeVar, cast

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.timing.layout import PER_QUEUE, QUEUES, ROWS, TABLES, UNIT, WIDTH

R = TypeVar("R")

#: A bit mask of all phases of a table row: see `SavedField.phases`.
ALWAYS = 7
#: Marks an absent place.
NOWHERE = -1


class SavedField(NamedTuple):
    """A declared field.

    A snapshot saves the field by `rule`. With `when`, the field is saved only if one of these fields of the record is
    not 0.
    """

    rule: int
    when: tuple[str, ...]
    of: str  # the field to which the rule refers
    among: int  # the queue of an entry, or the kind of a page
    size: int  # the number of elements of the field
    phases: int  # a bit mask of the row's phases in which a snapshot saves the field
    reset: int  # the value after reset


#: For each declared record, by place: its fields. For each table: its number of rows. For each queue: its length.
DECLARED: dict[int, dict[str, tuple[int, SavedField]]] = {}
TABLE_ROWS: dict[int, int] = {}
LENGTHS: list[int] = []


def _lay_out(record: type[R], place: int) -> tuple[R, dict[str, tuple[int, SavedField]]]:
    """Return the places of the fields of a record that begins at `place`, and its fields."""
    # Fields are either values that `saved` returns, or annotations without values (`columns`).
    places = ModuleType(record.__name__, record.__doc__)
    fields = dict[str, tuple[int, SavedField]]()
    named = [name for name, value in vars(record).items() if isinstance(value, SavedField)]
    assert not (named and record.__annotations__), f"{record.__name__} has fields of two forms"
    for name in named or record.__annotations__:
        saved = vars(record)[name] if named else SavedField(0, (), "", 0, 1, ALWAYS, 0)
        setattr(places, name, place)
        fields[name] = place, saved
        place += saved.size
    return cast(R, places), fields


def _declared(record: type[R], place: int, limit: int) -> R:
    """Allocate a record in the machine's array, and return the places of its fields."""
    places, fields = _lay_out(record, place)
    assert sum(saved.size for _, saved in fields.values()) <= limit, f"{record.__name__} has too many numbers"
    # If the module is imported twice under two names, the same record is declared twice.
    assert DECLARED.setdefault(place, fields) == fields, f"{record.__name__} has the place of another record"
    return places


def registers(record: type[R], unit: int) -> R:
    """Return the places of a unit's registers. Each unit has a number, which determines these places."""
    return _declared(record, UNIT * unit, UNIT)


def table(record: type[R], name: str) -> R:
    """Return the places of the columns in the first row of a table."""
    place = TABLES + WIDTH * sum(list(ROWS.values())[: list(ROWS).index(name)])
    TABLE_ROWS[place] = ROWS[name]
    return _declared(record, place, WIDTH)


def columns(record: type[R]) -> R:
    """Number the fields of a record from 0. The fields may be annotations without values."""
    return _lay_out(record, 0)[0]


def queues(record: type[R]) -> R:
    """Return the places of queues. The attributes of the class are the lengths of the queues."""
    places = ModuleType(record.__name__, record.__doc__)
    lengths = {name: length for name, length in vars(record).items() if isinstance(length, int)}
    for number, name in enumerate(lengths):
        setattr(places, name, QUEUES + PER_QUEUE * number)
    LENGTHS[:] = lengths.values()
    return cast(R, places)


class SnapshotRules:
    """The rules by which a snapshot saves a field. snapshot.serialise_field implements each rule."""

    # Fields with the first three rules are not saved. _rules depends on this order.
    fixed: int  # a parameter of the machine
    wire: int  # set in each cycle before it is read, or derived from saved fields
    pointer: int  # a place in a ring to which other places are relative; 0 in a snapshot
    plain: int  # saved unchanged
    scaled: int
    command: int
    taken: int
    entry: int
    transaction: int
    incoming_row: int
    product: int
    page: int
    local: int
    local_command: int
    local_result: int
    row_of_load: int
    outgoing_row: int
    spad_row: int
    of_load: int
    of_store: int
    due: int
    since: int
    host: int
    loop: int
    staged: int


class Columns:
    """The columns of the arrays that `rules` returns."""

    place: int
    rule: int
    when: int  # two fields; the field is saved only if one of them is not 0
    or_when: int
    of: int
    among: int
    phases: int


RULE = columns(SnapshotRules)
COLUMN = columns(Columns)


def saved(
    rule: int = RULE.plain,
    when: str | tuple[str, ...] = (),
    of: str = "",
    among: int = 0,
    size: int = 1,
    phases: int = ALWAYS,
    reset: int = 0,
) -> int:
    """Declare a field: see `SavedField`. In the record's module, the attribute is the field's place, an integer."""
    return cast(int, SavedField(rule, (when,) if isinstance(when, str) else when, of, among, size, phases, reset))


FIXED = saved(RULE.fixed)
WIRE = saved(RULE.wire)
POINTER = saved(RULE.pointer)
PLAIN = saved()
COMMAND = saved(RULE.command)


def rules(places: object) -> Array:
    """Return the rules of the saved fields of a record, int64 [k, 7]."""
    return _rules(DECLARED[min(value for value in vars(places).values() if isinstance(value, int))])


def _rules(fields: dict[str, tuple[int, SavedField]]) -> Array:
    rows = []
    for place, saved in fields.values():
        when = [fields[name][0] for name in saved.when] or [NOWHERE]
        of = fields[saved.of][0] if saved.of else NOWHERE
        if saved.rule > RULE.pointer:
            row = saved.rule, when[0], when[-1], of, saved.among, saved.phases
            rows += [(place + x, *row) for x in range(saved.size)]
    return np.array(rows, np.int64).reshape(-1, len(Columns.__annotations__))


def _registers() -> list[dict[str, tuple[int, SavedField]]]:
    return [fields for place, fields in sorted(DECLARED.items()) if place < QUEUES]


def register_rules() -> Array:
    """Return the rules of all registers that are saved."""
    return np.concatenate([_rules(fields) for fields in _registers()])


def pointers() -> Array:
    """Return the places of all registers that are 0 in every snapshot."""
    fields = [field for record in _registers() for field in record.values() if field[1].rule == RULE.pointer]
    return np.array([place + x for place, saved in fields for x in range(saved.size)], np.int64)


def reset(m: Array) -> None:
    """Set all numbers of a machine of zeros to their values after reset."""
    for record, fields in DECLARED.items():
        reach = WIDTH * (TABLE_ROWS.get(record, 1) - 1) + 1
        for place, saved in fields.values():
            for first in range(place, place + saved.size if saved.reset else place):
                m[first : first + reach : WIDTH] = saved.reset
