"""The declaration of state: records of named numbers. The rule of a number defines how a snapshot saves the number.

A record is a class whose attributes are fields. `registers` and `table` allocate a record in the machine's array
(layout.py). Both functions return a module whose attributes are the indices of the fields, because Numba treats
attributes of modules as constants. These declarations also define the content of snapshots, the values after reset, and
the numbers that tests corrupt. There is no second list of the state that could become incomplete.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple, TypeVar, cast

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.timing.layout import PER_QUEUE, QUEUES, ROWS, TABLES, UNIT, WIDTH

R = TypeVar("R")

#: The bit mask of all three phases of a table row (see `SavedField.phases`).
ALWAYS = 7
#: The index of an absent field.
NOWHERE = -1


class SavedField(NamedTuple):
    """A declared field.

    A snapshot saves the field by `rule`. If `when` names fields of the record, the field is saved only while at least
    one of the named fields is not 0.
    """

    rule: int
    when: tuple[str, ...]
    of: str  # the name of a second field that the rule reads
    among: int  # the queue (rule `entry`), or the kind of page (rule `page`)
    size: int  # the number of elements of the field
    phases: int  # a bit mask: a snapshot saves the field in these phases of the row
    reset: int  # the value after reset


#: {first index of a record: its fields}.
DECLARED: dict[int, dict[str, tuple[int, SavedField]]] = {}
#: {first index of a table: the number of its rows}.
TABLE_ROWS: dict[int, int] = {}
#: The length of each queue.
LENGTHS: list[int] = []


def _lay_out(record: type[R], place: int) -> tuple[R, dict[str, tuple[int, SavedField]]]:
    """Return the indices of the fields of a record that begins at index `place`, and the fields themselves."""
    # A record declares all its fields as values that `saved` returns, or all as annotations without values (`columns`).
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
    places, fields = _lay_out(record, place)
    assert sum(saved.size for _, saved in fields.values()) <= limit, f"{record.__name__} has too many numbers"
    # If the module is imported twice under two names, the same record is declared twice.
    assert DECLARED.setdefault(place, fields) == fields, f"{record.__name__} has the place of another record"
    return places


def registers(record: type[R], unit: int) -> R:
    """Return the indices of the registers of unit number `unit`."""
    return _declared(record, UNIT * unit, UNIT)


def table(record: type[R], name: str) -> R:
    """Return the indices of the columns in the first row of a table."""
    place = TABLES + WIDTH * sum(list(ROWS.values())[: list(ROWS).index(name)])
    TABLE_ROWS[place] = ROWS[name]
    return _declared(record, place, WIDTH)


def columns(record: type[R]) -> R:
    return _lay_out(record, 0)[0]


def queues(record: type[R]) -> R:
    """Return the first index of each queue. The attributes of the class are the lengths of the queues."""
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
    pointer: int  # an index into a ring, to which other indices are relative; 0 in a snapshot
    plain: int  # saved unchanged
    scaled: int
    command: int
    taken: int
    entry: int
    transaction: int
    incoming_row: int
    wide_row: int
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
    when: int  # the field is saved only if the field `when` or the field `or_when` is not 0
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
    """Declare a field (see `SavedField`). In the module from `registers`, the attribute is the field's index."""
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
    return np.concatenate([_rules(fields) for fields in _registers()])


def pointers() -> Array:
    """Return the indices of all registers that are 0 in every snapshot."""
    fields = [field for record in _registers() for field in record.values() if field[1].rule == RULE.pointer]
    return np.array([place + x for place, saved in fields for x in range(saved.size)], np.int64)


def reset(m: Array) -> None:
    """Reset a machine whose numbers are all 0."""
    for record, fields in DECLARED.items():
        reach = WIDTH * (TABLE_ROWS.get(record, 1) - 1) + 1
        for place, saved in fields.values():
            for first in range(place, place + saved.size if saved.reset else place):
                m[first : first + reach : WIDTH] = saved.reset
