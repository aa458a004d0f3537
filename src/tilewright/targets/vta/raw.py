"""Folders of raw binaries in the form of the compiler of onera/standalone-vta; see docs/vta.md, Programs of others.

All files of a program have names with the same ending (NAME below, possibly empty):

    instructionsNAME.bin        instructions, 16 bytes each uopNAME.bin                 micro-ops, 4 bytes each
    inputNAME.bin, weightNAME.bin, accumulatorNAME.bin, add_accumulatorNAME.bin the contents of DRAM before the run; an
    empty file has no data memory_addressesNAME.csv    the places of the data in DRAM, with a line for each file
    expected_outNAME.bin        the expected contents of DRAM after the run

A line is `INP,0x1000,0x100`: a kind, a physical address, and the DRAM index with which instructions address the same
place (in tiles of the kind's memory). Only the index is used, because it does not include the DRAM offset of the
compiler. A line of an older folder is `inp,0x1000`, with a byte address. Such folders give inp, wgt and out the address
0, because a test bench fills these memories. We place these data at the first tile that the instructions transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.files import regular
from tilewright.program.instruction import Raw
from tilewright.program.launch_image import CARRIED, FILLED, MAX_BYTES, DramSegment, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import UNINITIALISED, Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets import given
from tilewright.targets.users import Loaded
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, PAGE, REGIONS, Memory, paged
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.steps.moves import Moves, moves

CODE = "instructions"
ADDRESSES = "memory_addresses"
EXPECTED = "expected_out"


class Kind(NamedTuple):
    """A kind of data: the beginning of its file name, and the memory that loads or stores it."""

    file: str
    memory: Memory


#: The kinds by their word in the list of addresses, in DRAM order. INSN is left out: no instruction addresses it.
KINDS = {
    "INP": Kind("input", Memory.INP),
    "WGT": Kind("weight", Memory.WGT),
    "ACC": Kind("accumulator", Memory.ACC),
    "ACC_BIS": Kind("add_accumulator", Memory.ACC),
    "OUT": Kind(EXPECTED, Memory.OUT),
    "UOP": Kind("uop", Memory.UOP),
}


def read(folder: Path, config: Config) -> Loaded:
    """Read a folder: a program of one launch for each NAME, and its expected outputs.

    Raises ProgramError, naming the file, if a file is missing or malformed, or if data have no address.
    """
    ends = sorted(path.name[len(CODE) : -len(".bin")] for path in folder.glob(f"{CODE}*.bin"))
    if not ends:
        raise ProgramError(folder, f"has no {CODE}*.bin", "give a folder that a VTA compiler wrote")
    launches = [_launch(folder, end, config) for end in ends]
    program = Program.bare("vta", config, [launch for launch, _, _ in launches])
    expected: dict[str, Array] = {}
    findings: list[Finding] = []
    for launch, output, missing in launches:
        expected |= given.left_by(program, launch, output)
        # An instruction may load the unused rest of a file's last page of DRAM, whose bytes are 0. A finding lists such
        # bytes.
        findings += (finding.inside(launch.name) for finding in missing)
    return Loaded(program, expected, tuple(findings))


def _launch(folder: Path, end: str, config: Config) -> tuple[Launch, dict[str, Array], list[Finding]]:
    path = folder / f"{CODE}{end}.bin"
    insns = _bytes(path)
    if not insns.size or insns.size % INSN_BYTES:
        raise ProgramError(path, f"has {insns.size} bytes, not a multiple of {INSN_BYTES} above 0", "compile it again")
    insns = insns.reshape(-1, INSN_BYTES)
    listed = folder / f"{ADDRESSES}{end}.csv"
    where = _addresses(listed, config)
    used = _used(insns, config)
    segments: list[DramSegment] = []
    data: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    findings: list[Finding] = []
    for word, kind in KINDS.items():
        content = _bytes(path) if (path := folder / f"{kind.file}{end}.bin").exists() else np.zeros(0, np.uint8)
        first, last = used.get(kind.memory, (0, 0))
        # A test bench fills memories with address 0 itself, so their data go to the first tile that is transferred.
        address = where.get(word) or first
        if not address or not (content.size or word == "OUT"):
            continue
        if word not in where:
            raise ProgramError(listed, f"has no line for {word}", f"add the line {word},ADDRESS")
        name = word.lower()
        page = paged(content.size)
        if word == "OUT":
            segments.append(DramSegment(name, address, max(content.size, last - address), "output"))
            if content.size:
                expected[name] = content
            continue
        # Instructions may load the rest of the file's last page, but not the next kind of data.
        following = min((start for start in where.values() if start > address), default=last)
        size = max(content.size, min(page, last - address, following - address))
        if size > content.size:
            reason = f"{path.name} ends after {content.size} bytes, and instructions load {size} from its address on"
            findings.append(
                Finding(UNINITIALISED, reason, space="DRAM", low=address + content.size, high=address + size)
            )
        segments.append(DramSegment(name, address, size, "const"))
        data[name] = np.pad(content, (0, size - content.size))
    image = LaunchImage(insns, tuple(segments), data, dict.fromkeys(REGIONS, 0))
    return image.launch(end.strip("_") or folder.resolve().name), expected, findings


def _used(insns: Raw, config: Config) -> dict[int, tuple[int, int]]:
    """Return, by memory, the first DRAM byte that instructions transfer, and the byte after the last."""
    moved = moves(decode(insns, config), config, dict.fromkeys(REGIONS, 0))
    ends = {}
    for kind in KINDS.values():
        mine = moved.transfers & (moved.memory == kind.memory)
        if mine.any():
            ends[int(kind.memory)] = int(moved.address[mine].min()), int(moved.dram_end[mine].max())
    return ends


def _addresses(path: Path, config: Config) -> dict[str, int]:
    """Return the byte address of each kind of data that a file lists. Raises ProgramError if a line is malformed."""
    addresses: dict[str, int] = {}
    text = bytes(_bytes(path)).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        word, *values = (part.strip() for part in line.split(","))
        word = word.upper()
        if word not in KINDS:
            continue
        try:
            *_, value = [int(text, 16) for text in values]
            if not 0 <= value < 1 << 64:
                raise ValueError
        except ValueError:
            form = "give KIND,PHYSICAL,INDEX or KIND,ADDRESS, in hexadecimal digits"
            raise ProgramError(f"{path}: line {number}", f"is {line!r}", form) from None
        # KIND,PHYSICAL,INDEX gives an index in tiles; KIND,ADDRESS gives an address in bytes.
        addresses[word] = value * config.dram_tile_bytes(KINDS[word].memory) if len(values) > 1 else value
    return addresses


def _bytes(path: Path) -> Array:
    path = regular(path, ProgramError)
    if path.stat().st_size > MAX_BYTES:
        raise ProgramError(path, f"has more than {MAX_BYTES >> 20} MiB")
    return np.frombuffer(path.read_bytes(), np.uint8)


#: The kind of the constants that are loaded into each memory.
CONSTANTS = {Memory.UOP: "UOP", Memory.WGT: "WGT", Memory.INP: "INP", Memory.ACC: "ACC", Memory.ACC_8BIT: "ACC"}


def files(name: str, image: LaunchImage, config: Config, inputs: Mapping[str, Array], end: str) -> dict[str, bytes]:
    """Return the files of a launch by name. Each file name ends with `end`.

    `inputs`: the bytes of input segments, uint8 [1, size], by name. Raises ProgramError, naming the launch, if the
    launch uses extensions or segments that a folder cannot contain.
    """
    if config.alu != "upstream" or config.stages != 3:
        reason = f"has alu={config.alu}, stages={config.stages}; the folder is for machines of upstream's"
        raise ProgramError(f"launch '{name}'", reason, "compile it with alu=upstream and stages=3")
    moved = moves(decode(image.insns, config), config, dict.fromkeys(REGIONS, 0))
    home = _homes(moved, image)
    # A launch can place its data in any order, but in a folder the data of each kind are contiguous. Data therefore get
    # new addresses, and transfers get new indices.
    placed = dict(_placed(image.segments, _kinds(name, moved, image, home)))
    used = tuple(
        replace(segment, address=placed[segment.name][1]) for segment in image.segments if segment.name in placed
    )
    insns = _readdressed(image, config, moved, home, {segment.name: segment.address for segment in used})
    by_file = {f"{CODE}{end}.bin": insns.tobytes()}
    lines: list[str] = []
    # The expected output comes from the simulator.
    contents = _contents(image, used, insns, config, inputs)
    for word, kind in KINDS.items():
        mine = [segment for segment in used if placed[segment.name][0] == word]
        if not mine:
            by_file[f"{kind.file}{end}.bin"] = b""
            continue
        first = mine[0].address
        data = np.zeros(mine[-1].address + mine[-1].size - first, np.uint8)
        for segment in mine:
            data[segment.address - first :][: segment.size] = contents[segment.name]
        by_file[f"{kind.file}{end}.bin"] = data.tobytes()
        lines.append(f"{word},{first:#x},{first // config.dram_tile_bytes(kind.memory):#x}")
    by_file[f"{EXPECTED}_sram{end}.bin"] = by_file[
        f"{EXPECTED}{end}.bin"
    ]  # onera's simulator reads the size of OUT from this line
    last = paged(max(segment.address + segment.size for segment in used))
    lines.append(f"INSN,{last:#x},{last // INSN_BYTES:#x}")
    return by_file | {f"{ADDRESSES}{end}.csv": "".join(f"{line}\n" for line in lines).encode()}


def _homes(moved: Moves, image: LaunchImage) -> Array:
    """Return the index of the segment that each instruction transfers, int64 [n]; -1 for no transfer."""
    starts = np.array([segment.address for segment in image.segments], np.int64)
    order = np.argsort(starts)
    segments = order[np.searchsorted(starts[order], moved.address, side="right") - 1]
    return np.where(moved.transfers, segments, -1)


def _kinds(name: str, moved: Moves, image: LaunchImage, home: Array) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for index, segment in enumerate(image.segments):
        mine = np.flatnonzero(home == index)
        if not mine.size:
            continue
        if segment.kind == "inout":
            reason = f"stores over the data of segment '{segment.name}', for which the folder has no place"
            raise ProgramError(f"launch '{name}'", reason, "store to a segment of its own")
        constant = CONSTANTS.get(Memory(int(moved.memory[mine[0]])), "INP")
        kinds[segment.name] = {"const": constant, "input": "INP"}.get(segment.kind, "OUT")
    return kinds


def _placed(segments: Sequence[DramSegment], kinds: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield (name, (kind, new address)) for each segment that has a kind. The addresses are page-aligned."""
    address = PAGE
    for word in KINDS:
        for segment in segments:
            if kinds.get(segment.name) == word:
                yield segment.name, (word, address)
                address = paged(address + segment.size)


