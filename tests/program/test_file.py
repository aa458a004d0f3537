"""The program file: there and back, the same bytes, and nothing but ProgramError for damage."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.mlperf import FILES, model_path, samples
from tests.program.comparing import same
from tests.program.samples import EXAMPLE, assert_same, sample_program
from tilewright.errors import ProgramError
from tilewright.graph import reference
from tilewright.model import load as load_model
from tilewright.program import archive, file
from tilewright.program.file import load, save
from tilewright.program.program import Launch, Program
from tilewright.program.serial import DTYPES


@pytest.fixture(scope="module")
def program() -> Program:
    return sample_program()


@pytest.fixture(scope="module")
def content(program: Program, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "a.twp"
    save(program, path)
    return path.read_bytes()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return stream.getvalue()


@pytest.mark.parametrize("key", FILES)
def test_the_mlperf_models_come_back_exactly(shared: Path, key: str, tmp_path: Path) -> None:
    graph, inputs = load_model(model_path(shared, key)), samples(shared, key)["inputs"][:2]
    save(sample_program(graph), tmp_path / "a.twp")
    again = load(tmp_path / "a.twp").graph
    assert again
    assert_same(graph, again)
    before, after = reference.run(graph, inputs), reference.run(again, inputs)
    assert all(np.array_equal(before[name], after[name]) for name in graph.outputs)


def test_the_digits_example_comes_back_exactly(program: Program, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.twp"
    path.write_bytes(content)
    again = load(path)
    assert same(program, again)
    assert again.digest == program.digest
    assert again.graph and program.graph
    assert_same(program.graph, again.graph)
    with np.load(EXAMPLE / "samples.npz") as stored:
        before, after = (reference.run(g, stored["inputs"]) for g in (program.graph, again.graph))
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert again.launches[0].arrays["code"].flags.writeable


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_arrays_of_every_dtype_and_layout(dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 4, 8), np.uint8).view(np.dtype(dtype).newbyteorder("="))
    if dtype == "bool":
        values = np.random.default_rng(0).integers(0, 2, (3, 4)).astype(bool)
    big = values.astype(values.dtype.newbyteorder(">"))
    arrays = {"c": values, "f": values.T, "strided": values[::2], "big": big, "scalar": values[0, 0].reshape(-1)[0:1]}
    arrays |= {"zero": values[:0], "rank0": np.array(values.reshape(-1)[0])}
    save(Program("t", {}, "", "tflm", None, (Launch("l", (), {}, arrays),)), tmp_path / "a.twp")
    again = load(tmp_path / "a.twp").launches[0].arrays
    for name, array in arrays.items():
        assert again[name].dtype == np.dtype(dtype)
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.astype(dtype).tobytes()


def test_equal_programs_give_equal_files(program: Program, content: bytes, tmp_path: Path) -> None:
    assert program.graph
    tensors = dict(list(program.graph.tensors.items())[::-1])
    (launch,) = program.launches
    arrays = {name: np.asfortranarray(launch.arrays[name]) for name in list(launch.arrays)[::-1]}
    arrays["scalar"] = launch.arrays["scalar"]
    steps = (replace(launch, arrays=arrays), *program.steps[1:])
    save(replace(program, graph=replace(program.graph, tensors=tensors), steps=steps), tmp_path / "b.twp")
    assert (tmp_path / "b.twp").read_bytes() == content
    save(load(tmp_path / "b.twp"), tmp_path / "b.twp")
    assert (tmp_path / "b.twp").read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["b.twp"]


def test_numpy_and_zipfile_read_the_parts(program: Program, content: bytes) -> None:
    parts = members(content)
    first, *rest = parts
    assert first == "program.json"
    assert rest == sorted(rest)
    header = json.loads(parts["program.json"])
    assert (header["format"], header["version"], header["digest"]) == (
        file.FORMAT.name,
        file.FORMAT.version,
        program.digest,
    )
    name = header["steps"][0]["launch"]["arrays"]["code"]
    code = np.load(io.BytesIO(parts[f"{name}.npy"]), allow_pickle=False)
    np.testing.assert_array_equal(code, program.launches[0].arrays["code"])


def check_damage(program: Program, path: Path, content: bytes) -> bool:
    """Whether the damaged file was refused; otherwise it must hold an equal program."""
    path.write_bytes(content)
    try:
        again = load(path)
    except ProgramError as error:
        assert error.where.startswith(str(path))
        assert "\n" not in str(error)
        return True
    assert same(again, program)
    return False


def test_truncated_files_are_refused(program: Program, content: bytes, tmp_path: Path) -> None:
    ends = {*range(64), *range(len(content) - 64, len(content)), *np.linspace(0, len(content) - 1, 100, dtype=int)}
    for end in ends:
        assert check_damage(program, tmp_path / "a.twp", content[:end])
    assert check_damage(program, tmp_path / "a.twp", content + b"\0")
    assert check_damage(program, tmp_path / "a.twp", b"x" + content)


@pytest.mark.parametrize("seed", range(8))
def test_changed_bytes_are_refused_or_do_not_matter(
    program: Program, content: bytes, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    directory = content.index(b"PK\1\2")
    refused = 0
    for index in range(150):
        damaged = bytearray(content)
        # Half of the changes go to the archive's directory, where they do most harm.
        where = int(rng.integers(directory if index % 2 else 0, len(content)))
        for position in range(where, min(len(content), where + int(rng.choice([1, 1, 2, 4, 16])))):
            damaged[position] = int(
                rng.choice([0, 255, damaged[position] ^ 1, damaged[position] ^ 128, int(rng.integers(256))])
            )
        refused += check_damage(program, tmp_path / "a.twp", bytes(damaged))
    assert refused > 75


def test_every_byte_of_the_last_records(program: Program, content: bytes, tmp_path: Path) -> None:
    for position in range(len(content) - 22 - 64, len(content)):
        for bit in (1, 128):
            damaged = bytearray(content)
            damaged[position] ^= bit
            check_damage(program, tmp_path / "a.twp", bytes(damaged))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.twp"
    path.write_bytes(archived(members(content) | {"step/0000/0009.npy": bytes(1 << 28)}))
    tracemalloc.start()
    with pytest.raises(ProgramError, match=r"bomb\.twp: would unpack to 2\d{8} bytes, too many for a file of \d{6}"):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_a_bomb_that_declares_less_than_it_has_is_refused(content: bytes, tmp_path: Path) -> None:
    path, size = tmp_path / "bomb.twp", (1 << 28) + 0x123456
    bomb = archived(members(content) | {"step/0000/0009.npy": bytes(size)})
    assert bomb.count(size.to_bytes(4, "little")) == 2  # in the member's header and in the directory
    path.write_bytes(bomb.replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(ProgramError, match="damaged or not a program file"):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_sizes_are_bounded(program: Program, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.twp"
    path.write_bytes(content)
    for name, value in (("MAX_BYTES", 5000), ("MAX_JSON_BYTES", 99), ("MAX_MEMBERS", 3), ("MAX_DIRECTORY_BYTES", 99)):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, value)
            with pytest.raises(ProgramError, match=r"a\.twp: "):
                load(path)
            if name != "MAX_DIRECTORY_BYTES":
                with pytest.raises(ProgramError, match=r"b\.twp: needs \d+ bytes in \d+ files"):
                    save(program, tmp_path / "b.twp")
    assert not (tmp_path / "b.twp").exists()


def test_a_program_that_compresses_like_a_bomb_is_stored_uncompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 16)
    empty = Program("t", {}, "", "tflm", None, (Launch("l", (), {}, {"dram": np.zeros(1 << 20, np.uint8)}),))
    save(empty, tmp_path / "a.twp")
    assert (tmp_path / "a.twp").stat().st_size > 1 << 20
    assert same(load(tmp_path / "a.twp"), empty)


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


def pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


BAD_ARRAYS: list[Callable[[], bytes]] = [
    pickled,
    lambda: b"",
    lambda: npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
    lambda: npy("{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", bytes(2)),
    lambda: npy("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }", bytes(4)),
    lambda: npy("{'descr': '<i4', 'fortran_order': True, 'shape': (1,), }", bytes(4)),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", bytes(4)),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,), }", bytes(4)),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807, 9, 0), }"),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (" + "1" * 60_000 + "), }"),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), 'x': " + "(" * 999, bytes(4)),
    lambda: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", bytes(4), b"\2\0"),
    lambda: npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", bytes(1)) + b"1",
]


@pytest.mark.parametrize("index", range(len(BAD_ARRAYS)))
def test_a_bad_array_is_named(content: bytes, tmp_path: Path, index: int) -> None:
    name = json.loads(members(content)["program.json"])["steps"][0]["launch"]["arrays"]["code"] + ".npy"
    path = tmp_path / "a.twp"
    path.write_bytes(archived(members(content) | {name: BAD_ARRAYS[index]()}))
    with pytest.raises(ProgramError, match=r"a\.twp: "):
        load(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, r"a\.twp: has version 2 of the format; this Tilewright reads up to 1; upgrade Tilewright"),
        ({"version": "1"}, r"a\.twp: program\.json: has no valid version"),
        ({"format": "zip"}, r"a\.twp: program\.json: is not a 'tilewright program'"),
        ({"extra": 1}, r'a\.twp: program: has "extra", which is unknown'),
        ({"target": 1}, r"a\.twp: program\.target: is 1, not a text"),
        ({"digest": None}, r"a\.twp: program\.digest: is null, not a text"),
    ],
)
def test_a_header_that_is_wrong_is_named(
    content: bytes, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    parts = members(content)
    text = json.dumps(json.loads(parts["program.json"]) | change).encode()
    (tmp_path / "a.twp").write_bytes(archived(parts | {"program.json": text}))
    with pytest.raises(ProgramError, match=reason):
        load(tmp_path / "a.twp")


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"[" * 100_000, b"{\xff}", b'{"version": 1e999}', b'{"a": NaN}', b"1" * 5000, b'{"a": Infinity}'],
)
def test_json_that_is_none_is_refused(content: bytes, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.twp").write_bytes(archived(members(content) | {"program.json": text}))
    with pytest.raises(ProgramError, match=r"a\.twp: "):
        load(tmp_path / "a.twp")


def test_parts_that_do_not_belong_are_refused(content: bytes, tmp_path: Path) -> None:
    parts, path = members(content), tmp_path / "a.twp"
    with pytest.warns(UserWarning, match="Duplicate"):
        stream = io.BytesIO(content)
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr("program.json", parts["program.json"])
    lzma = archived(parts, zipfile.ZIP_LZMA)
    evil = archived(parts | {"../evil.npy": b""})
    spare = archived(parts | {"step/0000/0009.npy": parts[max(parts)]})
    without = archived({name: part for name, part in parts.items() if name != "program.json"})
    for damaged in (stream.getvalue(), lzma, evil, spare, without, archived({})):
        path.write_bytes(damaged)
        with pytest.raises(ProgramError, match=r"a\.twp: "):
            load(path)


def test_files_that_cannot_be_read_or_written(program: Program, tmp_path: Path) -> None:
    for path in (tmp_path / "none.twp", tmp_path):
        with pytest.raises(ProgramError, match="is not a file"):
            load(path)
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "none" / "a.twp", tmp_path / "file" / "a.twp", tmp_path):
        with pytest.raises(ProgramError, match=r"cannot be written|is a directory"):
            save(program, path)


def test_a_device_is_not_replaced(program: Program) -> None:
    save(program, os.devnull)
    assert Path(os.devnull).is_char_device()


def test_a_failed_save_leaves_the_old_file(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.twp"
    save(program, path)
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_pack", full)
    with pytest.raises(ProgramError, match=r"a\.twp: cannot be written: No space left"):
        save(program, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.twp"]
    with pytest.raises(ProgramError, match=r"a\.twp: config\.x: is .*a set"):
        save(replace(program, config={"x": {1}}), path)
