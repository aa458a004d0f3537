"""The engine for C: sizes, the register map, the descriptor's bits."""

from __future__ import annotations

from tilewright.program.header import Group, bit_ranges, header, structure
from tilewright.targets.zynq.config import LANES, STORES, Config
from tilewright.targets.zynq.isa import LAYOUT, RULES, Kind

#: Byte offsets of the registers on the PS's port [I]: the document names block, waiting and done only.
REGISTERS = {
    "CONTROL": 0x00,  # write 1: start the layer of the descriptor
    "STATUS": 0x04,  # bit 0 waiting, bit 1 done; then the request: store (bits 4..5), bit 6 write
    "BLOCK": 0x08,  # the block register of the request
    "DONE": 0x0C,  # write the store's number: its block has been moved
    "DESCRIPTOR": 0x40,  # the words of the descriptor
}
STATUS_WAITING, STATUS_IDLE, STATUS_STORE_SHIFT, STATUS_WRITE = 1, 2, 4, 64


def text(config: Config) -> str:
    """The header of one configuration."""
    numbers = {key: value for key, value in config.to_dict().items() if isinstance(value, int)}
    words = {f"ZYNQ_{store.upper()}_BLOCK_WORDS": config.block_words(store) for store in STORES}
    status = {"WAITING": STATUS_WAITING, "IDLE": STATUS_IDLE, "STORE_SHIFT": STATUS_STORE_SHIFT, "WRITE": STATUS_WRITE}
    groups = [
        Group(
            "sizes", {"ZYNQ_LANES": LANES, **{f"ZYNQ_{key.upper()}": value for key, value in numbers.items()}, **words}
        ),
        Group("kinds of layer", {f"ZYNQ_KIND_{kind.name}": int(kind) for kind in Kind}),
        Group("requantisation rules", {f"ZYNQ_RULE_{rule.upper()}": index for index, rule in enumerate(RULES)}),
        Group("stores", {f"ZYNQ_STORE_{store.upper()}": index for index, store in enumerate(STORES)}),
        Group("registers, byte offsets", {f"ZYNQ_REG_{name}": f"0x{at:02x}" for name, at in REGISTERS.items()}),
        Group("bits of STATUS", {f"ZYNQ_STATUS_{name}": value for name, value in status.items()}),
        Group("bits of a descriptor: first, last", bit_ranges("ZYNQ_DESC", LAYOUT)),
    ]
    return header("ZYNQ_ENGINE_H_", "The VGG16 engine.", groups, structure("zynq_descriptor", LAYOUT))
