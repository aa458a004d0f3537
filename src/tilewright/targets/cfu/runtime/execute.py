"""Runs an ELF file as it is: firmware of one's own, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.targets.abilities import Execution
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.rv32 import text
from tilewright.targets.cfu.timing.costs import MODELS

from . import elf
from .core import MAX_INSTRUCTIONS, Run, run
from .profile import profile, speedscope
from .profile import text as profile_text
from .seam import Cfu
from .source import Source


def execute(
    path: str | Path, config: Config, timing: str, limit: int | None = None, cfu: Cfu | None = None
) -> Execution:
    """Run `path` to its end and report. A trap, an exit code other than 0 or a misuse of the CFU is a finding."""
    image = elf.load(path)
    result = run(image, config, timing=timing, max_instructions=limit or MAX_INSTRUCTIONS, cfu=cfu)
    source = Source(image)
    found = [
        {"kind": note.kind, "message": note.message, **_place(note.pc, source), **_only(note)}
        for note in result.misuses
    ]
    trap = _trap(result, source)
    table = profile(result, source)
    data = {
        "file": str(path),
        "target": "cfu",
        "config": config.to_dict(),
        "timing": timing,
        "evidence": MODELS[timing].source.evidence,
        "exit_code": result.exit_code,
        "trap": trap,
        "cycles": result.cycles,
        "instructions": result.instret,
        "microseconds": result.cycles / config.clock_mhz,
        "uart": result.text,
        "findings": found,
        "regions": [region._asdict() for region in result.regions],
        "profile": table.to_json(),
    }
    shown = [
        *([result.text.rstrip("\n"), ""] if result.text else []),
        *([f"trap: {trap['message']}"] if trap else [f"exit code {result.exit_code}"]),
        *(f"finding: {source.where(note.pc)} {note.message} ({note.times:,} times)" for note in result.misuses),
        f"{result.cycles / config.clock_mhz:,.1f} us at {config.clock_mhz} MHz; timing {timing}: {data['evidence']}",
        *profile_text(table),
    ]
    passed = result.exit_code == 0 and not found
    return Execution("\n".join(shown), data, passed, speedscope(table, Path(path).name))


def _trap(result: Run, source: Source) -> dict[str, Any] | None:
    trap, m = result.trap, result.machine
    if trap is None:
        return None
    index = (trap.pc - m.base) >> 2
    insn = text(int(m.code[index]), trap.pc) if 0 <= index < len(m.code) else ""
    message = f"{trap.kind} at {source.where(trap.pc)}" + (f": {insn}" if insn else "")
    if "access" in trap.kind or "misaligned" in trap.kind:
        message += f", address {trap.value:#x}"
    return {"kind": trap.kind, "message": message, "cycle": trap.cycle, "instruction": insn, **_place(trap.pc, source)}


def _place(pc: int, source: Source) -> dict[str, Any]:
    place = source.place(pc)
    return {"pc": pc, "function": source.function(pc), "file": place.file, "line": place.line}


def _only(note: Any) -> dict[str, Any]:
    return {"cycle": note.cycle, "times": note.times, "region": note.region, "detail": note.detail}
