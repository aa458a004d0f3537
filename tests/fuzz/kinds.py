"""The kinds of files that Tilewright reads: how to make a small valid one, how to damage it, what reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copy, rmtree
from typing import Any

import numpy as np

import tilewright as tw
from tests.conftest import ROOT, SHARED
from tests.fuzz.mutate import Mutator, array, bytewise, integers, json_lines, json_text, npy, text, zipped
from tilewright import targets
from tilewright.cli import main
from tilewright.program import file
from tilewright.program.program import Program

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
RUN = f"run {DIGITS} -t vta --no-what-if --json"
WALK = "where\nstep 3\ninsn 2\nend\nback\nstart\nbreak when unit == 'load'\nrun\nbreaks\ndelete 1\n"


@dataclass(frozen=True)
class Kind:
    """A kind of file. `make` writes a valid one, and all that its commands need, to a folder.

    `damage` are the ways to damage the files that match a pattern; `commands` read them: {odd} is the damaged file, {f}
    the folder, {out} one for results. `call` stands in the place of commands for files that only Python reads.
    """

    name: str
    make: Callable[[Path], object]
    damage: Mapping[str, tuple[Mutator, ...]]
    commands: tuple[str, ...] = ("",)
    call: Callable[[Path], object] | None = None
    golden: bool = False  # made of golden data, which may be missing


def _ran(command: str, **files: Path) -> None:
    status = main(command.format(**files).split())
    assert status == 0, f"tilewright {command} ends with status {status}"


def _tflite(folder: Path) -> None:
    from tests.model.tflite_cases import EACH, written

    for index, (name, dtype) in enumerate(EACH):
        written(name, dtype, index, folder / f"op{index}.tflite")
    for index in range(len(EACH) // 2):
        copy(DIGITS, folder / f"digits{index}.tflite")
    (folder / "script").write_text(WALK)


def _onnx(folder: Path) -> None:
    from tests.fuzz.networks import kernels, network

    for index, made in enumerate((network(1), network(2), kernels())):
        (folder / f"net{index}.onnx").write_bytes(made.SerializeToString())


def _float(folder: Path) -> None:
    from tests.fuzz.networks import real

    (folder / "real.onnx").write_bytes(real().SerializeToString())
    data = np.random.default_rng(1).random((4, 1, 2, 6, 6), np.float32)
    np.save(folder / "x.npy", data)
    np.savez(folder / "x.npz", data)


def _programs(folder: Path) -> None:
    for name in targets.names():
        file.save(tw.compile(DIGITS, name), folder / f"{name}.twp")
    file.save(tw.compile(DIGITS, "vta", overrides={"stages": "4", "alu": "fused"}), folder / "four.twp")
    (folder / "script").write_text(WALK)


def _runs(folder: Path) -> None:
    for name in ("vta", "zynq", "bm1684x"):
        _ran(
            "run {model} -t " + name + " --no-what-if --json --energy default --save {out}",
            model=DIGITS,
            out=folder / f"{name}.twr",
        )
    copy(folder / "vta.twr", folder / "good.run")
    (folder / "script").write_text("where\nstep 3\n")


def _elf(folder: Path) -> None:
    """Write an ELF file with symbols and lines, and one of firmware; without a compiler, one made by hand."""
    from tests.targets.cfu.compiler import compiled
    from tests.targets.cfu.elf_files import tiny
    from tilewright.targets.cfu.compiler import firmware

    (folder / "a.elf").write_bytes(tiny())
    if firmware.compilers():
        (folder / "made").mkdir()
        symbols = {"model": 0x40080000, "text_end": 0x40000080, "stack_top": 0x40600000}  # those of firmware
        source = "".join(f'__asm__(".globl {name}\\n.set {name}, {value}");\n' for name, value in symbols.items())
        source += "volatile int x = 3;\nint twice(int y) { return 2 * y; }\nint main(void) { return twice(x); }\n"
        compiled(folder / "made", source).rename(folder / "a.elf")
        rmtree(folder / "made")


def _assembly(folder: Path) -> None:
    for name in targets.names():
        if name != "cfu":  # its programs are firmware
            program = tw.compile(DIGITS, name)
            (folder / f"{name}.txt").write_text(_listed(program))


def _listed(program: Program) -> str:
    return file.with_machine(program, targets.get(program.target).disassemble(program))


def _space(folder: Path) -> None:
    space = {
        "config": "pynq",
        "set": {"LOG_WGT_BUFF_SIZE": 18},
        "keys": {"LOG_ACC_BUFF_SIZE": "16..17", "LOG_INP_BUFF_SIZE": [14, 15]},
        "where": ["LOG_INP_BUFF_SIZE < 20"],
        "about": "text",
    }
    (folder / "space.json").write_text(json.dumps(space))


def _schedule(folder: Path) -> None:
    _ran("explain {model} -t vta --save-schedule {out}", model=DIGITS, out=folder / "s.json")


def _configs(folder: Path) -> None:
    for name in targets.names():
        keys = targets.get(name).config(None, {}).to_dict()
        (folder / f"{name}.json").write_text(json.dumps(keys))
    file.save(tw.compile(DIGITS, "vta"), folder / "p.twp")


def _samples(folder: Path) -> None:
    rng = np.random.default_rng(2)
    shape = tw.load(DIGITS).tensors[tw.load(DIGITS).inputs[0]].shape
    data = rng.integers(-128, 128, (2, *shape), np.int8)
    np.save(folder / "x.npy", data)
    np.savez(folder / "x.npz", inputs=data, labels=np.array([1, 2]))
    (folder / "x.bin").write_bytes(data.tobytes())
    (folder / "labels.txt").write_text("1\n2\n")
    np.save(folder / "labels.npy", np.array([1, 2]))
    file.save(tw.compile(DIGITS, "vta"), folder / "p.twp")
    (folder / "script").write_text("step 2\n")
    (folder / "names.txt").write_text("".join(f"class {number}\n" for number in range(10)))
    for sub in ("mixed", "more"):
        (folder / sub).mkdir()
    np.save(folder / "mixed" / "a.npy", data)
    np.savez(folder / "mixed" / "b.npz", inputs=data)


def _images(folder: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(3).integers(0, 256, (8, 8), np.uint8)
    for suffix in ("png", "jpg", "jpeg", "bmp", "gif", "webp", "ppm", "pgm"):
        Image.fromarray(pixels).save(folder / f"x.{suffix}")


def _study(folder: Path) -> None:
    space = "--vary LOG_ACC_BUFF_SIZE=15..16 --vary LOG_WGT_BUFF_SIZE=16..17"
    command = f"sweep {{model}} -t vta {space} --workers 1 -o {{out}}"
    _ran(command, model=DIGITS, out=folder / "study")


def _foreign(folder: Path) -> None:
    from tests.targets.vta.raw_folders import product

    product(folder)
    (folder / "script").write_text(WALK)


def _energy(folder: Path) -> None:
    from tilewright.energy import table

    for path in table.FOLDER.glob("*.toml"):
        copy(path, folder)
    (folder / "own.toml").write_text((table.FOLDER / "ddr3.toml").read_text())


def _vectors(folder: Path) -> None:
    for pattern in ("vta_vectors/pynq__div_*.npz", "gemmini_vectors/dim4__*.npz"):
        for path in sorted(SHARED.glob(pattern))[:4]:
            (folder / path.parent.name).mkdir(exist_ok=True)
            copy(path, folder / path.parent.name)
    index = json.loads((SHARED / "gemmini_vectors" / "index.json").read_text())
    (folder / "gemmini_vectors" / "index.json").write_text(json.dumps(index[:40]))


def _tpu_vectors(folder: Path) -> None:
    for name in ("cast", "hau", "select"):
        cases = json.loads((SHARED / f"tpu_vectors/ops/{name}.json").read_text())
        (folder / f"{name}.json").write_text(json.dumps(cases[:6]))
        copy(SHARED / f"tpu_vectors/ops/{name}.npz", folder)
    (folder / "net").mkdir()
    for name in ("INT8.cmdbuf.npz", "INT8.json", "INT8.output.npz", "input.npz"):
        copy(SHARED / "tpu_vectors" / "nets" / "relu_1_80_33" / name, folder / "net")


def _firmware(folder: Path) -> None:
    from tilewright.targets.bm1684x.host.firmware import Firmware

    Firmware({"scale": "def f():\n    pass\n", "other": "x = 1\n"}).save(folder / "fw.bin")


def _firmware_read(folder: Path) -> None:
    from tilewright.targets.bm1684x.host.firmware import Firmware

    Firmware.load(folder / "fw.bin")


@cache
def _device() -> Any:
    from tests.targets.bm1684x.recordings import recorded

    return recorded()[0]


def _recording(folder: Path) -> None:
    from tests.targets.bm1684x.recordings import recorded

    recorded()[1].save(folder / "r.npz")


def _replayed(folder: Path) -> None:
    from tilewright.targets.bm1684x.runtime.recording import Recording

    _device().replay(Recording.load(folder / "r.npz"))


def _script(folder: Path) -> None:
    file.save(tw.compile(DIGITS, "vta"), folder / "p.twp")
    (folder / "script").write_text(WALK)


def _changed(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage an ONNX file so that it stays one."""
    from tests.fuzz.networks import meaningful

    return meaningful(content, rng)


