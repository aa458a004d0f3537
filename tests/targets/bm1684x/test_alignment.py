"""Layouts begin at multiples of 64 bytes (compact: 4): in drawings, in tensors of kernels, in calls of the device API.

What the compute engine refuses was measured on the vendor's model: it takes explicit strides from any element on.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.targets.bm1684x.vendor.calls import Noting, api
from tilewright.cli import main
from tilewright.errors import InputError, MachineError
from tilewright.sim.findings import PORTABILITY
from tilewright.targets.bm1684x.capi import dim2, dim4, padding_t
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.meaning import encoded
from tilewright.targets.bm1684x.layouts.layout import COMPACT
from tilewright.targets.bm1684x.layouts.placement import LayoutRequest, place
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U8, U16, Rounding

FOUR = Config(lanes=4)
SHAPES = {"matrix": (2, 40), "vector": (40,), "64ic": (5, 70, 1, 2), "32ic": (5, 70, 1, 2)}
KINDS = ("aligned", "compact", "line", "dma", *SHAPES)
BANK, FAR = 0x4000, 1 << 33
WINDOW = (dim2(2, 2), padding_t(0, 0, 0, 0), dim2(1, 1), dim2(1, 1))
SMALL, LINE = dim4(2, 5, 3, 7), dim4(1, 5, 1, 7)
#: Calls with the default layout, by the operand that is displaced: the first is the result.
COMPUTE: tuple[tuple[str, int, tuple[Any, ...]], ...] = (
    ("fp_add", 3, (SMALL, None, None, None, F32)),
    ("and", 3, (SMALL, None, None, None, U8)),
    ("cpy", 2, (SMALL, None, None, U8)),
    ("set_C", 1, (3, SMALL, None, U8)),
    ("fp_max_pool2d", 2, (SMALL, *WINDOW, F32, 0.0)),
    ("fp32_mm", 3, (0, 7, 9, 11, 3, 4, False, False)),
    ("cw_trans", 2, (SMALL, U8)),
    ("npu_bcast", 2, (SMALL, U8)),
    ("w_gather", 3, (LINE, 9, U8, U16)),
    ("batch_bcast_w_gather", 3, (LINE, 9, U8, U16, False)),
    ("table_lookup", 3, (SMALL, 256, U8, U8)),
    ("fp_taylor", 3, (SMALL, 4, F32)),
    ("fp_vc_add", 3, (7, 9, 7, 9, F32)),
    ("load_fp32_exp_coeff", 1, ()),
    ("int_pc_requant", 3, (SMALL, I8, I32, Rounding.HALF_UP)),
)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_layouts_begin_where_the_document_says(kind: str) -> None:
    dtype, step = {"64ic": "i8"}.get(kind, "f16"), COMPACT if kind == "compact" else 64
    shape = SHAPES.get(kind, (2, 3, 4, 5))
    for offset in range(0, 130, 2):
        wanted = LayoutRequest(kind, shape, dtype, 2, offset)
        if offset % step == 0:
            first = int(place(wanted, FOUR).operand.addresses.flat[0])
            assert first == LOCAL_BASE + 2 * FOUR.lane_bytes + offset
            continue
        with pytest.raises(InputError, match=rf"{dtype} \(.*byte {offset:#x} of lane 2.*multiples of {step};"):
            place(wanted, FOUR)
    if kind in ("aligned", "compact", "line", "dma"):  # free strides begin at any element
        stride = place(LayoutRequest(kind, shape, dtype, 2), FOUR).operand.stride
        place(LayoutRequest("free", shape, dtype, 2, 2, stride), FOUR)


@pytest.mark.parametrize(("name", "places", "rest"), COMPUTE, ids=[name for name, *_ in COMPUTE])
def test_the_compute_engine_refuses_aligned_operands_that_begin_elsewhere(
    name: str, places: int, rest: tuple[Any, ...]
) -> None:
    call = getattr(api(Noting()), f"tpu_bdc_{name}")
    call(*(BANK * place for place in range(places)), *rest)
    for displaced in range(places):
        for offset in (4, 8, 32, 60):
            addresses = [BANK * place + offset * (place == displaced) for place in range(places)]
            with pytest.raises(MachineError, match=rf"tpu_bdc_{name}.* byte .*multiples of 64"):
                call(*addresses, *rest)


def test_given_strides_begin_at_any_element() -> None:
    noting = Noting()
    stride = dim4(32, 32, 7, 1)
    api(noting).tpu_bdc_fp_add(BANK + 4, 2 * BANK + 8, 3 * BANK + 60, SMALL, stride, stride, stride, F32)
    (command,) = noting.commands
    fields = encoded(command, 1, 0).fields
    assert [fields[f"{name}_str"] for name in ("opd0", "opd1", "res0")] == [3, 3, 3]  # 3: the command holds strides


@pytest.mark.parametrize(
    "name", ["cpy_S2L", "cpy_L2S", "compact_S2L", "compact_L2S", "channel_bcast_S2L", "vector_S2L"]
)
def test_transfers_that_begin_elsewhere_are_findings(name: str) -> None:
    """The vendor's model takes them, but the document does not."""
    step = COMPACT if "compact" in name else 64
    for offset in (0, 1, 2, 4, 32, 64):
        noting = Noting()
        near, far = offset, FAR
        ends = (far, near) if name.endswith("L2S") else (near, far)
        strides = () if "compact" in name else (None, None)
        arguments = (40, 10, U8) if "vector" in name else (SMALL, *strides, U8)
        getattr(api(noting), f"tpu_gdma_{name}")(*ends, *arguments)
        portability = [finding for finding in noting.findings if finding.kind == PORTABILITY]
        assert len(portability) == (offset % step != 0), offset
        assert all(f"tpu_gdma_{name}" in str(item) and f"multiples of {step}" in str(item) for item in portability)


