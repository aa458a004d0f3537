"""Functions that return values, in C and in Python: the same rules, with random arguments, on two machines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.targets.bm1684x.native.build import launch, load
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import DeviceApi, dim4
from tilewright.targets.bm1684x.config import PRESETS, Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.kernel import Tpu
from tilewright.targets.bm1684x.values.dtypes import DTYPES, F16, F32, I8, I32
from tilewright.targets.bm1684x.values.floats import widen

pytestmark = pytest.mark.gxx
TYPES = sorted(DTYPES.values(), key=lambda dtype: dtype.code)


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_sizes_and_strides_are_those_of_python(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick, api = random.Random(seed), DeviceApi(Tpu(Device(config).memories))
    lines, expected = [], []
    numbers = ("npu_num", "bank_num", "local_mem_size_per_npu", "l2_sram_size", "l2_sram_get_start_addr")
    for name in (*numbers, "local_mem_get_start_addr"):
        lines.append(f'TPUKERNEL_LOG("%llu\\n", (unsigned long long)tpu_{name}());')
        expected.append(str(getattr(api, f"tpu_{name}")()))
    queries = ("data_type_size", "eu_num", "is_data_type_fp", "is_data_type_signed", "is_data_type_int")
    for name in (*queries, "is_data_type_signed_int", "is_data_type_unsigned_int"):
        for dtype in TYPES:
            lines.append(f'TPUKERNEL_LOG("%d\\n", (int)tpu_{name}({dtype.code}));')
            expected.append(str(int(getattr(api, f"tpu_{name}")(dtype))))
    for _ in range(40):
        dtype, shape, start = pick.choice(TYPES), [pick.randint(1, 99) for _ in range(4)], pick.randrange(config.lanes)
        address, size = pick.randrange(config.local_bytes), pick.randint(0, config.lane_bytes)
        where = f"&(dim4){{{', '.join(map(str, shape))}}}"
        for name, tail in (("aligned", [dtype]), ("line_aligned", [dtype]), ("compact", []), ("continuous", [])):
            first = [] if name == "continuous" else [start]
            given = ", ".join(["&s", *map(str, first), where, *(str(kind.code) for kind in tail)])
            lines.append(f'tpu_{name}_stride({given}); TPUKERNEL_LOG("%d %d %d %d\\n", s.n, s.c, s.h, s.w);')
            stride = dim4()
            getattr(api, f"tpu_{name}_stride")(stride, *first, dim4(*shape), *tail)
            expected.append(f"{stride.n} {stride.c} {stride.h} {stride.w}")
        lines.append(f"r = tpu_bank_range({address}, {size});")
        lines.append('TPUKERNEL_LOG("%d %d\\n", r.start, r.end);')
        expected.append("{0.start} {0.end}".format(api.tpu_bank_range(address, size)))
        cases: tuple[tuple[str, tuple[Any, ...]], ...] = (
            ("npu_index", (address,)),
            ("bank_index", (address,)),
            ("channle_num_per_npu", (start, shape[1])),
            ("aligned_feature_size", (shape[2], shape[3], dtype)),
        )
        for name, values in cases:
            lines.append(
                f'TPUKERNEL_LOG("%d\\n", tpu_{name}({", ".join(str(getattr(v, "code", v)) for v in values)}));'
            )
            expected.append(str(getattr(api, f"tpu_{name}")(*values)))
    body = "\n".join(lines)
    text = f"void all(const void *p) {{ dim4 s; range_t r;\n{body}\n}}\nTPUKERNEL_FUNC_REGISTER(all)\n"
    capfd.readouterr()
    launch(load(tmp_path, text), "all", Device(config))
    assert capfd.readouterr().out.split("\n")[:-1] == expected


def test_ranges_overlap_as_in_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    void all(const void *p) {
        range_t ranges[] = {{0, 2}, {3, 4}, {4, 4}};
        TPUKERNEL_LOG("%d %d ", tpu_range_overlapped(ranges, ranges + 1), tpu_range_overlapped(ranges + 1, ranges + 2));
        TPUKERNEL_LOG("%d %d\\n", tpu_any_range_overlapped(ranges, 2), tpu_any_range_overlapped(ranges, 3));
        tpu_parallel_start();
        TPUKERNEL_LOG("%d ", tpu_is_parallel_state());
        tpu_parallel_end();
        TPUKERNEL_LOG("%d\\n", tpu_is_parallel_state());
    }
    TPUKERNEL_FUNC_REGISTER(all)
    """
    launch(load(tmp_path, text), "all")
    assert capfd.readouterr().out == "0 1 0 1\n1 0\n"


def test_numbers_are_converted_as_by_the_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    void all(const void *p) {
        scalar_t x = {.f32 = 2.5f};
        TPUKERNEL_LOG("%x\\n", tpu_fp_cast(x, DT_FP16, DT_FP32, RM_HALF_TO_EVEN).u32);
        for (int mode = 0; mode < 5; mode++)
            TPUKERNEL_LOG("%d\\n", tpu_fp_to_int_cast(x, DT_INT32, DT_FP32, (rounding_mode_t)mode).s32);
        x.s32 = -300;
        TPUKERNEL_LOG("%d\\n", tpu_int_cast(x, DT_INT8, DT_INT32).s8);
        TPUKERNEL_LOG("%g\\n", tpu_int_to_fp_cast(x, DT_FP32, DT_INT32, RM_HALF_TO_EVEN).f32);
    }
    TPUKERNEL_FUNC_REGISTER(all)
    void refused(const void *p) { tpu_cast((scalar_t){.u32 = 0}, DT_BFP16, DT_FP16, RM_DOWN); }
    TPUKERNEL_FUNC_REGISTER(refused)
    """
    library = load(tmp_path, text)
    launch(library, "all")
    lines = capfd.readouterr().out.split()
    assert widen(Constant(int(lines[0], 16), F16).value, F16) == Constant.of(2.5, F32).value
    assert lines[1:] == ["2", "3", "2", "2", "3", str(I8.low), "-300"]
    assert Constant.of(-300, I32).value == -300
    with pytest.raises(MachineError, match="tpu_cast"):
        launch(library, "refused")
