"""The program around a model: the firmware variant's ELF, and the headers made for it from machine and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.program.header import Group, header
from tilewright.targets.cfu.config import CHOICES, RAM_BASE, Config
from tilewright.targets.cfu.isa.custom import CUSTOM
from tilewright.targets.cfu.isa.state import FIELDS
from tilewright.targets.cfu.runtime import devices, elf

from . import layout, toolchain
from .layout import Kind
from .variants import Variant

#: The largest power of two that start_GEMM's counters hold.
LARGEST = 512
#: The shape of a convolution as `conv_software` takes it.
_SHAPE = (
    *("in_h", "in_w", "in_c", "out_h", "out_w", "out_c", "kernel_h", "kernel_w", "stride_h", "stride_w"),
    *("pad_h", "pad_w", "input_offset", "output_offset", "low", "high"),
)


def build(
    variant: Variant, records: Sequence[Mapping[str, int]], config: Config, compiler: toolchain.Compiler
) -> elf.Executable:
    """The program for a model's operator records."""
    made = {"layout.h": layout.c_header(), "cfu_machine.h": machine_header(config)}
    if variant.specialised:
        made["layers.h"] = layers_header(records)
    macros = {**tiles(config), **variant.macros, "DMA": int("dma" in config.extension_names)}
    return elf.load(toolchain.build(variant.header, macros, made, config.ram_bytes, compiler))


def tiles(config: Config) -> dict[str, int]:
    """The largest tiles that the buffers and the counters of start_GEMM (10 bits) take, m and n alike if they can be.

    A has a row for each `array` of m and each k, B likewise for n, C for each `array` of n and each m.
    """
    values = config.array * config.buffer_rows  # of a buffer; a power of two
    side = 1 << (values.bit_length() - 1) // 2
    m, n = min(side, config.buffer_rows, LARGEST), min(max(side, config.array), LARGEST)
    return {"TILE_M": m, "TILE_N": n, "TILE_K": min(values // max(m, n), LARGEST)}


def flat(program: elf.Executable) -> tuple[Array, Array]:
    """What lies in memory before the start: the code's words uint32 from RAM_BASE on, the data uint8 behind them."""
    memory = bytearray(max(segment.address + len(segment.data) for segment in program.segments) - RAM_BASE)
    for segment in program.segments:
        memory[segment.address - RAM_BASE : segment.address - RAM_BASE + len(segment.data)] = segment.data
    code = program.symbols["text_end"].address - RAM_BASE
    return np.frombuffer(bytes(memory[:code]), "<u4").astype(np.uint32), np.frombuffer(bytes(memory[code:]), np.uint8)


def layers_header(records: Sequence[Mapping[str, int]]) -> str:
    """`layers.h`: every convolution without groups and dilation as L(index, shape)."""
    lines = [
        f"  L({index}, {', '.join(str(record[name]) for name in _SHAPE)})"
        for index, record in enumerate(records)
        if record["kind"] == Kind.CONV
        and record["filter_c"] == record["in_c"]
        and (record["dilation_h"], record["dilation_w"]) == (1, 1)
    ]
    return "// Made from the model.\n#define CONV_LAYERS(L) \\\n" + " \\\n".join([*lines, "  /* end */\n"])


def machine_header(config: Config) -> str:
    """`cfu_machine.h`, for this firmware and anyone's own: sizes, addresses, funct7 of each custom-0 instruction."""
    sizes = {f"CFU_{key.upper()}": value for key, value in config.to_dict().items() if isinstance(value, int)}
    chosen = {
        f"CFU_{key.upper()}_{name.upper()}": int(getattr(config, key) == name)
        for key, names in CHOICES.items()
        for name in names
    }
    devices_at = {"RAM": RAM_BASE, "UART": devices.UART, "HALT": devices.HALT, "REGION": devices.REGION}
    places = {f"CFU_{name}": f"0x{address:08x}" for name, address in devices_at.items()}
    groups = [
        Group("sizes", sizes),
        Group("how the array is driven: 1 for what it does", chosen),
        Group("addresses; a store to HALT ends the run with a status, to REGION begins a region", places),
        Group("funct7 of custom-0", {f"CFU_{known.name.upper()}": code for code, known in CUSTOM.items()}),
        Group("layer registers of put", {f"CFU_FIELD_{name}": number for name, number in FIELDS.items()}),
    ]
    return header("CFU_MACHINE_H", "The CFU system.", groups)
