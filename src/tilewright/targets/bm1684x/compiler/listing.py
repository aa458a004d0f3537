"""The text form of launches, exact in both directions; `#` starts a comment.

.launch "conv" values_end 4096
.input "x" 4294967296 3 32 32 u8 128 0
.output "y" 4294971392 10 1 1 i8 0 -5
.constants 8
0102030405060708
tiu CONV short cmd_id=1 cmd_id_dep=2 ..            # int8_asym_quant_conv2d
dma DMA_tensor long cmd_id=1 ..                    # dma_copy

A segment has its address in DDR, channels, rows, columns, type, what is added to codes of the graph, and the zero point
then; one that lies by phase has the numbers of phases.Phases besides. Fields that are not named are 0. Constants are
bytes at the beginning of DDR. Each engine's commands keep their order.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.errors import ProgramError, TilewrightError
from tilewright.program.program import Launch, Program
from tilewright.targets.bm1684x.compiler.assembly import described
from tilewright.targets.bm1684x.compiler.image import Image
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.formats import FORMATS
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import Encoded, decode, encode, fresh

#: Bytes of constants in a line.
ROW = 64
#: Constants of one text.
MOST_BYTES = 1 << 27


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    return "".join(f"{line}\n" for launch in program.launches for line in _lines(launch, config))


def _lines(launch: Launch, config: Config) -> Iterator[str]:
    image = Image.of(launch, config)
    yield f".launch {json.dumps(launch.name)} values_end {image.values_end}"
    for kind, segments in (("input", image.inputs), ("output", image.outputs)):
        for segment in segments:
            own = segment.stored
            name, *row = described(segment.name, segment.address, own)
            yield f".{kind} {json.dumps(name)} {' '.join(map(str, row))}"
    yield f".constants {len(image.constants)}"
    raw = image.constants.tobytes()
    yield from (raw[start : start + ROW].hex() for start in range(0, len(raw), ROW))
    for engine in (TIU, DMA):
        yield from (_line(command, config) for command in decode(engine, image.queues[engine]))


def _line(command: Encoded, config: Config) -> str:
    fields = " ".join(f"{name}={value}" for name, value in command.fields.items() if value)
    meaning = "end" if command.is_end else command_of(command, config).operation.name
    form = f"{command.format.name} {'short' if command.format.short else 'long'}"
    return f"{command.engine} {form} {fields}  # {meaning}"


class _Part:
    """The lines of one launch, as they are read."""

    def __init__(self, name: str, values_end: int) -> None:
        self.name, self.values_end = name, values_end
        self.segments: dict[str, list[list[Any]]] = {"input": [], "output": []}
        self.constants, self.expected = bytearray(), 0
        self.commands: dict[str, list[Encoded]] = {TIU: [], DMA: []}

    def line(self, words: list[str]) -> None:
        """Raises ValueError, LookupError, TilewrightError."""
        if words[0] in (".input", ".output"):
            name, *row = words[1:]
            numbers = [word if number == 4 else int(word) for number, word in enumerate(row)]
            self.segments[words[0][1:]].append([name, *numbers])
        elif words[0] == ".constants":
            self.expected = int(words[1])
        elif words[0] in self.commands:
            engine, name, form, *fields = words
            given = {key: int(value, 0) for key, value in (word.split("=") for word in fields)}
            known = FORMATS[name, form == "short"]
            if unknown := sorted(set(given) - set(known.names)):
                raise ValueError(f"{name} has no field {unknown[0]}")
            own = self.commands[engine]
            own.append(fresh(engine, len(own), name, form == "short", given))
        else:
            self.constants += bytes.fromhex(words[0])
            if len(self.constants) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes of constants")

    def launch(self, config: Config) -> Launch:
        if len(self.constants) != self.expected:
            reason = f"has {len(self.constants)} bytes of constants, not {self.expected}"
            raise ProgramError(f"launch '{self.name}'", reason)
        queues = {engine: encode(commands) for engine, commands in self.commands.items()}
        count = sum(len(commands) for commands in self.commands.values())
        segments = {f"{kind}s": rows for kind, rows in self.segments.items()}
        meta = {"tiu_bytes": len(queues[TIU]), "batch": config.batch, "values_end": self.values_end, **segments}
        arrays = {
            "insns": np.concatenate([queues[TIU], queues[DMA]]),
            "constants": np.frombuffer(bytes(self.constants), np.uint8).copy(),
            "layers": np.zeros(count, np.int32),
        }
        made = Launch(self.name, (), meta, arrays)
        Image.of(made, config)
        return made


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with line and column."""
    parts: list[_Part] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            words = shlex.split(line, comments=True) if line[:1] in (".", "#") else line.partition("#")[0].split()
            if not words:
                continue
            if words[0] == ".launch":
                if len(words) != 4 or words[2] != "values_end":
                    raise ValueError("expected .launch NAME values_end BYTES")
                parts.append(_Part(words[1], int(words[3])))
            elif not parts:
                raise ValueError("expected .launch first")
            else:
                parts[-1].line(words)
        except (ValueError, LookupError, TilewrightError) as error:
            column = len(line) - len(line.lstrip()) + 1
            reason = str(error) if not isinstance(error, KeyError) else f"there is no format {line.split()[1]}"
            raise ProgramError(f"line {number}, column {column}", reason) from None
    return tuple(part.launch(config) for part in parts)
