"""Translate encoded commands (fields) to commands on memory, and back."""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError, TilewrightError
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import ATTRIBUTES, attribute
from tilewright.targets.bm1684x.isa.operations import DMA, INSTRUCTIONS, OPTIONAL, transfers
from tilewright.targets.bm1684x.isa.parts import Instruction, TooFar, refused
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts.tensor import Operand

#: The largest number of elements of an operand. With strides of 0, a short command could describe more elements than
#: fit into the host's memory.
MOST_ELEMENTS = 1 << 26
#: Operations that have no encoding, because the machine runs them as sequences of commands.
SEQUENCES = ("fp_exp", "fp_sigmoid", "fp_log")
#: The fields that can contain a function number.
FUNCTION = ("tsk_eu_typ", "cmd_special_function")

_of_function: dict[tuple[str, bool, int | None], list[Instruction]] = defaultdict(list)
_of_operation: dict[str, list[Instruction]] = defaultdict(list)
for _instruction in INSTRUCTIONS:
    _number = next((_instruction.chosen[name] for name in FUNCTION if name in _instruction.chosen), None)
    _of_function[_instruction.format_name, _instruction.long, _number].append(_instruction)
    _of_operation[_instruction.operation_name].append(_instruction)
MODELLED = frozenset((name, long) for name, long, _ in _of_function)


def instruction_of(encoded: EncodedCommand) -> Instruction:
    """Return the instruction of an encoded command. Raises ProgramError if the command is not modelled."""
    # Of the compute engine's long formats, only the format of convolutions is modelled, because the vendor's library
    # and compiler use no other.
    name = encoded.format.name
    long = not encoded.format.short and encoded.engine != DMA
    if (name, long) not in MODELLED:
        raise ProgramError(str(encoded), f"{'long ' if long else ''}commands of the format {name} are not modelled")
    number = next((encoded[field] for field in FUNCTION if field in encoded.fields), 0)
    # Instructions with the same function number differ in other fields, or in the types of operands. The first match is
    # used, so each file in operations/ lists special instructions before general ones.
    for instruction in (*_of_function.get((name, long, number), ()), *_of_function.get((name, long, None), ())):
        if instruction.matches(encoded):
            return instruction
    raise ProgramError(str(encoded), f"function {number} of the format {name} is not modelled")


def command_of(encoded: EncodedCommand, config: Config) -> Command:
    """Return the decoded command. Raises ProgramError if it is not modelled, or an operand is illegal or too large."""
    instruction = instruction_of(encoded)
    if encoded.engine == DMA:
        transfers.check(encoded)
    try:
        command = instruction.read(encoded, config)
    except (TilewrightError, ValueError, KeyError) as error:
        raise error if isinstance(error, ProgramError) else ProgramError(str(encoded), str(error)) from None
    for operand in command.places.values():
        if prod(operand.shape) > MOST_ELEMENTS:
            reason = f"an operand has {prod(operand.shape)} elements; the limit is {MOST_ELEMENTS}"
            raise ProgramError(str(encoded), reason)
    return command


def encoded(command: Command, number: int, needs: int) -> EncodedCommand:
    """Return a command in encoded form. `number` is the command's position in its queue, from 0.

    `needs` is the id of the other engine's command to wait for (0: no wait). Raises ProgramError if no known format can
    encode the command. The fields may not express the whole command, which only `checked` detects.
    """
    name = command.operation.name
    if name in SEQUENCES:
        remedy = "use runtime.functions, which issues them one by one"
        raise refused(command, "it stands for a sequence of commands", remedy)
    # If no instruction fits, the error of the last one is raised, because it is the most general. But TooFar has
    # priority, because it makes the compiler try another split.
    why = refused(command, "its command format is not known", "use another operation, or do not record the launch")
    for instruction in _of_operation.get(name, ()):
        if instruction.takes and not instruction.takes(command):
            continue
        try:
            fields = instruction.write(command)
        except ProgramError as error:
            why = why if isinstance(why, TooFar) else error
            continue
        fields |= {"cmd_id": number + 1, "cmd_id_dep": needs, "cmd_id_en": 1}
        return EncodedCommand(command.operation.engine, number, instruction.format, fields)
    raise why


def checked(command: Command, number: int, needs: int, config: Config) -> EncodedCommand:
    """Return a command in encoded form, as `encoded` does, and check that the fields express the whole command.

    The check decodes the fields. Raises ProgramError if the decoded command differs from the original.
    """
    encoded_form = encoded(command, number, needs)
    if reason := _difference(command, command_of(encoded_form, config), instruction_of(encoded_form)):
        reason = f"the format {encoded_form.format.name} cannot express it: {reason}"
        raise refused(command, reason, "lay out the operands as the format requires")
    return encoded_form


def _difference(meant: Command, read: Command, instruction: Instruction) -> str:
    if meant.operation is not read.operation:
        return f"it would be decoded as {read.operation.name}"
    shape = next(iter(meant.results.values())).shape
    for name in sorted({*meant.places, *read.places}):
        if not _same(name, meant.places.get(name), read.places.get(name), shape, name in instruction.bits_only):
            return f"{name} would be decoded with another place or type"
    for name in ATTRIBUTES:
        original, decoded = (attribute(command.attributes, name) for command in (meant, read))
        if original != decoded:
            return f"{name} would be decoded as {decoded}, not {original}"
    return ""


def _same(
    name: str, meant: Operand | Constant | None, read: Operand | Constant | None, shape: tuple[int, ...], bits: bool
) -> bool:
    if isinstance(meant, Constant | None) and isinstance(read, Constant | None):
        if meant is None or read is None:  # omitted: equal to the constant 0
            present = meant or read
            return present is None or (name in OPTIONAL and not present.bits)
        if bits:
            return meant.bits == read.bits
        return bool(meant.value == read.value) or (meant.dtype, meant.bits) == (read.dtype, read.bits)
    if meant is None or read is None or isinstance(meant, Constant) or isinstance(read, Constant):
        return False
    if meant.dtype.bytes != read.dtype.bytes or (meant.dtype != read.dtype and not bits):
        return False
    # Different shapes and strides may describe the same elements: a stride along an axis of size 1 has no effect, and a
    # row may be broadcast by strides or by NumPy. For this reason, addresses are compared.
    return meant == read or bool(np.array_equal(_spread(meant, shape), _spread(read, shape)))


def _spread(operand: Operand, shape: tuple[int, ...]) -> Array:
    addresses = operand.addresses
    try:
        return np.broadcast_to(addresses, shape)
    except ValueError:
        return addresses
