"""Declared state: the machine is one array of numbers, in which records of named numbers have their places.

A record is a class of annotated fields. `registers` and `table` give it a place; they return the places of its fields,
as attributes. (They return a module, because Numba takes the attributes of modules as constants.) Each field says what
a snapshot does with it, so nothing else lists the state.
"""

from __future__ import annotations

from types import ModuleType
from typing import Annotated, NamedTuple, TypeVar, cast, get_type_hints

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part

R = TypeVar("R")

#: What a snapshot does with a field; the functions of tape.py and snapshot.py say what each rule means.
FIXED, WIRE, POINTER, PLAIN, SCALED, COMMAND, TAKEN, ENTRY, TRANSACTION, MOVED_ROW, PRODUCT, PAGE = range(12)
LOCAL, LOCAL_COMMAND, LOCAL_RESULT, ROW_OF_LOAD, STORED_ROW, SPAD_ROW, OF_LOAD, OF_STORE, DUE, SINCE = range(12, 22)
#: All phases in which a row of a table may be: see `Saved.phases`.
ALWAYS = 7


class Saved(NamedTuple):
    """How a snapshot saves a field: by `rule`, if one of the fields `when` of its record is not 0 (none: always).

    `size`: the numbers in the field. `of`: the field that the rule refers to. `among`: the queue of an entry, or the
    kind of a page. `phases`: bits, for rows of which a snapshot saves other fields on their way through the machine.
    """

    rule: int
    when: tuple[str, ...] = ()
    of: str = ""
    among: int = 0
    size: int = 1
    phases: int = ALWAYS
    reset: int = 0


#: A parameter; a number that a snapshot leaves out, because it is set before it is read; the place of the first element
#: in a ring, from which others count; a number that is saved as it is, and three of these; a primitive command.
Fixed = Annotated[int, Saved(FIXED)]
Wire = Annotated[int, Saved(WIRE)]
Pointer = Annotated[int, Saved(POINTER)]
Plain = Annotated[int, Saved(PLAIN)]
Plain3 = Annotated[int, Saved(PLAIN, size=3)]
Command = Annotated[int, Saved(COMMAND)]

#: Words that the registers of a unit may take, and the units.
UNIT, UNITS = 64, 14
#: Numbers in a row of a table, and the rows of the tables: banks of the accumulator; states of loads; the station's
#: entries (64 of each queue), and those not issued, in order; rows between reader and memories, and between store
#: controller and writer; commands for the execute controller; what it asks of the array; tags of its results; rows in
#: it; loads and stores in the trackers; read transactions; answers to come.
WIDTH = 16
RING, OUT_RING = 128, 512
_ROWS = {
    **{"acc_banks": 64, "load_states": 4, "entries": 192, "waiting": RING, "moved": RING, "stored": RING},
    **{"commands": RING, "operations": RING, "tags": RING, "results": 512, "loads": 516, "stores": 516},
    **{"transactions": 1024, "answers": 2048},
}
#: Where the queues begin, the words of one, and where the tables begin and end.
QUEUES, PER_QUEUE, MOST_QUEUES = UNIT * UNITS, 4 + RING, 20
TABLES = QUEUES + MOST_QUEUES * PER_QUEUE
END = TABLES + WIDTH * sum(_ROWS.values())

#: Columns of the table that `rules` returns.
PLACE, RULE, WHEN, OR, OF, AMONG, PHASES = range(7)
NOWHERE = -1
#: The lengths of the queues.
LENGTHS: list[int] = []
#: The fields of each record that was given a place, by this place; tables come behind registers.
DECLARED: dict[int, dict[str, tuple[int, Saved]]] = {}


def _laid(record: type[R], place: int, fields: dict[str, tuple[int, Saved]]) -> R:
    """Return the places of the fields of a record that begins at `place`, and add the fields to `fields`."""
    places = ModuleType(record.__name__, record.__doc__)
    for name, hint in get_type_hints(record, include_extras=True).items():
        (saved,) = getattr(hint, "__metadata__", (Saved(FIXED),))
        setattr(places, name, place)
        fields[name] = place, saved
        place += saved.size
    return cast(R, places)


def _declared(record: type[R], place: int, limit: int) -> R:
    """Return the places of the fields of a part of the machine."""
    fields = dict[str, tuple[int, Saved]]()
    places = _laid(record, place, fields)
    assert sum(saved.size for _, saved in fields.values()) <= limit, f"{record.__name__} has too many numbers"
    assert DECLARED.setdefault(place, fields) == fields, f"{record.__name__} has the place of another record"
    return places


def registers(record: type[R], unit: int) -> R:
    """Return the places of the registers of a unit. Each unit has its number, so places depend on no order."""
    return _declared(record, UNIT * unit, UNIT)


def table(record: type[R], name: str) -> R:
    """Return the places of the columns in the first row of a table."""
    before = list(_ROWS).index(name)
    return _declared(record, TABLES + WIDTH * sum(list(_ROWS.values())[:before]), WIDTH)


def columns(record: type[R]) -> R:
    """Return the numbers of the fields of a record, from 0 on."""
    return _laid(record, 0, {})


def queues(record: type[R]) -> R:
    """Return the places of queues, and keep their lengths."""
    places = ModuleType(record.__name__, record.__doc__)
    for number, (name, hint) in enumerate(get_type_hints(record, include_extras=True).items()):
        setattr(places, name, QUEUES + PER_QUEUE * number)
        LENGTHS.extend(hint.__metadata__)
    return cast(R, places)


def rules(places: object) -> Array:
    """Return the rules of a record, int64 [k, 7]; FIXED, WIRE and POINTER fields have none."""
    return _rules(DECLARED[min(value for value in vars(places).values() if isinstance(value, int))])


def _rules(fields: dict[str, tuple[int, Saved]]) -> Array:
    found = []
    for place, saved in fields.values():
        when = [fields[name][0] for name in saved.when] or [NOWHERE]
        of = fields[saved.of][0] if saved.of else NOWHERE
        if saved.rule > POINTER:
            row = saved.rule, when[0], when[-1], of, saved.among, saved.phases
            found += [(place + x, *row) for x in range(saved.size)]
    return np.array(found, np.int64).reshape(-1, 7)


def places(rule: int) -> list[int]:
    """Return the places of the registers with this rule."""
    fields = [fields for place, fields in sorted(DECLARED.items()) if place < QUEUES]
    return [
        place + x for each in fields for place, saved in each.values() for x in range(saved.size) if saved.rule == rule
    ]


def reset(m: Array) -> None:
    """Set all registers to their values after reset."""
    for place, fields in DECLARED.items():
        for first, saved in fields.values():
            if place < QUEUES:
                m[first : first + saved.size] = saved.reset


def register_rules() -> Array:
    """Return the rules of all registers."""
    return np.concatenate([_rules(fields) for place, fields in sorted(DECLARED.items()) if place < QUEUES])


@part
def row_offset(row: int) -> int:
    """Return how far a row of a table is from the first one."""
    return WIDTH * row


@part
def at(column: int, row: int) -> int:
    """Return the place of a column in a row of a table."""
    return column + WIDTH * row
