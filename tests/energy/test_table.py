"""Tables of energies: published figures, the laws between them, the user's own files, and estimates by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tilewright.energy import Table, estimate, names, read
from tilewright.energy.table import EVENTS
from tilewright.errors import ConfigError
from tilewright.sim.events import Access, Bursts, Events, Part, Work

HERE = Path(__file__).parent
HOROWITZ = read("horowitz")
#: A table with one entry.
SMALL = """
name = "mine"
technology = "7 nm"
source = "my notes"
[dram]
row_bytes = 1024
banks = 1
[[entry]]
event = "add"
bits = 16
picojoules = 2
"""


def of(table: Table, event: str, bits: float) -> float:
    cost = table.of(event, bits)
    assert cost is not None
    return cost.picojoules


def access(table: Table, capacity: int, bits: int, write: bool = False) -> float:
    cost = table.access(capacity, bits, write)
    assert cost is not None
    return cost.picojoules


def written(folder: Path, text: str) -> Path:
    path = folder / "table.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_published_sizes_cost_what_is_published() -> None:
    """M. Horowitz, ISSCC 2014, Figure 1.1.9."""
    assert (of(HOROWITZ, "add", 8), of(HOROWITZ, "add", 32)) == (0.03, 0.1)
    assert (of(HOROWITZ, "multiply", 8), of(HOROWITZ, "multiply", 32)) == (0.2, 3.1)
    assert (of(HOROWITZ, "float_add", 32), of(HOROWITZ, "float_multiply", 16)) == (0.9, 1.1)
    kib = 1024
    assert [access(HOROWITZ, size * kib, 64) for size in (8, 32, 1024)] == pytest.approx([10, 20, 100])
    dram = HOROWITZ.of("dram_read", 64)
    assert dram is not None and (dram.low, dram.high) == (1300, 2600)


def test_between_published_sizes_energy_is_a_power_of_the_size() -> None:
    kib = 1024
    assert access(HOROWITZ, 16 * kib, 64) == pytest.approx(math.sqrt(10 * 20))
    assert access(HOROWITZ, 4 * kib, 64) == pytest.approx(10 / math.sqrt(2))
    assert access(HOROWITZ, 8 * kib, 256) == pytest.approx(4 * 10)
    assert of(HOROWITZ, "multiply", 16) == pytest.approx(math.sqrt(0.2 * 3.1))
    assert of(HOROWITZ, "multiply", 64) == pytest.approx(3.1 * math.sqrt(3.1 / 0.2))
    assert of(HOROWITZ, "compare", 32) == of(HOROWITZ, "add", 32)
    rising = [access(HOROWITZ, size, 64) for size in (1 << 9, 1 << 12, 1 << 13, 1 << 14, 1 << 17, 1 << 20, 1 << 22)]
    assert rising == sorted(rising)


def test_a_single_size_scales_in_proportion(tmp_path: Path) -> None:
    table = read(written(tmp_path, SMALL))
    assert of(table, "add", 32) == 4
    assert table.of("multiply", 8) is None and table.access(1024, 64, write=False) is None


def test_ddr3_energies_are_those_of_the_supply_currents() -> None:
    """The formulas of Micron TN-41-01 with the currents (mA) and times (ns) of MT41J512M8, eight devices."""
    volts, devices = 1.5, 8
    table = read("ddr3")
    assert of(table, "dram_read", 512) == pytest.approx(devices * volts * (157 - 38) * 5)
    assert of(table, "dram_write", 512) == pytest.approx(devices * volts * (125 - 38) * 5)
    assert of(table, "dram_activate", 0) == pytest.approx(devices * volts * (55 * 48.75 - 38 * 35 - 32 * 13.75))
    assert table.row_bytes == devices * 1024
    assert of(table, "multiply", 8) == of(HOROWITZ, "multiply", 8)


def test_an_estimate_is_counts_times_energies() -> None:
    events = Events(
        macs=(Work("8x8+32", 1000, (Part("multiply", 8), Part("add", 32))),),
        operations=(Work("max 32", 10, (Part("compare", 32),)), Work("mul 32", 3, ())),
        accesses=(Access("inp", 32 * 1024, 128, 7, 2),),
        read_bytes=64,
        write_bytes=128,
        bursts=(Bursts(np.array([[0, 64], [8192 * 8, 64]])),),
        instructions=5,
        cycles=100,
        missing={"leakage": "not known"},
    )
    found = estimate(events, read("ddr3"))
    expected = {
        "macs": 1000 * (0.2 + 0.1),
        "operations": 10 * 0.1,
        "sram inp": 9 * 2 * 20,
        "dram_read": 64 * 8 * 7140 / 512,
        "dram_write": 128 * 8 * 5220 / 512,
        "dram_activate": 2 * 10935,
    }
    assert {cause: cost.picojoules for cause, cost in found.by.items()} == pytest.approx(expected)
    told = found.to_json()
    assert told["estimate"] is True and told["picojoules"] == pytest.approx(sum(expected.values()))
    assert told["missing"] == {"leakage": "not known"} and told["events"]["row_activations"] == 2
    assert list(told["by"].values()) == sorted(told["by"].values(), reverse=True)
    whole = estimate(events, HOROWITZ)
    assert whole.total.high - whole.total.low == pytest.approx((64 + 128) / 8 * 1300)


def test_an_event_without_energy_is_named(tmp_path: Path) -> None:
    events = Events(macs=(Work("8x8+32", 4, (Part("multiply", 8), Part("add", 32))),), read_bytes=8)
    found = estimate(events, read(written(tmp_path, SMALL)))
    assert set(found.missing) == {"multiply", "dram_read"}
    assert found.picojoules == 4 * 4


def test_a_table_may_start_from_another_one(tmp_path: Path) -> None:
    text = 'name = "a"\nbase = "horowitz"\ntechnology = "t"\nsource = "s"\n'
    text += '[[entry]]\nevent = "shift"\nbits = 32\npicojoules = 9\n[[entry]]\nevent = "cycle"\npicojoules = 5\n'
    table = read(written(tmp_path, text))
    assert of(table, "shift", 32) == 9 and of(table, "add", 8) == 0.03 and table.row_bytes == HOROWITZ.row_bytes
    assert estimate(Events(cycles=3), table).by["cycles"].picojoules == 15


def test_recorded_output_of_cacti_is_a_table() -> None:
    """cacti.toml: printed by bench/cacti_table.py with hwcomponents-cacti 1.0.40. Writes have energies of their own."""
    table = read(HERE / "cacti.toml")
    assert access(table, 32 << 10, 128) == 20.3074
    assert access(table, 32 << 10, 128, write=True) == 27.5274
    assert access(table, 8 << 10, 64) < access(table, 16 << 10, 64) < access(table, 32 << 10, 64)
    ratios = [access(table, kib << 10, 64) / access(HOROWITZ, kib << 10, 64) for kib in (8, 32, 1024)]
    assert all(0.6 < ratio < 1 for ratio in ratios), ratios  # two sources for memories of 45 nm


def test_every_package_table_can_be_read() -> None:
    assert {"horowitz", "ddr3"} <= set(names()) and read("default") is HOROWITZ
    for name in names():
        table = read(name)
        assert table.name == name and set(table.entries) | set(table.alias) <= set(EVENTS)
        assert all(entry.source and entry.technology for each in table.entries.values() for entry in each)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("picojoules = 2", "picojoules = -2", "entry 1.picojoules: is -2.0; it must be 0 to"),
        ("picojoules = 2", 'picojoules = "2"', 'picojoules: is "2", not a number'),
        ("picojoules = 2", "picojoules = nan", "picojoules: is NaN"),
        ("picojoules = 2", "", "lacks 'picojoules'"),
        ("picojoules = 2", "picojoules = 2\nrange = [3, 4]", "is not in the range 3 to 4"),
        ("picojoules = 2", "picojoules = 2\nrange = 3", "range: is 3, not a list"),
        ("picojoules = 2", "picojoules = 2\nbytes = 4", "add has no bytes"),
        ("picojoules = 2", "joules = 2", 'has "joules", which is unknown'),
        ("bits = 16", "bits = 0", "bits: is 0; it must be 1 to"),
        ('event = "add"', 'event = "sum"', 'event: is "sum"; choose one of add'),
        ('event = "add"', 'event = "sram"', "lacks 'bytes'"),
        ('event = "add"', 'event = "shift"\nas = "add"', "'shift' cannot stand for 'add'"),
        ('name = "mine"', "", "lacks 'name'"),
        ('name = "mine"', 'name = "mine"\nbase = "mine"', 'base: is "mine"; choose one of ddr3, horowitz'),
        ("row_bytes = 1024", "row_bytes = 0", "dram.row_bytes: is 0"),
        ("[[entry]]", "[[entry]", "cannot be read"),
        ("[[entry]]", "[entry]", "entry: is .*, not a list"),
        ("[dram]\nrow_bytes = 1024\nbanks = 1\n", "", r"has no section \[dram\]"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in SMALL
    path = written(tmp_path, SMALL.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no table 'hurowitz'; choose ddr3, horowitz"):
        read("hurowitz")
    with pytest.raises(ConfigError, match="is not a file"):
        read(tmp_path / "none.toml")
    doubled = SMALL + SMALL[SMALL.index("[[entry]]") :]
    with pytest.raises(ConfigError, match="entry 2: is a second energy of add"):
        read(written(tmp_path, doubled))
