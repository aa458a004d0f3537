"""The user's Verilog of a machine, with the ports of our harness.

The harness runs the gateware of a machine through a fixed set of ports. The user's top module may have other ports. A
`Form` lists these ports, and `adapter` writes a module that connects them to the ports of the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tilewright.errors import ConfigError, InputError, option
from tilewright.hdl.build import (
    ASSERTS,
    INCLUDED,
    MODULE,
    WAVES,
    Wire,
    module_ports,
    require_ports,
    verilog_library,
    wires,
)
from tilewright.hdl.model import Compiled, Model, RtlHangs

#: The RTL to run: an engine for the machine's own gateware, or the user's Verilog.
Rtl: TypeAlias = "str | UserRtl"
#: A file may have at most this many bytes.
MAX_BYTES = 1 << 24
#: The suffixes of Verilog files, and of files that they include.
SUFFIXES = (".v", ".sv", *INCLUDED)
#: The module that connects the user's module to the harness.
ADAPTER = "tilewright_adapter"
#: The number of cycles of a reset, and the number of cycles between the reset and the first use.
RESET_CYCLES = 16
SETTLE_CYCLES = 4
#: The number of bits of an AXI4 ID in the harness.
ID_BITS = 16
#: The fields of AXI that may have any width.
WIDE = ("len",)


def texts(paths: Sequence[str | Path]) -> dict[str, str]:
    """Return the text of each file by name. A folder stands for all Verilog files in it.

    Raises InputError if a file cannot be read, if a file is no Verilog file, or if two files have the same name.
    """
    texts: dict[str, str] = {}
    for path in (file for source in paths for file in _inside(Path(source))):
        try:
            if path.stat().st_size > MAX_BYTES:
                raise InputError(str(path), f"has more than {MAX_BYTES >> 20} MiB")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(str(path), f"cannot be read: {error}", "give a Verilog file") from None
        if path.suffix not in SUFFIXES:
            raise InputError(str(path), "is not a Verilog file", "give files that end in .v or .sv")
        if path.name in texts:
            raise InputError(str(path), "has the same name as another file", "rename one")
        texts[path.name] = text
    return texts


def _inside(path: Path) -> list[Path]:
    """Return the Verilog files in a folder, or a file itself. Raises InputError if there is none."""
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise InputError(str(path), "has no Verilog files", "give a folder with files that end in .v or .sv")
    return files


class Pin(NamedTuple):
    """A port of the user's module. It is connected to the bits `first` to `first + bits - 1` of the harness's `port`.

    If `driven`, the harness drives the pin. If `inverted`, the pin is a reset that is active low. If `needed`, the
    user's module must have the pin. Otherwise, if an output is absent, its value is `absent`. If `wide`, the pin may
    have any width instead of `bits`.
    """

    name: str
    port: str
    bits: int = 1
    first: int = 0
    driven: bool = False
    needed: bool = True
    wide: bool = False
    absent: int = 0
    inverted: bool = False


class Form(NamedTuple):
    """A set of ports that a machine's top module may have, as pins. Their ports are those of the harness."""

    name: str
    pins: Sequence[Pin]

    @property
    def wires(self) -> list[Wire]:
        """The ports of the harness, each as wide as its pins need."""
        bits: dict[str, int] = {}
        for pin in self.pins:
            bits[pin.port] = max(bits.get(pin.port, 0), pin.first + pin.bits)
        return [Wire(name, width) for name, width in bits.items()]


