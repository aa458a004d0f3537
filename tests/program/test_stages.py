"""Stages of a program as text: lines under lines, tables, and steps of the host."""

from __future__ import annotations

from tilewright.program import stages
from tilewright.program.program import HostStep, Launch, Program
from tilewright.program.stages import Stage, Table


def test_lines_stand_under_their_stage_and_a_blank_line_after_each_table() -> None:
    table = Table("sizes", ("layer", "bytes", "of"), [("conv2d_0", "7", "a"), ("fc", "1234567", "")])
    plan = Stage("a: vta", ["tiles of 4", Stage("12 cycles", ["bound 3"]), "end"])
    assert stages.text([table, plan, Table("none here", ("x",), [])]) == (
        "sizes\n"
        "  layer     bytes    of\n"
        "  conv2d_0  7        a\n"
        "  fc        1234567\n"
        "\n"
        "a: vta\n"
        "  tiles of 4\n"
        "  12 cycles\n"
        "    bound 3\n"
        "  end\n"
        "none here\n"
        "  none\n"
        "\n"
    )


def test_a_step_of_the_host_has_its_reason() -> None:
    steps = (Launch("a", ("a",), {}, {}), HostStep("b", "no softmax unit"))
    program = Program("t", {}, "", "tflm", None, steps)
    assert stages.by_step(program, lambda launch: Stage(f"{launch.name}: t")) == [
        Stage("a: t"),
        Stage("b: host, no softmax unit"),
    ]
