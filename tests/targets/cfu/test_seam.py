"""A CFU of one's own in Python, function or object, in the place of the model."""

from __future__ import annotations

import pytest

from tests.targets.cfu.asm import A0, A1, A2, A3, A4, NOP, addi, custom, halt, image, li
from tests.targets.cfu.running import run
from tilewright.errors import MachineError
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime.seam import Cfu

WORDS = [*li(A0, 20), *li(A1, -7), custom(3, A2, A0, A1, 5), addi(A3, A2, 0), custom(4, A4, A3, A0), NOP, *halt(A4)]


def test_a_function_sees_operands_and_gives_value_and_time() -> None:
    seen = []

    def execute(funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        seen.append((funct7, funct3, a, b, cycle))
        return a * b - (1 << 32), cycle + latency

    cycles = {}
    for latency in (0, 1, 2, 10):
        seen.clear()
        found = run(image(WORDS), Config(), cfu=execute)
        assert found.exit_code == (20 * -7 * 20) & 0xFFFFFFFF
        assert [row[:4] for row in seen] == [(3, 5, 20, -7), (4, 0, -140, 20)]
        cycles[latency] = found.cycles
    # The first result is used by the next instruction: waiting for it, 1; each cycle more of both instructions, 2.
    assert cycles[1] - cycles[0] == 1
    assert (cycles[2] - cycles[1], cycles[10] - cycles[2]) == (2, 16)


def test_an_object_keeps_state() -> None:
    class Adder:
        total = 0

        def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
            self.total += a
            return self.total, cycle + 1

    adder: Cfu = Adder()
    assert run(image(WORDS), Config(), cfu=adder).exit_code == 40
    # It is the object's own state: a second run goes on with it.
    assert run(image(WORDS), Config(), cfu=adder).exit_code == 40 + 60 + 20


def test_an_answer_before_the_command_is_refused() -> None:
    with pytest.raises(MachineError, match="answers in cycle -1"):
        run(image(WORDS), Config(), cfu=lambda *command: (0, -1))


def test_the_model_written_again_in_python_takes_the_same_time() -> None:
    def execute(funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        return max(-128, min(127, a + b)), cycle + 1

    words = [*li(A0, 300), *([custom(8, A1, A0, A2), addi(A3, A1, 1), custom(8, A4, A3, A2)] * 9), *halt(A4)]
    own, model = run(image(words), Config(), cfu=execute), run(image(words), Config())
    assert (own.exit_code, own.cycles, own.instret) == (model.exit_code, model.cycles, model.instret)
    assert (own.executed == model.executed).all()
