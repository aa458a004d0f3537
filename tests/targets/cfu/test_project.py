"""Firmware of the user's own: `new-firmware`, `--firmware`. Faults are put into kernels, and must be named."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.targets.cfu.elf_files import tiny
from tests.targets.cfu.gdb_client import Client
from tests.targets.cfu.networks import network
from tilewright import contract, errors
from tilewright.cli import main
from tilewright.errors import InputError, MachineError
from tilewright.program import file
from tilewright.report.result import RunResult
from tilewright.run import run as run_program
from tilewright.targets.cfu import TARGET
from tilewright.targets.cfu.compiler import layout
from tilewright.targets.cfu.compiler import project as projects
from tilewright.targets.cfu.compiler.firmware import compilers
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.runtime import kernel_check

EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "digits" / "digits.tflite"
riscv = pytest.mark.riscv
#: A depthwise convolution with stepped pointers in the place of computed addresses. It takes one channel multiplier.
POINTERS = """#include "kernels.h"
LAYER(depthwise_conv_2d) {
  const int depth = op->in_c;
  int8_t *output = o->output;
  for (int out_y = 0; out_y < op->out_h; out_y++)
    for (int out_x = 0; out_x < op->out_w; out_x++)
      for (int c = 0; c < depth; c++) {
        int32_t acc = o->bias[c];
        const int8_t *weight = o->weights + c;
        for (int tap_y = 0; tap_y < op->kernel_h; tap_y++) {
          const int y = out_y * op->stride_h + tap_y - op->pad_h;
          for (int tap_x = 0; tap_x < op->kernel_w; tap_x++, weight += depth) {
            const int x = out_x * op->stride_w + tap_x - op->pad_w;
            if ((unsigned)y < (unsigned)op->in_h && (unsigned)x < (unsigned)op->in_w)
              acc += *weight * (o->input[(y * op->in_w + x) * depth + c] + op->input_offset);
          }
        }
        acc = scale_software(acc, o->multiplier[c], o->shift[c]) + op->output_offset;
        *output++ = (int8_t)clamp(acc, op->low, op->high);
      }
}
"""
#: An addition by the instructions for post-processing, under their author's names.
AUTHORS = """#include "kernels.h"
LAYER(add) {
  for (int i = 0; i < op->out_h * op->out_w * op->out_c; i++) {
    post_set_SRDHM((o->input[i] + op->input_offset) << 20, op->input_multiplier);
    const int32_t first = post_RDBPOT(post_get_SRDHM(), -op->input_shift);
    post_set_SRDHM((o->input2[i] + op->input2_offset) << 20, 1 << 30);
    const int32_t second = post_get_SRDHM();
    post_set_SRDHM(first + second, op->output_multiplier);
    const int32_t sum = post_RDBPOT(post_get_SRDHM(), -op->output_shift);
    o->output[i] = (int8_t)clamp(post_off_maxmin(sum, op->output_offset), op->low, op->high);
  }
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert main(["new-firmware", str(tmp_path / "own")]) == 0
    return tmp_path / "own"


def changed(project: Path, name: str, old: str, new: str) -> None:
    path = project / "src" / f"{name}.c"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def codes(samples: int = 1) -> np.ndarray:
    return np.random.default_rng(2).integers(-128, 128, (samples, 1, 8, 8, 1)).astype(np.int8)


def run(project: Path, samples: int = 1) -> RunResult:
    with TARGET.with_firmware(project):
        return tw.compile(DIGITS, "cfu").run(codes(samples))


@riscv
@pytest.mark.parametrize("preset", ["published", "counter8"])
def test_a_project_as_written_computes_what_the_portable_variant_computes(preset: str, project: Path) -> None:
    given = np.random.default_rng(3).integers(-128, 128, (2, 1, 8, 8, 16)).astype(np.int8)
    for graph, inputs in ((network(2), given), (contract.network(), contract.inputs()[:2])):
        with TARGET.with_firmware(project):
            found = tw.compile(graph, "cfu", preset).run(inputs)
        expected = tw.compile(graph, "cfu", preset, {"firmware": "baseline"}).run(inputs)
        assert (found.matches_reference, found.findings) == (True, ())
        assert all(layer.where == "cfu" and layer.cycles for layer in found.layers)
        for name, array in expected.outputs.items():
            np.testing.assert_array_equal(found.outputs[name], array)
        assert 0.9 < found.cycles / expected.cycles < 1.1


@riscv
@pytest.mark.parametrize(
    ("name", "op", "text"), [("depthwise_conv_2d", "depthwise_conv2d", POINTERS), ("add", "add", AUTHORS)]
)
def test_a_faster_kernel_is_seen_in_its_layer_only(name: str, op: str, text: str, project: Path) -> None:
    before = run(project)
    (project / "src" / f"{name}.c").write_text(text)
    after = run(project)
    assert (after.matches_reference, after.findings) == (True, ())
    others = [0, 0]
    for old, new in zip(before.layers, after.layers, strict=True):
        ratio = new.cycles / old.cycles
        # Code that moves has other conflicts in the instruction cache: small layers notice it.
        assert ratio < 0.9 if old.op == op else 0.7 < ratio < 1.4, (old.name, ratio)
        if old.op != op:
            others = [others[0] + old.cycles, others[1] + new.cycles]
    assert 0.95 < others[1] / others[0] < 1.05


@riscv
def test_gdb_controls_the_first_sample_of_a_network(project: Path) -> None:
    """A breakpoint in a kernel stops at each of its layers; the cycles and the report are those without GDB."""
    alone, stops, ended = run(project, 2), list[int](), list[str]()
    with TARGET.with_firmware(project):
        program = tw.compile(DIGITS, "cfu")
        (launch,) = program.launches
        (kernel,) = (one for one in FirmwareImage.of(launch).symbols if one.name == "conv_2d")

        def session(port: int) -> None:
            client = Client(port)
            assert client.ask(f"Z0,{kernel.address:x},4") == "OK"
            while (answer := client.ask("c")).startswith("T05"):
                stops.append(client.register(32))
            ended.append(answer)

        with TARGET.with_gdb(0) as port:
            thread = threading.Thread(target=session, args=[port])
            thread.start()
            debugged = program.run(codes(2))
            thread.join()
    assert stops == [kernel.address] * sum(layer.op == "conv2d" for layer in alone.layers) and ended == ["W00"]
    assert debugged.cycles == alone.cycles and (debugged.matches_reference, debugged.findings) == (True, ())
    assert [layer.cycles for layer in debugged.layers] == [layer.cycles for layer in alone.layers]


@riscv
@pytest.mark.gxx
def test_a_kernel_with_an_instruction_of_the_users(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example: a kernel and the CFU that it needs. The built-in firmware runs on the built-in CFU beside it."""
    before = run(project).cycles
    shutil.copy(EXAMPLES / "firmware" / "conv_2d.c", project / "src")
    arguments = ["run", str(DIGITS), "-t", "cfu", "--firmware", str(project), "--json"]
    assert main([*arguments, "--cfu", str(EXAMPLES / "firmware" / "cfu.v")]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["matches_reference"] and told["cycles"] < 0.7 * before
    built_in = tw.compile(DIGITS, "cfu").run(np.zeros((1, 1, 8, 8, 1), np.int8))
    rows = told["firmware"]["layers"]
    assert [row["kernel"] for row in rows][:2] == ["conv_2d (conv_2d.c)", "depthwise_conv_2d (depthwise_conv_2d.c)"]
    assert told["firmware"]["beside"] == "published" and told["firmware"]["cycles"] == told["cycles"]
    assert sum(row["built_in"] for row in rows) == told["firmware"]["built_in"]
    assert 0.9 < told["firmware"]["built_in"] / built_in.cycles < 1.1  # other data
    assert main(arguments) == 1  # the built-in CFU has other instructions
    (found, *_) = json.loads(capsys.readouterr().out)["findings"]
    assert found["kind"] == "cfu_misuse" or "conv_2d (conv_2d.c)" in found["message"]


@riscv
def test_a_wrong_kernel_is_named_with_its_first_wrong_element(project: Path) -> None:
    """Later layers get the wrong codes, and are right for these."""
    changed(project, "add", "o->output[i] = ", "o->output[i] = i == 83 ? 5 : ")
    result = run(project, 3)
    assert result.matches_reference is False
    (found,) = result.findings
    expected = r"its kernel add (add.c) computes 1 of 1,024 elements of sample 0 wrong; the first is [0, 0, 5, 3]: 5 "
    assert (
        found.kind == kernel_check.WRONG
        and found.steps == (4,)
        and found.message.startswith("layer 'add_4': " + expected)
    )


@riscv
@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("add", "i < size", "i < size + 3", "changes 3 bytes outside of its output, the first 0 bytes after its end"),
        (
            "add",
            "LAYER(add) {",
            "LAYER(add) {\n  o->output[-2] = 77;",
            "1 bytes outside of its output, the first 2 bytes before",
        ),
        ("add", "LAYER(add) {", "LAYER(add) {\n  *(int8_t *)o->input2 ^= 1;", "byte 0 of its input"),
        ("add", "LAYER(add) {", "LAYER(add) {\n  *(int8_t *)memory->constants += 1;", "in the model's constants"),
    ],
)
def test_stores_outside_of_the_output_are_found(name: str, old: str, new: str, said: str, project: Path) -> None:
    changed(project, name, old, new)
    (found, *_) = (found for found in run(project).findings if found.kind == kernel_check.OUTSIDE)
    assert said in found.message and f"its kernel {name} ({name}.c)" in found.message


@riscv
@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("for (;;) o->output[0] = 1;", r"does not end: after [\d,]+ instructions it is at 0x4\w+ in add \(add.c:\d+\)"),
        ("*(volatile int *)16 = 1;", r"store access fault at 0x4\w+ in add \(add.c:\d+\), address 0x10"),
        ("((void (*)(void))0x50000000)();", "instruction access fault"),
    ],
)
def test_a_kernel_that_is_stopped_is_named(new: str, said: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_check, "AT_LEAST", 100_000)
    changed(project, "add", "LAYER(add) {", f"LAYER(add) {{\n  {new}")
    with pytest.raises(MachineError, match=rf"layer 'add_4': its kernel add \(add.c\) .*{said}"):
        run(project)


@riscv
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int size =", "int sise =", r"src/add.c:14: .*size"),
        ("LAYER(add)", "LAYER(sub)", r"undefined (symbol|reference).* .?add"),
        ("LAYER(add)", "#include <no.h>\nLAYER(add)", r"src/add.c:12: .*no.h"),
    ],
)
def test_compile_errors_are_one_line(
    old: str, new: str, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(project, "add", old, new)
    capsys.readouterr()
    assert main(["run", str(DIGITS), "-t", "cfu", "--firmware", str(project)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "does not compile with" in error
    with pytest.raises(InputError, match=said):
        run(project)


@riscv
def test_flags_are_read_and_refused(project: Path) -> None:
    flags = project / "flags.txt"
    flags.write_text(flags.read_text() + "# for this test:\n-include no.h\n")
    with pytest.raises(InputError, match=r"no\.h"):
        run(project)
    flags.write_text("-O3 '")
    with pytest.raises(InputError, match=r"flags.txt: cannot be read: No closing quotation"):
        run(project)


@riscv
def test_a_compiler_that_does_not_end_is_stopped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "PATIENCE", 0.001)
    with pytest.raises(InputError, match=r"is not compiled in 0.001 s"):
        run(project)


@riscv
def test_a_saved_program_checks_its_kernels(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(project, "add", "o->output[i] = ", "o->output[i] = i == 83 ? 5 : ")
    saved = str(tmp_path / "own.twp")
    assert main(["compile", str(DIGITS), "-t", "cfu", "--firmware", str(project), "-o", saved]) == 0
    capsys.readouterr()
    assert main(["exec", saved, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == kernel_check.WRONG
    assert main(["check", saved]) == 1
    assert "add (add.c) computes" in capsys.readouterr().out
    assert main(["explain", str(DIGITS), "-t", "cfu", "--firmware", str(project)]) == 0
    assert "by depthwise_conv_2d (depthwise_conv_2d.c);" in capsys.readouterr().out
    program = file.load(saved)
    blob = program.launches[0].arrays["blob"].copy()  # damaged files follow
    words = blob[: len(blob) // 4 * 4].view("<i4")
    words[len(layout.HEADER) + layout.RECORD.index("out_h")] -= 1
    launch = replace(program.launches[0], arrays={**program.launches[0].arrays, "blob": blob})
    with pytest.raises(errors.ProgramError, match="stores 896 bytes for"):
        run_program(replace(program, steps=(launch,)), codes())
    program.launches[0].meta["kernels"].pop()
    with pytest.raises(errors.ProgramError, match="one kernel for each layer"):
        run_program(program, codes())


@riscv
@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_builds_a_file_that_runs(project: Path) -> None:
    subprocess.run(["make", f"PYTHON={sys.executable}"], cwd=project, check=True, capture_output=True)
    expected, found = run(project), run(project / "build" / "firmware.elf")
    assert (found.matches_reference, found.findings, found.cycles) == (True, (), expected.cycles)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.c").write_text("")
    assert main(["new-firmware", str(tmp_path)]) == 2
    assert "is not empty, and files are never overwritten" in capsys.readouterr().err
    assert main(["new-firmware", str(tmp_path / "mine.c" / "in")]) == 2
    assert main(["new-firmware", str(tmp_path / "new"), "-t", "vta"]) == 2
    assert "vta runs no firmware" in capsys.readouterr().err
    assert main(["new-firmware", str(tmp_path / "new"), "-c", "counter8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert re.search(r"#define CFU_ARRAY +8\n", (tmp_path / "new" / "machine" / "cfu_machine.h").read_text())
    assert sorted(told) == ["files", "folder", "next", "target"] and "src/conv_2d.c" in told["files"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.mkdir(), "has no kernels in src/"),
        (lambda path: None, "is not a file"),
        (lambda path: path.write_bytes(b"text"), "is not an ELF file"),
        (lambda path: path.write_bytes(tiny()), "has no symbol"),
    ],
)
def test_what_is_no_firmware_is_refused(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    make(tmp_path / "own")
    with pytest.raises(errors.TilewrightError, match=said), TARGET.with_firmware(tmp_path / "own"):
        tw.compile(DIGITS, "cfu")


@riscv
def test_firmware_for_more_memory_than_there_is(project: Path, tmp_path: Path) -> None:
    elf = tmp_path / "own.elf"
    elf.write_bytes(projects.Project.at(project)._built(Config(), compilers()[0]))
    with pytest.raises(InputError, match="raise ram_bytes"), TARGET.with_firmware(elf):
        tw.compile(DIGITS, "cfu", overrides={"ram_bytes": "4194304"})
    with TARGET.with_firmware(project):
        assert tw.compile(DIGITS, "cfu", overrides={"ram_bytes": "4194304"}).run(codes()).matches_reference
