"""Read a folder of raw binaries (form.py) as a program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.files import regular
from tilewright.program.instruction import Raw
from tilewright.program.launch_image import MAX_BYTES, DramSegment, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import UNINITIALISED, Finding
from tilewright.targets import given
from tilewright.targets.users import Loaded
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, REGIONS
from tilewright.targets.vta.isa.stream import decode
from tilewright.targets.vta.raw.form import ADDRESSES, CODE, KINDS, PAGE


def read(folder: Path, config: Config) -> Loaded:
    """Read a folder: a program of one launch for each NAME, and what its outputs must be.

    An instruction may load the rest of a file's last page of DRAM. These bytes are 0 here, and a finding names them.
    Raises ProgramError, naming the file, if one is missing or malformed, or if data have no address.
    """
    ends = sorted(path.name[len(CODE) : -len(".bin")] for path in folder.glob(f"{CODE}*.bin"))
    if not ends:
        raise ProgramError(folder, f"has no {CODE}*.bin", "give a folder that a VTA compiler wrote")
    found = [_launch(folder, end, config) for end in ends]
    program = Program.bare("vta", config, [launch for launch, _, _ in found])
    expected: dict[str, Array] = {}
    findings: list[Finding] = []
    for launch, output, missing in found:
        expected |= given.left_by(program, launch, output)
        findings += (finding.inside(launch.name) for finding in missing)
    return Loaded(program, expected, tuple(findings))


def _launch(folder: Path, end: str, config: Config) -> tuple[Launch, dict[str, Array], list[Finding]]:
    path = folder / f"{CODE}{end}.bin"
    insns = _bytes(path)
    if not insns.size or insns.size % INSN_BYTES:
        raise ProgramError(path, f"has {insns.size} bytes, not a multiple of {INSN_BYTES} above 0", "compile it again")
    insns = insns.reshape(-1, INSN_BYTES)
    listed = folder / f"{ADDRESSES}{end}.csv"
    where, used = _addresses(listed, config), _used(insns, config)
    segments: list[DramSegment] = []
    data: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    findings: list[Finding] = []
    for word, kind in KINDS.items():
        content = _bytes(path) if (path := folder / f"{kind.file}{end}.bin").exists() else np.zeros(0, np.uint8)
        first, last = used.get((kind.opcode, kind.memory), (0, 0))
        address = where.get(word) or first
        if not address or not (content.size or word == "OUT"):
            continue
        if word not in where:
            raise ProgramError(listed, f"has no line for {word}", f"add the line {word},ADDRESS")
        name, page = word.lower(), -(-content.size // PAGE) * PAGE
        if word == "OUT":
            segments.append(DramSegment(name, address, max(content.size, last - address), "output"))
            if content.size:
                expected[name] = content
            continue
        following = min((other for other in where.values() if other > address), default=last)
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


def _used(insns: Raw, config: Config) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the first byte of DRAM that instructions transfer and the one after the last, by opcode and memory."""
    stream, found = decode(insns, config), {}
    moved = stream.mem
    for kind in KINDS.values():
        mine = (stream.opcode == kind.opcode) & (moved.memory_type == kind.memory)
        mine &= (moved.x_size > 0) & (moved.y_size > 0)
        if mine.any():
            ends = moved.dram_base + (moved.y_size - 1) * moved.x_stride + moved.x_size
            tile = config.dram_tile_bytes(kind.memory)
            span = int(moved.dram_base[mine].min()) * tile, int(ends[mine].max()) * tile
            found[int(kind.opcode), int(kind.memory)] = span
    return found


def _addresses(path: Path, config: Config) -> dict[str, int]:
    """Return the byte address of each kind of data that a file lists. Raises ProgramError if a line is malformed."""
    found: dict[str, int] = {}
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
        found[word] = value * config.dram_tile_bytes(KINDS[word].memory) if len(values) > 1 else value
    return found


def _bytes(path: Path) -> Array:
    path = regular(path, ProgramError)
    if path.stat().st_size > MAX_BYTES:
        raise ProgramError(path, f"has more than {MAX_BYTES >> 20} MiB")
    return np.frombuffer(path.read_bytes(), np.uint8)
