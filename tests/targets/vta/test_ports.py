"""ALU lanes and SRAM ports: the intervals that follow, and what is legal."""

from __future__ import annotations

import pytest

from tests.targets.vta.timed import alone, alu, config_of, gemm
from tilewright.errors import ConfigError
from tilewright.targets import get

#: What a key does to the cycles of a micro-op: (GEMM, tensor ALU, immediate ALU) on hls, then tilewright, then ideal.
UNSET = [(1, 2, 2), (1, 2, 1), (1, 2, 1)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, UNSET),
        ({"alu_lanes": 16}, UNSET),
        ({"alu_lanes": 8}, [(1, 2, 2), (1, 2, 2), (1, 2, 2)]),
        ({"alu_lanes": 4}, [(1, 4, 4)] * 3),
        ({"alu_lanes": 1}, [(1, 16, 16)] * 3),
        ({"inp_read_bits": 128, "wgt_read_bits": 2048, "acc_read_bits": 512, "acc_write_bits": 512}, UNSET),
        ({"inp_read_bits": 64}, [(2, 2, 2), (2, 2, 1), (2, 2, 1)]),
        ({"wgt_read_bits": 512}, [(4, 2, 2), (4, 2, 1), (4, 2, 1)]),
        ({"acc_read_bits": 256}, [(2, 4, 2), (2, 4, 2), (2, 4, 2)]),
        ({"acc_write_bits": 128}, [(4, 4, 4)] * 3),
        ({"acc_read_bits": 1024}, [(1, 2, 2), (1, 2, 1), (1, 1, 1)]),
        ({"LOG_BATCH": 1, "alu_lanes": 16}, [(1, 2, 2)] * 3),
        ({"LOG_BATCH": 1, "alu_lanes": 32}, UNSET),
    ],
)
def test_lanes_and_ports_lengthen_intervals(changes: dict[str, int], expected: list[tuple[int, int, int]]) -> None:
    for name, cycles in zip(("hls", "tilewright", "ideal"), expected, strict=True):
        forms = (gemm, lambda n: alu(n, 0), alu)
        found = tuple(alone(form(11), name, **changes) - alone(form(10), name, **changes) for form in forms)
        assert found == cycles, name


@pytest.mark.parametrize("value", [0, 3, 1 << 20, "many"])
@pytest.mark.parametrize("key", ["alu_lanes", "inp_read_bits", "wgt_read_bits", "acc_read_bits", "acc_write_bits"])
def test_lanes_and_ports_are_powers_of_two(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        config_of(**{key: value})


def test_describe_shows_needed_and_provided_bits_and_what_follows() -> None:
    facts = get("vta").describe(config_of(wgt_read_bits="1024"))
    assert facts["ports"]["wgt read"] == "1024 bits per cycle, 2048 needed"
    assert facts["ports"]["acc read"] == "512 bits per cycle, 512 needed"
    assert facts["cycles_a_micro_op"] == {
        "chisel": "gemm 2, alu 2, alu immediate 1",
        "hls": "gemm 2, alu 2, alu immediate 2",
        "ideal": "gemm 2, alu 2, alu immediate 1",
        "tilewright": "gemm 2, alu 2, alu immediate 1",
    }
    assert "wgt_read_bits" not in config_of().to_dict()
