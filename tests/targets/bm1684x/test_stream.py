"""Command formats: any fields are read back, what is no queue is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.bm1684x.programs import queues, sum_of_two
from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.isa.stream import DMA_TYPES, FORMATS, TIU_TYPES, decode, encode, new_command

SEED = 3
#: Bits of the formats: the vendor's sheet.
SHORT_BITS = {"CONV": 512, "PorD": 512, "MM": 384, "MM2": 256, "AR": 512, "RQ&DQ": 256, "TRANS&BC": 256, "SG": 384}
SHORT_BITS |= {"SGL": 384, "SEG": 128, "SFU": 256, "LIN": 256, "CMP": 384, "VC": 384, "LAR": 128, "SYSID": 128}
SHORT_BITS |= {"DMA_sys": 128, "DMA_general": 384, "DMA_masked_select": 512, "DMA_nonzero": 384}
FUNCTIONS = {"MM": (1, 2, 3), "MM2": (4, 5, 6), "SG": range(17), "SGL": (17, 18)}


def test_formats_have_the_size_of_the_sheet() -> None:
    for (name, short), form in FORMATS.items():
        exception = name in ("LAR", "SYSID")
        want = SHORT_BITS[name] if short or exception else 768 if name.startswith("DMA") else 1024
        assert form.layout.bits == want, name
        assert sum(field.width for field in form.layout.fields) == want, name


@pytest.mark.parametrize("key", [key for key in FORMATS if key[0] not in ("SEG", "SYSID")], ids=str)
def test_any_fields_are_read_back(key: tuple[str, bool]) -> None:
    name, short = key
    rng = np.random.default_rng(SEED)
    form = FORMATS[key]
    kinds = {format_name: kind for kind, format_name in (TIU_TYPES | {}).items()} | {"MM2": 2, "SGL": 6}
    numbers = {format_name: kind for kind, format_name in DMA_TYPES.items()}
    for _ in range(20):
        fields = {f.name: int(rng.integers(0, f.high + 1)) for f in form.layout.fields if f.name in form.names}
        if name in numbers:
            engine = DMA
            fields |= {"cmd_type": numbers[name], "cmd_short": int(short)}
        else:
            engine = TIU
            function = int(rng.choice(list(FUNCTIONS.get(name, range(31)))))
            fields |= {"tsk_typ": kinds[name], "tsk_eu_typ": function}
            fields |= {} if name == "LAR" else {"cmd_short": int(short)}
        command = new_command(engine, 0, name, short, fields)
        end = queues([], [])[engine]
        decoded = decode(engine, np.concatenate([encode([command]), end]))
        assert dict(decoded[0].fields) == fields, (name, f"seed {SEED}")
        assert decoded[0].format.name == name
        np.testing.assert_array_equal(encode(decoded[:1]), encode([command]))


def test_padding_behind_the_end_is_ignored() -> None:
    raw = sum_of_two()[TIU]
    assert len(decode(TIU, np.concatenate([raw, np.zeros(100, np.uint8)]))) == len(decode(TIU, raw)) == 2


@pytest.mark.parametrize(
    ("engine", "raw", "message"),
    [
        (TIU, sum_of_two()[TIU][:-16], "no end"),
        (TIU, sum_of_two()[TIU][:40], "has 64 bytes; only 40 are left"),
        (TIU, sum_of_two()[TIU][:-8], "only 8 bytes are left"),
        (DMA, np.full(96, 0xFF, np.uint8), "type 15"),
        (TIU, np.zeros(0, np.uint8), "no end"),
        (HAU, np.zeros(32, np.uint8), "engine hau"),
    ],
)
def test_what_is_no_queue_is_refused(engine: str, raw: Array, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        decode(engine, raw)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProgramError, match="cmd_id is 1048576"):
        encode([new_command(TIU, 0, "AR", True, {"cmd_id": 1 << 20})])
    with pytest.raises(ProgramError, match="no field opd9"):
        encode([new_command(TIU, 0, "AR", True, {"opd9": 1})])
    with pytest.raises(ProgramError, match="there is no short format DMA_tensor"):
        new_command(DMA, 0, "DMA_tensor", True, {})