NAMES = tuple(targets.names())
_ARCHIVE = (bytewise, zipped, zipped, zipped)
_JSON = (json_text, json_text, json_text, json_text, text, bytewise)
_NPY = (npy, npy, array, bytewise)
_NPZ = (bytewise, zipped, zipped)
_TEXT = (text, text, bytewise)
_CALIBRATION = "quantize {f}/real.onnx --calibration {odd} -o {out}/q.onnx"
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "tflite",
            _tflite,
            {"*.tflite": (bytewise, integers, integers)},
            (
                *(f"run {{odd}} -t {name} --json --no-what-if" for name in NAMES),
                "explain {odd} -t vta",
                "compile {odd} -t gemmini -o {out}/p.twp",
            ),
        ),
        Kind(
            "onnx",
            _onnx,
            {"*.onnx": (bytewise, _changed, _changed)},
            (
                *(f"run {{odd}} -t {name} --json --no-what-if" for name in NAMES),
                "explain {odd} -t bm1684x",
                "sweep {odd} -t vta --vary LOG_ACC_BUFF_SIZE=15..16 --workers 1",
            ),
        ),
        Kind(
            "real",
            _float,
            {"*.onnx": (bytewise, _changed, _changed)},
            (
                *(
                    f"quantize {{odd}} --calibration {{f}}/x.npy --scheme {scheme} -o {{out}}/q.onnx"
                    for scheme in ("affine", "symmetric", "tflm", "pow2")
                ),
                "run {odd} -t bm1684x --json --no-what-if",
            ),
        ),
        Kind(
            "twp",
            _programs,
            {"*.twp": _ARCHIVE},
            (
                "check {odd}",
                "exec {odd} --json",
                "exec {odd} --html {out}/p.html --no-what-if",
                "disasm {odd}",
                "explain {odd}",
                "explain {odd} --json",
                "debug {odd} --script {f}/script",
                "debug {odd} --script {f}/script --json",
            ),
        ),
        Kind(
            "twr",
            _runs,
            {"*.twr": _ARCHIVE},
            (
                "report {odd} -o {out}/r.html",
                "compare {odd} {f}/good.run --html {out}/c.html",
                "compare {f}/good.run {odd} --json",
                "debug {odd} --script {f}/script",
            ),
        ),
        Kind(
            "elf",
            _elf,
            {"*.elf": (bytewise, integers, integers)},
            (
                "exec {odd} -t cfu --limit 20000",
                "exec {odd} -t cfu --limit 20000 --profile {out}/p.json",
                "exec {odd} -t cfu --limit 20000 --json",
                f"run {DIGITS} -t cfu --firmware {{odd}} --json --no-what-if",
            ),
        ),
        Kind("assembly", _assembly, {"*.txt": _TEXT}, ("asm {odd} -o {out}/p.twp",)),
        Kind(
            "script",
            _script,
            {"script": _TEXT},
            ("debug {f}/p.twp --script {odd}", "debug {f}/p.twp --json --script {odd}"),
        ),
        Kind(
            "space",
            _space,
            {"space.json": _JSON},
            (
                f"sweep {DIGITS} -t vta --space {{odd}} --workers 1",
                f"sweep {DIGITS} -t vta --space {{odd}} --workers 1 --json --csv {{out}}/c.csv --html {{out}}/s.html",
                f"explore {DIGITS} -t vta --space {{odd}} --workers 1 --trials 3 -o {{out}}/study",
            ),
        ),
        Kind(
            "schedule",
            _schedule,
            {"s.json": _JSON},
            (f"{RUN} --schedule {{odd}}", f"explain {DIGITS} -t vta --schedule {{odd}}"),
        ),
        *(
            Kind(
                f"config-{name}",
                _configs,
                {f"{name}.json": _JSON},
                (
                    f"run {DIGITS} -t {name} -c {{odd}} --no-what-if --json",
                    f"targets {name} -c {{odd}}",
                    f"header {name} -c {{odd}}",
                    *(("exec {f}/p.twp -c {odd}",) if name == "vta" else ()),
                ),
            )
            for name in NAMES
        ),
        Kind("npy", _samples, {"x.npy": _NPY}, (f"{RUN} -i {{odd}}", "debug {f}/p.twp -i {odd} --script {f}/script")),
        Kind("npz", _samples, {"x.npz": _NPZ}, (f"{RUN} -i {{odd}}", "exec {f}/p.twp -i {odd} --json")),
        Kind("bin", _samples, {"x.bin": (bytewise,)}, (f"{RUN} -i {{odd}}",)),
        Kind(
            "calibration",
            _float,
            {"x.npy": _NPY, "x.npz": _NPZ},
            (_CALIBRATION, f"{_CALIBRATION} --evaluation {{odd}}"),
        ),
        Kind(
            "folder",
            _samples,
            {"mixed/*.npy": _NPY, "mixed/*.npz": _NPZ},
            (f"{RUN} -i {{f}}/mixed",),
        ),
        Kind(
            "labels",
            _samples,
            {"labels.npy": _NPY, "labels.txt": _TEXT},
            (f"{RUN} -i {{f}}/x.npy --labels {{odd}}",),
        ),
        Kind(
            "class-names", _samples, {"names.txt": _TEXT}, (f"run {DIGITS} -t vta --no-what-if --class-names {{odd}}",)
        ),
        Kind(
            "image",
            _images,
            {"x.*": (bytewise, bytewise, integers)},
            (f"{RUN} -i {{odd}}", f"{RUN} -i {{odd}} --mean 3 --std 9"),
        ),
        Kind(
            "study",
            _study,
            {"study/study.json": _JSON, "study/trials.jsonl": (json_lines, json_lines, json_lines, bytewise)},
            (
                "sweep --resume {f}/study --workers 1 --html {out}/s.html --csv {out}/s.csv",
                "explore --resume {f}/study --workers 1 --json",
            ),
        ),
        Kind(
            "foreign",
            _foreign,
            {"*.bin": (bytewise, bytewise, integers), "*.csv": _TEXT},
            ("exec {f} -t vta -c pynq --json", "debug {f} -t vta -c pynq --script {f}/script"),
        ),
        Kind("energy", _energy, {"own.toml": _TEXT}, (f"{RUN} --energy {{odd}}",)),
        Kind(
            "vectors",
            _vectors,
            {"*_vectors/*.npz": _NPZ, "*_vectors/*.json": (json_text,)},
            ("conform vta {f}/vta_vectors", "conform gemmini {f}/gemmini_vectors"),
            golden=True,
        ),
        Kind(
            "tpu-vectors",
            _tpu_vectors,
            {"*.npz": _NPZ, "*.json": (json_text,), "net/*.json": (json_text,), "net/*.npz": _NPZ},
            ("conform bm1684x {f}",),
            golden=True,
        ),
        Kind("firmware", _firmware, {"fw.bin": _JSON}, call=_firmware_read),
        Kind("recording", _recording, {"r.npz": _NPZ}, call=_replayed),
    )
}
