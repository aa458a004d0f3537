"""The parts of a page that need no browser."""

from __future__ import annotations

from dataclasses import replace

from tests.report.runs import LAUNCH, SOFTMAX, result, summed
from tilewright.report import page, record
from tilewright.report.metrics import RECOMPILED, SAME, WhatIf
from tilewright.report.page.static import COLOUR_OF, palette


def test_what_ifs_are_shown_with_their_cycles() -> None:
    found = (
        WhatIf("a bus <twice> as wide", {"bus": "16"}, {}, 30, SAME, {}),
        WhatIf("four stages", {"stages": "4"}, {}, 60, RECOMPILED, {}),
    )
    text = page.page(record.of(summed(result(LAUNCH).with_whatifs(found), "1 sample", 100.0)))
    assert "a bus &lt;twice&gt; as wide" in text and "-40.0%" in text and "same program" in text
    assert "four stages" in text and "+20.0%" in text and "recompiled program" in text


def test_each_cause_of_a_run_has_a_colour_of_its_own_where_it_is_known() -> None:
    shown = palette(record.of(summed(result(LAUNCH, SOFTMAX), "1 sample", 100.0)))
    assert set(shown) >= {*LAUNCH.causes, "load bandwidth"}
    vta = ("GEMM", "ALU", "load bandwidth", "store bandwidth", "DRAM latency", "DRAM contention", "instruction fetch")
    assert len({COLOUR_OF[name] for name in vta}) == len(vta)


def test_data_cannot_end_their_script() -> None:
    text = page.page(record.of(summed(result(replace(LAUNCH, name="</script><script>x")), "1 sample", 100.0)))
    assert text.count("<script") == text.count("</script>") == 3
