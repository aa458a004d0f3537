"""The answers of a session as text and as JSON values.

Most answers have a method `printed`, which `render` calls. The other functions make the text of answers that need more
data: they get the session, the answer and the arguments of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, cast

import numpy as np

from tilewright.array import Array
from tilewright.debug.compare import Difference
from tilewright.debug.records import Access, Depends, Wait
from tilewright.debug.session import Session
from tilewright.debug.slices import Suspect
from tilewright.errors import plain
from tilewright.sim.walk import PlacedTensor

LINES = 40  # an answer is printed with at most this number of lines
VALUES = 1024  # a place is printed with at most this number of values


def render(answer: Any) -> str:
    """Return an answer as printable text without a final newline. Only the first LINES entries of a list are shown."""
    if isinstance(answer, list | tuple) and not hasattr(answer, "printed"):
        return "\n".join(_cut([render(item) for item in answer[:LINES]], len(answer))) or "none"
    return plain(answer.printed() if hasattr(answer, "printed") else str(answer))


def _cut(lines: list[str], count: int, indent: str = "") -> list[str]:
    return [*lines, f"{indent}... and {count - LINES} more"] if count > LINES else lines


def to_json(answer: Any) -> Any:
    if hasattr(answer, "to_json"):
        return answer.to_json()
    if isinstance(answer, np.ndarray):
        return answer.tolist()
    if hasattr(answer, "_asdict"):
        return answer._asdict()
    if isinstance(answer, list | tuple):
        return [to_json(item) for item in answer]
    return asdict(answer) if is_dataclass(answer) and not isinstance(answer, type) else answer


def every(session: Session, answers: Sequence[Any]) -> list[str]:
    return [render(answer) for answer in answers]


def listing(session: Session, rows: Sequence[Access], *_: Any) -> list[str]:
    """Return the lines of consecutive instructions. `>` marks the next instruction."""
    now = session.where().step
    return [f"{'>' if row.step == now else ' '} {row.printed()}" for row in rows]


def launches(session: Session, names: Sequence[str]) -> list[str]:
    """Return the lines of all launches with their numbers. `>` marks the open launch."""
    now = session.walk.name
    return [f"{'>' if name == now else ' '} {index} {name}" for index, name in enumerate(names)]


def writer(session: Session, access: Access | None, where: str) -> str:
    return access.printed() if access else f"no instruction has written {where}"


def reader(session: Session, access: Access | None, where: str) -> str:
    return access.printed() if access else f"no instruction reads {where} from here on"


def why(session: Session, waits: Sequence[Wait], *_: Any) -> list[str]:
    return [_wait(session, wait) for wait in waits] or ["starts at once"]


def waiting(session: Session, waits: Sequence[Wait], *_: Any) -> list[str]:
    return [_wait(session, wait) for wait in waits] or ["nobody waits for it"]


def _wait(session: Session, wait: Wait) -> str:
    walk = session.walk
    if wait.step is not None and wait.cause.startswith(("waits", "is next")):
        since = f", ready since cycle {wait.since}, for {wait.cycles} cycles" if wait.since is not None else ""
        return f"#{wait.waiter} {wait.cause}{since}: {walk.text(wait.waiter)}"
    instruction = f": {walk.text(wait.step)}" if wait.step is not None else ""
    at = f" cycle {wait.since}" if wait.since is not None else ""
    return f"{wait.cause}{at}{instruction}"


def depends(session: Session, answer: Depends, *_: Any) -> list[str]:
    """Return the lines of the instructions and elements from which a place was computed."""
    steps = [f"  #{step} {session.walk.text(step)}" for step in answer.steps[:LINES]]
    lines = [f"{len(answer.steps)} instructions:", *_cut(steps, len(answer.steps), "  ")]
    for name, low, high, count in answer.inputs:
        holes = f" ({count} of them)" if count < high - low else ""
        lines.append(f"{name}[{low}:{high}]{holes} from before the launch")
    return lines


def differs(session: Session, difference: Difference | None) -> list[str]:
    """Return lines about the first difference from the reference and the instruction that wrote it."""
    walk = session.walk
    if difference is None and session.real_numbers:
        return ["no code differs from the reference; real numbers are not compared, as they are not exact"]
    if difference is None:
        return ["every launch gives the values of the reference"]
    is_tensor = difference.tensor in walk.tensors
    name = f"t{walk.tensors.index(difference.tensor)}" if is_tensor else difference.tensor
    index = ",".join(map(str, difference.index))
    what = "the sum is" if difference.is_sum else "the code is" if is_tensor else "the byte is"
    lines = [
        f"layer {difference.layer}: {difference.count} of {difference.size} elements differ from the reference",
        f"  first {name}[{index}]: {what} {difference.got}, not {difference.expected}",
    ]
    # Name the writer of the lowest wrong byte, because higher bytes may only be wrong through a carry.
    wrong = np.flatnonzero(difference.wrong[difference.index])
    byte = int(difference.placed.byte[difference.index][wrong[0] if wrong.size else 0])
    if byte < 0:
        return [*lines, "  the machine does not hold it"]
    name, writer = session.origin(byte)
    name = f"dram[{byte:#x}]" if name.startswith("dram.") else name
    if writer is None:
        return [*lines, f"  no instruction writes {name}"]
    plane = f", byte {wrong[0]} of its sum," if difference.is_sum and wrong.size else ""
    return [*lines, f"  {name}{plane} was written by #{writer.step} {writer.text}"]


def suspects(session: Session, answers: Sequence[Suspect], *_: Any) -> list[str]:
    """Return the lines of suspect instructions, or the reason why the list is empty."""
    if answers:
        return [
            f"#{suspect.step} computed {suspect.wrong} of the wrong and {suspect.right} of the right groups: "
            f"{session.walk.text(suspect.step)}"
            for suspect in answers
        ]
    if session.differs() is None:
        return ["nothing differs from the reference"]
    return ["no instruction wrote the wrong elements: see `who` of the elements next to them"]


def values(session: Session, content: Array, shown: tuple[str, str]) -> str:
    """Return the values at a place as text. `shown` is the place and the number format: "" (codes), "hex" or "real"."""
    where, form = shown
    layout = session.walk.memories.get(where.partition("[")[0].strip())
    head = f"{where}: {content.dtype} {list(content.shape)}" + (f", tiles: {layout.layout}" if layout else "")
    if content.size > VALUES:
        head += ", in part"
    formatter = None
    if form == "hex":
        bits = (1 << 8 * content.itemsize) - 1
        digits = 2 * content.itemsize
        formatter = {"int": lambda value: f"{int(value) & bits:0{digits}x}"}
    return f"{head}\n{np.array2string(content, max_line_width=120, threshold=VALUES, formatter=cast(Any, formatter))}"


def tensors(session: Session, answers: Sequence[PlacedTensor]) -> list[str]:
    origin = "an input" if session.graph else "an argument"
    return [f"t{number} {_placed(tensor, origin)}" for number, tensor in enumerate(answers)] or ["none"]


def _placed(placed: PlacedTensor, origin: str) -> str:
    shape = placed.byte.shape[:-1]
    addresses = placed.byte[placed.byte >= 0]
    span = f"dram[{addresses.min():#x}:{addresses.max() + 1:#x}]" if addresses.size else "not in DRAM"
    what = "codes" if placed.is_code else f"sums of {placed.byte.shape[-1]} bytes"
    by = f"computed by {placed.node}" if placed.node else origin
    lies = f"{placed.layout} in {span}" if placed.layout and placed.last is None else placed.layout
    return f"{placed.name} {list(shape)}: {lies or f'{what} in {span}'}, {by}"