@dataclass(frozen=True)
class UserRtl:
    """The user's Verilog of a machine (texts by file name), and the name of the top module.

    `timing` names the timing model whose cycles are compared ("": the timing model for these ports). With a `seed`, the
    memory has random delays, and cycles are not compared. With seed 0, the memory has a fixed delay. A run stops after
    `limit` cycles (0: the machine's limit).
    """

    files: Mapping[str, str]
    top: str
    timing: str = ""
    seed: int = 0
    limit: int = 0

    def form(self, forms: Sequence[Form]) -> Form:
        """Return the form whose ports the top module has.

        Raises ConfigError if the top module does not exist, or if no form fits. The error names the port that is
        missing or has another width in the most similar form.
        """
        where = f"module {self.top}"
        needed = [[pin for pin in form.pins if pin.needed] for form in forms]
        missing = [sum(pin.name not in self.ports for pin in pins) / len(pins) for pins in needed]
        index = missing.index(min(missing))
        if min(missing) == 1:
            names = " or ".join(choice.name for choice in forms)
            raise ConfigError(where, f"has none of the ports of {names}", "docs/own-rtl.md lists the ports")
        wanted = [Wire(pin.name, self.ports.get(pin.name, 0) if pin.wide else pin.bits) for pin in needed[index]]
        require_ports(f"{where}, as {forms[index].name}", self.ports, wanted)
        return forms[index]

    def model(self, form: Form, waves: bool = False) -> Model:
        """Return an instance after its reset, with the ports of the harness.

        Raises ConfigError if the engine refuses a file, and RtlStopped if an assertion fails during the reset.
        """
        files = {**self.files, f"{ADAPTER}.v": adapter(self.top, form, self.ports)}
        library = verilog_library(files, ADAPTER, form.wires, "", WAVES if waves else ASSERTS)
        model = Compiled.of_library(library).model()
        model["rst"] = 1
        model.step(RESET_CYCLES)
        model["rst"] = 0
        model.step(SETTLE_CYCLES)
        return model

    @cached_property
    def ports(self) -> dict[str, int]:
        """{port: number of bits} of the top module. Raises ConfigError as `form` does."""
        modules = MODULE.findall("\n".join(self.files.values()))
        if self.top not in modules:
            shown = ", ".join(modules[:10]) + (" .." if len(modules) > 10 else "") or "no module"
            raise ConfigError(option("--top", "top"), f"the files have no module {self.top}", f"they have {shown}")
        return module_ports(self.files, self.top)


def adapter(top: str, form: Form, bits: Mapping[str, int]) -> str:
    """Return the Verilog module ADAPTER, which has the ports of the harness and an instance of `top`.

    `bits` has the number of bits of each port of `top`. Inputs of `top` that the form does not list are 0.
    """
    driven = {pin.port for pin in form.pins if pin.driven}
    directions = {wire.name: "input" if wire.name in driven else "output" for wire in form.wires}
    ports = ", ".join(f"{directions[wire.name]} [{wire.bits - 1}:0] {wire.name}" for wire in form.wires)
    lines, connections = [], []
    for pin in form.pins:
        part = f"{pin.port}[{pin.first + pin.bits - 1}:{pin.first}]"
        if pin.driven and pin.name in bits:
            connections.append(f".{pin.name}({'~' * pin.inverted}{part})")
        elif pin.name in bits:
            lines.append(f"wire [{bits[pin.name] - 1}:0] of_{pin.name}; assign {part} = of_{pin.name};")
            connections.append(f".{pin.name}(of_{pin.name})")
        elif not pin.driven:
            lines.append(f"assign {part} = {pin.bits}'d{pin.absent};")
    body = "\n    ".join([*lines, f"{top} machine ({', '.join(connections)});"])
    return f"module {ADAPTER} ({ports});\n    {body}\nendmodule\n"


#: A function that returns the user's name of a field (such as valid, ready, addr or data) of an AXI channel.
Naming = Callable[[str, str], str]


def chisel(prefix: str) -> Naming:
    """Return the names that Chisel gives to the fields of an AXI port, such as io_mem_ar_bits_addr."""
    return lambda channel, field: f"{prefix}_{channel}_{'' if field in ('valid', 'ready') else 'bits_'}{field}"


def plain(prefix: str, upper: bool = False) -> Naming:
    """Return the names that Xilinx's tools give to the fields of an AXI port: m_axi_araddr, or m_axi_ARADDR."""
    return lambda channel, field: f"{prefix}_{f'{channel}{field}'.upper() if upper else f'{channel}{field}'}"


def clocking(clock: str, reset: str, active_low: bool = False) -> list[Pin]:
    return [Pin(clock, "clk", driven=True), Pin(reset, "rst", driven=True, inverted=active_low)]


