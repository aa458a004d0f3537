"""The generated header: every function of the tables, with types; every other function of the Python form by hand."""

from __future__ import annotations

import re
import struct

from tilewright.targets.bm1684x.capi.names import PROTOTYPES, CType
from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS, DeviceApi
from tilewright.targets.bm1684x.native import build


def test_every_type_has_a_recorded_form() -> None:
    assert all(struct.calcsize(kind.recorded) for kind in CType)
    for prototype in PROTOTYPES.values():
        assert all(isinstance(kind, CType) for kind, _ in prototype.parameters), prototype.declaration
        names = [name for _, name in prototype.parameters]
        assert len(set(names)) == len(names), prototype.declaration


def test_every_function_is_declared_and_every_declared_function_does_something() -> None:
    assert set(FUNCTIONS) == set(PROTOTYPES)
    assert list(PROTOTYPES) == sorted(PROTOTYPES)


def test_declarations_are_those_of_the_published_api() -> None:
    declarations = {prototype.name: prototype.declaration for prototype in PROTOTYPES.values()}
    assert declarations["tpu_gdma_cpy_S2L"] == (
        "void tpu_gdma_cpy_S2L(local_addr_t dst, system_addr_t src, const dim4 *shape, "
        "const dim4 *dst_stride, const dim4 *src_stride, data_type_t dtype)"
    )
    assert "system_addr_t dst, local_addr_t src" in declarations["tpu_gdma_cpy_L2S"]
    assert "float C" in declarations["tpu_bdc_fp32_div_C"]
    assert "char C" in declarations["tpu_bdc_logical_shift_C"]
    assert "scalar_t C" in declarations["tpu_bdc_fp_add_C"]
    assert "const variable_t *src0" in declarations["tpu_bdc_equal_select"]
    assert "scalar_t offset, data_type_t" in declarations["tpu_bdc_int_requant"]
    assert "float scale, float offset" in declarations["tpu_bdc_fp32_requant"]


def test_functions_outside_of_the_tables_are_declared_by_hand() -> None:
    text = (build.FIXED / "tpu_kernel.h").read_text()
    declared = set(re.findall(r"\b(tpu_\w+)\(", text))
    python = {name for name in dir(DeviceApi) if name.startswith("tpu_")}
    assert python - declared == set()


def test_the_fingerprint_is_that_of_the_tables() -> None:
    assert f'"{build.fingerprint()}"' in build.files()["calls.c"]
    assert len(build.fingerprint()) == 32
