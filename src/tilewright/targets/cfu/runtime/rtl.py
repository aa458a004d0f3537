"""The user's CFU: a Python class, or RTL (Verilog or Amaranth) that is compiled and runs in lock step with the CPU.

In lock step, C++ code (lockstep.h) clocks the module at each command: until the cycle of the command, and then until
the answer. Cycles in which the module cannot change are left out. The rules of the ports are in
https://cfu-playground.readthedocs.io, "The CPU-CFU interface". A command is accepted in a cycle in which cmd_valid and
cmd_ready are 1. An answer is accepted in a cycle in which rsp_valid and rsp_ready are 1.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.errors import InputError, option
from tilewright.hdl.build import FAST, UNDEFINED, Wire, require_ports, wires
from tilewright.hdl.model import Compiled
from tilewright.hdl.verilog import texts

from .seam import Cfu, CfuError, Difference, Native

TOP = "Cfu"
CLOCK = "clk"
RESET = "reset"
PORTS = [
    *(Wire("cmd_valid", 1), Wire("cmd_ready", 1), Wire("cmd_payload_function_id", 10)),
    *(Wire("cmd_payload_inputs_0", 32), Wire("cmd_payload_inputs_1", 32)),
    *(Wire("rsp_valid", 1), Wire("rsp_ready", 1), Wire("rsp_payload_outputs_0", 32)),
]
INPUTS = "cmd_valid", "cmd_payload_function_id", "cmd_payload_inputs_0", "cmd_payload_inputs_1", "rsp_ready"
#: Cycles of reset.
RESET_CYCLES = 4
#: The largest number of cycles to wait for cmd_ready or rsp_valid: 0.06 s on the document's board.
LIMIT = 1 << 22
#: C++ code that is compiled with the module, and its functions: name, result type, argument types.
LOCKSTEP = (Path(__file__).parent / "lockstep.h").read_text(encoding="utf-8")
_POINTER = ctypes.c_void_p
_LONG = ctypes.c_int64
FUNCTIONS: list[tuple[str, Any, list[Any]]] = [
    ("tw_lockstep", _POINTER, [_POINTER, ctypes.c_uint64, ctypes.c_int]),
    ("tw_lockstep_close", None, [_POINTER]),
    ("tw_lockstep_twin", None, [_POINTER, _POINTER]),
    ("tw_lockstep_difference", ctypes.POINTER(_LONG), [_POINTER]),
    ("tw_lockstep_clocked", ctypes.c_uint64, [_POINTER]),
    ("tw_lockstep_command", _LONG, [_POINTER, *[_LONG] * 5, _POINTER]),
]
#: Results of `tw_lockstep_command`; 0 means success.
UNASKED = 1
NOT_TAKEN = 2
NOT_ANSWERED = 3
DIFFERS = 4  # a copy with other initial values (see RtlCfu) gives another answer
#: For each fault, what the copy does, as the end of a sentence.
FAULTS = {
    UNASKED: "answers before the command",
    NOT_TAKEN: "does not take the command",
    NOT_ANSWERED: "does not answer",
}


class RtlCfu:
    """A compiled module after reset, in lock step with the CPU. Messages call the module `name`.

    `native` is the interface for compiled code. If `skips` is true, cycles in which nothing can change are left out.
    Some registers may have no initial value in the Verilog. `states` is the number of additional copies of the module
    that start with other values in these registers, and get the same commands. If a copy answers differently,
    `contrary` has the first such difference, by the pc of the command.
    """

    skips = True

    def __init__(self, name: str, compiled: Compiled, reset: str, states: int = 0, seed: int = 0) -> None:
        self.name = name
        self.model = compiled.model(seed)
        for port in INPUTS:
            self.model[port] = 0
        self.model[reset] = 1
        self.model.step(RESET_CYCLES)
        self.model[reset] = 0
        self.model["rsp_ready"] = 1
        library = self.model.library
        for function, result, arguments in FUNCTIONS:
            getattr(library, function).restype, getattr(library, function).argtypes = result, arguments
        self._unit = library.tw_lockstep(self.model.handle, LIMIT, self.skips)
        self.contrary = dict[int, Difference]()
        self._twins = [RtlCfu(name, compiled, reset, seed=number) for number in range(1, states + 1)]
        for twin in self._twins:
            library.tw_lockstep_twin(self._unit, twin._unit)
        command = ctypes.cast(library.tw_lockstep_command, ctypes.c_void_p).value or 0
        self.native = Native(command, self._unit, RESET_CYCLES, self.fail)

    def __del__(self) -> None:
        if hasattr(self, "_unit"):
            self.model.library.tw_lockstep_close(self._unit)

    @property
    def cycle(self) -> int:
        return self.model.cycle - RESET_CYCLES

    @property
    def clocked(self) -> int:
        """The number of cycles since the reset in which the module was clocked."""
        return int(self.model.library.tw_lockstep_clocked(self._unit))

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Send a command to the CFU in `cycle`. Return the answer as int32, and the first cycle of the answer.

        Raises CfuError if the CFU answers without a command, or does not accept or answer this command within LIMIT
        cycles.
        """
        answer = (ctypes.c_int64 * 2)()
        number = funct7 << 3 | funct3
        command = self.model.library.tw_lockstep_command
        fault = command(self._unit, number, a, b, RESET_CYCLES, cycle, ctypes.addressof(answer))
        if fault and (error := self.fail(fault, number, cycle)):
            raise error
        return answer[0], answer[1]

    def fail(self, fault: int, number: int, cycle: int, pc: int = 0) -> CfuError | None:
        """Return the error for a `fault` of the command in `cycle`. `number` is funct7 * 8 + funct3.

        The fault DIFFERS is not an error: the difference is recorded in `contrary`, and the result is None.
        """
        if fault == DIFFERS:
            if pc not in self.contrary:
                fields = self.model.library.tw_lockstep_difference(self._unit)[:6]
                answer, ready, twin, twin_answer, twin_ready, twin_fault = fields
                command = f"custom-0 with funct7 {number >> 3} and funct3 {number & 7}"
                other_ready = None if twin_fault else twin_ready - RESET_CYCLES
                shown = answer, ready - RESET_CYCLES, twin + 1, twin_answer, other_ready, FAULTS.get(twin_fault, "")
                self.contrary[pc] = Difference(pc, cycle, command, *shown)
            return None
        reason = {
            UNASKED: f"sets rsp_valid in cycle {self.cycle:,}, when it has answered all commands",
            NOT_TAKEN: f"does not take a command of cycle {cycle:,}: cmd_ready is 0 for {LIMIT:,} cycles",
            NOT_ANSWERED: f"does not answer a command of cycle {cycle:,}: rsp_valid is 0 for {LIMIT:,} cycles",
        }[fault]
        return CfuError(self.name, reason, "", number >> 3, number & 7)


