"""Launches as encoded queues: the same values, cycles and findings; the vendor's commands written again; refusals."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.sim.findings import RACE
from tilewright.targets.bm1684x.config import L2_BASE, Config
from tilewright.targets.bm1684x.isa.meaning import checked, command_of
from tilewright.targets.bm1684x.isa.stream import decode
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.functions import load_exponential, sigmoid
from tilewright.targets.bm1684x.runtime.kernel import Tpu, kernel
from tilewright.targets.bm1684x.runtime.recording import Launched, Recording
from tilewright.targets.bm1684x.timing.estimate import cycles
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.window import Window

SEED = 31
CONFIG = Config()
SIZES = (2, 70, 4, 6)
Body = Callable[..., None]


def floats(*shape: int) -> Array:
    return np.random.default_rng(SEED).normal(size=shape).astype(np.float32)


def again(body: Body, out: tuple[int, ...], dtype: DType, path: Path, *sources: tuple[Array, DType]) -> Launched:
    """Launch `body(tpu, y, *x)`, save it, clear the result, replay: it must be the same in every respect."""
    device = Device()
    y = device.empty(out, dtype)
    places = [device.put(values, kind) for values, kind in sources]
    launched = device.launch(kernel(body), y, *places)
    wanted = device.get(y)
    assert np.count_nonzero(wanted)
    device.record(launched).save(path)
    device.memories.write(y.addresses, np.zeros(out, dtype.storage))
    device.memories.regions[0].data[:] = 0  # local memory
    replayed = device.replay(Recording.load(path))
    np.testing.assert_array_equal(device.get(y).view(f"u{dtype.bytes}"), wanted.view(f"u{dtype.bytes}"), f"seed {SEED}")
    assert replayed.cycles == launched.cycles
    assert [finding.kind for finding in replayed.findings] == [finding.kind for finding in launched.findings]
    numbers = [sorted((step.engine, step.id) for step in outcome.program.steps) for outcome in (launched, replayed)]
    assert numbers[0] == numbers[1]
    return launched


def test_floats(tmp_path: Path) -> None:
    def body(tpu: Tpu, y: Tensor, x: Tensor, channels: Tensor) -> None:
        a, b, c, d = (tpu.local(SIZES, F32, bank) for bank in range(4))
        terms, by_channel = tpu.local((1, 64, 1, 10), F32, bank=4), tpu.local((1, 70, 1, 1), F32, bank=5)
        whole = tpu.local(SIZES, I16, bank=6)
        load_exponential(tpu, terms)
        tpu.gdma.copy(a, x)
        tpu.gdma.copy(by_channel, channels)
        tpu.bdc.abs(b, a)
        tpu.bdc.fp_rsqrt(b, b)
        tpu.bdc.fp_add(c, by_channel.over(*SIZES), b)
        sigmoid(tpu, d, c, a, b, terms)
        tpu.bdc.fp_sub(d, 1.0, d)
        tpu.bdc.fp_diff_abs(d, d, 0.25)
        tpu.bdc.fp_mul(c[:, :, 1:3], d[:, :, 1:3], by_channel.over(2, 70, 2, 6))
        tpu.bdc.greater(b, c, d, 3.5)
        tpu.bdc.fp_div(b, b, c)
        tpu.bdc.max(b, b, -9.0)
        tpu.bdc.cast(whole, b, mode="up")
        tpu.bdc.cast(a, whole)
        tpu.bdc.greater_select(c, a, b, d, 2.0)
        tpu.bdc.maximum_greater_select(a, b, c, d, b, d)
        tpu.bdc.fp_sub(c, a, b)
        tpu.gdma.copy(y, c)

    again(body, SIZES, F32, tmp_path / "r", (floats(*SIZES), F32), (floats(1, 70, 1, 1), F32))


def test_integers(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)

    def body(tpu: Tpu, y: Tensor, x: Tensor, table: Tensor, shifts: Tensor) -> None:
        a, b, c = tpu.local(SIZES, I8, bank=0), tpu.local(SIZES, I16, bank=1), tpu.local(SIZES, I32, bank=2)
        scales, counts = tpu.local((1, 70, 1, 3), I32, bank=3), tpu.local((1, 70, 1, 1), I8, bank=4, kind="compact")
        tpu.gdma.copy(a, x)
        tpu.gdma.copy(scales, table)
        tpu.gdma.copy(counts, shifts)
        tpu.bdc.int_mul(b, a, a, -2, mode="half_up", saturate=True)
        tpu.bdc.int_add(c, b, a, counts, mode="down")
        tpu.bdc.int_sub(c, c, 77, 0)
        tpu.bdc.arithmetic_shift(c, c, -1, mode="up")
        tpu.bdc.xor(c, c, 0x55)
        tpu.bdc.int_requant(a, c, *(scales[:, :, :, i : i + 1] for i in range(3)), mode="half_up")
        tpu.bdc.int_dequant(b, a, multiplier=300, shift=-2, offset=-5, mode="half_up")
        tpu.bdc.int_requant(a, b, 1 << 20, -26, 3, mode="half_away_from_zero")
        real = tpu.local(SIZES, F32, bank=5)
        tpu.bdc.fp32_dequant(real, a, 0.5, 7)
        tpu.bdc.fp32_requant(a, b, 0.01, 1.5)
        tpu.bdc.less_select(b, a, 3, 1, b)
        tpu.bdc.equal(c, c, 2, 9)
        tpu.bdc.int_add(b, b, a, 0, saturate=True)
        tpu.gdma.copy(y, b)

    table = np.stack([rng.integers(1 << 20, 1 << 24, 70), np.full(70, -28), rng.integers(-9, 9, 70)], 1)
    x, shifts = rng.integers(-128, 128, SIZES).astype(np.int8), rng.integers(-3, 3, (1, 70, 1, 1)).astype(np.int8)
    again(body, SIZES, I16, tmp_path / "r", (x, I8), (table.astype(np.int32)[None, :, None], I32), (shifts, I8))


def test_neural_commands(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)

    def body(tpu: Tpu, y: Tensor, x: Tensor, weights: Tensor, taps: Tensor, bias: Tensor) -> None:
        a, c = tpu.local((1, 40, 9, 10), F16, bank=0), tpu.local((1, 66, 5, 5), F16, bank=1)
        w, by_channel = tpu.weights((66, 40, 3, 3), F16, bank=2), tpu.local((1, 66, 3, 3), F16, bank=3, kind="compact")
        first = tpu.local((1, 66, 1, 1), F32, bank=4, kind="compact")
        tpu.gdma.copy(a, x)
        tpu.gdma.copy(w.storage, weights)
        tpu.gdma.copy(by_channel, taps)
        tpu.gdma.copy(first, bias)
        window = Window((3, 3), (1, 1, 0, 1), (2, 2))
        tpu.bdc.fp_conv2d(c, a, w, first, window=window)
        d, e = tpu.local((1, 66, 5, 5), F16, bank=5), tpu.local((1, 66, 3, 2), F16, bank=6)
        tpu.bdc.fp_depthwise2d(d, c, by_channel, window=Window((3, 3), (2, 2, 2, 2), dilation=(2, 2)))
        tpu.bdc.max_pool2d(e, d, -60000.0, window=Window((3, 3), (0, 0, 0, 1), (1, 3)))
        tpu.bdc.fp_avg_pool2d(e, d, 0.25, window=Window((3, 3), (0, 0, 0, 1), (1, 3)))
        bytes_, wide = tpu.local((1, 66, 3, 2), I8, bank=7), tpu.local((1, 3, 3, 2), I32, bank=8)
        tpu.bdc.cast(bytes_, e)
        eight = tpu.weights((3, 66, 1, 1), I8, bank=9)
        tpu.gdma.broadcast(eight.storage, 3)
        tpu.bdc.int8_asym_quant_conv2d(wide, bytes_, eight, 2, window=Window((1, 1)))
        tpu.bdc.int8_asym_quant_conv2d(wide, bytes_, eight, -1, acc=wide, window=Window((1, 1)))
        pooled = tpu.local((1, 66, 1, 1), I8, bank=10)
        tpu.bdc.int8_avg_pool2d(pooled, bytes_, 43, window=Window((3, 2)), right=8)
        tpu.gdma.copy(y, wide)

    again(
        body,
        (1, 3, 3, 2),
        I32,
        tmp_path / "r",
        (rng.normal(size=(1, 40, 9, 10)).astype(np.float16), F16),
        (rng.normal(size=(1, 66, 18, 32)).astype(np.float16), F16),
        (rng.normal(size=(1, 66, 3, 3)).astype(np.float16), F16),
        (floats(1, 66, 1, 1), F32),
    )


def test_products(tmp_path: Path) -> None:
    def body(tpu: Tpu, y: Tensor, left: Tensor, right: Tensor) -> None:
        a, b = tpu.matrix(20, 33, F32, bank=0, width=9), tpu.matrix(33, 50, F32, bank=1, width=16)
        bias, c = tpu.matrix(1, 64, F32, bank=2, width=16), tpu.matrix(20, 64, F32, bank=3, width=16)
        b64 = tpu.matrix(33, 64, F32, bank=4, width=16)
        tpu.gdma.copy(a, left.grid())
        tpu.gdma.matrix_trans(b64, right.grid())
        tpu.gdma.broadcast(bias.storage, 0.5)
        tpu.bdc.fp_mm(c, a, b64, bias)
        tpu.bdc.fp_mm(c, a, b64, acc=c)
        rows, more = tpu.local((1, 20, 1, 64), F32, bank=5), tpu.local((1, 20, 1, 20), F32, bank=6)
        tpu.gdma.copy(y.grid(), c)
        tpu.gdma.copy(rows, tpu.system(y.address, (1, 20, 1, 64), F32))
        tpu.bdc.fp_mm(more.rows(), rows.rows(), rows.rows(), right_transposed=True)
        tpu.bdc.fp_mm(rows.rows(), more.rows(), rows.rows(), acc=rows.rows())
        tpu.gdma.copy(tpu.system(y.address, (1, 20, 1, 64), F32), rows)
        assert b.columns == 50

    again(body, (1, 1, 20, 64), F32, tmp_path / "r", (floats(1, 1, 20, 33), F32), (floats(1, 1, 64, 33), F32))


def test_moves(tmp_path: Path) -> None:
    def body(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        n, c, h, w = x.shape
        near, turned = tpu.local((c, n, h, w), U16, bank=0), tpu.local((c, w, h, n), U16, bank=1, kind="line")
        third, fourth = tpu.local((c, n, h, w), U16, bank=2), tpu.local((c, n, h, w), U16, bank=3)
        tpu.gdma.nc_trans(near, x)
        tpu.bdc.cw_trans(turned, near)
        aligned = tpu.local((c, w, h, n), U16, bank=4)
        tpu.gdma.copy(aligned, turned)
        tpu.bdc.wc_trans(third, aligned)
        tpu.gdma.cw_trans(fourth, aligned)
        tpu.bdc.int_add(third, third, fourth, 0)
        tpu.bdc.npu_bcast(tpu.local((c, n, h, w), U16, bank=5), third[:, 0:1])
        spread = tpu.local((1, 64, 1, w), U16, bank=6)
        tpu.gdma.broadcast(spread, third[0:1, 0:1, 0:1])
        cache = tpu.system(L2_BASE, (1, 1, 1, n * c * h * w), U16)
        tpu.gdma.copy(cache, third)
        tpu.gdma.copy(y, cache)
        tpu.gdma.copy(y[:, :, 0:1], tpu.system(L2_BASE, (n, c, 1, w), U16))
        tpu.gdma.broadcast(y[0:1, 1:2], 7)
        picks, chosen = tpu.local((1, 5, 1, 6), U8, bank=7), tpu.local((1, 5, 1, 6), U16, bank=8)
        tpu.gdma.broadcast(picks, 2)
        tpu.bdc.pe_gather(chosen, tpu.local((1, 5, 1, 9), U16, bank=9), picks, 77)
        tpu.gdma.copy(y[1:2, 0:1, 0:1], chosen[:, 0:1, :, 0:w])

    x = np.random.default_rng(SEED).integers(1, 1 << 14, (3, 5, 4, 6)).astype(np.uint16)
    again(body, (3, 5, 4, 6), U16, tmp_path / "r", (x, U16))


def test_moves_by_index(tmp_path: Path) -> None:
    def body(tpu: Tpu, y: Tensor, x: Tensor, index: Tensor) -> None:
        rows = tpu.local((1, 6, 5, 3), I16, bank=0)
        tpu.gdma.broadcast(y, 5)
        tpu.gdma.h_gather(rows, x, index, -7)
        tpu.gdma.h_scatter(y, rows, index)

    rng = np.random.default_rng(SEED)
    x, index = rng.integers(-99, 99, (1, 6, 9, 3)).astype(np.int16), rng.integers(0, 12, (1, 6, 5, 1)).astype(np.uint32)
    again(body, (1, 6, 10, 3), I16, tmp_path / "r", (x, I16), (index, U32))


def test_regions_overlap_and_race_as_before(tmp_path: Path) -> None:
    def body(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a, b, c = (tpu.local((1, 64, 8, 8), F32, bank) for bank in range(3))
        tpu.gdma.copy(a, x[0:1])
        for n in range(1, 6):
            with tpu.parallel():
                tpu.gdma.copy((a, b)[n % 2], x[n : n + 1])
                tpu.bdc.fp_add(c, (b, a)[n % 2], 1.0)
        tpu.gdma.copy(y, c)

    assert not again(body, (1, 64, 8, 8), F32, tmp_path / "r", (floats(6, 64, 8, 8), F32)).findings

    def races(tpu: Tpu, y: Tensor, x: Tensor) -> None:
        a, b = (tpu.local((1, 64, 8, 8), F32, bank) for bank in range(2))
        with tpu.parallel():
            tpu.gdma.copy(a, x)
            tpu.bdc.fp_add(b, a, 1.0)
        tpu.gdma.copy(y, x)

    launched = again(races, (1, 64, 8, 8), F32, tmp_path / "r", (floats(1, 64, 8, 8), F32))
    assert {finding.kind for finding in launched.findings} == {RACE}


def test_commands_of_compiled_networks_are_written_again(shared: Path) -> None:
    """Every stored command: decoded, its meaning encoded anew, and that read again; it costs the same."""
    count = 0
    for path in sorted((shared / "tpu_vectors" / "nets").glob("*/*.cmdbuf.npz")):
        with np.load(path) as vector:
            queues = {name: vector[name] for name in vector.files if name.startswith(("tiu_", "dma_"))}
        for name, raw in queues.items():
            for command in decode(name[:3], raw):
                if command.is_end or command.format.name == "SYSID":
                    continue
                meant = command_of(command, CONFIG)
                written = checked(meant, command.number, command.needs, CONFIG)
                assert written["cmd_id_en"] == command["cmd_id_en"]
                assert written.format.layout.nbytes <= command.format.layout.nbytes
                assert cycles(command_of(written, CONFIG), CONFIG) == cycles(meant, CONFIG), str(command)
                count += 1
    assert count == 1627


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda tpu, x: tpu.bdc.fp_exp(tpu.local(x.shape, F32, 0), tpu.local(x.shape, F32, 1)),
            "it stands for a sequence",
        ),
        (
            lambda tpu, x: tpu.bdc.sign(tpu.local(x.shape, F32, 0), tpu.local(x.shape, F32, 1)),
            "its command format is not known",
        ),
        (lambda tpu, x: tpu.hau.sort(x, None, x), "format of the sorting engine"),
        (lambda tpu, x: tpu.gdma.reverse(x, x, axis=2), "its command format is not known"),
        (
            lambda tpu, x: tpu.bdc.cast(tpu.local(x.shape, I8, 0)[:, :, 0:2], tpu.local(x.shape, F32, 1)[:, :, 0:2]),
            "",
        ),
        (
            lambda tpu, x: tpu.bdc.max_pool2d(
                tpu.local((1, 3, 1, 1), F32, 0),
                tpu.local((1, 3, 4, 4), F32, 1)[:, :, 1:3, 1:3],
                0.0,
                window=Window((2, 2)),
            ),
            "PorD cannot express it: x would be decoded with another place",
        ),
        (
            lambda tpu, x: tpu.bdc.int_requant(
                tpu.local((1, 3, 1, 8), I8, 0)[:, :, :, 0:4], tpu.local((1, 3, 1, 4), I32, 1), 1, 0, 1 << 20
            ),
            "cannot express it",
        ),
        (
            lambda tpu, x: tpu.bdc.fp_mm(
                tpu.local((1, 70, 1, 99), F32, 0)[:, :, :, 0:4].rows(),
                tpu.local((1, 70, 1, 4), F32, 1).rows(),
                tpu.local((1, 4, 1, 4), F32, 2).rows(),
            ),
            "MM2 cannot express it: y would be decoded with another place",
        ),
    ],
)
def test_what_no_format_says_is_refused(body: Body, reason: str) -> None:
    device = Device()
    launched = device.launch(kernel(body), device.put(floats(1, 3, 4, 4), F32))
    if not reason:
        device.record(launched)
        return
    with pytest.raises(ProgramError, match=reason):
        device.record(launched)


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    def nothing(tpu: Tpu) -> None:
        tpu.bdc.fp_add(tpu.local((1, 1, 1, 1), BF16, 0), 1.0, 1.0)

    device = Device()
    path = tmp_path / "r.npz"
    recording = device.record(device.launch(kernel(nothing)))
    recording.save(path)
    with pytest.raises(ProgramError, match="another configuration"):
        Device(Config(lanes=32)).replay(Recording.load(path))
    raw = path.read_bytes()
    for broken in (b"", b"nonsense", raw[: len(raw) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ProgramError, match="damaged or not an"):
            Recording.load(path)
    np.savez(path, tiu=np.array([{}], object), dma=np.zeros(1, np.uint8), config=np.zeros(1, np.uint8))
    with pytest.raises(ProgramError, match="is no array of plain values"):
        Recording.load(path)
    np.savez(path, tiu=np.zeros(3), dma=np.zeros(1, np.uint8), config=np.zeros(1, np.uint8))
    with pytest.raises(ProgramError, match="its queues are not bytes"):
        Recording.load(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiu.npy", bytes((1 << 28) + 1))
    with pytest.raises(ProgramError, match="unpacks to"):
        Recording.load(path)
    with pytest.raises(ProgramError, match="it has no end command"):
        device.replay(Recording({name: queue[:0] for name, queue in recording.queues.items()}, recording.digest))
