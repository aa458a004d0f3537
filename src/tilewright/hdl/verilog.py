"""The user's Verilog of a machine, with the ports of our harness.

The harness runs the gateware of a machine through a fixed set of ports. The user's top module may have other ports. A
`Form` lists these ports, and `adapter` writes a module that connects them to the ports of the harness.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tilewright.errors import ConfigError, InputError, option
from tilewright.files import kept, kept_places, replacing
from tilewright.hdl.build import (
    ASSERTS,
    INCLUDED,
    WAVES,
    Wire,
    cache,
    module_ports,
    require_ports,
    verilog_library,
    wires,
)
from tilewright.hdl.model import Compiled, Model

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
CLOCK = [Wire("clk", 1), Wire("rst", 1)]


def texts(paths: Sequence[str | Path]) -> dict[str, str]:
    """Return the text of each file by name. A folder stands for all Verilog files in it.

    Raises InputError if a file cannot be read, if a file is no Verilog file, or if two files have the same name.
    """
    texts: dict[str, str] = {}
    for source in map(Path, paths):
        paths_inside = (
            sorted(path for path in source.iterdir() if path.suffix in SUFFIXES) if source.is_dir() else [source]
        )
        if not paths_inside:
            raise InputError(str(source), "has no Verilog files", "give a folder with files that end in .v or .sv")
        for path in paths_inside:
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
    """A set of ports that a machine's top module may have.

    `wires` are the ports of the harness. Without `pins`, the user's module must have the same ports as the harness.
    """

    name: str
    wires: Sequence[Wire]
    pins: Sequence[Pin] = ()

    @property
    def needed(self) -> list[Wire]:
        """The ports that the user's module must have. A port with 0 bits may have any width."""
        pins = (Wire(pin.name, 0 if pin.wide else pin.bits) for pin in self.pins if pin.needed)
        return list(pins) if self.pins else list(self.wires)


@dataclass(frozen=True)
class UserRtl:
    """The user's Verilog of a machine (texts by file name), and the name of the top module.

    `engine` is as in `model.Compiled`. `timing` names the timing model whose cycles are compared ("": the timing model
    for these ports). With a `seed`, the memory has random delays, and cycles are not compared. With seed 0, the memory
    has a fixed delay. A run stops after `limit` cycles (0: the machine's limit).
    """

    files: Mapping[str, str]
    top: str
    engine: str = "verilator"
    timing: str = ""
    seed: int = 0
    limit: int = 0

    def form(self, forms: Sequence[Form]) -> Form:
        """Return the form whose ports the top module has.

        Raises ConfigError if the top module does not exist, or if no form fits. The error names the port that is
        missing or has another width in the most similar form.
        """
        bits = self._ports()

        def missing(form: Form) -> int:
            return sum(wire.name not in bits for wire in form.needed)

        form = min(forms, key=lambda form: missing(form) / len(form.needed))
        where = f"module {self.top}"
        if missing(form) == len(form.needed):
            names = " or ".join(choice.name for choice in forms)
            raise ConfigError(where, f"has none of the ports of {names}", "docs/own-rtl.md lists the ports")
        exact = [Wire(wire.name, wire.bits or bits.get(wire.name, 0)) for wire in form.needed]
        require_ports(f"{where}, as {form.name}", bits, exact)
        return form

    def model(self, form: Form, waves: bool = False, extra: str = "") -> Model:
        """Return an instance after its reset, with the ports of the harness.

        Raises ConfigError if the engine refuses a file, and RtlStopped if an assertion fails during the reset.
        """
        files, top = dict(self.files), self.top
        if form.pins:
            files[f"{ADAPTER}.v"] = adapter(top, form, self._ports())
            top = ADAPTER
        options = WAVES if waves else ASSERTS
        library = verilog_library(files, top, form.wires, extra, options, self.engine)
        model = Compiled.of_library(library).model()
        model["rst"] = 1
        model.step(RESET_CYCLES)
        model["rst"] = 0
        model.step(SETTLE_CYCLES)
        return model

    def _ports(self) -> dict[str, int]:
        """Return {port: number of bits} of the top module, from the cache or from Verilator."""
        modules = re.findall(r"^\s*module\s+\\?(\w+)", "\n".join(self.files.values()), re.MULTILINE)
        if self.top not in modules:
            shown = ", ".join(modules[:10]) + (" .." if len(modules) > 10 else "") or "no module"
            raise ConfigError(option("--top", "top"), f"the files have no module {self.top}", f"they have {shown}")
        key = hashlib.sha256(json.dumps([self.top, sorted(self.files.items())]).encode()).hexdigest()
        name = f"ports-{key[:32]}.json"
        for place in kept_places(cache()):
            with suppress(OSError, ValueError):
                return dict(json.loads((place / name).read_text()))
        ports = module_ports(self.files, self.top)

        def write(place: Path) -> Path:
            with replacing(place / name) as file:
                file.write(json.dumps(ports).encode())
            return place / name

        kept(cache(), write)
        return ports


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