def test_global_memory_has_no_gaps_and_no_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    """N_stride is C*H*W, C_stride H*W, H_stride W: the document's rule, for random shapes."""
    chosen = random.Random(13)
    for _ in range(20):
        n, c, h, w = (chosen.randint(1, 7) for _ in range(4))
        placed = place(LayoutRequest("global", (n, c, h, w), "f16", 0, 2), FOUR)
        assert placed.operand.stride == (c * h * w, h * w, w, 1)
        assert (placed.operand.addresses.reshape(-1) - DDR_BASE).tolist() == [2 + 2 * at for at in range(n * c * h * w)]
    assert main(["layout", "global", "2,2,3,2", "f16", "-t", "bm1684x"]) == 0
    text = capsys.readouterr().out
    assert "n0-1 c0-1 h0-2 w0-1 (48 B)" in text and "lane" not in text
    assert ">DDR<" in place(LayoutRequest("global", (2, 2, 3, 2), "f16"), FOUR).svg()
    assert main(["layout", "global", "2,2,3,2", "f16", "-t", "bm1684x", "--start-lane", "1"]) == 2
    assert "has no lanes" in capsys.readouterr().err


def test_the_order_of_weights_is_shown_and_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["layout", "64ic", "5,70,1,2", "i8", "-t", "bm1684x"]
    assert main(command) == 0
    plain = capsys.readouterr().out
    assert "64ic i8 (oc 5, ic 70, kh 1, kw 2)" in plain
    assert "read as oc,ic,kh,kw" in plain and "--order ic,oc,kh,kw" in plain
    assert main(["layout", "64ic", "70,5,1,2", "i8", "-t", "bm1684x", "--order", "ic,oc,kh,kw"]) == 0
    assert capsys.readouterr().out == plain[: plain.index("note:")]
    assert main([*command, "--order", "oc,ic,kh"]) == 2
    assert "give oc,ic,kh,kw in any order" in capsys.readouterr().err
