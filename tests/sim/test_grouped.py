"""Findings in groups of one cause, the root first."""

from __future__ import annotations

import numpy as np

from tilewright.report.render import show_findings
from tilewright.sim.findings import DEADLOCK, LEAK, OUT_OF_RANGE, PORTABILITY, RACE, UNINITIALISED, Finding, grouped


def race(first: int, second: int, space: str, path: str, launch: str = "") -> Finding:
    return Finding(RACE, f"#{first} and #{second} touch {space}", (first, second), space, 0, 4, path, launch)


FOUND = [
    *(race(step, step + 3, space, "load->gemm") for step in range(4, 60, 4) for space in ("inp", "wgt")),
    race(2, 9, "acc", "gemm->store"),
    *(Finding(UNINITIALISED, f"#{step} reads out", (step,), "out", step, step + 1) for step in range(9, 30)),
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
            (LEAK, "load->gemm", 1),
            (RACE, "load->gemm", 28),
            (RACE, "gemm->store", 1),
            (UNINITIALISED, "", 21),
            (PORTABILITY, "", 1),
        ]
        assert sorted(map(str, found)) == sorted(str(each) for group in groups for each in group.findings)
        assert groups[1].first.steps == (4, 7)
        assert groups[1].others.startswith("27 more of this cause, at #7 #11 ")
        assert groups[0].others == ""
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


def test_the_terminal_shows_one_line_of_each_cause_and_how_many_more(capsys) -> None:  # type: ignore[no-untyped-def]
    show_findings(FOUND)
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "token_leak: 2 tokens are left"
    assert len(out.splitlines()) == 5 + 2 + 1
    assert out.splitlines()[-1] == f"hazards {len(FOUND)} of 5 causes"
