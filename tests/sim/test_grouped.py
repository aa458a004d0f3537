"""Findings in groups of one cause, the root first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.report.render import show_findings
from tilewright.sim.findings import (
    DEADLOCK,
    LEAK,
    OUT_OF_RANGE,
    PORTABILITY,
    RACE,
    STREAM,
    UNINITIALISED,
    Finding,
    grouped,
)


def race(first: int, second: int, space: str, path: str, launch: str = "") -> Finding:
    return Finding(RACE, f"#{first} and #{second} touch {space}", (first, second), space, 0, 4, path, launch)


def unwritten(step: int, space: str, low: int, high: int, blind: str = "") -> Finding:
    return Finding(UNINITIALISED, f"#{step} reads {space}", (step,), space, low, high, undefined_by=blind)


FOUND = [
    *(race(step, step + 3, space, "load->gemm") for step in range(4, 60, 4) for space in ("inp", "wgt")),
    race(2, 9, "acc", "gemm->store"),
    *(unwritten(step, "out", step, step + 1) for step in range(9, 30)),
    Finding(LEAK, "2 tokens are left", (40,), queue="load->gemm"),
    Finding(PORTABILITY, "chisel differs", (1,)),
]


def test_groups_have_one_cause_each_and_the_root_is_first() -> None:
    seed = 7
    for _ in range(20):
        found = [FOUND[place] for place in np.random.default_rng(seed).permutation(len(FOUND))]
        groups = grouped(found)
        kinds = [(group.first.kind, group.first.queue, len(group.findings)) for group in groups]
        assert kinds == [
            (LEAK, "load->gemm", 29),
            (RACE, "gemm->store", 1),
            (UNINITIALISED, "", 21),
            (PORTABILITY, "", 1),
        ], f"seed {seed}"
        assert sorted(map(str, found)) == sorted(str(each) for group in groups for each in group.findings)
        assert [finding.steps for finding in groups[0].shown] == [(40,), (4, 7)]
        assert groups[0].others.startswith("27 more of this cause, at #7 #11 ")
        assert groups[1].others == ""
        seed += 1


def test_each_launch_has_its_own_groups_in_order() -> None:
    deadlock = Finding(DEADLOCK, "waits", (3,), queue="q").inside("b")
    outside = Finding(OUT_OF_RANGE, "reads", (5,), "DRAM").inside("a")
    groups = grouped([outside, race(1, 2, "inp", "q", "b"), deadlock])
    assert [(group.first.launch, group.first.kind) for group in groups] == [
        ("a", OUT_OF_RANGE),
        ("b", DEADLOCK),
        ("b", RACE),
    ]


def kinds(*findings: Finding) -> list[list[str]]:
    """The kinds of findings in each group, in any order of the findings."""
    found = [[finding.kind for finding in group.findings] for group in grouped(findings)]
    assert found == [[finding.kind for finding in group.findings] for group in grouped(findings[::-1])]
    return found


def test_steps_with_uninitialised_micro_ops_explain_all_that_they_do() -> None:
    root = [unwritten(step, "uop", 0, 1, "uop") for step in (3, 8)]
    later = [race(2, 3, "out", "store->gemm"), unwritten(8, "inp", 0, 4)]
    blind = [replace(finding, undefined_by="uop") for finding in later]
    assert kinds(*blind, *root) == [[UNINITIALISED, UNINITIALISED, RACE, UNINITIALISED]]
    assert kinds(*later, *root) == [[UNINITIALISED, UNINITIALISED], [RACE], [UNINITIALISED]]


def test_tokens_too_many_explain_the_races_through_their_queue() -> None:
    leak = Finding(LEAK, "1 token is left", (9,), queue="gemm->store")
    end = Finding(STREAM, "finish does not wait", (8, 9), queue="gemm->store")
    through = race(1, 4, "inp", "load->gemm->store")
    assert kinds(leak, end, through, race(2, 3, "wgt", "load->gemm")) == [[LEAK, RACE, STREAM], [RACE]]
    assert kinds(end, race(5, 6, "out", "gemm->store")) == [[RACE, STREAM]]


def test_an_uninitialised_read_before_the_write_is_part_of_their_race() -> None:
    first = race(4, 9, "local", "dma->tiu")
    assert kinds(unwritten(4, "local", 3, 5), first) == [[RACE, UNINITIALISED]]
    for other in (unwritten(4, "local", 4, 5), unwritten(4, "DRAM", 3, 5)):
        assert kinds(other, first) == [[RACE], [UNINITIALISED]]


def test_races_of_one_step_have_one_cause() -> None:
    before, after = [race(step, 7, "inp", "gemm->load") for step in (1, 3)], [race(7, 8, "inp", "load->gemm")]
    assert kinds(*before, *after) == [[RACE] * 3]
    assert kinds(*before, *after, race(10, 11, "inp", "load->gemm")) == [[RACE] * 2, [RACE] * 2]


def test_the_terminal_shows_the_root_each_kind_of_consequence_and_how_many_more(capsys) -> None:  # type: ignore[no-untyped-def]
    show_findings(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "token_leak: 2 tokens are left"
    assert lines[1] == "  so race: #4 and #7 touch inp"
    assert lines[2].startswith("  27 more of this cause, at #7 #11 ")
    assert len(lines) == 3 + 1 + 2 + 1 + 1
    assert lines[-1] == f"hazards {len(FOUND)} of 4 causes"
