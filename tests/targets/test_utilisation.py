"""Utilisation is executed MACs over the peak of the operand type: at most 1 in every row, in totals and in JSON."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.mlperf import model_path
from tests.targets.bm1684x.networks import Builder
from tests.targets.vta.networks import random_network
from tilewright.cli import main
from tilewright.graph.ir import Graph
from tilewright.model import inputs
from tilewright.report.metrics import Result

pytestmark = pytest.mark.usefixtures("brief_search")

SEED = 11


def padded(side: int = 7, channels: int = 64, layers: int = 1) -> Graph:
    """3x3 convolutions of a small map: many taps lie in the padding."""
    build = Builder(SEED, (side, side, channels))
    y = build.input
    for _ in range(layers):
        y = build.conv(y, channels)
    return build.graph(y)


def run(graph: Graph, target: str, **overrides: str) -> Result:
    return tw.compile(graph, target, overrides=overrides).run(inputs.random(graph).values, compare=False)


def check(result: Result) -> None:
    data = result.to_json()
    for layer in data["layers"]:
        peak = layer["cycles"] * layer["macs_per_cycle"]
        assert layer["executed_macs"] <= peak, layer["name"]
        assert layer["utilization"] == pytest.approx(layer["executed_macs"] / peak if peak else 0.0), layer["name"]
    assert data["utilization"] == pytest.approx(
        data["executed_macs"] / sum(layer["cycles"] * layer["macs_per_cycle"] for layer in data["layers"])
    )
    assert 0 < data["utilization"] <= 1


@pytest.mark.parametrize(
    ("target", "overrides"),
    [
        ("vta", {}),
        ("vta", {"stages": "4", "alu": "fused"}),
        ("vta", {"LOG_BATCH": "1"}),
        ("bm1684x", {}),
        ("bm1684x", {"batch": "4"}),
        ("bm1684x", {"precision": "f32"}),
        ("zynq", {}),
    ],
    ids=str,
)
def test_no_row_is_above_one(target: str, overrides: dict[str, str]) -> None:
    check(run(padded(layers=3), target, **overrides))


def test_padding_taps_that_vta_skips_do_not_count() -> None:
    """441 taps of each 3x3 position of a 7x7 map, 361 inside: the GEMM core runs those alone."""
    result = run(padded(), "vta")
    (layer,) = result.layers
    assert layer.macs == 441 * 64 * 64
    assert layer.executed_macs == 361 * 64 * 64
    assert layer.utilization == layer.executed_macs / (layer.cycles * 256)


def test_codes_are_measured_by_their_own_peak_whatever_real_numbers_have() -> None:
    """precision names the type of real numbers; int8 layers of the same network run 16 times faster than f32."""
    rows = [run(padded(16), "bm1684x", precision=precision).layers[0] for precision in ("host", "f16", "f32")]
    assert {(row.cycles, row.macs_per_cycle, row.utilization) for row in rows} == {
        (rows[0].cycles, 16384, rows[0].utilization)
    }
    assert run(padded(16, 256), "bm1684x", precision="f32").utilization > 1 / 16


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("overrides", [{}, {"stages": "4", "alu": "fused"}], ids=str)
def test_rows_of_chained_layers(seed: int, overrides: dict[str, str]) -> None:
    check(run(random_network(np.random.default_rng(seed)), "vta", **overrides))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ic", "kws", "vww", "ad"])
@pytest.mark.parametrize("target", ["vta", "vta fused", "cfu", "zynq", "bm1684x"])
def test_rows_of_published_networks(key: str, target: str, shared: Path) -> None:
    """In ResNet-8 on `vta fused`, GEMMs of a layer run before the layer ahead of it has stored its results."""
    overrides = {"stages": "4", "alu": "fused"} if target == "vta fused" else {}
    check(run(tw.load(model_path(shared, key)), target.removesuffix(" fused"), **overrides))


def test_the_report_of_a_network_that_the_host_computed_in_part(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ResNet-8 in QDQ form: VTA takes all MACs of it, the VGG engine those of 3x3 convolutions of stride 1."""
    pytest.importorskip("onnxruntime")
    model = str(shared / "onnx_models" / "mlperf_tiny_qdq" / "resnet8_cifar10_int8_qdq.onnx")

    def said(target: str) -> dict[str, str]:
        assert main(["run", model, "-t", target]) == 0
        return dict(re.findall(r"^(MACs|time|cycles) +(.*)$", capsys.readouterr().out, re.MULTILINE))

    found = said("vta")
    assert found["MACs"] == "12.5 M of 12.5 M MACs ran on vta (100 %), which executed 11.7 M"
    assert "cycles per sample = " in found["time"]
    found = said("zynq")
    assert found["MACs"] == "9.88 M of 12.5 M MACs ran on zynq (79.0 %), which executed 9.10 M"
    assert ", of 6 layers on zynq only (79.0 % of the MACs)" in found["cycles"]
    assert found["cycles"].endswith("; not the network's time: 2.62 M MACs ran on the host")
    assert "time" not in found