def same_pins(component: Any) -> list[Pin]:
    """Return a pin for each port of an Amaranth component. The user's module must have ports of the same names."""
    ports = [("__".join(map(str, path)), member.flow) for path, member, _ in component.signature.flatten(component)]
    bits = {wire.name: wire.bits for wire in wires(component)}
    return [Pin(name, name, bits[name], driven=flow.name == "In") for name, flow in ports]


def axi_lite(name: Naming, port: str, address_bits: int) -> list[Pin]:
    """Return the pins of an AXI4-Lite port for registers."""
    pins = []
    for channel, fields in (("aw", ("addr",)), ("w", ("data", "strb")), ("ar", ("addr",))):
        pins += [
            Pin(name(channel, "valid"), f"{port}__{channel}__valid", driven=True),
            Pin(name(channel, "ready"), f"{port}__{channel}__ready"),
        ]
        first = 0
        for field in fields:
            bits = {"addr": address_bits, "data": 32, "strb": 4}[field]
            payload = f"{port}__{channel}__payload"
            pins.append(Pin(name(channel, field), payload, bits, first, True, field != "strb", field == "addr"))
            first += bits
    for channel in ("b", "r"):
        pins += [
            Pin(name(channel, "valid"), f"{port}__{channel}__valid"),
            Pin(name(channel, "ready"), f"{port}__{channel}__ready", driven=True),
        ]
    return [*pins, Pin(name("r", "data"), f"{port}__r__payload", 32)]


def axi(name: Naming, port: str, bits: int) -> list[Pin]:
    """Return the pins of an AXI4 port to a memory with `bits` data bits. IDs, for example, may be absent."""
    pins = []
    for channel in ("ar", "aw", "w"):
        pins += [
            Pin(name(channel, "valid"), f"{port}__{channel}__valid"),
            Pin(name(channel, "ready"), f"{port}__{channel}__ready", driven=True),
        ]
    for channel in ("r", "b"):
        pins += [
            Pin(name(channel, "valid"), f"{port}__{channel}__valid", driven=True),
            Pin(name(channel, "ready"), f"{port}__{channel}__ready", needed=False, absent=1),
            Pin(name(channel, "id"), f"{port}__{channel}__id", ID_BITS, driven=True, needed=False, wide=True),
        ]
    for channel in ("ar", "aw"):
        payload = f"{port}__{channel}__payload"
        pins += [
            Pin(name(channel, "addr"), payload, 32),
            Pin(name(channel, "len"), payload, 8, 32, wide=True),
            Pin(name(channel, "id"), f"{port}__{channel}__id", ID_BITS, needed=False, wide=True),
        ]
    strobes = bits // 8
    return [
        *pins,
        Pin(name("r", "data"), f"{port}__r__payload", bits, driven=True),
        Pin(name("r", "last"), f"{port}__r__payload", 1, bits, driven=True, needed=False),
        Pin(name("w", "data"), f"{port}__w__payload", bits),
        Pin(name("w", "strb"), f"{port}__w__payload", strobes, bits, needed=False, absent=(1 << strobes) - 1),
        Pin(name("w", "last"), f"{port}__w__payload", 1, bits + strobes),
    ]


def harness_wires(pins: Iterable[Pin]) -> list[Wire]:
    """Return the ports of the harness to which the pins are connected, each as wide as its pins need."""
    bits = {wire.name: wire.bits for wire in CLOCK}
    for pin in pins:
        bits[pin.port] = max(bits.get(pin.port, 0), pin.first + pin.bits)
    return [Wire(name, width) for name, width in bits.items()]


def write_register(model: Model, offset: int, value: int, limit: int, port: str = "control") -> int:
    """Write a register over AXI4-Lite. Return the cycle in which the module accepts the data.

    Raises RtlHangs if the module does not answer within `limit` cycles.
    """
    model[f"{port}__aw__payload"] = offset
    model[f"{port}__w__payload"] = value | 15 << 32
    model[f"{port}__aw__valid"] = model[f"{port}__w__valid"] = 1
    model[f"{port}__b__ready"] = 1
    waiting = {"aw", "w"}
    taken = 0
    while waiting:
        # The outputs must show the new inputs before a clock edge.
        model.step(0)
        accepted = {channel for channel in waiting if model[f"{port}__{channel}__ready"]}
        if "w" in accepted:
            taken = model.cycle
        if not accepted:
            model.run_until(f"{port}__{min(waiting)}__ready", limit)
            continue
        model.step()
        for channel in accepted:
            model[f"{port}__{channel}__valid"] = 0
        waiting -= accepted
    model.run_until(f"{port}__b__valid", limit)
    model.step()
    return taken


def read_register(model: Model, offset: int, limit: int, port: str = "control") -> int:
    """Read a register over AXI4-Lite. Raises RtlHangs if the module does not answer within `limit` cycles."""
    model[f"{port}__ar__payload"] = offset
    model[f"{port}__ar__valid"] = model[f"{port}__r__ready"] = 1
    model.run_until(f"{port}__ar__ready", limit)
    model.step()
    model[f"{port}__ar__valid"] = 0
    model.run_until(f"{port}__r__valid", limit)
    value = model[f"{port}__r__payload"]
    model.step()
    return value
