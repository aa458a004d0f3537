"""ALU operations of the user's own: their expressions, what is refused, and programs that need their code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.streams import EXAMPLE, OWN_ALU
from tilewright.array import Array
from tilewright.cli import main
from tilewright.errors import ConfigError, MachineError, ProgramError
from tilewright.program import file
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa import own
from tilewright.targets.vta.isa.expression import parse
from tilewright.targets.vta.isa.own import OwnOperation
from tilewright.targets.vta.runtime import AluOp, Memory, Runtime, UopRecorder

PYNQ = PRESETS["pynq"]
SEED = 20261123
MANY = range(40)


class Word(int):
    """An integer of 64 bits: Python evaluates the same text with it, one operation after the other."""

    def __new__(cls, value: int) -> Word:
        return super().__new__(cls, ((int(value) + (1 << 63)) % (1 << 64)) - (1 << 63))

    def __lshift__(self, by: int) -> Word:
        return Word(int(self) << by) if 0 <= by < 64 else Word(0)

    def __rshift__(self, by: int) -> Word:
        return Word(int(self) >> (by if 0 <= by < 64 else 64))


def wrapping(name: str) -> Any:
    plain = getattr(int, name)
    return lambda *values: Word(plain(*map(int, values)))


for each in ("add", "sub", "mul", "and", "or", "xor", "neg", "invert", "abs", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Word, f"__{each}__", wrapping(f"__{each}__"))
NAMES = {
    "min": lambda a, b: Word(min(int(a), int(b))),
    "maximum": lambda a, b: Word(max(int(a), int(b))),
    "abs": abs,
    "where": lambda c, a, b: a if int(c) else b,
    "clip": lambda x, low, high: Word(min(max(int(x), int(low)), int(high))),
    **{f"int{bits}": lambda x, b=bits: Word((int(x) + (1 << b - 1)) % (1 << b) - (1 << b - 1)) for bits in (8, 16, 32)},
}


def expression(rng: np.random.Generator, depth: int) -> str:
    kind = rng.integers(0, 8) if depth else rng.integers(0, 2)
    if kind == 0:
        return str(rng.choice(["dst", "src", "imm"]))
    if kind == 1:
        return f"Word({int(rng.choice([0, 1, 3, 64, -5, 1 << 31, (1 << 63) - 1, int(rng.integers(-99, 99))]))})"
    a, b, c = (expression(rng, depth - 1) for _ in range(3))
    if kind < 5:
        return f"({a} {rng.choice(['+', '-', '*', '&', '|', '^', '<<', '>>', '<', '<=', '>', '>=', '==', '!='])} {b})"
    if kind == 5:
        return f"({rng.choice(['-', '~', 'abs', 'int8', 'int16', 'int32'])}({a}))"
    return str(rng.choice([f"min({a}, {b})", f"maximum({a}, {b})", f"where({a}, {b}, {c})", f"clip({a}, {b}, {c})"]))


@pytest.mark.parametrize("trial", MANY)
def test_expressions_are_what_python_computes_in_64_bits(trial: int) -> None:
    rng = np.random.default_rng(SEED + trial)
    text = expression(rng, int(rng.integers(1, 4)))
    special = [-(1 << 31), (1 << 31) - 1, -1, 0, 1, 40, -64]
    dst, src = (np.array([*special, *rng.integers(-(1 << 31), 1 << 31, 5)]) for _ in "ab")
    rng.shuffle(src)
    imm = int(rng.integers(-40, 70))
    found = parse(text.replace("Word", ""), "test").on(dst.astype(np.int32), src.astype(np.int32), imm)
    for a, b, result in zip(dst.tolist(), src.tolist(), found.tolist(), strict=True):
        given = {"dst": Word(a), "src": Word(b), "imm": Word(imm), "Word": Word}
        assert int(eval(text, NAMES | given)) == result, f"seed {SEED + trial}: {text} of {a}, {b}, {imm}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not an expression"),
        ("dst if", "is not an expression"),
        ("\0", "is not an expression"),
        ("-" * 900 + "1", ""),
        ("(" * 500 + "1" + ")" * 500, ""),
        ("dst" + "+1" * 200, "401 steps"),
        ("+".join(["dst"] * 400), "1599 characters"),
        ("min(dst, " * 20 + "1" + ", 1)" * 20, "has 3 arguments"),
        ("dst + (" * 13 + "1" + ")" * 13, "keeps 14 values"),
        ("dst / src", "'dst / src' is not allowed"),
        ("0 < dst < 9", "is not allowed"),
        ("dst.real", "'dst.real' is not allowed"),
        ("__import__('os').system('true')", "no function"),
        ("open('x')", "no function 'open'"),
        ("lambda: 0", "does not name known code"),
        ("[dst for dst in (1,)]", "is not allowed"),
        ("1.5", "'1.5' is not allowed"),
        ("True", "'True' is not allowed"),
        ("1 << 9223372036854775808", "is not allowed"),
    ],
)
def test_other_texts_are_refused_and_not_run(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OwnOperation("mine", 5, text)
    assert reason in str(caught.value)


MINE: dict[str, Any] = {"name": "mine", "opcode": 5, "meaning": "dst"}


@pytest.mark.parametrize(
    ("changes", "keys", "reason"),
    [
        ({"name": "Mine"}, {}, 'is "Mine"; use a to z'),
        ({"name": "mulh"}, {}, "that of a built-in operation"),
        ({"name": "op5"}, {}, "that of a built-in operation"),
        ({"opcode": 3}, {}, "opcode 3 is that of SHR of alu=upstream; free opcodes are 5, 6, 7"),
        ({"opcode": 6}, {"alu": "rounding"}, "is that of RSHR of alu=rounding; free opcodes are 7"),
        ({"opcode": 7}, {"alu": "fused"}, "has 3 bits, and more if LOG_ACC_BUFF_SIZE is smaller"),
        ({"opcode": 8}, {}, "opcode 8 does not fit: with these memories the field has 3 bits; free opcodes are 5, 6"),
        ({"opcode": 128}, {"LOG_ACC_BUFF_SIZE": 16}, "has 7 bits"),
        ({"opcode": "5"}, {}, 'opcode is "5"'),
        ({"latency": 65}, {}, "latency is 65, not an integer in 0..64"),
        ({"cycles": 0}, {}, "cycles is 0"),
        ({"energy": ["magic"]}, {}, "give a list of add"),
        ({"speed": 1}, {}, 'unknown key "speed"'),
        ({"meaning": "other.py:f"}, {}, "'other.py:f' does not name known code"),
        ({"lane": "other.py:Lane"}, {}, "does not name known code"),
        ({}, {"semantics": "fsim"}, "set semantics to hls"),
        ({}, {"LOG_ACC_WIDTH": 4, "LOG_ACC_BUFF_SIZE": 16}, "own_alu computes in 32 bits"),
    ],
)
def test_a_wrong_definition_is_refused(changes: dict[str, Any], keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_json(PYNQ.to_dict() | keys | {"own_alu": [MINE | changes]})
    assert reason in str(caught.value)


def test_two_operations_have_two_names_and_opcodes() -> None:
    for changes, reason in (({"opcode": 6}, "have this name"), ({"name": "other"}, "opcode 5 is that of mine")):
        with pytest.raises(ConfigError, match=reason):
            Config.from_json(PYNQ.to_dict() | {"own_alu": [MINE, MINE | changes]})
    for wrong in list[Any](["x", {"a": 1}, [1], [{}]]):
        with pytest.raises(ConfigError, match="own_alu"):
            Config.from_json(PYNQ.to_dict() | {"own_alu": wrong})
    with pytest.raises(ConfigError, match="give that as the machine"):
        PYNQ.with_overrides({"own_alu": "x"})


def clipped(dst: Array, imm: int) -> Array:
    return np.clip(dst, -imm, imm)


FUNCTION = """
import numpy as np

