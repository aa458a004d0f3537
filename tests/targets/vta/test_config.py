"""VTA configurations: upstream's files load, sizes follow, and each rule refuses by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.errors import ConfigError
from tilewright.targets.vta.config import BOARDS, PRESETS, Config
from tilewright.targets.vta.isa.fields import IndexBits, Memory

PYNQ = PRESETS["pynq"]
#: config/pynq_sample.json of apache/tvm-vta.
UPSTREAM = {
    "TARGET": "pynq",
    "HW_VER": "0.0.2",
    "LOG_INP_WIDTH": 3,
    "LOG_WGT_WIDTH": 3,
    "LOG_ACC_WIDTH": 5,
    "LOG_BATCH": 0,
    "LOG_BLOCK": 4,
    "LOG_UOP_BUFF_SIZE": 15,
    "LOG_INP_BUFF_SIZE": 15,
    "LOG_WGT_BUFF_SIZE": 18,
    "LOG_ACC_BUFF_SIZE": 17,
}


def test_upstreams_file_is_the_pynq_preset(tmp_path: Path) -> None:
    path = tmp_path / "pynq_sample.json"
    path.write_text(json.dumps(UPSTREAM))
    assert Config.from_json(path) == Config.from_json(UPSTREAM) == PYNQ
    assert Config.from_json(str(path)).to_dict() == UPSTREAM


def test_sizes_of_the_shipped_configuration() -> None:
    assert PYNQ.index_bits == IndexBits(uop=13, inp=11, wgt=10, acc=11)
    srams = {sram.name: sram for sram in (PYNQ.uop, PYNQ.inp, PYNQ.wgt, PYNQ.acc, PYNQ.out)}
    assert {n: s.tile_bytes for n, s in srams.items()} == {
        "uop": 4,
        "inp": 16,
        "wgt": 256,
        "acc": 64,
        "out": 16,
    }
    assert {n: s.depth for n, s in srams.items()} == {
        "uop": 8192,
        "inp": 2048,
        "wgt": 1024,
        "acc": 2048,
        "out": 2048,
    }
    assert (PYNQ.wgt.shape, PYNQ.acc.shape, PYNQ.acc.width, PYNQ.out.width) == ((16, 16), (1, 16), 32, 8)
    assert PYNQ.macs_per_cycle == 256
    assert PYNQ.bitstream == "1x16_i8w8a32_15_15_18_17"
    assert [PYNQ.dram_tile_bytes(m) for m in Memory] == [4, 256, 16, 64, 16, 16, 4, 64]
    assert PYNQ.sram(Memory.ACC_8BIT) is PYNQ.acc


def test_bus_and_clock_follow_the_target() -> None:
    assert {n: (c.bus_bits, c.mhz) for n, c in PRESETS.items()} == {
        "pynq": (64, 100),
        "ultra96": (128, 333),
        "zcu104": (128, 333),
        "de10nano": (64, 100),
        "intelfocl": (64, 100),
        "fsim": (64, 100),
        "tsim": (64, 100),
    }
    assert PYNQ.with_overrides({"LOG_BUS_WIDTH": 8}).bus_bits == 256
    assert {c.TARGET for c in PRESETS.values()} == set(BOARDS)


def test_the_configuration_of_every_vector_loads(shared: Path) -> None:
    names = set()
    for path in sorted((shared / "vta_vectors").glob("*.npz")):
        with np.load(path) as vector:
            keys, meta = json.loads(str(vector["config"])), json.loads(str(vector["meta"]))
        config = Config.from_json(keys)
        names.add(meta["config"])
        assert config.to_dict() == keys
        for name, size in meta["elem_bytes"].items():
            assert getattr(config, name).tile_bytes == size, path.name
        if "hls" in meta["references"]:
            assert "hls" not in {r.reference for r in config.restrictions}, path.name
        else:
            assert meta["config"] != "asym" or "hls" in {r.reference for r in config.restrictions}
    assert names >= {"pynq", "asym", "batch2", "batch4b8", "block32", "int4", "small", "tiny", "acc16"}


def test_json_and_digest_round_trip(tmp_path: Path) -> None:
    config = PYNQ.with_overrides({"LOG_BLOCK": "5", "dram_latency": "0x40", "TARGET": "tsim"})
    assert (config.block, config.dram_latency, config.TARGET) == (32, 64, "tsim")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert Config.from_json(path) == config
    assert Config.from_json(path).digest() == config.digest()
    assert len({c.digest() for c in PRESETS.values()}) == len(PRESETS)
    # Frozen: saved programs carry it.
    assert PYNQ.digest() == "2494b5647045ed24976a47125e2e3025cc8d2bb17716bef7225888b152a6d42a"


def test_keys_that_upstream_derives_must_agree() -> None:
    derived = {"LOG_BLOCK_IN": 4, "LOG_BLOCK_OUT": 4, "LOG_OUT_WIDTH": 3, "LOG_OUT_BUFF_SIZE": 15}
    assert Config.from_json(UPSTREAM | derived) == PYNQ
    with pytest.raises(ConfigError, match="LOG_BLOCK_OUT is 5, but the other keys imply 4; leave LOG_BLOCK_OUT out"):
        Config.from_json(UPSTREAM | {"LOG_BLOCK_OUT": 5})


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"TARGET": "vcu118"}, 'unknown TARGET "vcu118"'),
        ({"LOG_BLOCK": 4.0}, "LOG_BLOCK is 4.0, not an integer in 0..12"),
        ({"LOG_BLOCK": True}, "LOG_BLOCK is true"),
        ({"LOG_BLOCK": "four"}, "LOG_BLOCK is 'four', not an integer"),
        ({"LOG_BLOK": 4}, 'unknown key "LOG_BLOK"; did you mean LOG_BLOCK'),
        ({"HW_VER": 2}, "HW_VER is 2"),
        ({"LOG_INP_WIDTH": 5}, r"LOG_INP_WIDTH is 5, not an integer in 0..4 \(fsim handles"),
        ({"LOG_ACC_WIDTH": 6}, r"LOG_ACC_WIDTH is 6, .*\(fsim computes in 32 bits"),
        ({"LOG_INP_WIDTH": 4, "LOG_ACC_WIDTH": 3}, "LOG_INP_WIDTH is 4, above LOG_ACC_WIDTH 3"),
        ({"LOG_WGT_BUFF_SIZE": 8}, r"the wgt memory has 2\^0 tiles.*change LOG_WGT_BUFF_SIZE"),
        ({"LOG_UOP_BUFF_SIZE": 19}, r"the uop memory has 2\^17 tiles"),
        ({"LOG_BLOCK": 7, "LOG_WGT_BUFF_SIZE": 22}, "wgt: a tile has 131072 bits; .* at most 4096"),
        ({"LOG_BLOCK": 1, "LOG_INP_WIDTH": 1}, "inp: a tile has 4 bits; it must be whole bytes"),
        ({"LOG_UOP_BUFF_SIZE": 16}, "GEMM instruction: its fields need 3 words"),
        ({"LOG_WGT_BUFF_SIZE": 19, "LOG_INP_BUFF_SIZE": 13}, "micro-op: its fields need 2 words of 32 bits"),
        ({"LOG_ACC_BUFF_SIZE": 18, "LOG_WGT_BUFF_SIZE": 14}, "ALU instruction: its fields need 3 words"),
        ({"LOG_BUS_WIDTH": 5}, "LOG_BUS_WIDTH is 5, not an integer in 6..10"),
        ({"dram_latency": -1}, "dram_latency is -1"),
        ({"queue_depth": 0}, "queue_depth is 0"),
    ],
)
def test_each_rule_refuses_by_name(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PYNQ.with_overrides(overrides)


def test_files_that_are_not_configurations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json: is not a file: No such file"):
        Config.from_json(tmp_path / "missing.json")
    path = tmp_path / "bad.json"
    path.write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"bad\.json: is not a JSON object"):
        Config.from_json(path)
    path.write_text(json.dumps({"TARGET": "pynq", "LOG_BLOCK": 4}))
    with pytest.raises(ConfigError, match=r"bad\.json: keys LOG_INP_WIDTH, .* are missing"):
        Config.from_json(path)
    with pytest.raises(ConfigError, match='unknown key "HW_FREQ"'):
        Config.from_json(UPSTREAM | {"HW_FREQ": 100})


@pytest.mark.parametrize(
    ("overrides", "references"),
    [
        ({}, set()),
        ({"LOG_INP_BUFF_SIZE": 14}, {"hls", "chisel"}),
        ({"LOG_BATCH": 1, "LOG_INP_BUFF_SIZE": 16, "LOG_ACC_BUFF_SIZE": 18}, {"chisel"}),
        ({"LOG_BUS_WIDTH": 8}, {"hls"}),
        ({"LOG_UOP_BUFF_SIZE": 11, "LOG_ACC_BUFF_SIZE": 13, "LOG_INP_BUFF_SIZE": 11}, {"chisel", "opencl"}),
    ],
)
def test_what_single_references_cannot_run(overrides: dict[str, int], references: set[str]) -> None:
    assert {r.reference for r in PYNQ.with_overrides(overrides).restrictions} == references