def of_verilog(paths: Sequence[str | Path], states: int = 0) -> Callable[[], RtlCfu]:
    """Compile the module `Cfu` in Verilog or SystemVerilog files. Return a function that makes a CFU after its reset.

    `states` is explained in RtlCfu. Raises InputError if a file cannot be read, ConfigError if it cannot be compiled or
    a port is missing.
    """
    ports = [Wire(CLOCK, 1), Wire(RESET, 1), *PORTS]
    compiled = Compiled.of_verilog(texts(paths), TOP, ports, LOCKSTEP, UNDEFINED if states else FAST)
    return partial(RtlCfu, ", ".join(Path(path).name for path in paths), compiled, RESET, states)


def of_amaranth(component: Any) -> Callable[[], RtlCfu]:
    """Compile an Amaranth component. Return a function that makes a CFU after its reset.

    Raises ConfigError if a port is missing or has another width.
    """
    name = type(component).__name__
    require_ports(f"component {name}", {wire.name: wire.bits for wire in wires(component)}, PORTS)
    return partial(RtlCfu, name, Compiled(component, extra=LOCKSTEP), "rst")


def maker(cfu: Sequence[str | Path] | Callable[[], Cfu], states: int = 0) -> Callable[[], Cfu]:
    """Return a function that makes the CFU of each run.

    `cfu` is a function that makes a CFU, or a list of Verilog files, or FILE.py:NAME, where NAME is a class with the
    method `execute` or an Amaranth component. RTL is compiled once, in this call. `states` is explained in RtlCfu.
    Raises InputError if the class does not exist, or if `states` is given for a CFU that is not in Verilog. Raises
    ConfigError if RTL cannot be compiled.
    """
    if states and (callable(cfu) or ".py:" in str(cfu[0])):
        raise InputError(
            option("--initial-states", "states"),
            "is for a CFU in Verilog: in Amaranth and Python, all values are defined",
        )
    if callable(cfu):
        return cfu
    file, _, name = str(cfu[0]).partition(".py:")
    if not name:
        return of_verilog(cfu, states)
    if len(cfu) > 1:
        raise InputError(str(cfu[1]), "is a second CFU", f"give only {cfu[0]}")
    kind = _class(Path(f"{file}.py"), name)
    return kind if hasattr(kind, "execute") else of_amaranth(kind())


def _class(path: Path, name: str) -> Callable[[], Any]:
    """Return a class in the user's Python file. Raises InputError if the file or the class does not exist."""
    if not path.is_file():
        raise InputError(str(path), "is not a file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not (hasattr(kind, "execute") or hasattr(kind, "elaborate")):
        raise InputError(str(path), f"has no CFU named {name}", "name a class with `execute`, or an Amaranth component")
    return kind