def halves(dst, src, imm):
    return (dst + src) // 2 + imm
"""


def machine_file(folder: Path, **changes: Any) -> str:
    """A machine's file that names a function in `halves.py` beside it."""
    operation = {"name": "halves", "opcode": 7, "meaning": "halves.py:halves"} | changes
    (folder / "halves.py").write_text(FUNCTION)
    path = folder / "machine.json"
    path.write_text(json.dumps(PYNQ.to_dict() | {"own_alu": [operation]}))
    return str(path)


def alu(kernel: UopRecorder, opcode: AluOp | str, imm: int | None) -> None:
    with kernel.uop_loop(2, dst=1, src=1):
        kernel.uop_push(0, 2, opcode=opcode, imm=imm)


def made(config: Config, opcode: AluOp | str, imm: int | None, path: Path | None = None) -> Array:
    """Two rows of 16 values, the results of an operation on them and two others, in int8."""
    values = np.arange(64, dtype=np.int32).reshape(4, 16) * 3 - 90
    with Runtime(config) as rt:
        x, out = rt.to_device(values, Memory.ACC, "x"), rt.empty((2, 16), Memory.OUT, "out")
        rt.load_buffer_2d(x, 0, 4, 1, 4, 0, Memory.ACC)
        rt.push_alu(alu, opcode, imm)
        rt.dep_push("compute", "store")
        rt.dep_pop("compute", "store")
        rt.store_buffer_2d(0, Memory.OUT, out, 0, 2, 1, 2)
        if path:
            file.save(rt.program(), path)
        assert not rt.synchronize().findings
        return rt.from_device(out, Memory.OUT, (2, 16))


