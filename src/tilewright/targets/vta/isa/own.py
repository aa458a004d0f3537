"""The user's own ALU operations: their definition (configuration key `own_alu`), and the code that a definition names.

The meaning of an operation is an expression (expression.py), or a Python function. A lane, which computes the operation
in gateware, is an Amaranth component. A machine's file names code as `FILE.py:NAME`; in Python, the function `code`
registers code. The configuration contains the name and a digest of the source, `FILE.py:NAME#DIGEST`. A configuration
from a program file has the same text, but never causes an import: its code must have been registered in this process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError, MachineError, option, shown
from tilewright.files import regular
from tilewright.sim.events import KINDS
from tilewright.targets import given
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.expression import OPERANDS, Expression, parse

#: The number of the first own operation in decoded programs. These numbers are separate from opcodes, because an own
#: operation may have the opcode of an AluOp that the machine lacks.
FIRST_OWN = 16
#: Maximum values: opcode, cycles from one micro-op to the next, cycles of latency, operations of a machine.
MAX_OPCODE = 255
MAX_CYCLES = 1024
MAX_LATENCY = 64
MAX_OPERATIONS = 16

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_CODE = re.compile(r"(?P<file>[^#:]+):(?P<name>[A-Za-z_]\w*)(#(?P<digest>[0-9a-f]{16}))?", re.ASCII)
#: The user's code, by its text in configurations: a function or class, or the file that defines the code.
_CODE_BY_NAME: dict[str, Any] = {}


@dataclass(frozen=True)
class OwnOperation:
    """A user's own ALU operation. Raises ConfigError if a value is illegal.

    `meaning` is the result, as an expression or the name of a function of some of the arguments dst, src (int64 arrays
    of one shape) and imm (an integer); the accumulator gets its low 32 bits. `src` is the second operand of any ALU
    instruction, acc[src] or the immediate; `imm` is the immediate field in both cases. `cycles` is the minimum number
    of cycles from one micro-op to the next. `latency` is the number of cycles from a lane's operands to its result (0:
    the same cycle; MULH, RSHR and REQ have 5). `energy` lists the arithmetic per value, as kinds of sim.events. By
    default, it is derived from an expression.
    """

    name: str
    opcode: int
    meaning: str
    cycles: int = 1
    latency: int = 0
    lane: str = ""
    energy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            remedy = "use a to z, 0 to 9 and _, at most 32 of them, and begin with a letter"
            raise ConfigError("own_alu", f"the name of an operation is {shown(self.name)}", remedy)
        if self.name.upper() in AluOp.__members__ or re.fullmatch(r"op\d+", self.name):
            raise ConfigError(self.where, "the name is that of a built-in operation", "choose another name")
        ranges = {"opcode": (0, MAX_OPCODE), "cycles": (1, MAX_CYCLES), "latency": (0, MAX_LATENCY)}
        for key, (low, high) in ranges.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(self.where, f"{key} is {shown(value)}, not an integer in {low}..{high}")
        for key in ("meaning", "lane"):
            if not isinstance(getattr(self, key), str):
                raise ConfigError(self.where, f"{key} is {shown(getattr(self, key))}, not text")
        # A frozen dataclass accepts any value, so types are checked here, for files and for Python.
        kinds = self.energy if isinstance(self.energy, tuple) else ()
        if kinds != self.energy or not all(kind in KINDS for kind in kinds):
            raise ConfigError(self.where, f"energy is {shown(self.energy)}", f"give a list of {', '.join(KINDS)}")
        for text in (self.meaning if self.is_code else "", self.lane):
            match = _CODE.fullmatch(text)
            if text and not (match and match["digest"]):
                remedy = "name it as FILE.py:NAME in a machine's file, or make it known by own.code(..)"
                raise ConfigError(self.where, f"'{text}' does not name known code", remedy)
        _ = self.expression

    @property
    def where(self) -> str:
        """The name of this operation in messages."""
        return f"own_alu, operation '{self.name}'"

    @property
    def is_code(self) -> bool:
        """Whether `meaning` names a function."""
        return ":" in self.meaning

    @property
    def expression(self) -> Expression | None:
        """The expression in `meaning`; None if `meaning` names a function."""
        return None if self.is_code else parse(self.meaning, self.where)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The arithmetic per value, as names of sim.events.KINDS."""
        return self.energy or (self.expression.kinds if self.expression else ())

    def uses(self, operand: str) -> bool:
        """Return whether the meaning uses an operand. Raises ConfigError if the meaning is an unknown function."""
        return self.expression.uses(operand) if self.expression else operand in self._function()[1]

    def on(self, dst: Array, src: Array, imm: int) -> Array:
        """Return the results, int32, with the shape of `dst`, for operands int32 (`src` may be a scalar).

        Raises ConfigError if the meaning is a function that is not known, MachineError if the function fails.
        """
        if self.expression:
            return self.expression.on(dst, src, imm).astype(np.int32)
        function, names = self._function()
        given = {"dst": dst.astype(np.int64), "src": np.broadcast_to(src, dst.shape).astype(np.int64), "imm": imm}
        try:
            result = np.asarray(function(**{name: given[name] for name in names}))
            if result.dtype.kind not in "iub":
                raise TypeError(f"it returns {result.dtype}, not integers")
            return np.broadcast_to(result, dst.shape).astype(np.int32)
        except Exception as error:  # the user's function may raise any error
            raise MachineError(self.where, f"{self.meaning} failed: {type(error).__name__}: {error}") from error

    def require_lane(self) -> None:
        """Check that the operation has a lane. Raises ConfigError if not."""
        if not self.lane:
            remedy = 'give it one in the machine\'s file: "lane": "FILE.py:CLASS"'
            raise ConfigError(self.where, "has no lane, so the machine cannot be built as gateware", remedy)

    def component(self) -> Any:
        """Return a new instance of the lane. Raises ConfigError if there is no lane, or its code is unknown."""
        self.require_lane()
        try:
            return resolve(self.lane, self.where)()
        except TypeError as error:
            raise ConfigError(self.where, f"{self.lane} cannot be made: {error}", "take no arguments") from None

    def to_data(self) -> dict[str, Any]:
        """Return the definition as JSON values, without values that equal their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values = {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}
        return values | ({"energy": list(self.energy)} if self.energy else {})

    def _function(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        function = resolve(self.meaning, self.where)
        names = tuple(inspect.signature(function).parameters)
        if not set(names) <= set(OPERANDS):
            reason = f"{self.meaning} has the arguments {', '.join(names)}"
            raise ConfigError(self.where, reason, f"name them after operands: {', '.join(OPERANDS)}")
        return function, names


def read(data: Any, folder: Path | None) -> tuple[OwnOperation, ...]:
    """Return the operations in JSON values, a list of objects. `folder`: the folder of the files that the list names.

    Without a folder (in a program), code must be named with its digest. Raises ConfigError if a value is illegal.
    """
    if isinstance(data, str):
        raise ConfigError(
            "own_alu",
            "is a text; it must be a list of operations",
            f"write it in a machine's file, and give that {option('with -c', 'as the machine')}",
        )
    if not isinstance(data, list | tuple) or len(data) > MAX_OPERATIONS:
        raise ConfigError("own_alu", f"is not a list of at most {MAX_OPERATIONS} operations")
    return tuple(item if isinstance(item, OwnOperation) else _operation(item, folder) for item in data)


def _operation(data: Any, folder: Path | None) -> OwnOperation:
    if not isinstance(data, Mapping):
        raise ConfigError(
            "own_alu", f"has {shown(data)}, not an object", 'write {"name": .., "opcode": .., "meaning": ..}'
        )
    where = f"own_alu, operation {shown(data.get('name'))}"
    given.refuse_unknown(where, OwnOperation, data)
    if missing := [key for key in ("name", "opcode", "meaning") if key not in data]:
        raise ConfigError(where, f"has no {missing[0]}", "give name, opcode and meaning")
    values = dict(data)
    # JSON has no tuples, but a frozen operation must be hashable.
    if isinstance(values.get("energy"), list):
        values["energy"] = tuple(values["energy"])
    for key in ("meaning", "lane"):
        if folder and isinstance(text := values.get(key), str) and (match := _CODE.fullmatch(text)):
            path = folder / match["file"]
            values[key] = _add(
                f"{match['file']}:{match['name']}", regular(path, ConfigError).read_bytes(), path.resolve()
            )
    return OwnOperation(**values)


def check(operations: tuple[OwnOperation, ...], built_in: Mapping[int, str], bits: int) -> None:
    """Check names and opcodes. `built_in`: names of the other operations by opcode. `bits`: the width of the opcode.

    Raises ConfigError if two operations have the same name or opcode, or if an opcode does not fit.
    """
    taken = dict(built_in)  # by opcode: the names of operations in messages
    for operation in operations:
        free = [str(number) for number in range(1 << bits) if number not in taken][:8]
        remedy = f"free opcodes are {', '.join(free)}" if free else ""
        remedy = remedy or f"its field has {bits} bits, and more if LOG_ACC_BUFF_SIZE is smaller"
        if operation.opcode in taken:
            reason = f"opcode {operation.opcode} is that of {taken[operation.opcode]}"
            raise ConfigError(operation.where, reason, remedy)
        if operation.opcode >> bits:
            reason = f"opcode {operation.opcode} does not fit: with these memories the field has {bits} bits"
            raise ConfigError(operation.where, reason, remedy)
        if operation.name in taken.values():
            raise ConfigError(operation.where, "two operations have this name", "choose another name")
        taken[operation.opcode] = operation.name


def code(item: Callable[..., Any]) -> str:
    """Register a user's function or class; return its name for OwnOperation. Raises ConfigError without source."""
    try:
        source = inspect.getsource(item)
    except (OSError, TypeError):
        raise ConfigError("own_alu", f"the source of {item!r} is in no file", "define it in a Python file") from None
    return _add(f"{item.__module__}:{item.__name__}", source.encode(), item)


