"""The array coupled better: what each instruction does and costs, and what a program may not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.targets.cfu.bill import BUDGET, bill, copies, excess
from tilewright.targets.cfu.compiler.records import channel_table, packed_rows
from tilewright.targets.cfu.config import BEYOND, RAM_BASE, Config
from tilewright.targets.cfu.isa import custom as isa
from tilewright.targets.cfu.isa.coupled import overlapped_cycles
from tilewright.targets.cfu.isa.memory import tables_at
from tilewright.targets.cfu.isa.state import FIELDS, Reg, buffers, notes, registers

CHECK, SET_B = 3, 1


class Machine:
    """The CFU alone: one command after the other, two cycles each."""

    def __init__(self, extensions: str = ",".join(BEYOND)) -> None:
        config = Config(extensions=extensions)
        self.regs, self.buffers, self.ram = registers(config), buffers(config), np.zeros(1 << 16, np.uint8)
        self.cycle = 0
        self.execute = isa.model(self.regs)

    def __call__(self, funct7: int, a: int = 0, b: int = 0) -> int:
        self.execute(self.regs, self.buffers, self.ram, funct7 << 3, a, b, self.cycle)
        self.cycle += 2
        return int(self.regs[Reg.ANSWER])

    def put(self, **values: int) -> None:
        for name, value in values.items():
            self(isa.PUT, FIELDS[name.upper()], value)

    def push(self, funct7: int, data: Any) -> None:
        words = np.frombuffer(np.ascontiguousarray(data).tobytes(), "<i4").tolist()
        for first, second in zip(words[::2], words[1::2], strict=True):
            self(funct7, first, second)

    def read(self, at: int, nbytes: int) -> Any:
        self.put(pointer=at)
        words = [self(isa.GET_IMAGE) for _ in range(nbytes // 4)]
        return np.array(words, np.int64).astype("<i4").view(np.int8)

    def wait(self) -> int:
        """Cycles from the start to the end."""
        began = self.cycle - 2
        while self(CHECK):
            pass
        return int(self.regs[Reg.BUSY_UNTIL]) - began - 1

    def found(self) -> list[str]:
        return [note.kind for note in notes(self.regs)]


def convolution(m: Machine, row: int = 0) -> tuple[Any, Any]:
    """A 3x3 convolution of 6x5x8 to 6x5x20, set up but for its weights: those, and what it gives."""
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (6, 5, 8)).astype(np.int8)
    weights = rng.integers(-128, 128, (20, 3, 3, 8)).astype(np.int8)
    bias, multiplier = rng.integers(-9000, 9000, 20), rng.integers(1 << 30, 1 << 31, 20)
    m.put(pointer=64)
    m.push(isa.PUSH_IMAGE, x)
    m.put(in_h=6, in_w=5, in_c=8, out_h=6, out_w=5, out_c=20, kernel_h=3, kernel_w=3, stride_h=1, stride_w=1)
    m.put(pad_h=1, pad_w=1, input=64, output=1024, input_offset=7, output_offset=-5, low=-100, high=120, row=row)
    for b, q in zip(bias.tolist(), multiplier.tolist(), strict=True):
        m(isa.PUSH_CHANNEL, b, q)
        m(isa.PUSH_SHIFT, -7)
    padded = np.pad(x.astype(np.int64) + 7, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    acc = np.einsum("yxckl,oklc->yxo", windows, weights.astype(np.int64)) + bias
    high = (acc * multiplier + (1 << 30)) >> 31
    scaled = (high + (1 << 6) - (high < 0)) >> 7
    return weights, np.clip(scaled - 5, -100, 120).astype(np.int8).ravel()


def test_a_convolution_and_its_cycles() -> None:
    m = Machine("im2col")
    weights, expected = convolution(m)
    m.push(SET_B, packed_rows(weights))
    m(isa.START_CONV)
    # two tiles of 16 and 14 pixels, two of columns: k + 16 + rows each; 600 results, four a cycle; a pipeline of 3
    assert m.wait() == 1 + 2 * (72 + 16 + 16) + 2 * (72 + 16 + 14) + 150 + 3
    np.testing.assert_array_equal(m.read(1024, 600), expected)
    assert m.found() == []


def test_fetched_weights_and_their_cycles() -> None:
    cycles = {}
    for extensions in ("im2col,dma", "im2col,dma,burst"):
        m = Machine(extensions)
        weights, expected = convolution(m, row=3990)  # wraps at 4096
        rows = packed_rows(weights).view(np.uint8)
        m.ram[512 : 512 + len(rows)] = rows
        m.put(fetch_row=3990)
        m(isa.FETCH, RAM_BASE + 512, len(rows))
        m(isa.START_CONV)
        cycles[extensions] = m.wait()
        np.testing.assert_array_equal(m.read(1024, 600), expected)
        assert m.found() == []
        assert m.regs[Reg.FETCHED_BYTES] == 2304
    alone = 1 + 2 * (72 + 16 + 16) + 2 * (72 + 16 + 14) + 150 + 3
    assert len(rows) == 2304
    # the convolution waits; it was asked two cycles after the fetch
    assert cycles["im2col,dma"] == alone + 2304 // 16 * 15 - 2
    assert cycles["im2col,dma,burst"] == alone + 2304 // 8 + 2 * 20 - 2


def stepped(pixels: int, channels: int, depth: int) -> int:
    """Cycles of a convolution whose stores overlap, cycle by cycle: the array, and a store queue of tiles behind it."""
    tiles = [
        (min(16, pixels - top), min(16, channels - left))
        for top in range(0, pixels, 16)
        for left in range(0, channels, 16)
    ]
    waiting: list[int] = []  # cycles that the tiles in C still need
    cycle, tile, left = 1, 0, depth + 16 + tiles[0][0]
    while tile < len(tiles) or waiting:
        cycle += 1
        if waiting:
            waiting[0] -= 1
            if not waiting[0]:
                waiting.pop(0)
        if tile < len(tiles):
            left -= 1
            if not left:
                rows, columns = tiles[tile]
                waiting.append(rows * ((columns + 3) // 4))
                tile += 1
                left = depth + 16 + tiles[tile][0] if tile < len(tiles) else 0
    return cycle + 3


@pytest.mark.parametrize(
    ("pixels", "channels", "depth"), [(1024, 16, 27), (1024, 16, 144), (64, 64, 32), (35, 23, 9), (17, 5, 100)]
)
def test_cycles_of_overlapped_stores_are_those_of_a_stepped_queue(pixels: int, channels: int, depth: int) -> None:
    assert overlapped_cycles(pixels, channels, depth, 16) == stepped(pixels, channels, depth)


def test_stores_overlap_with_the_next_tile_while_a_port_is_free() -> None:
    def cycles(extensions: str, stride: int, channels: int) -> int:
        m = Machine(extensions)
        m.put(in_h=20, in_w=20, in_c=channels, out_h=8, out_w=8, out_c=32, kernel_h=1, kernel_w=1)
        m.put(stride_h=stride, stride_w=stride, low=-128, high=127)
        m(isa.START_CONV)
        return m.wait()

    assert cycles("im2col,overlap", 1, 5) == 1 + 37 + 8 * 64 + 3  # stores are slower than tiles
    assert cycles("im2col,overlap", 2, 16) == 1 + 48 + 8 * 64 + 3
    for stride, channels in ((1, 5), (2, 16), (2, 5)):
        assert cycles("im2col", stride, channels) == 1 + 8 * (channels + 32) + 512 + 3
    assert cycles("im2col,overlap", 2, 5) == cycles("im2col", 2, 5)  # the last word of a pixel has one channel


def test_one_dma_brings_all_that_a_convolution_needs() -> None:
    m = Machine()
    weights, expected = convolution(m, row=100)
    x = m.read(64, 240)
    bias, multiplier, shift = (m.buffers[tables_at(m.regs) + 256 * i :][:20].copy() for i in range(3))
    rows, table = packed_rows(weights).view(np.uint8), channel_table(bias, multiplier, shift).astype("<i4")
    m.buffers[:] = 0
    at = {0: x.view(np.uint8), 4096: rows, 8192: table.reshape(-1).view(np.uint8)}
    for address, data in at.items():
        m.ram[address : address + len(data)] = data
    m.put(fetch_row=100, pointer=64, channel=250, table=250)  # the entries wrap at 256
    began = m.cycle
    m(isa.FETCH, RAM_BASE + 4096, len(rows))
    m(isa.FETCH_CHANNELS, RAM_BASE + 8192, 20)
    m(isa.FETCH_IMAGE, RAM_BASE, 240)
    asked = m.cycle
    m(isa.START_CONV)
    moved = 2304 // 8 + 2 * 20 + 320 // 8 + 20 + 240 // 8 + 20
    assert m.wait() == overlapped_cycles(30, 20, 72, 16) + moved - (asked - began)
    np.testing.assert_array_equal(m.read(1024, 600), expected)
    assert m.found() == [] and m.regs[Reg.FETCHED_BYTES] == 2304 + 320 + 240


@pytest.mark.parametrize(
    ("command", "kind"), [((isa.GET_IMAGE,), "read_busy"), ((isa.PUSH_IMAGE, 1, 2), "write_busy"), ((isa.CHECK,), "")]
)
def test_an_access_to_the_image_memory_during_its_fetch_is_reported(command: tuple[int, ...], kind: str) -> None:
    m = Machine()
    m(isa.FETCH_IMAGE, RAM_BASE, 64)
    m(*command)
    assert m.found() == ([kind] if kind else [])
    m.cycle += 64 // 8 + 20
    m(*command)
    assert m.found() == ([kind] if kind else [])


def test_additions_and_means_wait_for_fetched_inputs_but_not_for_weights() -> None:
    for command, alone in ((isa.START_ADD, 10 + 3), (isa.START_POOL, 16 * 1 + 4 * 34)):
        for fetched, wait in ((isa.FETCH_IMAGE, 64 // 8 + 20 - 2), (isa.FETCH, 0)):
            m = Machine()
            m.put(in_h=4, in_w=4, in_c=4, out_h=4, out_w=5, out_c=2, output=4096, high=127)
            m(fetched, RAM_BASE, 64)
            m(command)
            assert m.wait() == alone + wait, (command, fetched)


@pytest.mark.parametrize(("entry", "kind"), [(0, "write_busy"), (19, "write_busy"), (20, ""), (250, "write_busy")])
def test_a_fetch_of_channels_in_use_is_reported(entry: int, kind: str) -> None:
    m = Machine()
    convolution(m)  # entries 0 to 19
    m(isa.START_CONV)
    m.put(channel=entry)
    m(isa.FETCH_CHANNELS, RAM_BASE, 10)
    assert m.found() == ([kind] if kind else [])


@pytest.mark.parametrize(("pixels", "rate"), [(16, 1), (15, 2)])
def test_an_addition_of_four_elements_per_cycle_needs_all_banks(pixels: int, rate: int) -> None:
    m = Machine("add,add4")
    m.put(out_h=pixels, out_w=1, out_c=8, output=4096, high=127)
    m(isa.START_ADD)
    assert m.wait() == 2 * pixels * rate + 3


def test_an_addition_and_its_cycles() -> None:
    m, rng = Machine("add"), np.random.default_rng(6)
    a, b = rng.integers(-128, 128, (2, 40)).astype(np.int8)
    for at, data in ((0, a), (64, b)):
        m.put(pointer=at)
        m.push(isa.PUSH_IMAGE, data)
    m.put(
        out_h=1, out_w=1, out_c=40, input=0, input2=64, output=128, input_offset=3, input2_offset=-9, low=-128, high=99
    )
    m.put(output_offset=4, input_multiplier=1 << 30, input_shift=-1, output_multiplier=1 << 30, output_shift=-18)
    m(isa.START_ADD)
    assert m.wait() == 10 * 2 + 3
    total = ((a.astype(np.int64) + 3) << 18) + ((b.astype(np.int64) - 9) << 19)
    expected = np.clip(np.sign(total) * ((np.abs(total) + (1 << 18)) >> 19) + 4, -128, 99)
    np.testing.assert_array_equal(m.read(128, 40), expected)


def test_a_mean_and_its_cycles() -> None:
    m, rng = Machine("pool"), np.random.default_rng(7)
    x = rng.integers(-128, 128, (6, 8)).astype(np.int8)
    m.push(isa.PUSH_IMAGE, x)
    m.put(in_h=3, in_w=2, in_c=8, input=0, output=256, low=-128, high=127)
    m(isa.START_POOL)
    assert m.wait() == 2 * 6 + 8 * 34
    total = x.sum(axis=0, dtype=np.int64)
    expected = np.sign(total) * ((np.abs(total) + 3) // 6)
    np.testing.assert_array_equal(m.read(256, 8), expected)


def test_four_products_at_once() -> None:
    m = Machine("dot")
    codes, weights = np.array([-128, 0, 127, 5], np.int8), np.array([9, -7, -128, 127], np.int8)
    expected = int(((codes.astype(int) + 128) * weights).sum())
    operands = [int(values.view("<i4")[0]) for values in (codes, weights)]
    assert (m(isa.DOT, *operands), m(isa.DOT, *operands)) == (expected, 2 * expected)
    m.put(dot=0)
    assert m(isa.DOT, *operands) == expected


@pytest.mark.parametrize(
    ("command", "kind"),
    [((isa.GET_IMAGE,), "read_busy"), ((isa.PUSH_IMAGE, 1, 2), "write_busy"), ((isa.START_CONV,), "write_busy")],
)
def test_what_a_running_convolution_does_not_stand_is_reported(command: tuple[int, ...], kind: str) -> None:
    m = Machine("im2col")
    convolution(m)
    m(isa.START_CONV)
    m(*command)
    assert m.found() == [kind]


@pytest.mark.parametrize(("row", "kind"), [(0, "write_busy"), (143, "write_busy"), (144, ""), (4090, "write_busy")])
def test_a_fetch_into_weights_in_use_is_reported(row: int, kind: str) -> None:
    m = Machine()
    convolution(m)  # rows 0 to 143
    m(isa.START_CONV)
    m.put(fetch_row=row)
    m(isa.FETCH, RAM_BASE, 16 * 16)
    assert m.found() == ([kind] if kind else [])


def test_instructions_that_a_machine_lacks_are_reported() -> None:
    for extensions, funct7 in (
        ("", isa.PUT),
        ("add", isa.START_CONV),
        ("im2col", isa.START_ADD),
        ("im2col", isa.FETCH),
    ):
        m = Machine(extensions)
        m(funct7)
        assert m.found() == ["unknown"], (extensions, funct7)


def test_the_bill_counts_the_copies_of_the_image_memory() -> None:
    """With one memory each design would fit the board; a port for each lane of the array takes eight."""
    assert bill(Config())["bram36"] == 15 + 15 + 57 + 4
    for name in ("published", *BEYOND):
        config = Config.read(name, {})
        found, number = bill(config), copies(config).number if config.extensions else 0
        # A memory of which halves of a row are written takes a block more: B, with a DMA.
        assert found["bram36"] == 91 + 16 * number + ("dma" in config.extension_names)
        assert BUDGET["bram36"] >= 91 + 16
        assert found["dsp_beside_array"] < BUDGET["dsp"] - 128, name  # half of the array's products still find one
        assert ("leave out the extensions" in excess(config)) == (number > 1)