def same_pins(component: Any, reset: str = "rst") -> list[Pin]:
    """Return a pin for each port of an Amaranth component. The user's module must have ports of the same names.

    Only the reset has the name `reset`.
    """
    component._MustUse__silence = True  # prevents a warning of Amaranth: only the ports are used
    bits = {wire.name: wire.bits for wire in wires(component)}
    flows = {"__".join(map(str, path)): member.flow.name for path, member, _ in component.signature.flatten(component)}
    pins = [Pin(name, name, bits[name], driven=flow == "In") for name, flow in flows.items()]
    return [*clocking("clk", reset), *pins]


def _channel(name: Naming, port: str, channel: str, driven: bool, optional: str = "", **fields: int) -> list[Pin]:
    """Return the pins of an AXI channel. Its payload has the `fields` (bits by name), from the lowest bit on.

    The harness drives a channel that is `driven`. A module may lack the fields that are `optional`, and then sends
    ones.
    """
    place = f"{port}__{channel}__"
    pins = [
        Pin(name(channel, "valid"), f"{place}valid", driven=driven),
        Pin(name(channel, "ready"), f"{place}ready", driven=not driven, needed="ready" not in optional, absent=1),
    ]
    first = 0
    for field, bits in fields.items():
        use = driven, field not in optional, field in WIDE, (1 << bits) - 1
        pins.append(Pin(name(channel, field), f"{place}payload", bits, first, *use))
        first += bits
    return pins


def axi_lite(name: Naming, port: str, address_bits: int) -> list[Pin]:
    """Return the pins of an AXI4-Lite port for registers, with addresses of any width."""
    pins = [*_channel(name, port, "w", True, "strb", data=32, strb=4), *_channel(name, port, "b", False)]
    for channel in ("aw", "ar"):
        address = Pin(name(channel, "addr"), f"{port}__{channel}__payload", address_bits, driven=True, wide=True)
        pins += [*_channel(name, port, channel, True), address]
    return [*pins, *_channel(name, port, "r", False, data=32)]


def axi(name: Naming, port: str, bits: int) -> list[Pin]:
    """Return the pins of an AXI4 port to a memory with `bits` data bits. IDs, for example, may be absent."""
    pins = [*_channel(name, port, "ar", False, addr=32, len=8), *_channel(name, port, "aw", False, addr=32, len=8)]
    pins += _channel(name, port, "w", False, "strb", data=bits, strb=bits // 8, last=1)
    pins += _channel(name, port, "r", True, "ready last", data=bits, last=1)
    pins += _channel(name, port, "b", True, "ready")
    for channel in ("ar", "r", "aw", "b"):
        driven = channel in ("r", "b")
        pins.append(Pin(name(channel, "id"), f"{port}__{channel}__id", ID_BITS, 0, driven, needed=False, wide=True))
    return pins


def write_register(model: Model, offset: int, value: int, limit: int) -> int:
    """Write a register over AXI4-Lite. Return the cycle in which the module has accepted address and data.

    Raises RtlHangs if the module does not answer within `limit` cycles.
    """
    model["control__aw__payload"] = offset
    model["control__w__payload"] = value | 15 << 32
    taken = _send(model, {"aw", "w"}, limit)
    _receive(model, "b", limit)
    return taken


def read_register(model: Model, offset: int, limit: int) -> int:
    """Read a register over AXI4-Lite. Raises RtlHangs if the module does not answer within `limit` cycles."""
    model["control__ar__payload"] = offset
    _send(model, {"ar"}, limit)
    return _receive(model, "r", limit)


def _send(model: Model, channels: set[str], limit: int) -> int:
    """Offer the payload of each channel until the module has taken all. Return the cycle of the last one."""
    for channel in channels:
        model[f"control__{channel}__valid"] = 1
    for _ in range(limit):
        # The outputs must show the new inputs before a clock edge.
        model.step(0)
        taken = {channel for channel in channels if model[f"control__{channel}__ready"]}
        model.step()
        for channel in taken:
            model[f"control__{channel}__valid"] = 0
        channels = channels - taken
        if not channels:
            return model.cycle - 1
    raise RtlHangs("RTL model", f"control__{min(channels)}__ready is still 0 after {limit} cycles")


def _receive(model: Model, channel: str, limit: int) -> int:
    model[f"control__{channel}__ready"] = 1
    model.run_until(f"control__{channel}__valid", limit)
    payload = f"control__{channel}__payload"
    value = model[payload] if payload in model.ports else 0
    model.step()
    return value
