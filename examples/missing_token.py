"""One dependency bit is cleared in a compiled program; the check says which instructions race, where and why.

VTA's units run apart and wait for each other only by tokens. A program that lacks one may give right results on
one machine and wrong ones on another. Here the bit with which the compute unit waits for a load is cleared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import targets
from tilewright.array import Array
from tilewright.graph.reference import check_inputs
from tilewright.program.program import Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode
from tilewright.targets.vta.isa.stream import decode

DIGITS = Path(__file__).resolve().parent / "digits"
POP_PREV = 1 << 3  # bit 3 of every instruction: wait for a token of the unit before
LAYER, ORDERS, SHOWN = "conv2d_3", 20, 3


def without_token(program: Program, layer: str) -> Program:
    """The same program, but the last GEMM of `layer` that waits for a load does not."""
    (launch,) = (launch for launch in program.launches if launch.name == layer)
    insns: Array = np.array(launch.arrays["insns"])
    stream = decode(insns, Config.from_json(program.config))
    victim = np.flatnonzero((stream.opcode == Opcode.GEMM) & (stream.pop_prev == 1))[-1]
    insns[victim, 0] &= ~np.uint8(POP_PREV)
    print(f"cleared pop_prev of instruction #{victim} of {layer}: it no longer waits for its load\n")
    changed = replace(launch, arrays={**launch.arrays, "insns": insns})
    return replace(program, steps=tuple(changed if step is launch else step for step in program.steps))


def outcomes(program: Program, layer: str, inputs: Array) -> int:
    """How many different results the launch of `layer` has over random legal orders of its instructions."""
    assert program.graph is not None
    target = targets.get(program.target)
    values = check_inputs(program.graph, inputs)
    for step in program.steps:
        if isinstance(step, Launch) and step.name == layer:
            options = [RunOptions(check=False, order="random", seed=seed) for seed in range(ORDERS)]
            results = [target.launch(program, step, values, option).values for option in options]
            return len({b"".join(array.tobytes() for array in result.values()) for result in results})
        if isinstance(step, Launch):
            values.update(target.launch(program, step, values, RunOptions()).values)
        else:
            values.update(tw.run_node(program.graph, step.node, values, program.rounding))
    raise ValueError(f"no launch is called {layer}")


def main() -> None:
    program = tw.compile(DIGITS / "digits.tflite", target="vta")
    broken = without_token(program, LAYER)
    findings = list(targets.get("vta").check(broken))
    for finding in findings[:SHOWN]:
        print(f"{finding}\n")
    print(f"{len(findings)} findings in all")
    with np.load(DIGITS / "samples.npz") as archive:
        image = archive["inputs"][:1]
    print(f"\nresults over {ORDERS} legal orders of its instructions:")
    print(f"  as compiled       {outcomes(program, LAYER, image)}")
    print(f"  without the token {outcomes(broken, LAYER, image)}")


if __name__ == "__main__":
    main()
