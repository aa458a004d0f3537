"""VTA's code: fields equal those a C compiler decoded, and every form round-trips bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.targets.vta.code_text import assemble, disassemble
from tests.targets.vta.records import records_of
from tilewright.errors import ConfigError, ProgramError
from tilewright.program.instruction import Raw
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import Record, decode, decode_uops, encode, encode_uops, groups

PYNQ = PRESETS["pynq"]
GEMM = {
    "opcode": 2,
    "uop_bgn": 1,
    "uop_end": 8192,
    "iter_out": 3,
    "iter_in": 16383,
    "wgt_factor_in": 1023,
    "pop_prev": 1,
}
PROGRAM = """\
.insn
load inp sram_base=3 dram_base=64 y_size=3 x_size=4 x_stride=6 y_pad_0=1 x_pad_1=2 pop:compute push:compute
gemm uop_bgn=1 uop_end=2 iter_out=6 iter_in=7 dst_factor_out=7 dst_factor_in=1 \
src_factor_out=7 src_factor_in=1 wgt_factor_out=0 wgt_factor_in=0 pop:load pop:store
alu shr uop_bgn=0 uop_end=1 iter_out=1 iter_in=24 dst_factor_out=0 dst_factor_in=1 \
src_factor_out=0 src_factor_in=1 use_imm=1 imm=-3 push:store
store out sram_base=0 dram_base=2 y_size=6 x_size=7 x_stride=8 pop:compute push:compute
finish pop:store
.uop
dst=0 src=12 wgt=0
dst=2047 src=2047 wgt=1023
"""


def vectors(shared: Path) -> Iterator[tuple[str, Config, dict[str, np.ndarray]]]:
    paths = sorted((shared / "vta_vectors").glob("*.npz"))
    assert paths
    for path in paths:
        with np.load(path) as vector:
            keep = {"insn", "uop", "fields", "uop_fields"} & set(vector)
            yield path.name, Config.from_json(json.loads(str(vector["config"]))), {k: vector[k] for k in keep}


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any legal configuration, near the limits of the index widths as often as not."""
    inp, wgt = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    acc = draw(st.integers(max(inp, wgt), 5))
    batch, block = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    u, i, w, a = (draw(st.integers(1, high)) for high in (14, 13, 12, 13))
    try:
        return Config(
            TARGET="sim",
            LOG_INP_WIDTH=inp,
            LOG_WGT_WIDTH=wgt,
            LOG_ACC_WIDTH=acc,
            LOG_BATCH=batch,
            LOG_BLOCK=block,
            LOG_UOP_BUFF_SIZE=u + 2,
            LOG_INP_BUFF_SIZE=i + batch + block + inp - 3,
            LOG_WGT_BUFF_SIZE=w + 2 * block + wgt - 3,
            LOG_ACC_BUFF_SIZE=a + batch + block + acc - 3,
        )
    except ConfigError:
        assume(False)
        raise


def random_code(seed: int, count: int, width: int) -> Raw:
    return np.random.default_rng(seed).integers(0, 256, (count, width), np.uint8)


def test_fields_of_every_vector_equal_the_c_compilers(shared: Path) -> None:
    compared = 0
    for name, config, vector in vectors(shared):
        stream = decode(vector["insn"], config)
        if "fields" not in vector:
            continue
        golden = json.loads(str(vector["fields"]))
        assert len(golden) == len(stream)
        for row, expected in enumerate(golden):
            form = expected.pop("_fmt")
            part = getattr(stream, form)
            for key, value in expected.items():
                field = key.removesuffix("_dep")
                found = getattr(stream if hasattr(stream, field) else part, field)[row]
                assert found == value, f"{name}, instruction {row}, {field}"
                compared += 1
        uops = decode_uops(vector["uop"], config)
        if "uop_fields" in vector:
            assert (np.stack([uops.dst, uops.src, uops.wgt], 1) == vector["uop_fields"]).all(), name
    assert compared > 80000


def test_code_and_text_of_every_vector_round_trip(shared: Path) -> None:
    for name, config, vector in vectors(shared):
        assert (encode(records_of(decode(vector["insn"], config), config), config) == vector["insn"]).all(), name
        assert (encode_uops(decode_uops(vector["uop"], config), config) == vector["uop"]).all(), name
        insns, uops = assemble(disassemble(vector["insn"], vector["uop"], config), config)
        assert np.array_equal(insns, vector["insn"]), name
        assert np.array_equal(uops, vector["uop"]), name


@given(configs(), st.integers(0, 2**32 - 1), st.booleans())
def test_any_bits_of_any_configuration_round_trip(config: Config, seed: int, numbered: bool) -> None:
    insns, uops = random_code(seed, 12, 16), random_code(seed, 5, 4)
    fields = insns.copy()
    for _, layout, rows in groups(config.formats.plain.decode(insns)["opcode"], config):
        fields[rows] ^= layout.reserved(fields[rows])
    assert (encode(records_of(decode(insns, config, strict=False), config), config) == fields).all()
    assert (encode_uops(decode_uops(uops, config), config) == uops ^ config.formats.uop.reserved(uops)).all()
    again = assemble(disassemble(insns, uops, config, numbered), config)
    assert np.array_equal(again[0], insns)
    assert np.array_equal(again[1], uops)


