"""Run any ELF file, such as firmware without a network, and report the use of its cycles.

For each instruction of the program, the loop counts executions, and lost cycles by cause. A profile adds up these
counts by function, source line, category and cause. Output formats are text, JSON and speedscope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import option
from tilewright.program.program import Program
from tilewright.sim.findings import Finding
from tilewright.targets.cfu.isa import rv32
from tilewright.targets.cfu.isa.custom import CHECK, CUSTOM, Role
from tilewright.targets.cfu.isa.rv32 import BRANCH, CUSTOM0, IMM, JUMP, LOAD, RD, RS1, RS2, SYSTEM, mnemonic
from tilewright.targets.cfu.isa.state import Note
from tilewright.targets.cfu.timing.costs import MODELS
from tilewright.targets.cfu.timing.state import Cause
from tilewright.targets.users import Execution, Sections

from . import elf
from .core import Run, Setup, run
from .elf import Source
from .seam import CfuError, Difference

#: Categories in the order of the report. Every cycle belongs to exactly one category.
ARITHMETIC = "CPU arithmetic"
CONTROL = "CPU control"
MEMORY = "memory"
FETCH = "instruction fetch"
OTHER_CUSTOM = "other custom instructions"
DEVICES = "devices and CSRs"
CATEGORIES = (ARITHMETIC, CONTROL, MEMORY, FETCH, *(str(role) for role in Role), OTHER_CUSTOM, DEVICES)
#: Causes whose cycles always belong to one category. Cycles of other causes belong to the instruction's category.
OF_CAUSE = {
    Cause.LOAD_USE: MEMORY,
    Cause.RESULT_USE: ARITHMETIC,
    Cause.FETCH: FETCH,
    Cause.DEVICE: DEVICES,
    Cause.SYSTEM: DEVICES,
}
TOP = 12  # a table shows at most this number of rows
#: The default limit of instructions of an ELF file. A program that reaches it, after some seconds, is probably endless.
EXEC_INSTRUCTIONS = 1_000_000_000


class Row(NamedTuple):
    """A function or source line in a profile: cycles and instructions (without callees), and cycles by category."""

    name: str
    cycles: int
    instructions: int
    categories: dict[str, int]


@dataclass(frozen=True)
class Profile:
    """The profile of a run. Rows are in descending order of cycles.

    `misses` counts the lines fetched into each L1 cache. `stacks` has the cycles for each (function, shown line, file,
    line number), in the order of addresses.
    """

    cycles: int
    instructions: int
    categories: dict[str, int]
    causes: dict[str, int]
    misses: dict[str, int]
    mix: dict[str, int]
    functions: tuple[Row, ...]
    lines: tuple[Row, ...]
    stacks: dict[tuple[str, str, str, int], int]

    def to_json(self) -> dict[str, Any]:
        rows = {key: [row._asdict() for row in getattr(self, key)] for key in ("functions", "lines")}
        values = asdict(self) | rows
        del values["stacks"]
        return values


def profile(run: Run, source: Source) -> Profile:
    """Return the profile of a run. In each table, the cycles of all rows add up to the cycles of the run."""
    m = run.machine
    used = np.flatnonzero((run.executed > 0) | m.lost.any(axis=1))
    executed = run.executed[used]
    lost = m.lost[used].sum(axis=0)
    times = m.times[used].sum(axis=0)
    spent = np.concatenate([m.lost[used], executed[:, None]], axis=1)
    category = _categories(m.code, used)
    functions = []
    lines = []
    mix = Counter[str]()
    stacks: dict[tuple[str, str, str, int], int] = {}
    for index, count, cycles in zip(used.tolist(), executed.tolist(), spent.sum(axis=1).tolist(), strict=True):
        address = m.base + 4 * index
        function = source.function(address)
        place = source.place(address)
        functions.append(function)
        lines.append(str(place) if place.file else f"? in {function}")
        stack = function, lines[-1], place.file, place.line
        stacks[stack] = stacks.get(stack, 0) + cycles
        mix[mnemonic(int(m.code[index]))] += count
    total = _rows(["all"] * len(used), spent, category)
    return Profile(
        cycles=int(spent.sum()),
        instructions=int(executed.sum()),
        categories=total[0].categories if total else {},  # no rows if the first instruction traps
        causes={cause.name.lower(): int(lost[cause]) for cause in Cause if lost[cause]},
        misses={"instruction cache": int(times[Cause.FETCH]), "data cache": int(times[Cause.LOAD_MISS])},
        mix=dict(mix.most_common()),
        functions=_rows(functions, spent, category),
        lines=_rows(lines, spent, category),
        stacks=stacks,
    )


def _rows(names: Sequence[str], spent: Array, category: Array) -> tuple[Row, ...]:
    """Return a Row for each name, with the sums over all instructions that have this name.

    `names` has the function or line of each of n instructions. `spent` (cycles) and `category` (indices into
    CATEGORIES) are int64 [n, causes + 1]: a column for each cause of lost cycles, and a last column for the execution.
    """
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    row = np.array([index[name] for name in names], np.int64)
    cycles = np.zeros((len(index), len(CATEGORIES)), np.int64)
    instructions = np.zeros(len(index), np.int64)
    np.add.at(cycles, (row[:, None], category), spent)
    np.add.at(instructions, row, spent[:, -1])
    rows = []
    for name, by_category, count in zip(index, cycles.tolist(), instructions.tolist(), strict=True):
        rows.append(
            Row(name, sum(by_category), count, {key: n for key, n in zip(CATEGORIES, by_category, strict=True) if n})
        )
    return tuple(sorted(rows, key=lambda row: (-row.cycles, row.name)))


def _categories(code: Array, used: Array) -> Array:
    """Return the category of the cycles of each instruction in `code[used]`, by cause."""
    of_instruction = np.array([CATEGORIES.index(_category(code, int(index))) for index in used], np.int64)
    categories = np.repeat(of_instruction[:, None], len(Cause) + 1, axis=1)
    for cause, name in OF_CAUSE.items():
        categories[:, cause] = CATEGORIES.index(name)
    for row, index in enumerate(used.tolist()):
        # A wait for an answer of the CFU has the category of the custom instruction that gives this answer.
        for before in (index - 1, index - 2):
            if before >= 0 and int(code[before]) & 255 == CUSTOM0:
                categories[row, Cause.CFU_USE] = CATEGORIES.index(_category(code, before))
                break
    return categories


def _category(code: Array, index: int) -> str:
    insn = int(code[index])
    op = insn & 255
    if op < LOAD:
        return ARITHMETIC
    if op < BRANCH:
        return MEMORY
    if op < SYSTEM:
        before = int(code[index - 1]) if index else 0
        # A branch that tests the answer of check_GEMM waits for the array.
        polls = op < JUMP and before & 255 == CUSTOM0 and before >> IMM >> 3 == CHECK
        tested = before >> RD & 255 in (insn >> RS1 & 255, insn >> RS2 & 255)
        return str(Role.WAIT) if polls and tested else CONTROL
    if op != CUSTOM0:
        return DEVICES
    custom = CUSTOM.get(insn >> IMM >> 3)
    return str(custom.role) if custom else OTHER_CUSTOM


def report(profile: Profile) -> Iterator[str]:
    yield f"{profile.cycles:,} cycles, {profile.instructions:,} instructions"
    yield from _shares("where the cycles go", profile.categories, profile.cycles, len(profile.categories))
    yield from _shares("waits by cause", profile.causes, profile.cycles, len(profile.causes))
    for title, rows in (("functions", profile.functions), ("source lines", profile.lines)):
        main = {row.name: max(row.categories, key=lambda key: row.categories[key], default="") for row in rows}
        yield from _shares(title, {f"{row.name}  ({main[row.name]})": row.cycles for row in rows}, profile.cycles)
    yield from _shares("instructions", profile.mix, profile.instructions)
    yield ""
    yield "misses: " + ", ".join(f"{name} {count:,}" for name, count in profile.misses.items())


def _shares(title: str, values: Mapping[str, int], total: int, top: int = TOP) -> Iterator[str]:
    yield ""
    yield title
    ranked = sorted(values.items(), key=lambda item: -item[1])
    for name, value in ranked[:top]:
        yield f"  {100 * value / max(1, total):5.1f} %  {value:>15,}  {name}"
    if ranked[top:]:
        yield f"           {sum(value for _, value in ranked[top:]):>15,}  {len(ranked) - top} more"


def speedscope(profile: Profile, name: str) -> dict[str, Any]:
    """Return JSON values for speedscope.app: the functions and their source lines, weighted by cycles.

    The schema is https://www.speedscope.app/file-format-schema.json. The profile is sampled, with one sample per stack
    (a function and a line). The schema has no unit for cycles.
    """
    frames: dict[tuple[str, str, int], int] = {}
    weights: dict[tuple[int, int], int] = {}
    for (function, line, file, number), cycles in profile.stacks.items():
        outer = frames.setdefault((function, "", 0), len(frames))
        inner = frames.setdefault((line, file, number), len(frames))
        weights[outer, inner] = weights.get((outer, inner), 0) + cycles
    shown = {
        "type": "sampled",
        "name": f"{name}, cycles",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights.values()),
        "samples": [list(stack) for stack in weights],
        "weights": list(weights.values()),
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "tilewright",
        "activeProfileIndex": 0,
        "shared": {
            "frames": [{"name": name, **({"file": file, "line": line} if file else {})} for name, file, line in frames]
        },
        "profiles": [shown],
    }


def execute(path: str | Path, setup: Setup) -> Execution:
    """Run an ELF file and return a report. The run fails at a trap, a nonzero exit code or a misuse of the CFU.

    Raises MachineError if the CFU breaks the rules of its ports.
    """
    image = elf.load(path)
    source = Source(image)
    try:
        result = run(image, setup)
    except CfuError as error:
        part = next(part for part in image.segments if part.address <= image.entry < part.address + part.size)
        words = np.frombuffer(part.data[: len(part.data) & -4], "<u4")
        raise error.located(words, part.address, source.where) from None
    table = profile(result, source)
    problems: list[Note | Difference] = [*result.misuses, *filter(None, [result.undefined])]
    findings = [
        {"kind": problem.kind, "message": problem.message, **_place(problem.pc, source)} | problem._asdict()
        for problem in problems
    ]
    data = {
        "file": str(path),
        "target": "cfu",
        "config": setup.config.to_dict(),
        "timing": setup.timing,
        "evidence": MODELS[setup.timing].source.evidence,
        "exit_code": result.exit_code,
        "trap": _trap(result, source),
        "cycles": result.cycles,
        "instructions": result.instret,
        "microseconds": result.cycles / setup.config.clock_mhz,
        "uart": result.text,
        "findings": findings,
        "regions": [region._asdict() for region in result.regions],
        "profile": table.to_json(),
    }

    def sections() -> Sections:
        from . import launch

        places = [
            f"{finding['message']} at {finding['function']} ({finding['file']}:{finding['line']})"
            for finding in findings
        ]
        hazards = tuple(Finding("cfu_misuse", text) for text in places)
        divided = {
            key: {row.name: row.cycles for row in rows}
            for key, rows in (("functions", table.functions), ("source lines", table.lines))
        }
        return launch.sections(result, hazards, divided)

    text = "\n".join([*_text(result, source, data, setup.config.clock_mhz), *report(table)])
    passed = result.exit_code == 0 and not findings
    program = Program.bare("cfu", setup.config, ())
    chart = speedscope(table, Path(path).name)
    return Execution(text, data, passed, chart, program, setup.timing, sections)


def _text(result: Run, source: Source, data: Mapping[str, Any], clock_mhz: int) -> Iterator[str]:
    if result.text:
        yield from (result.text.rstrip("\n"), "")
    yield f"trap: {data['trap']['message']}" if data["trap"] else f"exit code {result.exit_code}"
    for note in result.misuses:
        yield f"finding: {source.where(note.pc)} {note.message} ({note.times:,} times)"
    if undefined := result.undefined:
        yield f"finding: {source.where(undefined.pc)} {undefined.message}"
    yield f"{data['microseconds']:,.1f} us at {clock_mhz} MHz; timing {data['timing']}: {data['evidence']}"


def _trap(result: Run, source: Source) -> dict[str, Any] | None:
    trap = result.trap
    m = result.machine
    if trap is None:
        return None
    index = (trap.pc - m.base) >> 2
    insn = rv32.text(int(m.code[index]), trap.pc) if 0 <= index < len(m.code) else ""
    message = f"{trap.kind} at {source.where(trap.pc)}" + (f": {insn}" if insn else "")
    if trap.kind.startswith("limit"):
        message += "; if it should run longer, " + option("give --limit N", "pass a larger `limit`")
    if "access" in trap.kind or "misaligned" in trap.kind:
        message += f", address {trap.value:#x}"
    return {"kind": trap.kind, "message": message, "cycle": trap.cycle, "instruction": insn, **_place(trap.pc, source)}


def _place(pc: int, source: Source) -> dict[str, Any]:
    place = source.place(pc)
    return {"pc": pc, "function": source.function(pc), "file": place.file, "line": place.line}
