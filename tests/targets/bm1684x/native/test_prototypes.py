"""The generated header: every function of the tables, with types; every other function of the Python form by hand."""

from __future__ import annotations

import re

from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS, DeviceApi
from tilewright.targets.bm1684x.native import headers
from tilewright.targets.bm1684x.native.prototypes import LOCAL, ctype, known, prototypes

#: Parameters that are local addresses. A new parameter belongs here, or into PATTERNS of native/prototypes.py.
ADDRESSES = re.compile(
    r"dst\d?|src\d?|output|input|left|right|bias|weight|coefficients|table|param|\w+_addr|work\d?|shift_tensor"
    r"|\w*coeff\w*|\w+_table|roi|buffer"
)


def test_every_parameter_has_a_type() -> None:
    words = {(name, word) for name, made in FUNCTIONS.items() for word in made.parameters.split()}
    guessed = {word for name, word in words if not known(word) and ctype(name, word) == LOCAL}
    assert {word for word in guessed if not ADDRESSES.fullmatch(word)} == set()


def test_declarations_are_those_of_the_published_api() -> None:
    found = {made.name: made.declaration for made in prototypes()}
    assert found["tpu_gdma_cpy_S2L"] == (
        "void tpu_gdma_cpy_S2L(local_addr_t dst, system_addr_t src, const dim4 *shape, "
        "const dim4 *dst_stride, const dim4 *src_stride, data_type_t dtype)"
    )
    assert "system_addr_t dst, local_addr_t src" in found["tpu_gdma_cpy_L2S"]
    assert "float C" in found["tpu_bdc_fp32_div_C"]
    assert "char C" in found["tpu_bdc_logical_shift_C"]
    assert "scalar_t C" in found["tpu_bdc_fp_add_C"]
    assert "const variable_t *src0" in found["tpu_bdc_equal_select"]
    assert "scalar_t offset, data_type_t" in found["tpu_bdc_int_requant"]
    assert "float scale, float offset" in found["tpu_bdc_fp32_requant"]


def test_functions_outside_of_the_tables_are_declared_by_hand() -> None:
    text = (headers.FIXED / "tpu_kernel.h").read_text()
    declared = set(re.findall(r"\b(tpu_\w+)\(", text))
    python = {name for name in dir(DeviceApi) if name.startswith("tpu_")}
    assert python - declared == set()


def test_the_fingerprint_is_that_of_the_tables() -> None:
    assert f'"{headers.fingerprint()}"' in headers.files()["calls.c"]
    assert len(headers.fingerprint()) == 32
