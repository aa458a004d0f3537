"""Cell counts: of blocks whose needs are known."""

from __future__ import annotations

import pytest

from tests.hdl.cells import resources
from tilewright.errors import ConfigError
from tilewright.hdl.build import to_rtlil
from tilewright.hdl.mac import MacArray
from tilewright.hdl.memory import BankedMemory, Tiles


@pytest.mark.slow
@pytest.mark.parametrize(("family", "blocks", "packed"), [("xc7", 1, 2), ("ecp5", 2, 4)])
def test_a_memory_is_block_ram_and_a_product_a_multiplier(family: str, blocks: int, packed: int) -> None:
    """A packed product has an operand of 25 bits: one multiplier of xc7, two of ECP5."""
    memory = resources(to_rtlil(BankedMemory(Tiles(32, 32, 1024))), family)
    assert memory["BRAM"] == blocks
    assert memory["DSP"] == 0
    for multipliers, many in (("single", 4), ("packed", packed), ("logic", 0)):
        assert resources(to_rtlil(MacArray(1, 2, 8, 8, multipliers)), family)["DSP"] == many, multipliers


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown family 'ice40'"):
        resources("", "ice40")
