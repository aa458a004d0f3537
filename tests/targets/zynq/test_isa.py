"""Descriptors: bits, text and C agree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.program import instruction, words
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.layer import DESCRIPTORS, LAYOUT, OPERANDS, RULES, Kind
from tilewright.targets.zynq.runtime.driver import engine_header


def rows(seed: int) -> list[dict[str, int]]:
    """Every field of every kind at its ends and in between."""
    rng, descriptors = np.random.default_rng(seed), []
    for kind, operands in OPERANDS.items():
        for name in operands:
            field = LAYOUT.by_name[name]
            high = len(RULES) - 1 if name == "rule" else field.high
            for value in (field.low, high, int(rng.integers(field.low, high + 1))):
                descriptors.append({"kind": int(kind), name: value})
    return descriptors


def test_descriptors_round_trip_as_bits_and_text() -> None:
    code = LAYOUT.encode_rows(rows(3))
    lines = [DESCRIPTORS.notation.show(row) for row in instruction.rows(DESCRIPTORS.decode(code))]
    again = [DESCRIPTORS.notation.read(words.split(line, 1)) for line in lines]
    np.testing.assert_array_equal(LAYOUT.encode_rows(again), code)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"kind": int(Kind.POOL), "oc": 3}, "pool has no oc"),
        ({"kind": int(Kind.FC), "rows": 3}, "fc has no rows"),
        ({"kind": int(Kind.FC), "rule": 7}, "is not a legal instruction"),
    ],
)
def test_what_is_no_layer_is_refused(row: dict[str, int], said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        DESCRIPTORS.decode(LAYOUT.encode_rows([row]))


def test_a_bit_beyond_all_fields_is_refused() -> None:
    code = LAYOUT.encode_rows([{"kind": int(Kind.FC)}])
    code[0, -1] |= 128
    with pytest.raises(ProgramError, match="descriptor 0"):
        DESCRIPTORS.decode(code)


@pytest.mark.gxx
@pytest.mark.parametrize("preset", PRESETS)
def test_the_c_structure_has_the_same_bits(preset: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = {f.name: int(rng.integers(f.low, f.high + 1)) for f in LAYOUT.fields}
    sets = "\n".join(f"  d.{name} = {value};" for name, value in values.items())
    source = f'#include "z.h"\n#include <stdio.h>\nint main(void) {{\n  zynq_descriptor d = {{0}};\n{sets}\n'
    source += "  fwrite(&d, sizeof d, 1, stdout);\n  return ZYNQ_LAYOUT > ZYNQ_LAYOUT_ROWS;\n}\n"
    (tmp_path / "z.h").write_text(engine_header(Config.read(preset, {})))
    (tmp_path / "a.c").write_text(source)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *strict, "a.c", "-o", "a.out"], cwd=tmp_path, check=True)
    written = subprocess.run(["./a.out"], cwd=tmp_path, check=True, capture_output=True).stdout
    assert written == LAYOUT.encode({name: [value] for name, value in values.items()}).tobytes()
