"""The lanes of ALU operations of the user's own: one Amaranth component of the user's for each value of a tile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Shape, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.errors import ConfigError
from tilewright.targets.vta.isa.own import OwnOperation

#: The ports of a lane. `result` is required; others may be left out. `valid` is high in the cycle of new operands.
PORTS = {"dst": In(signed(32)), "src": In(signed(32)), "imm": In(signed(16)), "valid": In(1), "result": Out(signed(32))}


def require_lanes(operations: Iterable[OwnOperation]) -> None:
    """Check that lanes can be made and that their ports are right, before gateware is made that needs them.

    Raises ConfigError as `add_lanes` does.
    """
    for operation in operations:
        lane = operation.component()
        lane._MustUse__silence = True  # Amaranth would warn: it is only looked at
        _ports(operation, lane)


def add_lanes(m: Module, operation: OwnOperation, dst: Value, src: Value, imm: Value, valid: Value) -> Value:
    """Add a lane for each 32 bits of `dst`, and return their results; they follow `operation.latency` cycles later.

    Raises ConfigError if the operation has no lane, or if the ports of its lane are wrong.
    """
    results = []
    for number, at in enumerate(range(0, len(dst), 32)):
        lane = operation.component()
        given = {"dst": dst[at : at + 32], "src": src[at : at + 32], "imm": imm, "valid": valid}
        for name in _ports(operation, lane):
            if name != "result":
                m.d.comb += getattr(lane, name).eq(given[name])
        m.submodules[f"{operation.name}{number}"] = lane
        results.append(lane.result)
    return Cat(results)


def _ports(operation: OwnOperation, lane: Any) -> list[str]:
    """Return the names of a lane's ports. Raises ConfigError if they are not among PORTS, or have other shapes."""
    where, known = operation.where, ", ".join(PORTS)
    if not isinstance(lane, wiring.Component):
        raise ConfigError(where, f"{operation.lane} is not an Amaranth component", "derive it from wiring.Component")
    found = lane.signature.members
    if "result" not in found:
        raise ConfigError(where, f"{operation.lane} has no port 'result'", f"the ports of a lane are {known}")
    for name, member in found.items():
        if name not in PORTS:
            raise ConfigError(where, f"{operation.lane} has a port '{name}'", f"the ports of a lane are {known}")
        wanted = PORTS[name]
        if not member.is_port or (member.flow, Shape.cast(member.shape)) != (wanted.flow, Shape.cast(wanted.shape)):
            raise ConfigError(where, f"port '{name}' of {operation.lane} is {member!r}", f"declare it as {wanted!r}")
    return list(found)
