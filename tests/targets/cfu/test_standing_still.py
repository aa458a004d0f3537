"""A user's CFU that stands still is not clocked, and no answer or cycle shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.targets.cfu.own import PORTS
from tilewright.targets.cfu.runtime import rtl
from tilewright.targets.cfu.runtime.rtl import RtlCfu, of_verilog
from tilewright.targets.cfu.runtime.seam import CfuError

pytestmark = pytest.mark.gxx
#: Answers with `answer` in the cycle after a command, which is taken in a cycle in which `taken` is 1.
ANSWERS = """
    reg pending = 0; reg [31:0] result = 0; wire taken = cmd_valid & ~pending;
    assign cmd_ready = ~pending; assign rsp_valid = pending; assign rsp_payload_outputs_0 = result;
    always @(posedge clk) if (reset) pending <= 0; else begin pending <= taken; if (taken) result <= answer; end
"""
COUNTER = "reg [31:0] n = 0; wire [31:0] answer = n; always @(posedge clk) n <= reset ? 0 : n + 1;"
COUNTDOWN = """reg [31:0] left = 0; reg [31:0] done = 0; wire [31:0] answer = done << 16 | left;
    always @(posedge clk) if (taken) left <= 300; else if (left != 0) begin left <= left - 1; done <= done + 1; end"""
#: Only an element of a memory changes from cycle to cycle.
IN_MEMORY = """reg [31:0] m [0:255]; wire [31:0] answer = m[cmd_payload_inputs_0[7:0]]; initial m[7] = 0;
    always @(posedge clk) m[7] <= m[7] + 1;"""
#: A memory that shifts all of its elements, of which only one differs from the others.
SHIFTS = """reg [7:0] m [0:31]; wire [31:0] answer = m[5]; integer i;
    initial for (i = 0; i < 32; i = i + 1) m[i] = i == 9;
    always @(posedge clk) begin for (i = 1; i < 32; i = i + 1) m[i] <= m[i - 1]; m[0] <= m[31]; end"""
FALLING = "reg [31:0] n = 0; wire [31:0] answer = n; always @(negedge clk) n <= n + 1;"
GATED = """reg on = 0; wire slow = clk & on; reg [31:0] n = 0; wire [31:0] answer = n;
    always @(negedge clk) on <= ~on; always @(posedge slow) n <= n + 1;"""
NOISE = "reg [31:0] n = 0; wire [31:0] answer = n == 42; always @(posedge clk) n <= $urandom;"
PRINTS = 'wire [31:0] answer = 3; always @(posedge clk) if (cmd_payload_inputs_1 == 1 << 20) $display("never");'
#: A whole memory is copied, which `Tracked` does not know.
WHOLE = """logic [31:0] m [0:63], copy [0:63]; wire [31:0] answer = copy[3]; initial m[3] = 0;
    always_ff @(posedge clk) begin copy <= m; m[3] <= m[3] + (m[3] != 50); end"""
IDLE = "wire [31:0] answer = cmd_payload_inputs_0 + cmd_payload_inputs_1;"
#: Bodies, and whether they stand still in the end.
BODIES = {
    "counter": (COUNTER, False), "countdown": (COUNTDOWN, True), "in memory": (IN_MEMORY, False),
    "shifts": (SHIFTS, False),     "falling": (FALLING, False), "gated": (GATED, False), "noise": (NOISE, False),
    "prints": (PRINTS, False), "whole": (WHOLE, True), "idle": (IDLE, True),
}  # fmt: skip


def answers(unit: RtlCfu, waits: list[int]) -> list[tuple[int, int]]:
    """The answers and their cycles; `waits` are the cycles after each."""
    cycle, found = 5, []
    for wait in waits:
        found.append(unit.execute(1, 0, wait % 256, 3, cycle))
        cycle = found[-1][1] + 1 + wait
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("shifts", "noise", "whole"))) for name in BODIES]
)
def test_answers_are_those_of_a_cfu_that_is_always_clocked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, stands = BODIES[name]
    path = tmp_path / "own.sv"
    path.write_text(f"{PORTS}{body}{ANSWERS}endmodule")
    make, rng = of_verilog([path]), np.random.default_rng(7)
    waits = [*rng.integers(0, 9, 40).tolist(), 299, 300, 301, 50_000, 50_000, 0]
    first = make()
    found = answers(first, waits)
    clocked, cycles = first.clocked, first.cycle
    monkeypatch.setattr(RtlCfu, "skips", False)
    second = make()
    assert found == answers(second, waits)
    assert second.clocked == second.cycle == cycles
    # It is clocked until it stands still. If it never does, or if it might have other state, it is always clocked.
    assert (clocked < 5000) if stands else (clocked == cycles)


def test_a_counter_counts_every_cycle(tmp_path: Path) -> None:
    path = tmp_path / "own.sv"
    for body in (COUNTER, IN_MEMORY, FALLING):
        path.write_text(f"{PORTS}{body}{ANSWERS}endmodule")
        unit = of_verilog([path])()
        counts = [unit.execute(1, 0, 7, 0, cycle)[0] for cycle in (10, 1010, 40_000)]
        assert [later - counts[0] for later in counts] == [0, 1000, 39_990], body


def test_messages_have_the_cycle_of_a_cfu_that_stood_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtl, "LIMIT", 100)
    path = tmp_path / "own.sv"
    path.write_text(f"{PORTS} assign cmd_ready = 1; assign rsp_valid = 0; assign rsp_payload_outputs_0 = 0; endmodule")
    with pytest.raises(CfuError, match="command of cycle 1,000,000: rsp_valid is 0 for 100 cycles"):
        of_verilog([path])().execute(1, 0, 0, 0, 1_000_000)
