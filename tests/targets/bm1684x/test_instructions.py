"""The descriptions of instructions: what fields say is written as the same fields, and read again as the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.config import LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.meaning import checked, command_of, instruction_of
from tilewright.targets.bm1684x.isa.operation import ATTRIBUTES, attribute
from tilewright.targets.bm1684x.isa.operations import DMA, INSTRUCTIONS
from tilewright.targets.bm1684x.isa.parts import Instruction
from tilewright.targets.bm1684x.isa.stream import ALL_LANES, EncodedCommand, decode, encode, new_command
from tilewright.targets.bm1684x.layouts.tensor import Operand
from tilewright.targets.bm1684x.timing.estimate import cycles

SEED = 15
CONFIG = Config()
#: Fields that the vendor's compiler fills otherwise: strides that a layout code says too (and no strides where the
#: usual layout is meant), signs of floats, bits of a constant above those of its type.
OTHERWISE = ("_str", "stride_enable", "_sign", "opd1_addr")
#: Random fields of an instruction, of which one at least must make a command; commands that suffice.
TRIALS, ENOUGH = 20_000, 8


class Seen(dict[str, int]):
    """Fields, and which of them were read."""

    def __init__(self, fields: Mapping[str, int]) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> int:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: int = 0) -> int:  # type: ignore[override]
        if name in self:
            self.names.add(name)
        return super().get(name, default)


def stored(shared: Path) -> Iterator[EncodedCommand]:
    """Every command of the vendor's networks but ends and nops."""
    for path in sorted((shared / "tpu_vectors" / "nets").glob("*/*.cmdbuf.npz")):
        with np.load(path) as vector:
            for name in vector.files:
                if name.startswith(("tiu_", "dma_")):
                    yield from (c for c in decode(name[:3], vector[name]) if c.format.name not in ("SYSID", "DMA_sys"))


def test_fields_that_mean_something_are_written_as_they_were(shared: Path) -> None:
    count = 0
    for command in stored(shared):
        seen = Seen(command.fields)
        instruction = instruction_of(replace(command, fields=seen))
        fields = instruction.write(instruction.read(replace(command, fields=seen), CONFIG))
        differing = {name for name in seen.names if fields[name] != command[name]}
        assert all(name.endswith(OTHERWISE) for name in differing), (str(command), differing)
        again = instruction.read(replace(command, fields=fields), CONFIG)
        assert same(again, command_of(command, CONFIG)), str(command)
        assert cycles(again, CONFIG) == cycles(command_of(command, CONFIG), CONFIG), str(command)
        count += 1
    assert count == 1627


def test_every_instruction_is_the_one_that_its_fields_say() -> None:
    """No two have fields in common: the first that fits is the only one, but for a number's type."""
    for instruction in INSTRUCTIONS:
        fields = {"opd0_prec": 2 if instruction.of != "integer" else 4, "res0_prec": 3, **instruction.head}
        if instruction.same_type:
            fields["res0_prec"] = fields["opd0_prec"]
        command = EncodedCommand(
            instruction.operation.engine,
            0,
            instruction.format,
            {name: fields.get(name, 0) for name in instruction.format.names},
        )
        assert instruction_of(command) is instruction


@pytest.mark.parametrize("number", range(len(INSTRUCTIONS)), ids=lambda n: f"{n}-{INSTRUCTIONS[n].operation_name}")
def test_what_is_read_is_written_as_fields_that_read_the_same(number: int) -> None:
    instruction, count = INSTRUCTIONS[number], 0
    rng = np.random.default_rng([SEED, number])
    for _ in range(TRIALS):
        encoded = some(instruction, rng)
        try:
            command = instruction.read(encoded, CONFIG)
            if command.refusal():
                continue
            fields = instruction.write(command)
        except (TilewrightError, ValueError):
            continue
        again = EncodedCommand(encoded.engine, 0, instruction.format, fields)
        assert same(instruction.read(again, CONFIG), command), (f"seed {SEED}", encoded.fields)
        assert dict(decode(encoded.engine, ended(again))[0].fields) == fields
        count += 1
        if count == ENOUGH:
            break
    assert count


