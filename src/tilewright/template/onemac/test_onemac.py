"""Tests: OneMac satisfies the contract, executes its instructions as specified, and reports missing tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright import contract, targets
from tilewright.errors import HazardError, ProgramError
from tilewright.program import instruction, words
from tilewright.program.program import Launch, Program
from tilewright.run import run
from tilewright.sim.passes import RunOptions
from tilewright.targets.base import Target

from . import TARGET, codegen, isa
from .config import Config

targets.add_folder(Path(__file__).resolve().parents[1])

MODEL = "guess"
CODE = """\
.launch "two"
.segment x address=0 size=2 kind=input
.segment w address=2 kind=const
0201ff03
.segment y address=6 size=8 kind=output
.code
load buf=0 dram=0 length=2
load buf=2 dram=2 length=4 push
dot buf=0 wgt=2 acc=0 length=2 count=2 clear=1 zero=-1 pop push
store acc=0 dram=6 count=2 pop
"""


def assembled(text: str, config: Config | None = None) -> Program:
    return TARGET.assemble(text, config or Config())


def only(program: Program) -> Launch:
    (launch,) = program.launches
    return launch


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: str(check.__name__))
def test_contract(check: Callable[[Target], None]) -> None:
    check(TARGET)


@pytest.mark.parametrize("changes", [{"buffer_bytes": 7, "accumulators": 2}, {"buffer_bytes": 50}, {"bus_bits": 64}])
def test_other_sizes_give_the_same_outputs(changes: dict[str, int]) -> None:
    program = TARGET.compile(contract.network(), Config(**changes), "tflm")
    result = run(program, contract.inputs())
    assert (result.matches_reference, result.findings) == (True, ())


def test_values_follow_the_instructions() -> None:
    result = TARGET.launch(assembled(CODE), only(assembled(CODE)), {}, RunOptions(timing=MODEL))
    # x is 0 0 and zero is -1: each sum adds (0 + 1) * weight
    np.testing.assert_array_equal(result.values["y"].view("<i4"), [[3, 2]])
    assert result.total.executed_macs == 4


def test_time_follows_the_table() -> None:
    trace = TARGET.launch(assembled(CODE), only(assembled(CODE)), {}, RunOptions(timing=MODEL)).trace
    assert trace is not None
    # load: dispatch 1, latency 20, 1 beat of 4 bytes; dot: dispatch 1, 4 MACs; store: 1, 20, 2 beats, response 20
    assert (trace.end - trace.start).tolist() == [22, 22, 5, 43]
    assert (trace.start[2], trace.start[3]) == (trace.end[1], trace.end[2])  # tokens take no time


def test_an_instruction_may_precede_the_one_that_it_waits_for() -> None:
    """The units run concurrently, so the program ends. The serial time is None, because stream order would block."""
    load, load_weights, dot, store = CODE.splitlines()[-4:]
    partner = CODE.replace(f"{load}\n{load_weights}\n{dot}\n{store}", f"{dot}\n{load}\n{load_weights}\n{store}")
    assert partner != CODE
    in_turn, result = (
        TARGET.launch(assembled(code), only(assembled(code)), {}, RunOptions(timing=MODEL)) for code in (CODE, partner)
    )
    assert (result.findings, result.total.serial_cycles) == ((), None)
    np.testing.assert_array_equal(result.values["y"], in_turn.values["y"])
    assert result.trace and in_turn.trace and in_turn.total.serial_cycles
    assert in_turn.total.serial_cycles >= in_turn.trace.cycles


@pytest.mark.parametrize(("old", "new"), [("zero=-1 pop", "zero=-1"), ("count=2 pop", "count=2")])
def test_a_missing_pop_is_a_race_and_leaves_a_token(old: str, new: str) -> None:
    findings = {finding.kind for finding in TARGET.check(assembled(CODE.replace(old, new)))}
    assert findings == {"race", "token_leak"}


def test_a_missing_push_stops_the_run() -> None:
    broken = assembled(CODE.replace("length=4 push", "length=4"))
    with pytest.raises(HazardError, match="mac waits at #2"):
        TARGET.launch(broken, only(broken), {}, RunOptions())


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("dram=2", "dram=3", "DRAM w"), ("buf=2 ", "buf=4094 ", "buf"), ("acc=0 dram=6", "acc=31 dram=6", "acc")],
)
def test_out_of_range_accesses_are_reported(old: str, new: str, where: str) -> None:
    findings = [
        finding for finding in TARGET.check(assembled(CODE.replace(old, new))) if finding.kind == "out_of_range"
    ]
    assert [finding.space for finding in findings] == [where]


def test_every_field_survives_text() -> None:
    rng = np.random.default_rng(7)
    rows = []
    for opcode, operands in isa.OPERANDS.items():
        for name in (*operands, *isa.ISA.flags):
            field = isa.LAYOUT.by_name[name]
            rows += [{"opcode": int(opcode), name: value} for value in (field.low, field.high)]
            rows.append({"opcode": int(opcode), name: int(rng.integers(field.low, field.high + 1))})
    code = isa.LAYOUT.encode_rows(rows)
    lines = [isa.ISA.notation.show(row) for row in instruction.rows(isa.ISA.decode(code))]
    again = [isa.ISA.notation.read(words.split(line, 1)) for line in lines]
    np.testing.assert_array_equal(isa.LAYOUT.encode_rows(again), code)


def test_a_damaged_launch_is_a_program_error() -> None:
    good = only(assembled(CODE))
    for meta, arrays in (
        ({}, good.arrays),
        ({"segments": [{"name": "x", "address": 0, "size": 2, "kind": "inputs"}]}, good.arrays),
        ({"segments": [{"name": "w", "address": 0, "size": 5, "kind": "const"}]}, good.arrays),
        (good.meta, {}),
        (good.meta, {**good.arrays, "insns": good.arrays["insns"][:0]}),
    ):
        program = Program(TARGET.name, Config().to_dict(), Config().digest(), "tflm", None, ())
        with pytest.raises(ProgramError, match="launch 'two'"):
            TARGET.launch(program, Launch("two", (), meta, arrays), {}, RunOptions())


def test_invalid_instructions_are_refused() -> None:
    with pytest.raises(ProgramError, match="instruction 0"):
        isa.ISA.decode(isa.LAYOUT.encode_rows([{"opcode": 7}]))
    with pytest.raises(ProgramError, match="instruction 1"):
        isa.ISA.decode(isa.LAYOUT.encode_rows([{"opcode": 0}, {"opcode": 0, "count": 1}]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jump", "column 1: found 'jump'"),
        ("load buf=0 size=4", "column 12: found 'size=4'"),
        ("dot zero=128", "column 10: found '128'; expected -128..127"),
        ("dot zero=x", "expected a number"),
    ],
)
def test_text_errors_name_the_column(line: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        isa.ISA.notation.read(words.split(line, 3))


def test_nodes_on_the_host_have_a_reason() -> None:
    reasons = {site.node.name: codegen.plan(site, Config()) for site in contract.network().sites()}
    on_host = {name for name, reason in reasons.items() if isinstance(reason, str)}
    assert on_host == {"conv3x3", "flat", "softmax"}
