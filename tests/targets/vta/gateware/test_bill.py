"""The bill of multiplier blocks: what Yosys counts, and what `rtl` says where a board has fewer."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hdl.cells import resources
from tilewright.cli import main
from tilewright.errors import ConfigError
from tilewright.hdl.build import to_rtlil
from tilewright.hdl.mac import MacArray
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.gateware import area
from tilewright.targets.vta.gateware.top import Vta

PYNQ = PRESETS["pynq"]
TINY = replace(
    PYNQ, LOG_BLOCK=2, LOG_UOP_BUFF_SIZE=10, LOG_INP_BUFF_SIZE=11, LOG_WGT_BUFF_SIZE=12, LOG_ACC_BUFF_SIZE=13
)
#: Products of 16 bits, of which a block makes one.
WIDE: dict[str, Any] = {"LOG_INP_WIDTH": 4, "LOG_WGT_WIDTH": 4, "LOG_UOP_BUFF_SIZE": 13}
MANY = "takes 264 DSP48 (256 products, 8 addresses); the xc7z020 of pynq has 220"
CONFIGS: dict[str, Config] = {
    "tiny": TINY,
    "packed": replace(TINY, multipliers="packed"),
    "logic": replace(TINY, multipliers="logic"),
    "batch 2": replace(TINY, LOG_BATCH=1, LOG_INP_BUFF_SIZE=12, LOG_ACC_BUFF_SIZE=14),
    "4 bits": replace(TINY, LOG_INP_WIDTH=2, LOG_WGT_WIDTH=2, LOG_INP_BUFF_SIZE=10, LOG_WGT_BUFF_SIZE=11),
    "fused": replace(TINY, alu="fused", LOG_PAR_BUFF_SIZE=10),
    "four": replace(TINY, stages=4, LOG_ALU_UOP_BUFF_SIZE=10),
    "four, float": replace(TINY, stages=4, LOG_ALU_UOP_BUFF_SIZE=10, alu="float", LOG_PAR_BUFF_SIZE=10),
}
#: Yosys, of the whole design: docs/gateware.md. Measured anew by the slow test.
COUNTED = {"tiny": 24, "packed": 16, "fused": 40, "four": 24, "four, float": 48}


def products(source: str) -> int:
    """Products of RTLIL that are large enough for a block; those with a constant are shifts or sums."""
    found = 0
    for cell in re.findall(r"cell \$mul .*?\n\s+end\n", source, re.DOTALL):
        sizes = {key: int(value) for key, value in re.findall(r"parameter (?:signed )?\\(\w+) (\d+)", cell)}
        constant = re.search(r"connect \\[AB] \d+'", cell)
        a, b = sizes["A_WIDTH"], sizes["B_WIDTH"]
        large = min(a, b) >= area.NARROWEST and min(a + b, sizes["Y_WIDTH"]) >= area.SMALLEST
        found += large and not constant
    return found


@pytest.mark.parametrize("name", ["tiny", "packed", "logic", "batch 2", "4 bits"])
def test_the_design_has_so_many_products(name: str) -> None:
    """Before synthesis, which finds further ones that are constant in the other machines."""
    config = CONFIGS[name]
    assert products(to_rtlil(Vta(config))) == area.total(config)


def test_the_published_figures() -> None:
    assert area.bill(PYNQ) == {"products": 256, "addresses": 8, "rescaling": 0}
    assert area.total(PYNQ) == 264
    assert area.total(replace(PYNQ, multipliers="packed")) == 136
    assert {name: area.total(CONFIGS[name]) for name in COUNTED} == COUNTED


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_yosys_counts_as_many_blocks(name: str) -> None:
    """Half a minute to four minutes each."""
    config = CONFIGS[name]
    assert resources(to_rtlil(Vta(config)), "xc7")["DSP"] == area.total(config)


def test_what_a_block_takes_is_the_arrays_rule() -> None:
    wide = replace(PYNQ, **WIDE, multipliers="packed")
    with pytest.raises(ConfigError, match="do not fit a block"):
        MacArray(1, 8, 16, 16, "packed")
    with pytest.raises(ConfigError, match="do not fit one DSP48"):
        area.total(wide)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"{MANY}: multipliers=packed takes 136"),
        ({"multipliers": "packed"}, ""),
        ({"TARGET": "ultra96"}, ""),
        ({"TARGET": "de10nano"}, ""),
        (WIDE, f"{MANY}: multipliers=logic takes 8, with products made of logic"),
    ],
)
def test_what_does_not_fit_says_what_to_set(changes: dict[str, Any], said: str) -> None:
    assert area.excess(replace(PYNQ, **changes)) == said


@pytest.mark.slow
def test_rtl_says_that_a_design_exceeds_its_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And writes it all the same: for a larger chip."""
    sizes = ["LOG_BLOCK=3", "LOG_BATCH=2", "LOG_UOP_BUFF_SIZE=13", "LOG_INP_BUFF_SIZE=13", "LOG_WGT_BUFF_SIZE=14"]
    options = [part for size in (*sizes, "LOG_ACC_BUFF_SIZE=15") for part in ("--set", size)]
    assert main(["rtl", "vta", *options, "-o", str(tmp_path / "a"), "--json"]) == 0
    printed, said = capsys.readouterr()
    assert "the xc7z020 of pynq has 220: multipliers=packed takes 136" in said
    assert "takes 264 DSP48" in json.loads(printed)["excess"]
    assert "This design does not fit its board" in (tmp_path / "a" / "README.md").read_text()
    assert main(["rtl", "vta", *options, "--set", "multipliers=packed", "-o", str(tmp_path / "b")]) == 0
    assert not capsys.readouterr().err
    assert "136 (128 products, 8 addresses), of the 220 of the xc7z020" in (tmp_path / "b" / "README.md").read_text()


def test_products_are_counted_by_part() -> None:
    assert Counter(area.bill(CONFIGS["four, float"])) == Counter(products=16, addresses=8, rescaling=24)
