"""The engine for C: sizes, the register map, the descriptor's bits."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.program.header import Group, Macros, bit_ranges, header, structure
from tilewright.targets.zynq.config import CHOICES, LANES, STORES, Config
from tilewright.targets.zynq.isa.descriptor import LAYOUT, RULES, Kind

#: Byte offsets of the registers on the PS's port [I]: the document names block, waiting and done only.
REGISTERS = {
    "CONTROL": 0x00,  # write 1: start the layer of the descriptor
    "STATUS": 0x04,  # bit 0 waiting, bit 1 done; then the request: store (bits 4..5), bit 6 write
    "BLOCK": 0x08,  # the block register of the request
    "DONE": 0x0C,  # write the store's number: its block has been moved
    "DESCRIPTOR": 0x40,  # the words of the descriptor
    "FACTOR": 0x8000,  # the requantisation factors, a double each: low word, high word
}
STATUS_WAITING, STATUS_IDLE, STATUS_STORE_SHIFT, STATUS_WRITE = 1, 2, 4, 64


def text(config: Config) -> str:
    """The header of one configuration."""
    values = config.to_dict()
    words = {word: index for key in CHOICES for index, word in enumerate(CHOICES[key])}
    sizes = {key: words.get(value, value) for key, value in values.items()}
    blocks = {f"{store}_block_words": config.block_words(store) for store in STORES}
    status = {"WAITING": STATUS_WAITING, "IDLE": STATUS_IDLE, "STORE_SHIFT": STATUS_STORE_SHIFT, "WRITE": STATUS_WRITE}
    groups = [
        Group("sizes", _macros("", {"lanes": LANES, **sizes, **blocks})),
        *(Group(f"words of {key}", _macros(f"{key}_", {w: words[w] for w in CHOICES[key]})) for key in CHOICES),
        Group("kinds of layer", _macros("kind_", {kind.name: int(kind) for kind in Kind})),
        Group("requantisation rules", _macros("rule_", {rule: index for index, rule in enumerate(RULES)})),
        Group("stores", _macros("store_", {store: index for index, store in enumerate(STORES)})),
        Group("registers, byte offsets", _macros("reg_", {name: f"0x{at:02x}" for name, at in REGISTERS.items()})),
        Group("bits of STATUS", _macros("status_", status)),
        Group("bits of a descriptor: first, last", bit_ranges("ZYNQ_DESC", LAYOUT)),
    ]
    return header("ZYNQ_ENGINE_H_", "The VGG16 engine.", groups, structure("zynq_descriptor", LAYOUT))


def _macros(prefix: str, values: Mapping[str, int | str]) -> Macros:
    return {f"ZYNQ_{prefix}{name}".upper(): value for name, value in values.items()}