@given(configs(), st.data())
def test_any_fields_of_any_configuration_round_trip(config: Config, data: st.DataObject) -> None:
    records: list[Record] = []
    for form, opcodes in (("mem", [0, 1]), ("gemm", [2]), ("alu", [4]), ("plain", [3])):
        layout = config.formats.by_name[form]
        values = {f.name: data.draw(st.integers(f.low, f.high), f.name) for f in layout.fields}
        legal = {"memory_type": len(config.memories), "alu_opcode": len(config.alu_ops)}
        values |= {key: values[key] % size for key, size in legal.items() if key in values}
        records.append(values | {"opcode": data.draw(st.sampled_from(opcodes))})
    stream = decode(encode(records, config), config)
    for row, (form, record) in enumerate(zip(("mem", "gemm", "alu", "plain"), records, strict=True)):
        for key, value in record.items():
            assert getattr(stream if hasattr(stream, key) else getattr(stream, form), key)[row] == value


def test_columns_of_other_formats_are_zero() -> None:
    stream = decode(random_code(1, 400, 16), PYNQ, strict=False)
    opcodes = {"mem": (Opcode.LOAD, Opcode.STORE), "gemm": (Opcode.GEMM,), "alu": (Opcode.ALU,)}
    for form, mine in opcodes.items():
        others = ~np.isin(stream.opcode, mine)
        for column in getattr(stream, form).values():
            assert column.dtype == np.int64
            assert not column[others].any()
            assert column[~others].any()


def test_units_follow_opcode_and_memory() -> None:
    records: list[Record] = [{"opcode": Opcode.LOAD, "memory_type": memory} for memory in Memory]
    records += [{"opcode": opcode} for opcode in (Opcode.STORE, Opcode.GEMM, Opcode.ALU, Opcode.FINISH)]
    for stages, expected in ((3, [1, 0, 0, 1, 1, 1, 1, 0, 2, 1, 1, 1]), (4, [1, 0, 0, 1, 1, 1, 2, 0, 3, 1, 2, 2])):
        machine = PYNQ.with_overrides({"stages": stages, "alu": "fused"})
        assert machine.pipeline.units_of(decode(encode(records, machine), machine, strict=False)).tolist() == expected


def test_token_bits_name_the_queues_between_neighbours() -> None:
    three, four = PYNQ.pipeline, PYNQ.with_overrides({"stages": 4}).pipeline
    assert [queue.name for queue in four.queues(1)] == [
        "load->gemm",
        "gemm->load",
        "gemm->activate",
        "activate->gemm",
        "activate->store",
        "store->activate",
    ]
    for line in (three, four):
        bits = ("pop_prev", "pop_next", "push_prev", "push_next")
        ends = [
            (opcode, memory, unit, bit)
            for unit, (opcode, memory) in enumerate(line.nops)
            for bit in bits
            if 0 <= unit + (1 if bit.endswith("next") else -1) < len(line.units)
        ]
        records: list[Record] = [{"opcode": end[0], "memory_type": end[1], end[3]: 1} for end in ends]
        machine = PYNQ.with_overrides({"stages": len(line.units)})
        pops, pushes = line.tokens(decode(encode(records, machine), machine))
        for number, queue in enumerate(line.queues(1)):
            popping = [end[2] for end, mask in zip(ends, pops.tolist(), strict=True) if mask == 1 << number]
            pushing = [end[2] for end, mask in zip(ends, pushes.tolist(), strict=True) if mask == 1 << number]
            assert (pushing, popping) == ([queue.producer], [queue.consumer])
    assert all({*pair} <= {*range(len(line.units))} for line in (three, four) for pair in line.links)
    edge = decode(encode([{"opcode": Opcode.STORE, "memory_type": Memory.OUT, "push_next": 1}], PYNQ), PYNQ)
    assert not np.array(three.tokens(edge)).any()


def test_small_memories_move_a_factor_into_the_first_word() -> None:
    """uop 9 bits, acc 7 bits: dst_factor_out lands at bit 55 (specs/vta.md, section 2)."""
    tiny = PYNQ.with_overrides(
        {"LOG_UOP_BUFF_SIZE": 11, "LOG_INP_BUFF_SIZE": 11, "LOG_WGT_BUFF_SIZE": 14, "LOG_ACC_BUFF_SIZE": 13}
    )
    assert tiny.formats.gemm.offsets["dst_factor_out"] == 55
    assert tiny.formats.gemm.offsets["dst_factor_in"] == 64
    assert PYNQ.formats.gemm.offsets["dst_factor_out"] == 64


