"""Plant a fault in a compiled network, for the tutorial of the debugger (docs/debug.md) and its tests.

    python examples/faults.py wrong-base wrong.twp
    tilewright debug wrong.twp -i examples/digits/samples.npz

A fault replaces one word of an instruction, or of a micro-op, in the text that `disasm` prints.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import tilewright
from tilewright import targets
from tilewright.program import file
from tilewright.program.program import Launch, Program

MODEL = Path(__file__).parent / "digits" / "digits.tflite"
#: The array of a launch that each section of the text gives.
ARRAYS = {".insn": "insns", ".uop": "dram.uop"}


class Fault(NamedTuple):
    """A fault in line `line` (from 0) of a section of a launch. `guilty`: the instruction that does wrong.

    In the text of a BM1684X, whose two queues are listed one after the other, `line` is the number of a command.
    """

    launch: int
    line: int
    old: str
    new: str
    guilty: int
    alu: str = "upstream"
    section: str = ".insn"
    target: str = "vta"


FAULTS = {
    "wrong-base": Fault(0, 4, "dram_base=534", "dram_base=535", 4),
    "wrong-tile": Fault(0, 5, "sram_base=256", "sram_base=255", 5),
    "short-load": Fault(0, 4, "x_size=22", "x_size=21", 4),
    "missing-push": Fault(0, 4, " push:compute", "", 4),
    "missing-pop": Fault(0, 9, " pop:compute", "", 9),
    "deadlock": Fault(0, 8, " push:store", "", 8),
    "early-finish": Fault(0, 26, " pop:store", "", 26),
    "wrong-shift": Fault(0, 16, "imm=8", "imm=7", 16),
    "wrong-micro-op": Fault(1, 5, "src=", "src=1", 12, section=".uop"),
    "wrong-source-stride": Fault(1, 13, "src_factor_out=8", "src_factor_out=7", 13),
    "wrong-result-stride": Fault(1, 10, "dst_factor_out=8", "dst_factor_out=9", 10),
    "overlap": Fault(0, 5, "sram_base=256", "sram_base=140", 5),
    "missing-reset": Fault(0, 6, "reset_reg=1 ", "", 6),
    "wrong-weights": Fault(1, 4, "dram_base=19", "dram_base=20", 4),
    "wrong-store": Fault(0, 11, "dram_base=790", "dram_base=791", 11),
    "short-store": Fault(0, 13, "x_size=20", "x_size=19", 13),
    "short-loop": Fault(0, 12, "iter_out=20", "iter_out=19", 12),
    "short-list": Fault(1, 20, "uop_end=15", "uop_end=14", 20),
    "wrong-weight-stride": Fault(1, 20, "wgt_factor_out=3", "wgt_factor_out=2", 20),
    "out-of-range": Fault(0, 5, "sram_base=256", "sram_base=2040", 5),
    "wrong-clip": Fault(0, 90, "imm=127", "imm=-10", 90, "rounding"),
    "wrong-zero-point": Fault(0, 88, "imm=-19", "imm=-18", 88, "rounding"),
    "wrong-bias": Fault(0, 71, "dram_base=768", "dram_base=384", 71, "rounding"),
    "wrong-operation": Fault(0, 11, "max", "min", 11, "rounding"),
}


def tpu(number: int, old: str, new: str) -> Fault:
    """Return a fault in a command of the BM1684X."""
    return Fault(0, number, old, new, number, "", "", "bm1684x")


FAULTS |= {
    "tpu-wrong-stride": tpu(6, "opd0_h_str=10", "opd0_h_str=9"),
    "tpu-wrong-weights": tpu(22, "opd1_addr=1600", "opd1_addr=1664"),
    "tpu-overlap": tpu(5, "dst_start_addr_l32=134219520", "dst_start_addr_l32=134219456"),
    "tpu-wrong-shift": tpu(16, "opd2_addr=249", "opd2_addr=248"),
    "tpu-missing-wait": tpu(10, "cmd_id_dep=5", "cmd_id_dep=4"),
    "tpu-short-copy": tpu(17, "res0_h=7", "res0_h=6"),
    "tpu-wrong-operand": tpu(29, "opd0_addr=256", "opd0_addr=128"),
    "tpu-wrong-store": tpu(47, "src_start_addr_l32=134218368", "src_start_addr_l32=134218304"),
}


def compiled(alu: str, target: str = "vta") -> Program:
    """Compile the network for VTA with one of its ALUs, or for another target."""
    return tilewright.compile(MODEL, target, overrides={"alu": alu} if target == "vta" else {})


def planted(program: Program, fault: Fault) -> Program:
    """Return the program with the fault, its network included."""
    machine = targets.get(fault.target)
    lines = machine.disassemble(program).splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(".launch")]
    if fault.section:
        at = lines.index(fault.section, starts[fault.launch]) + 1 + fault.line
    else:
        at = next(at for at, line in enumerate(lines) if f"  # #{fault.line} " in line)
    assert fault.old in lines[at], lines[at]
    lines[at] = lines[at].replace(fault.old, fault.new, 1)
    wrong = machine.assemble("\n".join(lines), machine.config(program.config, {})).launches[fault.launch]
    name = ARRAYS.get(fault.section, "insns")
    broken = program.launches[fault.launch]
    changed = replace(broken, arrays={**broken.arrays, name: wrong.arrays[name]})
    return replace(program, steps=tuple(changed if step is broken else step for step in program.steps))


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in FAULTS:
        sys.exit(f"usage: python examples/faults.py FAULT FILE.twp\nfaults: {', '.join(FAULTS)}")
    fault = FAULTS[sys.argv[1]]
    program = planted(compiled(fault.alu, fault.target), fault)
    file.save(program, Path(sys.argv[2]))
    launch: Launch = program.launches[fault.launch]
    print(f"{sys.argv[2]}: one fault in launch {launch.name}")


if __name__ == "__main__":
    main()