def _readdressed(image: LaunchImage, config: Config, moved: Moves, home: Array, addresses: Mapping[str, int]) -> Raw:
    insns = image.insns.copy()
    layout = config.formats.mem
    rows = np.flatnonzero(home >= 0)
    fields = layout.decode(insns[rows])
    shift = np.array([addresses.get(segment.name, 0) - segment.address for segment in image.segments])
    fields["dram_base"] += shift[home[rows]] // (moved.row_bytes // np.maximum(moved.columns, 1))[rows]
    insns[rows] = layout.encode(fields)
    return insns


def _contents(
    image: LaunchImage, moved: tuple[DramSegment, ...], insns: Raw, config: Config, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the bytes of each segment, uint8 [size]: inputs before the run, and outputs after it."""
    kept = {segment.name for segment in moved}
    data = {name: content for name, content in image.data.items() if name in kept}
    given = {name: content for name, content in inputs.items() if name in kept}
    # As outputs, all other segments return their bytes after the run.
    all_back = tuple(item if item.kind in FILLED else replace(item, kind="output") for item in moved)
    complete = LaunchImage(insns, all_back, data, image.bases)
    dram = complete.dram(given, 1)
    run_passes(insns, config, dram, complete.bases, 1, RunOptions(check=False))
    stored = {segment.name: dram[segment.name][0] for segment in all_back if segment.kind not in CARRIED}
    return {**stored, **data, **{name: content[0] for name, content in given.items()}}
