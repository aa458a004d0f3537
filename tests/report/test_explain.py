"""Multiplications and volumes of a network, counted by hand."""

from __future__ import annotations

import tilewright as tw
from tests.conftest import ROOT
from tilewright.report import explain


def test_volumes_of_the_digits() -> None:
    rows = {row.name: row for row in explain.rows(tw.load(ROOT / "examples" / "digits" / "digits.tflite"))}
    conv = rows["conv2d_3"]  # 3x3, 16 to 16 channels, 8x8 pixels
    assert (conv.macs, conv.input_bytes, conv.output_bytes) == (8 * 8 * 16 * 9 * 16, 8 * 8 * 16, 8 * 8 * 16)
    assert conv.weight_bytes == 16 * 9 * 16 + 4 * 16  # and an int32 bias
    assert conv.intensity == conv.macs / (conv.input_bytes + conv.weight_bytes + conv.output_bytes)
    assert rows["add_4"].input_bytes == 2 * rows["add_4"].output_bytes
    total = rows["total"]
    assert (total.macs, total.input_bytes, total.output_bytes) == (257_280, 64, 10)
    assert total.weight_bytes == sum(row.weight_bytes for row in rows.values()) - total.weight_bytes
