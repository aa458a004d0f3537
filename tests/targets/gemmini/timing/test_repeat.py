"""Repetitions change no time: those of a run that skips them are those of a run that does not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.gemmini.programs import encoded, program
from tests.targets.gemmini.timing.repetition import repeated, skipped
from tilewright.errors import HazardError
from tilewright.targets.gemmini.compiler import fastest
from tilewright.targets.gemmini.compiler.products import Product
from tilewright.targets.gemmini.compiler.requantise import SUMS
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands, acc, spad

MACHINES = (
    Config(),
    Config(spad_rows=64, acc_rows=128, rtl=2023),
    Config(dim=4, spad_rows=64, acc_rows=128, dma_bytes=32),
    Config(dim=8, spad_rows=32, spad_banks=8, acc_banks=4, acc_rows=128, dma_bytes=16, bus_bytes=8),
    Config(
        spad_rows=64, spad_banks=16, acc_banks=8, acc_rows=512, reads_in_flight=8, writes_in_flight=4, memory_latency=3
    ),
)


@pytest.mark.parametrize("config", MACHINES)
def test_random_programs_take_the_same_time(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    some = skips = 0
    for seed in range(25):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        commands = encoded(program(rng, config, 8192, int(rng.integers(3, 40))))
        try:
            some += skipped(monkeypatch, repeated(rng, commands, int(rng.choice([3, 9, 20]))), config)[1] > 0
        except HazardError:  # it stalls
            skips += 1
    assert some > 8
    assert skips < 12


@pytest.mark.parametrize("seed", [116, 147, 452])
def test_a_request_that_waits_asks_with_the_page_behind_it(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """These programs took another time while snapshots left out that page where no request was behind."""
    config, rng = MACHINES[2], np.random.default_rng(seed)
    commands = encoded(program(rng, config, 8192, int(rng.integers(3, 40))))
    assert skipped(monkeypatch, repeated(rng, commands, 40), config)[1] > 0


@pytest.mark.parametrize("change", ["rows", "address", "scale", "fence", "nothing"])
def test_a_difference_ends_a_repetition(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    config = Config()
    program = Commands(config)
    program.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
    program.gemmini_config_st(64)
    program.gemmini_config_ld(64)
    for tile in range(60):
        odd = tile == 50
        at = 0x8000_0000 + 4096 * tile + (8 if odd and change == "address" else 0)
        half = 512 * (tile % 2)
        program.gemmini_extended_config_ld(64, 0.5 if odd and change == "scale" else 1.0)
        program.gemmini_extended_mvin(at, spad(half), 16, 9 if odd and change == "rows" else 16)
        program.gemmini_extended_mvin(at + 1024, spad(half + 256), 16, 16)
        program.gemmini_extended_preload(spad(half + 256), acc(16 * (tile % 2)), 16, 16, 16, 16)
        program.gemmini_extended_compute_preloaded(spad(half), 0xFFFFFFFF, 16, 16, 16, 16)
        program.gemmini_extended_mvout(at + 2048, acc(16 * (tile % 2)), 16, 16)
        if odd and change == "fence":
            program.gemmini_fence()
    cycles, without = skipped(monkeypatch, program.array, config)
    assert without > 0.5 * cycles, "the program repeats itself"


@pytest.mark.parametrize("loads", [1, 2, 3])
def test_a_configuration_that_waits_counts(monkeypatch: pytest.MonkeyPatch, loads: int) -> None:
    """The station is done with a config_ld long before its controller takes it."""
    for odd in range(30, 60, 6):
        program = Commands(Config())
        program.gemmini_config_st(64)
        for tile in range(60):
            at = 0x8000_0000 + 4096 * tile
            program.gemmini_extended_config_ld(64, 0.5 if tile == odd else 1.0)
            for load in range(loads):
                program.gemmini_extended_mvin(at + 1024 * load, spad(512 * (tile % 2) + 16 * load), 16, 16)
            program.gemmini_extended_mvout(at + 3072, acc(16 * (tile % 2)), 16, 1)
        assert skipped(monkeypatch, program.array, program.config)[1] > 0


def test_loops_of_products_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    config, side = Config(), 256
    places = [0x8000_0000 + 0x10_0000 * x for x in range(4)]
    timed = fastest(Product(side, side, side, SUMS), config, places)
    assert timed is not None
    commands = np.concatenate([timed.tiled.emit(config, *places).array] * 4)
    cycles, without = skipped(monkeypatch, commands, config)
    assert without > 0.4 * cycles
