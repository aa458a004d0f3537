"""The answers of a session as text and as JSON values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, cast

import numpy as np

from tilewright.array import Array
from tilewright.debug.compare import Difference
from tilewright.debug.places import place
from tilewright.debug.records import Access, At, Change, Depends, Instruction, Queue, Stop, Unit, Wait
from tilewright.debug.session import Session
from tilewright.debug.slices import Suspect
from tilewright.errors import InputError, plain
from tilewright.sim.findings import Finding
from tilewright.sim.walk import Placed

#: The most lines of an answer, values of a place, and rows of a footprint that are printed.
LINES, VALUES, TOUCHES = 40, 1024, 8


@dataclass(frozen=True, eq=False)
class Shown:
    """The values at a place, to be printed as codes (""), "hex", or "real" numbers."""

    session: Session
    where: str
    form: str


@dataclass(frozen=True)
class Listing:
    """Consecutive instructions, and the next one, which gets a mark."""

    rows: Sequence[Access]
    now: int | None


@dataclass(frozen=True)
class One:
    """One access, or the sentence that says that there is none."""

    access: Access | None
    none: str


@dataclass(frozen=True, eq=False)
class Waits:
    """Waits of an instruction, or for one."""

    session: Session
    waits: Sequence[Wait]
    none: str


@dataclass(frozen=True, eq=False)
class Dependence:
    """The dependences of a place."""

    session: Session
    depends: Depends


@dataclass(frozen=True, eq=False)
class Differs:
    """The first difference from the reference."""

    session: Session
    difference: Difference | None


@dataclass(frozen=True, eq=False)
class Suspected:
    """Suspect instructions, the most suspect first."""

    session: Session
    suspects: Sequence[Suspect]


@dataclass(frozen=True, eq=False)
class Memories:
    """The memories of a launch."""

    session: Session


@dataclass(frozen=True, eq=False)
class TensorList:
    """The tensors of a launch, with the numbers that places use."""

    session: Session


@dataclass(frozen=True, eq=False)
class LaunchList:
    """The launches of a program."""

    session: Session


def render(found: Any) -> str:
    """Return an answer as printable text, without a newline at its end."""
    if isinstance(found, list | tuple):
        each = [render(item) for item in found[:LINES]]
        return "\n".join([*each, *([f"... and {len(found) - LINES} more"] if len(found) > LINES else [])]) or "none"
    lines = _RENDER[type(found)](found)
    return plain(lines if isinstance(lines, str) else "\n".join(lines))


def to_json(found: Any) -> Any:
    """Return an answer as JSON values."""
    match found:
        case Suspect():
            return dict(zip(Suspect._fields, found, strict=True))
        case list() | tuple():
            return [to_json(item) for item in found]
        case Shown():
            return _values(found).tolist()
        case Finding():
            return found.to_json()
        case Change():
            return {**asdict(found.by), "values": found.values.tolist()}
        case Placed():
            return {
                "name": found.name,
                "node": found.node,
                "shape": list(found.byte.shape[:-1]),
                "layout": found.layout,
            }
        case Listing():
            return to_json(found.rows)
        case One():
            return to_json(found.access)
        case Waits():
            return to_json(found.waits)
        case Dependence():
            return to_json(found.depends)
        case Suspected():
            return to_json(found.suspects)
        case Differs(difference=difference):
            return None if difference is None else _difference(difference)
        case Memories(session=session):
            walk = session.walk
            return [*(chip._asdict() for chip in walk.memories.values()), *(part._asdict() for part in walk.segments)]
        case TensorList(session=session):
            return to_json(session.tensors())
        case LaunchList(session=session):
            return list(session.launches)
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found


def _at(at: At) -> list[str]:
    lines = [at.because] if at.because else []
    if at.step is None:
        lines.append(f"end of launch {at.launch}" + (f", {at.cycle} cycles" if at.cycle is not None else ""))
    else:
        cycle = f", cycle {at.cycle}" if at.cycle is not None else ""
        lines += [f"#{at.step} of {at.of}, {at.layer}, {at.unit}{cycle}", f"  {at.text}"]
    return [*lines, f"cannot go on: {at.stuck}"] if at.stuck else lines


def _access(access: Access) -> str:
    return f"#{access.step} {access.unit}: {access.text}"


def _change(change: Change) -> str:
    values = np.array2string(change.values.reshape(-1), max_line_width=120, threshold=16, edgeitems=4)
    return f"{values if change.values.ndim else int(change.values)} after {_access(change.by)}"


def _listing(listing: Listing) -> list[str]:
    return [f"{'>' if row.step == listing.now else ' '} {_access(row)}" for row in listing.rows]


def _instruction(found: Instruction) -> list[str]:
    time = f", cycles {found.start}..{found.end}" if found.start is not None else ""
    touches = [f"  {touch.mode} {touch.text}" for touch in found.footprint[:TOUCHES]]
    if len(found.footprint) > TOUCHES:
        touches = [f"  touches {len(found.footprint)} ranges of memory"]
    return [f"#{found.step} {found.layer}, {found.unit}{time}", f"  {found.text}", *touches, *found.lines]


def _unit(unit: Unit) -> str:
    if unit.doing is not None:
        return f"{unit.name:9} #{unit.doing} until cycle {unit.until}: {unit.text}"
    if unit.following is None:
        return f"{unit.name:9} has no more instructions"
    return f"{unit.name:9} idle, next #{unit.following}{', ' * bool(unit.waits_for)}{unit.waits_for}: {unit.text}"


def _queue(queue: Queue) -> str:
    by = f", pushed by {', '.join(f'#{step}' for step in queue.pushed_by[:8])}" if queue.pushed_by else ""
    return f"{queue.name:16} {queue.tokens} of {queue.depth} tokens{by}"


def _waits(found: Waits) -> list[str]:
    walk, lines = found.session.walk, []
    for wait in found.waits:
        if wait.step is not None and wait.cause.startswith(("waits", "is next")):
            since = f", ready since cycle {wait.since}, for {wait.cycles} cycles" if wait.since is not None else ""
            lines.append(f"#{wait.waiter} {wait.cause}{since}: {walk.text(wait.waiter)}")
        else:
            other = f": {walk.text(wait.step)}" if wait.step is not None else ""
            at = f" cycle {wait.since}" if wait.since is not None else ""
            lines.append(f"{wait.cause}{at}{other}")
    return lines or [found.none]


def _dependence(found: Dependence) -> list[str]:
    walk, depends = found.session.walk, found.depends
    lines = [f"{len(depends.steps)} instructions:"]
    lines += [f"  #{step} {walk.text(step)}" for step in depends.steps[:LINES]]
    if len(depends.steps) > LINES:
        lines.append(f"  ... and {len(depends.steps) - LINES} more")
    for name, low, high, count in depends.inputs:
        holes = f" ({count} of them)" if count < high - low else ""
        lines.append(f"{name}[{low}:{high}]{holes} from before the launch")
    return lines


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "launch": found.launch,
        "layer": found.layer,
        "tensor": found.tensor,
        "index": list(found.index),
        "got": found.got,
        "expected": found.expected,
        "is_sum": found.is_sum,
        "wrong": found.count,
        "elements": found.size,
    }


def _differs(found: Differs) -> list[str]:
    difference, walk = found.difference, found.session.walk
    if difference is None and found.session.real_numbers:
        return ["no code differs from the reference; real numbers are not compared, as they are not exact"]
    if difference is None:
        return ["every launch gives the values of the reference"]
    known = difference.tensor in walk.tensors
    name = f"t{walk.tensors.index(difference.tensor)}" if known else difference.tensor
    index = ",".join(map(str, difference.index))
    what = "the sum is" if difference.is_sum else "the code is" if known else "the byte is"
    lines = [
        f"layer {difference.layer}: {difference.count} of {difference.size} elements differ from the reference",
        f"  first {name}[{index}]: {what} {difference.got}, not {difference.expected}",
    ]
    wrong = np.flatnonzero(difference.wrong[difference.index])
    byte = int(difference.placed.byte[difference.index][wrong[0] if wrong.size else 0])
    if byte < 0:
        return [*lines, "  the machine does not hold it"]
    name, writer = found.session.origin(byte)
    name = f"dram[{byte:#x}]" if name.startswith("dram.") else name
    if writer is None:
        return [*lines, f"  no instruction writes {name}"]
    plane = f", byte {wrong[0]} of its sum," if difference.is_sum and wrong.size else ""
    return [*lines, f"  {name}{plane} was written by #{writer.step} {writer.text}"]


def _suspected(found: Suspected) -> list[str]:
    walk = found.session.walk
    if not found.suspects:
        if found.session.differs() is None:
            return ["nothing differs from the reference"]
        return ["no instruction wrote the wrong elements: see `who` of the elements next to them"]
    return [
        f"#{one.step} computed {one.wrong} of the wrong and {one.right} of the right groups: {walk.text(one.step)}"
        for one in found.suspects
    ]


def _memories(found: Memories) -> list[str]:
    walk = found.session.walk
    chips = [
        f"{c.name:8} {c.depth} tiles of {'x'.join(map(str, c.shape))} {c.dtype}, {c.layout}"
        for c in walk.memories.values()
    ]
    parts = [
        f"dram.{p.name:6} {p.address:#x}..{p.address + p.size:#x}, {p.size} bytes, {p.kind}" for p in walk.segments
    ]
    return [*chips, *parts]


def _values(shown: Shown) -> Array:
    found = np.asarray(shown.session.read(shown.where))
    if shown.form != "real" or found.dtype.kind == "f":
        return found
    at, graph = place(shown.session.walk, shown.where), shown.session.graph
    if not at.is_tensor or graph is None:
        raise InputError(f"show {shown.where} real", "only tensors have a scale", "show codes or hex")
    tensor = graph.tensors[at.name]
    return (found.astype(np.float64) - tensor.zero_point) * tensor.scale


def _shown(shown: Shown) -> str:
    found = _values(shown)
    layout = shown.session.walk.memories.get(shown.where.partition("[")[0].strip())
    head = f"{shown.where}: {found.dtype} {list(found.shape)}" + (f", tiles: {layout.layout}" if layout else "")
    if found.size > VALUES:
        head += ", in part"
    if shown.form == "hex":
        bits, digits = (1 << 8 * found.itemsize) - 1, 2 * found.itemsize
        hexed = {"int": lambda value: f"{int(value) & bits:0{digits}x}"}
        lines = np.array2string(found, max_line_width=120, threshold=VALUES, formatter=cast(Any, hexed))
    else:
        lines = np.array2string(found, max_line_width=120, threshold=VALUES)
    return f"{head}\n{lines}"


def _placed(placed: Placed, given: str) -> str:
    shape, held = placed.byte.shape[:-1], placed.byte[placed.byte >= 0]
    span = f"dram[{held.min():#x}:{held.max() + 1:#x}]" if held.size else "not in DRAM"
    what = "codes" if placed.is_code else f"sums of {placed.byte.shape[-1]} bytes"
    by = f"computed by {placed.node}" if placed.node else given
    lies = f"{placed.layout} in {span}" if placed.layout and placed.last is None else placed.layout
    return f"{placed.name} {list(shape)}: {lies or f'{what} in {span}'}, {by}"


def _tensors(session: Session) -> list[str]:
    given = "an input" if session.graph else "an argument"
    return [f"t{number} {_placed(each, given)}" for number, each in enumerate(session.tensors())] or ["none"]


def _launches(found: LaunchList) -> list[str]:
    now = found.session.walk.name
    return [f"{'>' if name == now else ' '} {index} {name}" for index, name in enumerate(found.session.launches)]


_RENDER: dict[type, Callable[[Any], str | list[str]]] = {
    At: _at,
    Access: _access,
    Change: _change,
    Listing: _listing,
    One: lambda one: _access(one.access) if one.access else one.none,
    Instruction: _instruction,
    Unit: _unit,
    Queue: _queue,
    Waits: _waits,
    Dependence: _dependence,
    Differs: _differs,
    Suspected: _suspected,
    Memories: _memories,
    LaunchList: _launches,
    TensorList: lambda found: _tensors(found.session),
    Shown: _shown,
    Stop: lambda stop: f"{stop.number}: {stop.text}",
    Finding: str,
}
