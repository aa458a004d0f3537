"""The text form of launches, lossless in both directions: to text and back (tilewright/program/listing.py).

.launch "conv" values_end 4096
.input "x" 4294967296 3 32 32 u8 128 0
.output "y" 4294971392 10 1 1 i8 0 -5
.constants 8
0102030405060708
tiu CONV short cmd_id=1 cmd_id_dep=2 ..            # #2 int8_asym_quant_conv2d
dma DMA_tensor long cmd_id=1 ..                    # #0 dma_copy

`.input` and `.output` list a tensor's DDR address, channels, rows, columns, type, the number added to the graph's
codes, and the zero point after this addition. If the tensor is stored by phase, the fields of Phases follow.
`.constants` has the bytes at the beginning of DDR. The commands of each engine are listed in order. Command fields that
are not listed are 0. The comment after a command has the command's number in findings, traces and the debugger, where
the commands of both engines are numbered together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.header import Group, header, macros
from tilewright.program.instruction import Form
from tilewright.program.listing import Directive, Grammar, LaunchText, Section, Text
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stage, Stages
from tilewright.program.words import QUOTED, Word, choice, number
from tilewright.targets.bm1684x import config as machine
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa import stream
from tilewright.targets.bm1684x.isa.elaborate import UNITS, step_numbers
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.launch.image import QueueImage
from tilewright.targets.bm1684x.launch.run import PreparedLaunch, prepare
from tilewright.targets.bm1684x.values.dtypes import DTYPES, Rounding

SIZES = ("short", "long")
COUNT = number()
INTEGER = number(low=-(1 << 63))
TENSOR = Directive(
    {
        "name": QUOTED,
        **dict.fromkeys(("address", "channels", "rows", "columns"), COUNT),
        "type": choice(DTYPES),
        **dict.fromkeys(("add", "zero"), INTEGER),
    },
    more=INTEGER,
)


def _command(words: Sequence[Word]) -> tuple[str, str, bool, dict[str, int]]:
    engine = choice((TIU, DMA)).read(words[0])
    if len(words) < 3:
        words[-1].refuse("the name of a format, followed by short or long")
    name = words[1].text
    short = choice(SIZES).read(words[2]) == "short"
    if (name, short) not in stream.FORMATS:
        words[1].refuse(f"the name of a {words[2].text} format")
    return engine, name, short, _form(stream.FORMATS[name, short]).read(words[3:])


def _form(command_format: stream.Format) -> Form:
    return Form(command_format.layout, command_format.names, optional=command_format.names)


GRAMMAR = Grammar(
    {
        ".input": TENSOR,
        ".output": TENSOR,
        ".constants": Directive({"size": COUNT}, data=lambda values: values["size"]),
        ".code": Directive(code=_command),
    },
    launch={"values_end": choice(["values_end"]), "bytes": COUNT},
    opening=".code",
    name=QUOTED,
    row=64,
    zeros=False,
)


def launch_text(config: Config) -> LaunchText:
    """Return the text form of the launches of a machine."""
    return LaunchText(GRAMMAR, partial(_text, config=config), partial(_launch, config=config))


def _text(launch: Launch, config: Config) -> Text:
    image = QueueImage.of(launch, config)
    sections = []
    count = len(TENSOR.values)
    for name in ("input", "output"):
        for row in launch.meta[f"{name}s"]:
            sections.append(Section(f".{name}", dict(zip(TENSOR.values, row, strict=False)) | {"more": row[count:]}))
    sections.append(Section(".constants", {"size": len(image.constants)}, image.constants.tobytes()))
    sections.append(Section("", code=list(_code(image, config))))
    return Text(launch.name, {"values_end": "values_end", "bytes": image.values_end}, sections)


def _code(image: QueueImage, config: Config) -> Iterator[str]:
    try:
        numbers = step_numbers(image.queues)
    except ProgramError:  # a deadlock: no command can start
        numbers = {}
    for engine in (TIU, DMA):
        for command in stream.decode(engine, image.queues[engine]):
            yield line(command, config, numbers.get((engine, command.id)))


def line(command: stream.EncodedCommand, config: Config, number: int | None) -> str:
    """Return a command as text. `number` is the command's number in findings, or None."""
    meaning = "end" if command.is_end else command_of(command, config).operation.name
    form = f"{command.format.name} {SIZES[not command.format.short]}"
    named = "" if number is None or command.is_end else f"#{number} "
    return f"{command.engine} {form} {_form(command.format).show(command.fields)}  # {named}{meaning}"


