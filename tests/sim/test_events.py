"""Row activations of random transfers against a DRAM that opens its rows byte by byte."""

from __future__ import annotations

import numpy as np

from tests.dram import opened
from tilewright.sim.events import Access, Bursts, Events, Part, Work, activations, rows_of


def test_activations_equal_those_of_single_bytes() -> None:
    seed = 19
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(60):
        count = int(rng.integers(0, 30))
        bursts = np.stack([rng.integers(0, 3000, count), rng.integers(0, 400, count)], axis=1)
        for row_bytes, banks in ((64, 1), (128, 2), (100, 8)):
            assert activations(bursts, row_bytes, banks) == opened(bursts.tolist(), row_bytes, banks)


def test_banks_keep_their_rows_open() -> None:
    alternating = np.array([[0, 8], [1024, 8]] * 50)
    assert activations(alternating, 1024, 1) == 100
    assert activations(alternating, 1024, 2) == 2


def test_rows_of_a_transfer_are_its_bursts() -> None:
    one = np.array([1000]), np.array([3]), np.array([16])
    assert rows_of(*one, np.array([64])).tolist() == [[1000, 16], [1064, 16], [1128, 16]]
    assert rows_of(*one, np.array([16])).tolist() == [[1000, 48]]
    assert rows_of(*(np.zeros(0, np.int64),) * 4).shape == (0, 2)


def test_events_add_up_and_divide() -> None:
    bursts = Bursts(np.array([[0, 64], [4096, 64]]))
    one = Events((Work("8x8+32", 10, (Part("add", 32),)),), (), (Access("inp", 64, 8, 3, 5),), 7, 9, (bursts,), 2, 11)
    both = Events.total([one, one])
    assert both.macs[0].count == 20 and both.accesses == (Access("inp", 64, 8, 6, 10),)
    assert (both.read_bytes, both.write_bytes, both.instructions, both.cycles) == (14, 18, 4, 22)
    assert both.activations(1024, 1) == 2 * one.activations(1024, 1) == 4
    half = both.per_sample(2)
    assert half.macs[0].count == 10 and half.accesses == (Access("inp", 64, 8, 3, 5),) and half.cycles == 11
    assert half.activations(1024, 1) == 2
