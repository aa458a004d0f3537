"""Random programs of each machine, whose sizes are 0, 1, small or the largest that their fields hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

import tilewright
from tests.targets.bm1684x.networks import Builder
from tests.targets.cfu import asm
from tests.targets.zynq import cases
from tilewright import targets
from tilewright.debug.session import Session
from tilewright.program.instruction import Field
from tilewright.program.launch_image import DramSegment, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.run import run_bare
from tilewright.targets.bm1684x.isa import stream as queues
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.cfu.isa.custom import CUSTOM
from tilewright.targets.cfu.runtime import core
from tilewright.targets.cfu.runtime.elf import Executable
from tilewright.targets.cfu.timing.costs import MODELS
from tilewright.targets.gemmini.isa import fields as gemmini
from tilewright.targets.vta.isa.fields import REGIONS, Memory, Opcode
from tilewright.targets.vta.isa.stream import encode as encode_vta
from tilewright.targets.zynq.isa.layer import LAYOUT as DESCRIPTOR

Rng = np.random.Generator
BASE, SIZE = 0x8000, 1 << 15
#: What a program may take: instructions of the CFU's processor.
INSTRUCTIONS = 100_000


def pick(rng: Rng, values: Iterable[int]) -> int:
    choices = list(values)
    return choices[int(rng.integers(len(choices)))]


def changed(rng: Rng, fields: Iterable[Field], values: dict[str, int], rate: float) -> dict[str, int]:
    """Return the values of fields, some of them replaced: by 0, 1, the largest, the least, or a small number."""
    made = dict(values)
    for field in fields:
        if rng.random() < rate:
            small = int(rng.integers(min(32, field.high) + 1))
            made[field.name] = pick(rng, (0, 1, field.high, field.high - 1, field.low, small))
            made[field.name] = min(made[field.name], field.high)
    return made


def of_gemmini(rng: Rng) -> Program:
    config = targets.get("gemmini").config(pick_name(rng, ("default", "dim4", "dim8", "wsonly")), {})
    rows, dim = [], config.to_dict()["dim"]
    for _ in range(int(rng.integers(1, 12))):
        form = gemmini.FORMATS[int(rng.integers(len(gemmini.FORMATS)))]
        if rng.random() < 0.6:
            form = gemmini.FORMATS[pick(rng, (0, 1, 2, 4, 7, 8, 9))]
        values = {place.name: int(rng.integers(min(1 << place.width, 3))) for place in (*form.rs1, *form.rs2)}
        values |= {name: BASE + int(rng.integers(SIZE)) for name in ("dram", "a", "b", "c", "d") if name in values}
        for name in ("local", "a", "bd", "c"):
            if f"{name}_rows" in values or (name == "local" and "rows" in values):
                memory = pick(rng, (0, 0, 1 << 31, 3 << 30, 5 << 29))
                values[name] = memory | pick(rng, (0, 1, dim, 1023, 4095, 16383, 16384, int(rng.integers(64))))
                values[name] = 0xFFFF_FFFF if rng.random() < 0.2 else values[name]
        values |= {name: dim for name in values if name.endswith(("rows", "cols")) and rng.random() < 0.7}
        layout = gemmini.LAYOUTS[gemmini.CODES[form.name]]
        own = [field for field in layout.fields if field.name in values]
        rows.append(gemmini.encode(form.name, **changed(rng, own, values, 0.15)))
    image = LaunchImage(gemmini.raw(np.array(rows, np.uint64)), (segment(),), {"m": np.zeros(SIZE, np.uint8)})
    return Program.bare("gemmini", config, [image.launch("random")])


def pick_name(rng: Rng, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(len(names)))]


def segment() -> DramSegment:
    return DramSegment("m", BASE, SIZE, "inout")


def of_vta(rng: Rng) -> Program:
    config = targets.get("vta").config(pick_name(rng, ("pynq", "fsim", "de10nano")), {})
    formats = config.formats  # type: ignore[attr-defined]
    load = {"y_size": 1, "x_size": 4, "x_stride": 4}
    loop = {"uop_end": 1, "iter_out": 1, "iter_in": 4}
    records: list[dict[str, int]] = []
    for _ in range(int(rng.integers(1, 10))):
        opcode = pick(rng, (Opcode.LOAD, Opcode.LOAD, Opcode.GEMM, Opcode.ALU, Opcode.STORE))
        layout = formats.by_name["gemm" if opcode == Opcode.GEMM else "alu" if opcode == Opcode.ALU else "mem"]
        own = dict(loop) if opcode in (Opcode.GEMM, Opcode.ALU) else dict(load)
        if opcode == Opcode.LOAD:
            own["memory_type"] = pick(rng, (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.ACC_8BIT))
        if opcode == Opcode.STORE:
            own["memory_type"] = Memory.OUT
        tokens = "opcode", "pop_prev", "pop_next", "push_prev", "push_next", "memory_type"
        sizes = [field for field in layout.fields if field.name not in tokens]
        records.append({"opcode": opcode, **changed(rng, sizes, own, 0.15)})
    records.append({"opcode": Opcode.FINISH})
    content = rng.integers(0, pick(rng, (1, 2, 256)), SIZE).astype(np.uint8)
    image = LaunchImage(encode_vta(records, config), (segment(),), {"m": content}, dict.fromkeys(REGIONS, BASE))  # type: ignore[arg-type]
    return Program.bare("vta", config, [image.launch("random")])


def of_zynq(rng: Rng) -> Program:
    config = targets.get("zynq").config(pick_name(rng, ("repaired", "literal", "fast")), {})
    shape = {**cases.LAYERS, **cases.SHAPES}[pick_name(rng, (*cases.LAYERS, *cases.SHAPES))]
    case = cases.case(int(rng.integers(1 << 30)), config, **shape)  # type: ignore[arg-type]
    sizes = [field for field in DESCRIPTOR.fields if field.name != "kind"]
    values = changed(rng, sizes, dict(case.layer.fields), 0.08)
    arrays = {"insns": DESCRIPTOR.encode_rows([values]), "data": case.data.view(np.uint8).reshape(-1)}
    arrays |= {"weight": case.weights.view(np.uint8).reshape(-1), "bias": case.bias, "factor": case.factor}
    return Program.bare("zynq", config, [Launch("random", (), {}, arrays)])


@cache
def network() -> Program:
    """Return a small network, compiled for bm1684x."""
    net = Builder(1, (9, 9, 8))
    x = net.conv(net.input, 8)
    y = net.maximum(net.add(x, net.depthwise(x)))
    return tilewright.compile(net.graph(net.dense(net.flat(net.conv(y, 70)), 10)), "bm1684x")


def of_bm1684x(rng: Rng) -> Program:
    program = network()
    launch = program.launches[int(rng.integers(len(program.launches)))]
    split, insns = int(launch.meta["tiu_bytes"]), launch.arrays["insns"]
    parts = []
    for engine, raw in ((TIU, insns[:split]), (DMA, insns[split:])):
        commands, kept = queues.decode(engine, raw), []
        chosen = rng.integers(len(commands), size=int(rng.integers(3)))
        for at, command in enumerate(commands):
            head = queues.heading(command.format)
            sizes = [field for field in command.format.layout.fields if field.name in command.fields]
            sizes = [field for field in sizes if field.name not in (*head, "cmd_id", "cmd_id_dep", "tsk_typ")]
            rate = 1.5 / len(sizes) if at in chosen and not command.is_end else 0.0
            fields = changed(rng, sizes, dict(command.fields), rate)
            kept.append(queues.EncodedCommand(engine, command.number, command.format, fields))
        parts.append(queues.encode(kept))
    meta = {**launch.meta, "tiu_bytes": len(parts[0])}
    made = Launch(launch.name, launch.nodes, meta, {**launch.arrays, "insns": np.concatenate(parts)})
    return Program.bare("bm1684x", targets.get("bm1684x").config(None, {}), [made])


def of_cfu(rng: Rng) -> Executable:
    """Return a program of commands for the CFU, whose operands are sizes, addresses or packed sizes."""
    words: list[int] = []
    for _ in range(int(rng.integers(1, 30))):
        for register in (asm.A0, asm.A1):
            sizes = [pick(rng, (0, 1, 3, 8, 1023)) for _ in range(3)]
            packed = pick(rng, (0, 1)) << 30 | sizes[0] << 20 | sizes[1] << 10 | sizes[2]
            places = asm.DATA, asm.DATA + 4 * sizes[0]
            values = 0, 1, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 0xFFFF_FFFF, packed, *places
            words += asm.li(register, pick(rng, values))
        words.append(asm.custom(pick(rng, (*CUSTOM, *CUSTOM, 127)), asm.A2, asm.A0, asm.A1))
    return asm.image([*words, *asm.halt()], bytes(4096))


MACHINES: dict[str, Callable[[Rng], Program]] = {
    "bm1684x": of_bm1684x,
    "gemmini": of_gemmini,
    "vta": of_vta,
    "zynq": of_zynq,
}


def attempt(target: str, rng: Rng) -> None:
    """Make a random program, and check, run, time and debug it. Raises TilewrightError if the machine refuses it."""
    if target == "cfu":
        names = targets.get("cfu").presets
        config = targets.get("cfu").config(names[int(rng.integers(len(names)))], {})
        core.run(of_cfu(rng), core.Setup(config, next(iter(MODELS)), max_instructions=INSTRUCTIONS))  # type: ignore[arg-type]
        return
    program, ways = MACHINES[target](rng), int(rng.integers(3))
    if ways == 0:
        list(targets.get(target).check(program))
    elif ways == 1:
        session = Session(program)
        session.end()
    else:
        run_bare(program)