def _launch(text: Text, config: Config) -> Launch:
    commands: dict[str, list[stream.EncodedCommand]] = {TIU: [], DMA: []}
    for engine, name, short, fields in text.code(".code"):
        commands[engine].append(stream.new_command(engine, len(commands[engine]), name, short, fields))
    queues = {engine: stream.encode(listed) for engine, listed in commands.items()}
    meta = {"tiu_bytes": len(queues[TIU]), "batch": config.batch, "values_end": text.values["bytes"]}
    for name in ("input", "output"):
        rows = [list(section.values.values()) for section in text.of(f".{name}")]
        meta[f"{name}s"] = [[*row[:-1], *row[-1]] for row in rows]
    arrays = {
        "insns": np.concatenate([queues[TIU], queues[DMA]]),
        "constants": np.frombuffer(text.data(".constants"), np.uint8).copy(),
        "layers": np.zeros(sum(map(len, commands.values())), np.int32),
    }
    for section in text.of(".constants"):
        if len(section.data) != section.values["size"]:
            section.words["size"].refuse(f"{len(section.data)}, the number of bytes that follow")
    launch = Launch(text.name, (), meta, arrays)
    QueueImage.of(launch, config)
    return launch


def explain(program: Program, config: Config, timing: str) -> Stages:
    """Explain each launch: memory, cycles (of the timing model `timing`), tensors, tiles, and commands of layers."""
    useful = {site.node.name: site.node.op.macs(site) for site in program.graph.sites()} if program.graph else {}
    return [_explained(launch, config, timing, useful) for launch in program.launches]


def _explained(launch: Launch, config: Config, timing: str, useful: Mapping[str, int]) -> Stage:
    prepared = prepare(launch, config, timing)
    image = prepared.image
    trace = prepared.trace
    constants = config.lane_bytes - image.values_end
    busy = ", ".join(f"{engine} {cycles}" for engine, cycles in trace.busy().items())
    cycles = f"{trace.cycles} cycles per launch, {prepared.serial.cycles} without overlap"
    lines: list[str | Stage] = [
        f"each lane: {image.values_end} bytes for values, {constants} for constants ({len(image.constants)} in DDR)",
        f"{cycles} (timing model {timing}); busy: {busy}",
    ]
    if total := image.batch * sum(useful.get(name, 0) for name in launch.nodes):
        alone = int(prepared.products.sum())
        share = _share(total, alone, prepared)
        lines.append(f"products alone: {alone} cycles, {share}: what the lanes allow with these plans")
    for kind, segments in (("in", image.inputs), ("out", image.outputs)):
        for segment in segments:
            form = segment.form
            shape = f"({form.c}, {form.h}, {form.w}) {form.dtype}, codes {form.add:+d}"
            lines.append(f"{kind:3} {segment.name} at {segment.address:#x}: {shape}")
    if "tiles" in launch.meta:
        groups = ", ".join(f"{begin}..{end - 1}" for begin, end in launch.meta["groups"])
        lines.append(f"samples go through groups of layers: {groups}" if image.batch > 1 else "layer by layer")
        lines += _layers(launch, prepared, useful)
    return Stage(f"{launch.name}: {len(prepared.program.steps)} commands, {image.batch} samples per launch", lines)


def _share(macs: int, cycles: int, prepared: PreparedLaunch) -> str:
    return f"{100 * macs / max(1, cycles * prepared.peak):.1f} % of the multipliers"


def _layers(launch: Launch, prepared: PreparedLaunch, useful: Mapping[str, int]) -> Iterator[Stage]:
    counts: dict[tuple[int, str], Counter[str]] = {}
    for step, layer in zip(prepared.program.steps, prepared.layers.tolist(), strict=True):
        counts.setdefault((layer, step.engine), Counter())[step.command.operation.name] += 1
    for index, (name, (slots, rows)) in enumerate(zip(launch.nodes, launch.meta["tiles"], strict=True)):
        note = f"; {launch.meta['notes'][index]}" if launch.meta["notes"][index] else ""
        lines = []
        if macs := prepared.image.batch * useful.get(name, 0):
            alone = int(prepared.products[index])
            lines.append(f"products: {alone} cycles, {_share(macs, alone, prepared)}")
        for engine in UNITS:
            if operations := counts.get((index, engine)):
                lines.append(
                    f"{engine}: " + ", ".join(f"{count} {operation}" for operation, count in operations.items())
                )
        yield Stage(f"{name}: tiles of {slots * prepared.config.lanes} channels, {rows} rows{note}", lines)


def c_header(config: Config) -> str:
    """Return a C header with the machine's sizes and addresses, and the codes of types, rounding modes and commands."""
    bases: dict[str, int | str] = {
        name: f"0x{getattr(machine, name):x}ULL" for name in ("LOCAL_BASE", "STATIC_BASE", "L2_BASE", "DDR_BASE")
    }
    groups: dict[str, dict[str, int | str]] = {
        "sizes": {key: value for key, value in config.to_dict().items() if isinstance(value, int)},
        "bus addresses": bases,
        "element types: codes of the device API": {f"dt_{dtype}": dtype.code for dtype in DTYPES.values()},
        "rounding modes": {f"round_{mode.name}": int(mode) for mode in Rounding},
        "commands of the compute engine": {f"tiu_{name}".replace("&", "_"): n for n, name in stream.TIU_TYPES.items()},
        "commands of the DMA engine": {name: code for code, name in stream.DMA_TYPES.items()},
    }
    return header("BM1684X_H_", "The BM1684X.", [Group(title, macros("bm1684x", of)) for title, of in groups.items()])
