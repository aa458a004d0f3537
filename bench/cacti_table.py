"""Write a table of SRAM energies by CACTI, for `run --energy FILE.toml`.

    python bench/cacti_table.py KIB:BITS ... [--nm 45] > sram.toml

It needs Python 3.12 and `pip install hwcomponents-cacti` (CACTI 7), and not Tilewright. All other energies are those of
the table horowitz. Each memory has KIB KiB, and one port that reads or writes BITS bits.
"""

from __future__ import annotations

import argparse
import importlib
from importlib.metadata import version
from typing import Any

HEAD = """name = "cacti"
base = "horowitz"
technology = "{nm} nm, ITRS-LSTP transistors"
source = "SRAM: CACTI 7 by hwcomponents-cacti {version} (dynamic energies); the rest: table horowitz"
"""
ENTRY = """
[[entry]]
event = "{event}"
bytes = {size}
bits = {bits}
picojoules = {picojoules:.4f}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memories", nargs="+", metavar="KIB:BITS")
    parser.add_argument("--nm", type=float, default=45)
    asked = parser.parse_args()
    package: Any = importlib.import_module("hwcomponents_cacti")
    print(HEAD.format(nm=f"{asked.nm:g}", version=version("hwcomponents-cacti")), end="")
    for memory in asked.memories:
        kib, bits = (int(part) for part in memory.split(":"))
        size = 1024 * kib
        made = package.SRAM(tech_node=asked.nm * 1e-9, size=8 * size, width=bits, depth=8 * size // bits)
        for event, cost in (("sram", made.read()), ("sram_write", made.write())):
            print(ENTRY.format(event=event, size=size, bits=bits, picojoules=1e12 * float(cost.energy)), end="")


if __name__ == "__main__":
    main()