def resolve(text: str, where: str) -> Any:
    """Return the code that a configuration names; its file is run on first use.

    Raises ConfigError, beginning with `where`, if the code was not registered in this process, or if its file fails.
    """
    if text not in _CODE_BY_NAME:
        name, _, _ = text.partition("#")
        reason = f"is defined by code, {name}, which a program file does not carry"
        if any(version.partition("#")[0] == name for version in _CODE_BY_NAME):
            reason = f"was defined by another version of {name}"
        raise ConfigError(where, reason, f"give the machine's file {option('with -c FILE.json', 'instead')}")
    if isinstance(item := _CODE_BY_NAME[text], Path):
        name = text.partition("#")[0].rpartition(":")[2]
        _CODE_BY_NAME[text] = item = _imported(item, name, where)
    return item


def _add(name: str, source: bytes, item: Any) -> str:
    text = f"{name}#{hashlib.sha256(source).hexdigest()[:16]}"
    _CODE_BY_NAME.setdefault(text, item)
    return text


def _imported(path: Path, name: str, where: str) -> Any:
    """Run the user's Python file `path`, and return the function or class `name` in it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(where, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise any error
        raise ConfigError(where, f"{path} failed: {type(error).__name__}: {error}") from error
    if not callable(item := getattr(module, name, None)):
        raise ConfigError(where, f"{path} has no function or class {name}")
    return item
