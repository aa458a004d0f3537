"""Write a launch as a folder of raw binaries (form.py).

The data of a kind lie together in such a folder, those of a launch in any order: they get other addresses, and the
transfers other indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Raw
from tilewright.program.launch_image import CARRIED, FILLED, DramSegment, LaunchImage
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory, Opcode
from tilewright.targets.vta.isa.formats import Stream
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.raw.form import ADDRESSES, CODE, EXPECTED, KINDS, PAGE

#: The kind of constants by the memory that they are loaded into.
CONSTANTS = {Memory.UOP: "UOP", Memory.WGT: "WGT", Memory.INP: "INP", Memory.ACC: "ACC", Memory.ACC_8BIT: "ACC"}


def files(name: str, image: LaunchImage, config: Config, inputs: Mapping[str, Array], end: str) -> dict[str, bytes]:
    """Return the files of a launch by name; each name of a file ends with `end`.

    `inputs` are the bytes of its input segments, uint8 [1, size], by name. The expected output is what the simulator
    leaves. Raises ProgramError, naming the launch, if it uses extensions or segments that the form has no place for.
    """
    stream = decode(image.insns, config)
    if config.alu != "upstream" or config.stages != 3:
        reason = f"has alu={config.alu}, stages={config.stages}; the folder is for machines of upstream's"
        raise ProgramError(f"launch '{name}'", reason, "compile it with alu=upstream and stages=3")
    home = _homes(stream, image, config)
    placed = dict(_placed(image.segments, _kinds(name, stream, image, home)))
    moved = tuple(
        replace(segment, address=placed[segment.name][1]) for segment in image.segments if segment.name in placed
    )
    insns = _readdressed(image, config, home, {segment.name: segment.address for segment in moved})
    made = {f"{CODE}{end}.bin": insns.tobytes()}
    lines: list[str] = []
    contents = _contents(image, moved, insns, config, inputs)
    for word, kind in KINDS.items():
        mine = [segment for segment in moved if placed[segment.name][0] == word]
        if not mine:
            made[f"{kind.file}{end}.bin"] = b""
            continue
        first = mine[0].address
        data = np.zeros(mine[-1].address + mine[-1].size - first, np.uint8)
        for segment in mine:
            data[segment.address - first :][: segment.size] = contents[segment.name]
        made[f"{kind.file}{end}.bin"] = data.tobytes()
        lines.append(f"{word},{first:#x},{first // config.dram_tile_bytes(kind.memory):#x}")
    made[f"{EXPECTED}_sram{end}.bin"] = made[f"{EXPECTED}{end}.bin"]  # its simulator takes the size of OUT from here
    last = _paged(max(segment.address + segment.size for segment in moved))
    lines.append(f"INSN,{last:#x},{last // INSN_BYTES:#x}")
    return made | {f"{ADDRESSES}{end}.csv": "".join(f"{line}\n" for line in lines).encode()}


def _homes(stream: Stream, image: LaunchImage, config: Config) -> Array:
    """Return the index of the segment that each instruction transfers, int64 [n]; -1: it transfers nothing."""
    tile = np.array([config.dram_tile_bytes(memory) if memory in config.memories else 1 for memory in Memory])
    moved = stream.mem
    starts = np.array([segment.address for segment in image.segments], np.int64)
    order = np.argsort(starts)
    found = order[np.searchsorted(starts[order], moved.dram_base * tile[moved.memory_type], side="right") - 1]
    active = (stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)
    return np.where(active & (moved.x_size > 0) & (moved.y_size > 0), found, -1)


def _kinds(name: str, stream: Stream, image: LaunchImage, home: Array) -> dict[str, str]:
    """Return the kind of each segment that instructions use, by name."""
    found: dict[str, str] = {}
    for index, segment in enumerate(image.segments):
        mine = np.flatnonzero(home == index)
        if not mine.size:
            continue
        if segment.kind == "inout":
            reason = f"stores over the data of segment '{segment.name}', for which the folder has no place"
            raise ProgramError(f"launch '{name}'", reason, "store to a segment of its own")
        constant = CONSTANTS.get(Memory(int(stream.mem.memory_type[mine[0]])), "INP")
        found[segment.name] = {"const": constant, "input": "INP"}.get(segment.kind, "OUT")
    return found


def _placed(segments: Sequence[DramSegment], kinds: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the kind and the new address of each segment that has a kind, by name. Each begins on a page."""
    address = PAGE
    for word in KINDS:
        for segment in segments:
            if kinds.get(segment.name) == word:
                yield segment.name, (word, address)
                address = _paged(address + segment.size)


def _paged(address: int) -> int:
    return -(-address // PAGE) * PAGE


def _readdressed(image: LaunchImage, config: Config, home: Array, addresses: Mapping[str, int]) -> Raw:
    """Return the instructions for segments at other addresses."""
    insns, layout = image.insns.copy(), config.formats.by_name["mem"]
    rows = np.flatnonzero(home >= 0)
    fields = dict(zip(layout.by_name, layout.values(insns[rows]), strict=True))
    shift = np.array([addresses.get(segment.name, 0) - segment.address for segment in image.segments])
    tile = np.array([config.dram_tile_bytes(Memory(int(memory))) for memory in fields["memory_type"]], np.int64)
    fields["dram_base"] = fields["dram_base"] + shift[home[rows]] // tile
    insns[rows] = layout.encode(fields)
    return insns


def _contents(
    image: LaunchImage, moved: tuple[DramSegment, ...], insns: Raw, config: Config, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the bytes of each segment, uint8 [size]: before the run what it reads, and after it what it stores."""
    kept = {segment.name: segment for segment in moved}
    data = {name: content for name, content in image.data.items() if name in kept}
    given = {name: content for name, content in inputs.items() if name in kept}
    all_back = tuple(one if one.kind in FILLED else replace(one, kind="output") for one in moved)
    own = LaunchImage(insns, all_back, data, image.bases)
    dram = own.dram(given, 1)
    run_passes(insns, config, dram, own.bases, 1, RunOptions(check=False))
    stored = {segment.name: dram[segment.name][0] for segment in all_back if segment.kind not in CARRIED}
    return {**stored, **data, **{name: content[0] for name, content in given.items()}}