def test_functions_and_operands_of_hand_written_programs(tmp_path: Path) -> None:
    """`imm` is the second operand of an operation that has no other use for it."""
    values = np.arange(64).reshape(4, 16) * 3 - 90
    dst, src = values[:2], values[2:]
    config = Config.read(machine_file(tmp_path), {})
    np.testing.assert_array_equal(made(config, "halves", 4), ((dst + src) // 2 + 4).astype(np.int8))
    operations = (
        OwnOperation("apart", 5, "abs(dst - src)"),
        OwnOperation("within", 6, own.code(clipped)),
        OwnOperation("both", 7, "dst - (src << imm)"),
    )
    config = replace(PYNQ, own_alu=operations)
    np.testing.assert_array_equal(made(config, "apart", None), np.abs(dst - src).astype(np.int8))
    np.testing.assert_array_equal(made(config, "apart", -3), np.abs(dst + 3).astype(np.int8))
    np.testing.assert_array_equal(made(config, "within", 7), np.clip(dst, -7, 7).astype(np.int8))
    np.testing.assert_array_equal(made(config, "both", 2), (dst - (src << 2)).astype(np.int8))
    np.testing.assert_array_equal(made(config, "add", None), made(config, AluOp.ADD, None))
    with pytest.raises(ProgramError, match="has no mystery; its operations are min, max, add, shr, mul, apart"):
        made(config, "mystery", None)
    negated = replace(PYNQ, own_alu=(OwnOperation("negated", 5, "-dst"),))
    with pytest.raises(ProgramError, match="negated takes no immediate"):
        made(negated, "negated", 3)


def test_a_function_that_fails_is_one_error() -> None:
    def wrong(dst: Array) -> Array:
        return dst / 2

    def other(x: Array) -> Array:
        return x

    for function, reason in ((wrong, "returns float64, not integers"), (other, "name them after operands")):
        config = replace(PYNQ, own_alu=(OwnOperation("wrong", 5, own.code(function)),))
        with pytest.raises((MachineError, ConfigError), match=reason):
            made(config, "wrong", None)


def test_a_program_carries_its_definition_but_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that has not read the machine's file neither finds nor imports the function."""
    machine, path = machine_file(tmp_path), tmp_path / "a.twp"
    made(Config.read(machine, {}), "halves", 4, path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "_CODE_BY_NAME", {})
    assert main(["check", str(path)]) == 0
    assert main(["disasm", str(path)]) == 0
    said = capsys.readouterr()
    assert "alu halves" in said.out
    assert '"meaning": "halves.py:halves#' in said.out
    assert main(["exec", str(path)]) == 2
    assert "defined by code, halves.py:halves, which a program file does not carry" in capsys.readouterr().err
    assert main(["exec", str(path), "-c", machine]) == 0
    capsys.readouterr()
    (tmp_path / "halves.py").write_text(FUNCTION + "# changed\n")
    assert main(["exec", str(path), "-c", machine]) == 2
    assert "is another machine than the program's: own_alu is" in capsys.readouterr().err
    monkeypatch.setattr(own, "_CODE_BY_NAME", {})
    Config.read(machine, {})
    assert main(["exec", str(path)]) == 2
    assert "was defined by another version of halves.py:halves" in capsys.readouterr().err


def test_an_expression_travels_with_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(PYNQ, own_alu=(OwnOperation("apart", 5, "abs(dst - src)"),))
    path, text, again = (tmp_path / name for name in ("a.twp", "a.txt", "b.twp"))
    made(config, "apart", None, path)
    assert main(["exec", str(path), "--json"]) == 0
    capsys.readouterr()
    assert main(["disasm", str(path)]) == 0
    text.write_text(capsys.readouterr().out)
    assert "alu apart uop_bgn=0" in text.read_text()
    assert main(["asm", str(text), "-o", str(again)]) == 0
    assert file.load(again).digest == file.load(path).digest
    other = tmp_path / "other.json"
    other.write_text(json.dumps(PYNQ.to_dict() | {"own_alu": [MINE]}))
    assert main(["exec", str(path), "-c", str(other)]) == 2
    capsys.readouterr()
    text.write_text(text.read_text().replace("alu apart", "alu op6"))
    assert main(["asm", str(text), "-o", str(again)]) == 0
    assert main(["exec", str(again)]) == 2
    assert "unknown ALU opcode 6; this machine has MIN 0" in capsys.readouterr().err


def test_the_machine_shows_its_operations_and_needs_lanes_for_gateware(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = str(EXAMPLE / "machine.json")
    config = Config.read(machine, {})
    assert Config.from_json(config.to_dict()) == config
    assert config.plain == replace(config, own_alu=tuple(replace(each, lane="") for each in OWN_ALU[:2])).plain
    assert main(["targets", "vta", "-c", machine]) == 0
    assert "MUL, ABSDIFF, LEAKY" in capsys.readouterr().out
    assert main(["header", "vta", "-c", machine]) == 0
    assert "#define VTA_ALU_OPCODE_ABSDIFF 5" in " ".join(capsys.readouterr().out.split())
    assert main(["rtl", "vta", "-c", machine_file(tmp_path), "-o", str(tmp_path / "rtl")]) == 2
    assert "operation 'halves': has no lane, so the machine cannot be built" in capsys.readouterr().err