def test_the_default_layout_is_the_documented_one() -> None:
    gemm, alu, mem = PYNQ.formats.gemm.offsets, PYNQ.formats.alu.offsets, PYNQ.formats.mem.offsets
    assert [gemm[k] for k in ("uop_bgn", "uop_end", "iter_out", "iter_in")] == [8, 21, 35, 49]
    assert [gemm[k] for k in ("dst_factor_in", "src_factor_out", "wgt_factor_out", "wgt_factor_in")] == [
        75,
        86,
        108,
        118,
    ]
    assert [alu[k] for k in ("src_factor_in", "alu_opcode", "use_imm", "imm")] == [97, 108, 111, 112]
    assert [mem[k] for k in ("memory_type", "dram_base", "y_size", "x_pad_1")] == [7, 26, 64, 124]
    assert PYNQ.formats.uop.offsets == {"dst": 0, "src": 11, "wgt": 22}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"opcode": 6}, "instruction 1: unknown opcode 6; this machine has LOAD 0"),
        ({"opcode": 0, "memory_type": 7}, "instruction 1: unknown memory id 7; this machine has UOP 0"),
        ({"opcode": 4, "alu_opcode": 5}, "instruction 1: unknown ALU opcode 5; this machine has MIN 0"),
    ],
)
def test_unknown_codes_are_named_with_their_instruction(record: Record, reason: str) -> None:
    code = encode([GEMM, record], PYNQ)
    with pytest.raises(ProgramError, match=reason):
        decode(code, PYNQ)
    assert len(decode(code, PYNQ, strict=False)) == 2


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"opcode": 2, "iter_in": 16384}, "GEMM instruction 1: iter_in is 16384, outside"),
        (
            {"opcode": 2, "uop_end": 16384},
            r"GEMM instruction 1: uop_end is 16384, outside 0\.\.16383 \(14 bits\)",
        ),
        ({"opcode": 2, "imm": 1}, "GEMM instruction 1: there is no field imm; the fields are opcode"),
        ({"opcode": 9}, r"instruction 1: opcode is 9, outside 0\.\.7"),
        ({"imm": 1}, "instruction 1: has no opcode"),
        ({"opcode": 2, "reserved": 1}, "GEMM instruction 1: reserved bits overlap fields"),
        ({"opcode": 2, "reserved": -1}, "GEMM instruction 1: reserved bits overlap fields"),
    ],
)
def test_records_that_cannot_be_encoded(record: Record, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        encode([GEMM, record], PYNQ)


def test_the_text_is_as_documented() -> None:
    assert disassemble(*assemble(PROGRAM, PYNQ), PYNQ) == PROGRAM
    stream = decode(assemble(PROGRAM, PYNQ)[0], PYNQ)
    assert stream.opcode.tolist() == [0, 2, 4, 1, 3]
    assert stream.alu.imm.tolist() == [0, 0, -3, 0, 0]
    assert (stream.pop_next.tolist(), stream.push_prev.tolist()) == ([1, 1, 0, 0, 1], [0, 0, 0, 1, 0])


def test_assembly_allows_comments_hex_and_left_out_fields() -> None:
    insns, uops = assemble("# nothing\n\n  load inp   x_size=0x10 # sixteen\r\n.uop\n  wgt=3\n", PYNQ)
    assert (insns == encode([{"opcode": 0, "memory_type": 2, "x_size": 16}], PYNQ)).all()
    assert decode_uops(uops, PYNQ).wgt.tolist() == [3]
    assert [part.shape for part in assemble("", PYNQ)] == [(0, 16), (0, 4)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lod inp", "line 1, column 1: found 'lod'; expected one of load, store, gemm, finish, alu"),
        ("finish\n load", "line 2, column 2: found 'load'; expected one of uop, wgt, inp, .* after it"),
        ("load foo", "line 1, column 6: found 'foo'; expected one of uop, wgt, inp"),
        ("load inp x_size=70000", r"line 1, column 17: found '70000'; expected 0\.\.65535 \(16 bits\)"),
        ("alu add imm=-32769", r"line 1, column 13: found '-32769'; expected -32768\.\.32767"),
        ("load inp x_size=x", "line 1, column 17: found 'x'; expected a number"),
        ("load inp x_size=", "line 1, column 17: found ''; expected a number"),
        ("load inp pop:load", "line 1, column 10: found 'pop:load'; expected pop:prev, pop:compute, "),
        ("gemm memory_type=1", "line 1, column 6: found 'memory_type=1'; expected .*reset_reg="),
        ("load inp opcode=1", "line 1, column 10: found 'opcode=1'; expected "),
        ("load inp x_size=1 x_size=2", "line 1, column 19: found 'x_size=2'; expected x_size only once"),
        ("gemm reserved=1", "line 1, column 15: found '1'; expected bits within 0x8000000000000000,"),
        (".uop\ndst=1\ndst=2048", r"line 3, column 5: found '2048'; expected 0\.\.2047"),
        (".uop 3", "line 1, column 6: found '3'; expected the end of the line"),
    ],
)
def test_errors_name_line_column_and_what_was_expected(text: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=f"^{reason}"):
        assemble(text, PYNQ)
