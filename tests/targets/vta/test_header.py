"""The C header: a C compiler packs with its structures and bit ranges what Python's encoder packs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.program.instruction import Layout, Raw
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.gateware import header
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode

PYNQ = PRESETS["pynq"]
CONFIGS = {
    **PRESETS,
    "block32": replace(PYNQ, LOG_BLOCK=5, LOG_BATCH=1),
    "small": replace(PYNQ, LOG_UOP_BUFF_SIZE=11, LOG_INP_BUFF_SIZE=11, LOG_WGT_BUFF_SIZE=15, LOG_ACC_BUFF_SIZE=13),
    "deep acc": replace(PYNQ, LOG_INP_BUFF_SIZE=13),
    "deep inp": replace(PYNQ, LOG_ACC_BUFF_SIZE=15),
    "4 bits": replace(PYNQ, LOG_INP_WIDTH=2, LOG_WGT_WIDTH=2, LOG_INP_BUFF_SIZE=14, LOG_WGT_BUFF_SIZE=17),
    "tiny": replace(PYNQ, LOG_UOP_BUFF_SIZE=3, LOG_INP_BUFF_SIZE=5, LOG_WGT_BUFF_SIZE=9, LOG_ACC_BUFF_SIZE=7),
    "wide bus": replace(PYNQ, LOG_BUS_WIDTH=9, HW_VER='my "own"\n'),
}
ROWS = 64
SEED = 20261121


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`build(config, source, *flags)`: compiles tmp_path/a.out from C that can include "vta.h"."""

    def run(config: Config, source: str, *flags: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "vta.h").write_text(header.text(config))
        (tmp_path / "a.c").write_text(source)
        strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]
        command = ["cc", *strict, *flags, "a.c", "-o", "a.out"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


Build = Callable[..., subprocess.CompletedProcess[str]]


def macros(config: Config) -> dict[str, str]:
    return dict(re.findall(r"^#define (\w+) +(\S.*)$", header.text(config), re.MULTILINE))


def test_derived_numbers_agree_with_the_configuration(config: Config) -> None:
    found = macros(config)
    assert found.get("VTA_UOP_DEPTH", str(1 << config.index_bits.uop)) == str(config.uop.depth)
    for chip in (config.uop._replace(index_bits=config.index_bits.uop), config.inp, config.wgt, config.acc, config.out):
        name = chip.name.upper()
        assert int(found[f"VTA_{name}_BUFF_DEPTH"]) == chip.depth == 1 << int(found[f"VTA_LOG_{name}_BUFF_DEPTH"])
        assert int(found[f"VTA_{name}_ELEM_BYTES"]) == chip.tile_bytes
        # upstream's own way from the keys
        assert int(found[f"VTA_{name}_BUFF_SIZE"]) == 1 << int(found[f"VTA_LOG_{name}_BUFF_SIZE"])
        if name != "UOP":
            assert int(found[f"VTA_{name}_MATRIX_WIDTH"]) == chip.shape[0] * chip.shape[1] * chip.width
            assert int(found[f"{name}_MAT_AXI_RATIO"]) == 8 * chip.tile_bytes // config.bus_bits
    for key in ("LOG_INP_WIDTH", "LOG_WGT_WIDTH", "LOG_ACC_WIDTH", "LOG_BATCH", "LOG_BLOCK"):
        assert int(found[f"VTA_{key}"]) == getattr(config, key)
    assert found["VTA_TARGET"] == config.TARGET
    assert found["VTA_BITSTREAM"] == f'"{config.bitstream}"'
    assert (int(found["VTA_BUS_WIDTH"]), int(found["VTA_CLOCK_MHZ"])) == (config.bus_bits, config.mhz)


def test_boards_and_codes_are_upstreams() -> None:
    pynq, ultra, nano = (macros(PRESETS[name]) for name in ("pynq", "ultra96", "de10nano"))
    assert (pynq["VTA_FETCH_ADDR"], pynq["VTA_STORE_ADDR"], pynq["VTA_HLS_PERIOD_NS"]) == (
        "0x43C00000",
        "0x43C03000",
        "7",
    )
    assert (ultra["VTA_LOAD_ADDR"], ultra["VTA_LOG_BUS_WIDTH"], ultra["INP_MAT_AXI_RATIO"]) == ("0xA0001000", "7", "1")
    assert (nano["VTA_COMPUTE_ADDR"], nano["VTA_HLS_PERIOD_NS"]) == ("0xFF222000", "2")
    expected = {"VTA_OPCODE_ALU": "4", "VTA_ALU_OPCODE_SHR": "3", "VTA_MEM_ID_ACC_8BIT": "5", "VTA_INSN_GEM_7_0": "21"}
    assert expected.items() <= pynq.items()


def test_a_field_moves_with_the_sizes() -> None:
    """The C bit-field rule: dst_factor_out lies at bit 55 with 9 bits of micro-op index and 7 of accumulator index."""
    assert macros(CONFIGS["small"])["VTA_INSN_GEM_A_0"] == "55"
    assert macros(PYNQ)["VTA_INSN_GEM_A_0"] == "64"


@pytest.mark.gxx
def test_a_c_compiler_packs_the_same_instructions(config: Config, build: Build, tmp_path: Path) -> None:
    """By structure and by bit ranges, random fields of each format; the program checks the macros' arithmetic too."""
    forms = {
        "VTAMemInsn": ("MEM", config.formats.mem),
        "VTAGemInsn": ("GEM", config.formats.gemm),
        "VTAAluInsn": ("ALU", config.formats.alu),
        "VTAUop": ("", config.formats.uop),
    }
    rng = np.random.default_rng(SEED)
    rows = {name: random_rows(layout, rng) for name, (_, layout) in forms.items()}
    parts = [
        pack_by_struct(name, layout, rows[name]) + (pack_by_bits(form, layout, rows[name]) if form else "")
        for name, (form, layout) in forms.items()
    ]
    made = build(config, PROGRAM.replace("PARTS", "\n".join(parts)))
    assert made.returncode == 0, made.stderr
    data = subprocess.run([str(tmp_path / "a.out")], capture_output=True, check=True).stdout
    expected = b""
    for name, (form, layout) in forms.items():
        code: Raw = layout.encode({f.name: rows[name][:, i] for i, f in enumerate(layout.fields)})
        expected += code.tobytes() * (2 if form else 1)
    assert data == expected, f"seed {SEED}"


@pytest.mark.gxx
def test_flags_of_another_configuration_stop_the_build(build: Build) -> None:
    source = '#include "vta.h"\nint main(void) { return 0; }\n'
    same = [f"-DVTA_{key}={value}" for key, value in PYNQ.to_dict().items()]
    assert build(PYNQ, source, *same, "-DVTA_FETCH_ADDR=0x43C00000").returncode == 0
    assert "another configuration" in build(PYNQ, source, "-DVTA_LOG_BATCH=1").stderr
    assert "another configuration" in build(PYNQ, source, "-DVTA_STORE_ADDR=0xA0003000").stderr
    assert build(PYNQ, f"#ifdef VTA_FETCH_INSN_COUNT_OFFSET\n#error\n#endif\n{source}").returncode == 0
    uses = source.replace("return 0", "return VTA_FETCH_INSN_COUNT_OFFSET - 16 + VTA_REG_INSN_COUNT - 8")
    assert build(PYNQ, uses, f"-D{header.HLS_MAP}").returncode == 0
    assert build(PYNQ, uses).returncode != 0
    assert "before vta/hw_spec.h" in build(PYNQ, source, "-DVTA_HW_SPEC_CONST_H_").stderr


@pytest.mark.gxx
def test_it_is_cpp_too(config: Config, tmp_path: Path) -> None:
    (tmp_path / "vta.h").write_text(header.text(config))
    (tmp_path / "a.cc").write_text('#include "vta.h"\n#include "vta.h"\nint main() { return sizeof(VTAInsn) != 16; }\n')
    for standard in ("c++98", "c++17"):
        command = ["c++", f"-std={standard}", "-Wall", "-Wextra", "-Werror", "a.cc", "-o", "b.out"]
        subprocess.run(command, cwd=tmp_path, check=True)
        subprocess.run([str(tmp_path / "b.out")], check=True)


def test_upstreams_pack_of_opcode_names_is_complete() -> None:
    found = macros(PYNQ.with_overrides({"stages": 4, "alu": "fused"}))
    assert not {"VTA_ALU_OPCODE_REQ", "VTA_MEM_ID_PAR"} & macros(PYNQ).keys()  # upstream's machine has neither
    for kind, codes in (("OPCODE", Opcode), ("ALU_OPCODE", AluOp), ("MEM_ID", Memory)):
        assert [int(found[f"VTA_{kind}_{code.name}"]) for code in codes] == [int(code) for code in codes]


PROGRAM = """\
#include <stdio.h>
#include "vta.h"
#define FIRST(x) x##_0
#define LAST(x) x##_1
_Static_assert(VTA_INP_BUFF_DEPTH * VTA_INP_ELEM_BYTES == VTA_INP_BUFF_SIZE, "inp");
_Static_assert(VTA_WGT_MATRIX_WIDTH == VTA_WGT_WIDTH * VTA_BLOCK_IN * VTA_BLOCK_OUT, "wgt");
_Static_assert(VTA_INS_WIDTH == 8 * sizeof(union VTAInsn), "insn");
static void put(uint64_t word[2], int first, int last, uint64_t value) {
  int width = last - first + 1;
  uint64_t mask = width == 64 ? ~(uint64_t)0 : ((uint64_t)1 << width) - 1;
  word[first / 64] |= (value & mask) << first % 64;
}
int main(void) {
PARTS
  return 0;
}
"""


def random_rows(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    """int64 [ROWS, fields]: the extremes of all fields, then random values."""
    low, high = [f.low for f in layout.fields], [f.high for f in layout.fields]
    return np.concatenate([[low, high], rng.integers(low, np.array(high) + 1, (ROWS, len(low)))])


def pack_by_struct(name: str, layout: Layout, rows: np.ndarray) -> str:
    names = [{**header.TOKENS, **header.INDICES}.get(f.name, f.name) for f in layout.fields]
    lines = [statement(name, names, row) for row in rows.tolist()]
    return "\n".join(lines)


def statement(name: str, names: Sequence[str], row: Sequence[int]) -> str:
    values = ", ".join(f".{field} = {number(value)}" for field, value in zip(names, row, strict=True))
    return f"  {{ {name} it = {{ {values} }}; fwrite(&it, sizeof it, 1, stdout); }}"


def pack_by_bits(form: str, layout: Layout, rows: np.ndarray) -> str:
    """`put` by the macros of each field's number: a flag has one, others first and last."""
    macro = [f"VTA_INSN_{form}_{'0123456789ABCDEFG'[index]}" for index in range(len(layout.fields))]
    flags = {"pop_prev", "pop_next", "push_prev", "push_next", "reset_reg", "use_imm"}
    places = [
        f"{name}, {name}" if field.name in flags else f"FIRST({name}), LAST({name})"
        for name, field in zip(macro, layout.fields, strict=True)
    ]
    lines = []
    for row in rows.tolist():
        puts = " ".join(f"put(w, {at}, (uint64_t){number(value)});" for at, value in zip(places, row, strict=True))
        lines.append(f"  {{ uint64_t w[2] = {{0, 0}}; {puts} fwrite(w, 16, 1, stdout); }}")
    return "\n".join(lines)


def number(value: int) -> str:
    return f"{value}LL" if value >= 0 else f"({value}LL)"
