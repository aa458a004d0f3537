"""The library for hosts in C and C++ of one machine: its sources, and headers made from the configuration."""

from __future__ import annotations

import json
from pathlib import Path

from tilewright.native.hosts import HostLibrary
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import header
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.runtime.commands import LOADED

HERE = Path(__file__).parent
SOURCES = tuple(HERE / "c" / name for name in ("driver.c", "runtime.c", "kernels.c"))
#: Run instructions, get the result of the run, list micro-ops.
REQUESTS = ("run", "result", "uops")
#: Units are numbered from 0. The C tables are tw_memory[memory id], tw_unit_of[opcode][memory id], tw_nop[unit] and
#: tw_link[producer][consumer].
TABLES = """/* Made from the tables of the model: do not edit. */
enum {{ TW_UNITS = {units}, TW_HOME = {home}, TW_ALU_UOPS = {alu_uops} }};
#define TW_TABLE static const __attribute__((unused))
TW_TABLE struct tw_memory {{ uint32_t bytes, depth, loads; const char *name; }} tw_memory[] = {memories};
TW_TABLE unsigned char tw_unit_of[8][8] = {unit_of};
TW_TABLE unsigned char tw_nop[][2] = {nops};
TW_TABLE struct {{ unsigned char push, pop; }} tw_link[][TW_UNITS] = {links};
TW_TABLE char tw_units[] = "{unit_names}", tw_loaded[] = "{load_names}";
"""


def library(config: Config) -> HostLibrary:
    """Return the library for a machine. Hosts include its macros and structures as `vta/hw_spec.h`."""
    generated = {
        "vta/hw_spec.h": header.text(config),
        "vta/hw_spec_const.h": "#include <vta/hw_spec.h>\n",
        "vta_machine.h": tables(config),
    }
    server = "tilewright.targets.vta.native.serve"
    return HostLibrary("tilewright_vta", server, REQUESTS, SOURCES, HERE / "include", config.to_dict(), generated)


def tables(config: Config) -> str:
    """Return the header that gives the C runtime the rules of the Python runtime on this machine."""
    line = config.pipeline
    bits = config.formats.plain.offsets
    links = {pair: (1 << bits[link.push], 1 << bits[link.pop]) for pair, link in line.links.items()}
    units = range(len(line.units))
    loads = [memory for memory in LOADED if memory in config.memories]
    if not config.rules.loads_acc_8bit:
        loads.remove(Memory.ACC_8BIT)
    # The field memory_type has three bits. Codes without a memory get an empty row.
    memories = [
        (config.dram_tile_bytes(memory), config.sram(memory).depth, int(memory in loads), memory.name.lower())
        if memory in config.memories
        else (0, 0, 0, "")
        for memory in map(Memory, range(8))
    ]
    return TABLES.format(
        units=len(units),
        home=line.home,
        alu_uops=int(line.uop_memory(alu=True)),
        memories=_nested(memories),
        unit_of=_nested(line.takes.tolist()),
        nops=_nested(line.nops),
        links=_nested([[links.get((a, b), (0, 0)) for b in units] for a in units]),
        unit_names=", ".join(f"{unit + 1} {line.units[unit]}" for unit in units),
        load_names=", ".join(f"VTA_MEM_ID_{memory.name}" for memory in loads),
    )


def _nested(value: object) -> str:
    return json.dumps(value).translate(str.maketrans("[]", "{}"))
