"""A session on a network: movement, questions, values, and the errors of wrong commands."""

from __future__ import annotations

import numpy as np
import pytest

from tests.debug.planted import right, sample, wrong
from tilewright.debug.session import Session
from tilewright.debug.stops import Condition
from tilewright.debug.verbs import VERBS, obey
from tilewright.errors import InputError, MachineError
from tilewright.run import run
from tilewright.targets.vta.isa.stream import image_of


@pytest.fixture(scope="module")
def opened() -> Session:
    session: Session = Session(right(), sample())
    return session


@pytest.fixture
def session(opened: Session) -> Session:
    for stop in opened.stops:
        opened.delete(stop.number)
    opened.launch("0")
    return opened


def test_numbers_are_those_of_the_listing(session: Session) -> None:
    from tilewright import targets

    text = targets.get("vta").disassemble(right()).splitlines()
    code = text[text.index(".insn") + 1 :]
    for step in (0, 8, 26):
        assert session.to(step).step == step
        assert session.where().text == code[step]


def test_steps_go_both_ways(session: Session) -> None:
    assert session.step(9).step == 9
    after = session.read("acc[0:22]").copy()
    assert after.any()
    assert session.back().step == 8
    assert not session.read("acc[0:22]").any()
    session.step()
    np.testing.assert_array_equal(session.read("acc[0:22]"), after)
    assert session.back(100).position == 0
    assert session.end().step is None


def test_tensors_have_the_values_of_a_run(session: Session) -> None:
    result = run(right(), sample())
    session.launch(session.launches[-1])
    session.end()
    program = right()
    assert program.graph is not None
    name = session.walk.tensors[-1]
    assert session.walk.placed(name).node == "fully_connected_8"
    golden = session._launches.golden[name][0]
    np.testing.assert_array_equal(session.read(f"'{name}'" if " " in name else "t1"), golden)
    assert result.matches_reference
    assert session.differs() is None
    assert session.suspects() == []


def test_inputs_lie_where_they_are_placed(session: Session) -> None:
    (name,) = (name for name in session.walk.tensors if not session.walk.placed(name).node)
    np.testing.assert_array_equal(session.read("t0"), sample()[name][0])
    places = session.walk.placed(name).byte
    assert len(np.unique(places)) == places.size


def test_who_writes_and_reads(session: Session) -> None:
    assert session.writer("acc[3]") is None
    session.to(9)
    found = session.writer("acc[3]")
    assert found is not None and found.step == 8
    assert [access.step for access in session.writers("acc[3]")] == [1, 8]
    reader = session.reader("out[3]")
    assert reader is not None and reader.step == 9
    assert [change.values.tolist() for change in session.changes("acc[3,0,2]")] == [0, session.read("acc[3,0,2]")]


def test_breaks_and_watches(session: Session) -> None:
    session.break_at(12)
    session.break_at('op == "alu" and acc[0, 0, 0] != 99999')
    stop = session.watch("dram.acc[0:16]")
    assert session.run().position == 10  # after the store
    session.delete(stop.number)
    assert session.run().step == 12
    assert session.run().unit == "compute"
    session.end()
    assert session.reverse().because
    assert session.until("acc[0]", forward=False).position <= 21


def test_times_and_tokens(session: Session) -> None:
    session.to(9)
    (unit,) = (unit for unit in session.units() if unit.name == "store")
    assert unit.doing == 9
    assert [wait.step for wait in session.why(9)] == [8]
    assert 9 in [wait.waiter for wait in session.waiting(8)]
    assert session.cycle(0).position == 0
    assert session.token("compute->store", 1).step == 11
    timed = Session(right(), sample(), order="time")
    trace = timed.walk.trace
    assert trace is not None
    starts = [trace.start[timed.step().step or 0] for _ in range(5)]
    assert starts == sorted(starts)


def test_a_slice_reaches_the_pixel_it_needs(session: Session) -> None:
    session.end()
    found = session.depends("t1[0,3,4,2]")
    assert {(name, low, high) for name, low, high, _ in found.inputs} >= {("dram.x", 448, 464), ("dram.wgt", 0, 256)}
    assert 4 in found.steps and 5 not in found.steps


def test_a_launch_that_cannot_end_stops_where_it_must() -> None:
    session = Session(right(), sample())
    assert not session.where().stuck
    broken: Session = Session(wrong("out-of-range"), sample())
    assert broken.end().step == 5
    with pytest.raises(MachineError, match=r"inp has 2048 elements"):
        broken.step()
    dead: Session = Session(wrong("deadlock"), sample())
    assert "deadlock" in dead.end().stuck
    assert any("no instruction pushes" in unit.waits_for for unit in dead.units())


WRONG = (
    "stepp",
    "step x",
    "to 999",
    "to -1",
    "show",
    "show foo[1]",
    "show acc[99999]",
    "show acc[1",
    "show acc[0] real",
    "show dram[0]",
    "layer nothing",
    "launch 77",
    "token foo",
    "delete 5",
    "break when foo > 1",
    "break when n.real",
    "break when __import__('os')",
    "break when n ** 9",
    "break when (lambda: 1)()",
    "watch acc[0] if",
    "who acc[0,0",
    "help foo",
    "depends uop[0:",
    "until nothing[0]",
    "list x",
    "where now",
    "'",
)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_is_one_error(session: Session, line: str) -> None:
    with pytest.raises(InputError) as caught:
        obey(session, line)
    assert caught.value.reason


def test_every_command_answers_in_text_and_json(session: Session) -> None:
    given = {"PLACE": "acc[0]", "PLACE [hex|real]": "t0 real", "N|NAME": "0", "NAME": "conv2d_0", "N": "3", "C": "100"}
    given |= {"QUEUE": "load->compute", "N|layer NAME|when CONDITION": "when n == 3", "NUMBER": "1"}
    given |= {"PLACE [if CONDITION]": "acc[0] if acc[0,0,0] > 1"}
    session._last_number = 0
    for verb in VERBS:
        line = " ".join([verb.names[0], *(given.get(parameter.form, "") for parameter in verb.parameters)])
        text, _ = obey(session, line)
        assert text, line
        assert obey(session, f"help {verb.names[0]}")[0].startswith(verb.usage)


def test_a_command_with_too_many_arguments_does_nothing(session: Session) -> None:
    session.to(3)
    with pytest.raises(InputError, match="has too many arguments: '2'"):
        obey(session, "step 1 2")
    assert session.where().step == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n > 3 and n < 9", True),
        ('unit == "load"', False),
        ("-n + 2 * n - n // 2 == 3 or False", True),
        ("not n", False),
    ],
)
def test_conditions(text: str, value: bool) -> None:
    assert Condition(text).holds({"n": 5, "unit": "store"}.__getitem__, lambda place: 0) is value


def test_the_weights_of_dram_are_those_of_the_launch(session: Session) -> None:
    weights = image_of(right().launches[0]).data["wgt"]
    np.testing.assert_array_equal(session.read("dram.wgt"), weights)
    session.end()
    np.testing.assert_array_equal(session.read("wgt[0]").reshape(-1).view(np.uint8), weights)