@pytest.mark.parametrize("number", range(len(INSTRUCTIONS)), ids=lambda n: f"{n}-{INSTRUCTIONS[n].operation_name}")
def test_commands_are_encoded_as_what_is_read_as_the_same(number: int) -> None:
    """By whichever instruction: many operations have several."""
    instruction, count = INSTRUCTIONS[number], 0
    rng = np.random.default_rng([SEED, number])
    for _ in range(TRIALS):
        try:
            command = instruction.read(some(instruction, rng), CONFIG)
            if command.refusal():
                continue
            written = checked(command, 0, 0, CONFIG)
        except (TilewrightError, ValueError):
            continue
        assert same(command_of(written, CONFIG), command), f"seed {SEED}"
        count += 1
        if count == ENOUGH:
            break
    assert count


def ended(command: EncodedCommand) -> Array:
    """The command and the end of its queue, as bytes."""
    end = {DMA: ("DMA_sys", {"cmd_short": 1, "cmd_type": 6})}.get(command.engine, ("SYSID", {"tsk_typ": 15}))
    last = {**end[1], "tsk_eu_typ": 31} if command.engine != DMA else end[1]
    return encode([command, new_command(command.engine, 1, end[0], True, last)])


def some(instruction: Instruction, rng: np.random.Generator) -> EncodedCommand:
    """Random fields of an instruction, such that many of them make a command."""
    fields = {}
    real = instruction.of == "float" or (instruction.of == "" and rng.random() < 0.5)
    kind = int(rng.choice((1, 2, 5) if real else (0, 3, 4)))
    for field in instruction.format.layout.fields:
        fields[field.name] = number_of(field.name, field.high, kind, rng)
    fields = {name: fields[name] for name in instruction.format.names}
    fields |= instruction.head
    return EncodedCommand(instruction.operation.engine, 0, instruction.format, fields)


def number_of(name: str, high: int, kind: int, rng: np.random.Generator) -> int:
    if name == "res0_prec" and rng.random() < 0.5:
        return int(rng.choice((2, 4)))
    if name.endswith(("_prec", "src_data_format")):
        return kind if rng.random() < 0.9 else int(rng.integers(6))
    if "addr" in name:
        choices = [0, int(rng.integers(64)) * 64, int(rng.integers(8)) * CONFIG.bank_bytes]
        if "start" in name:
            local = LOCAL_BASE + choices[1]
            return int(rng.integers(2)) if "h8" in name or "l8" in name else int(rng.choice([*choices, local]))
        return int(rng.choice([*choices, STATIC_BASE + choices[1]])) & high
    if name.startswith("localmem_mask"):
        return ALL_LANES
    if name.endswith(("ins0", "pad", "const", "sign", "en", "rotate", "tran", "add")):
        return int(rng.integers(2)) if name != "decompress_en" else 0
    if name.endswith("_str") and high == 7:
        return int(rng.choice([0, 0, 1, 2, 3]))
    choices = [1, 1, 2, 3, 5, 8, 70 if name.endswith("_c") else 9]
    return int(rng.choice(choices)) & high


def same(first: Command, second: Command) -> bool:
    """Whether two commands are one operation on the same elements, with the same attributes."""
    if first.operation is not second.operation or set(first.places) != set(second.places):
        return False
    given = all(attribute(first.attributes, name) == attribute(second.attributes, name) for name in ATTRIBUTES)
    shape = next(iter(first.results.values())).shape
    return given and all(alike(first[name], second[name], shape) for name in first.places)


def alike(first: Operand | Constant, second: Operand | Constant, shape: tuple[int, ...]) -> bool:
    if isinstance(first, Constant) or isinstance(second, Constant):
        return isinstance(first, Constant) and isinstance(second, Constant) and first.bits == second.bits
    return first.dtype.bytes == second.dtype.bytes and np.array_equal(over(first, shape), over(second, shape))


def over(operand: Operand, shape: tuple[int, ...]) -> Array:
    """Addresses, repeated over the result's shape where they can be."""
    try:
        return np.broadcast_to(operand.addresses, shape)
    except ValueError:
        return operand.addresses
