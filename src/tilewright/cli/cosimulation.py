"""The comparison of a program with RTL, for the commands `cosim` and `run`, and the options of the comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import inputs, options
from tilewright.cli.options import refuse, say, taken
from tilewright.errors import InputError

if TYPE_CHECKING:
    from tilewright.conform import Wave
    from tilewright.hdl.verilog import Rtl
    from tilewright.model.inputs import Samples
    from tilewright.program.program import Program
    from tilewright.targets.gateware import CosimCase

ENGINE = "verilator"
COUNT = click.IntRange(1)


@dataclass(frozen=True)
class UserVerilog:
    """The options for the RTL that a program is compared with: the user's Verilog, or an engine for our gateware."""

    verilog: tuple[str, ...] = taken(
        "--verilog", multiple=True, metavar="FILE.v|DIR", help="Compare with your own Verilog of the machine."
    )
    top: str | None = taken("--top", metavar="NAME", help="The top module of --verilog.")
    engine: str = taken("--engine", metavar="ENGINE", default=ENGINE, show_default=True, help="verilator or cxxrtl.")
    memory_seed: int | None = taken(
        "--memory-seed", type=COUNT, metavar="SEED", help="Delay its memory at random, and compare only bytes."
    )
    max_cycles: int | None = taken("--max-cycles", type=COUNT, metavar="N", help="Stop a launch on it after N cycles.")

    def rtl(self, timing: str | None = None) -> Rtl:
        """Return the RTL. The cycles of the user's Verilog are compared with the timing model `timing`.

        Raises InputError if a file cannot be read, or if an option is missing.
        """
        if not self.verilog:
            lacking = {"--top": self.top, "--memory-seed": self.memory_seed, "--max-cycles": self.max_cycles}
            refuse(lacking | {"--timing": timing}, "needs --verilog")
            return self.engine
        if not self.top:
            raise InputError("--verilog", "needs the name of the top module", "add --top NAME")
        refuse({"--engine": self.engine != ENGINE}, "is for our own gateware: Verilator runs your Verilog")
        from tilewright.hdl.verilog import UserRtl, texts

        return UserRtl(texts(self.verilog), self.top, timing or "", self.memory_seed or 0, self.max_cycles or 0)


user_verilog = options.bundle("user_verilog", UserVerilog)


@dataclass(frozen=True)
class Comparison:
    """The launches of a program that were compared with RTL, and sentences about what was left out."""

    target: str
    launches: list[CosimCase]
    left_out: list[str]
    differ: int

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "launches": [asdict(case) for case in self.launches], "left_out": self.left_out}

    def show(self, *written: str) -> None:
        """Print the lines that follow the lines of the launches. `written` are the paths of files."""
        for line in (f"{len(self.launches)} launches, {self.differ} differ", *written, *self.left_out):
            say(line)


def compared(
    program: Program, samples: Samples | None, rtl: Rtl, as_json: bool, wave: Wave | None = None
) -> Comparison:
    """Run a program on RTL and on the simulator. Without `as_json`, print the outcome of each launch."""
    from tilewright.conform import cosim

    cases = _shown(program, cosim(program, samples.values if samples else None, rtl, wave), as_json)
    differ = sum(bool(case.differences) for case in cases)
    return Comparison(program.target, cases, inputs.left_out(program, samples), differ)


def _shown(program: Program, cases: Iterable[CosimCase], as_json: bool) -> list[CosimCase]:
    compared: list[CosimCase] = []
    names = [*(launch.name for launch in program.launches), ""]
    with options.progress_bar() as bar:
        if bar:
            bar(0, len(names) - 1, f"{names[0]}: the gateware is compiled first")
        for case in cases:
            compared.append(case)
            if bar:
                bar(len(compared), len(names) - 1, names[len(compared)])
            elif not as_json:
                _tell(case)
    # Lines of text would interrupt the bar, so they follow it.
    if bar and not as_json:
        for case in compared:
            _tell(case)
    return compared


def _tell(case: CosimCase) -> None:
    same = "same" if not case.differences else f"{case.mismatched_bytes} bytes differ"
    say(f"{case.name}: {case.instructions} instructions, {case.rtl_cycles} cycles, {same}")
    for difference in case.differences:
        say(f"  {difference}")
