"""Queues as a whole: order, hazards, values, time, and what cannot run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.bm1684x.programs import BANK, BYTES, CONFIG, SHAPE, add, copy, memories, queues, sum_of_two
from tilewright.errors import MachineError, ProgramError
from tilewright.sim.findings import RACE
from tilewright.sim.hazards import hazards
from tilewright.sim.order import random_sequence
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE
from tilewright.targets.bm1684x.isa.elaborate import elaborate
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import EncodedCommand, new_command
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.timing.estimate import cycles, trace
from tilewright.targets.bm1684x.timing.model import ESTIMATE
from tilewright.targets.bm1684x.values.dtypes import F32, U8


def test_a_program_computes_and_every_legal_order_gives_the_same() -> None:
    for seed in range(4):
        device, ddr = memories()
        program = elaborate(sum_of_two(), CONFIG, device.regions)
        assert not program.order.findings
        assert not hazards(program.table, program.order)
        program.run(device, random_sequence(program.table, program.order, seed) if seed else None)
        np.testing.assert_array_equal(ddr[2], ddr[0] + ddr[1])


def test_a_missing_dependency_is_a_race_that_names_both_commands() -> None:
    device, _ = memories()
    program = elaborate(sum_of_two(needs=1), CONFIG, device.regions)
    findings = hazards(program.table, program.order)
    assert [finding.kind for finding in findings] == [RACE]
    assert "dma command 1 (DMA_tensor)" in findings[0].message
    assert "tiu command 0 (AR)" in findings[0].message


def test_commands_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ProgramError, match=r"no command can start: .* needs command 1 of the other engine; "):
        elaborate(queues([copy(1, 1, DDR_BASE, LOCAL_BASE)], [add(1, 1, 0, 0, 0)]), CONFIG)


def test_an_idle_command_can_be_waited_for() -> None:
    """Nops have numbers too."""
    nop = new_command(TIU, 0, "SYSID", True, {"tsk_typ": 15, "tsk_eu_typ": 30, "cmd_id": 2})
    store = copy(1, 2, LOCAL_BASE, DDR_BASE)
    program = elaborate(queues([store], [add(1, 0, 0, 0, BANK), nop]), CONFIG)
    times = trace(program, CONFIG)
    assert [step.engine for step in program.steps] == [TIU, DMA]
    assert times.start[1] == times.end[0]


def test_engines_overlap_and_wait_for_what_they_name() -> None:
    program = elaborate(sum_of_two(), CONFIG)
    times = trace(program, CONFIG)
    name = {step.name: row for row, step in enumerate(program.steps)}
    load, second, store = (name[f"dma command {number} (DMA_tensor)"] for number in range(3))
    sum_ = name["tiu command 0 (AR)"]
    assert times.start[[load, second, sum_, store]].tolist() == [
        0,
        times.end[load],
        times.end[second],
        times.end[sum_],
    ]
    assert times.cycles == times.end[store]
    early = trace(elaborate(sum_of_two(needs=1), CONFIG), CONFIG)
    assert early.start[sum_] == early.end[load]
    assert (times.bytes_read.sum(), times.bytes_written.sum()) == (2 * BYTES, BYTES)
    assert trace(program, CONFIG, serial=True).cycles == (times.end - times.start).sum()


@pytest.mark.parametrize(
    ("result", "left", "right", "factor"),
    [(2 * BANK, 0, BANK, 1), (0, 0, BANK, 2), (0, BANK, 0, 2), (0, 64 * 4, BANK, 1), (0, 63 * 4, BANK, 2)],
)
def test_overwriting_an_operand_takes_twice_as_long(result: int, left: int, right: int, factor: int) -> None:
    """A channel counts as 64 elements at least: from the distance of 64 elements on, none is overwritten."""
    (program,) = elaborate(queues([], [add(1, 0, result, left, right)]), CONFIG).commands
    assert cycles(program, CONFIG) == factor


@pytest.mark.parametrize(("width", "runs"), [(1, 64), (63, 64), (64, 64), (65, 65), (128, 128)])
def test_short_runs_cost_as_much_as_256_bytes(width: int, runs: int) -> None:
    load = copy(1, 0, DDR_BASE, LOCAL_BASE)
    wide = {**load.fields, "src_nsize": 4, "src_wsize": width, "dst_cstride": 128, "dst_nstride": 128}
    wide |= {"src_cstride": width, "src_nstride": 64 * width}
    (command,) = elaborate(queues([replace(load, fields=wide)], []), CONFIG).commands
    size = 4 * 64 * max(runs, width) * 4
    levels = min(4, max(1, round(4 * 64 * width * 4 / ESTIMATE.unit)))
    assert cycles(command, CONFIG) == int(size * 4 / levels / ESTIMATE.read_rate)


def test_selections_and_linear_commands_run() -> None:
    """Commands that no stored program has: as the device API describes them."""
    rng = np.random.default_rng(1)
    device, _ = memories()
    a, b, c = (Tensor.local(0, bank * BANK, SHAPE, F32, CONFIG) for bank in range(3))
    x, y = (rng.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    scale = rng.normal(size=(1, 64, 1, 1)).astype(np.float32)
    channels = Tensor.local(0, 2 * BANK, (1, 64, 1, 1), F32, CONFIG, "compact")
    results = [Tensor.local(0, bank * BANK, SHAPE, F32, CONFIG) for bank in (3, 4)]
    size = {f"res0_{axis}": value for axis, value in zip("nchw", SHAPE, strict=True)}
    places = {"res0_addr": 3 * BANK, "res1_addr": 4 * BANK, "opd0_addr": 0, "opd1_addr": BANK}
    head = {"cmd_short": 1, "cmd_id": 1, "tsk_typ": 13, "opd0_prec": 2, "opd2_prec": 4}
    ones = {"opd2_addr": 1, "opd3_addr": 2, "opd2_const": 1, "opd3_const": 1}
    compare = new_command(TIU, 0, "CMP", True, {**head, **size, **places, **ones, "tsk_eu_typ": 22})
    head = {"cmd_short": 1, "cmd_id": 1, "tsk_typ": 10, "tsk_eu_typ": 1, "res0_prec": 2}
    linear = {"res0_addr": 3 * BANK, "opd0_addr": 0, "opd1_addr": 2 * BANK, "opd2_addr": 2 * BANK}
    scaled = new_command(TIU, 0, "LIN", True, {**head, **size, **linear})
    invert = with_fields(add(1, 0, 3 * BANK, 0, BANK), tsk_eu_typ=1, opd0_prec=4, res0_prec=4)
    select = with_fields(add(1, 0, 3 * BANK, 0, BANK), tsk_eu_typ=10, opd2_prec=2, opd2_const=1, opd2_addr=0x3F800000)
    for command, expected in (
        (compare, [np.maximum(x, y), np.where(x > y, 1, 2).astype(np.uint32).view(np.float32)]),
        (scaled, [x * scale + scale]),
        (invert, [(~x.view(np.uint32)).view(np.float32)]),
        (select, [(x > y).astype(np.float32)]),
    ):
        for tensor, values in ((a, x), (b, y), (c, x), (channels, scale)):
            device.write(tensor.addresses, values)
        elaborate(queues([], [command]), CONFIG, device.regions).run(device)
        for tensor, values in zip(results, expected, strict=False):
            data = device.read(tensor.addresses, F32.storage)
            np.testing.assert_array_equal(data.view(np.uint32), values.view(np.uint32), err_msg=str(command))


def test_transposing_copies_have_no_stride_along_w() -> None:
    """Whatever its field says: the debugger sets it to 1."""
    device, ddr = memories()
    load = copy(1, 0, DDR_BASE, LOCAL_BASE)
    fields = {"cmd_special_function": 1, "src_wstride": 0, "dst_wstride": 0, "dst_nstride": 16, "dst_cstride": 16}
    program = elaborate(queues([with_fields(load, **fields)], []), CONFIG)
    assert program.commands[0].operation.name == "dma_nc_trans"
    program.run(device)
    transposed = Tensor.free(0, 0, (64, 1, 1, 16), (16, 16, 16, 1), F32, CONFIG)
    np.testing.assert_array_equal(device.read(transposed.addresses, F32.storage)[:, 0, 0], ddr[0])


@pytest.mark.parametrize(("kernel", "stride", "factor"), [(1, 1, 1), (3, 1, 9), (3, 2, 27)])
def test_pools_take_a_pass_for_each_tap(kernel: int, stride: int, factor: int) -> None:
    size = {"res0_n": 1, "res0_c": 65, "res0_h": 4, "res0_w": 8, "opd1_h": kernel, "opd1_w": kernel}
    size |= {
        "opd0_h": 3 * stride + kernel,
        "opd0_w": 7 * stride + kernel,
        "res_op_x_str": stride,
        "res_op_y_str": stride,
    }
    head = {
        "cmd_short": 1,
        "cmd_id": 1,
        "tsk_typ": 1,
        "tsk_eu_typ": 4,
        "res0_prec": 2,
        "opd0_prec": 2,
        "opd0_addr": BANK,
    }
    (command,) = elaborate(queues([], [new_command(TIU, 0, "PorD", True, {**head, **size})]), CONFIG).commands
    assert cycles(command, CONFIG) == 2 * 2 * factor  # two slots of channels, two times 16 elements


@pytest.mark.parametrize(("added", "products"), [(0, 8), (1, 9)])
def test_products_of_spread_columns_take_a_pass_for_each_term(added: int, products: int) -> None:
    size = {"opd0_n": 3, "opd0_c": 1, "opd0_w": 8, "opd1_w": 8, "res0_c": 2, "res0_w": 20, "opd2_const": 1}
    places = {"res0_addr": 0, "opd0_addr": BANK, "opd1_addr": 2 * BANK, "res_add": added}
    head = {"cmd_short": 1, "cmd_id": 1, "tsk_typ": 2, "tsk_eu_typ": 1, "res0_prec": 2, "opd0_prec": 2}
    (command,) = elaborate(queues([], [new_command(TIU, 0, "MM", True, {**head, **size, **places})]), CONFIG).commands
    assert cycles(command, CONFIG) == 3 * 2 * products  # rows, two times 16 columns


@pytest.mark.parametrize("shared_table", [0, 4])
def test_a_table_is_looked_up_by_channel(shared_table: int) -> None:
    """As the debugger describes gathers; no stored program has one."""
    rng = np.random.default_rng(2)
    device, _ = memories()
    table = rng.integers(0, 256, (1, 70, 1, 200)).astype(np.uint8)
    index = rng.integers(0, 200, (2, 70, 1, 9)).astype(np.uint8)
    index[rng.random(index.shape) < 0.2] = 255  # all ones: an exception
    strides = (0, 0, 256, 1) if shared_table else (512, 256, 200, 1)
    if shared_table:
        table[0, 64:] = table[0, :6]
    device.write(Tensor.free(0, 0, table.shape, strides, U8, CONFIG).addresses, table)
    device.write(Tensor.local(0, BANK, index.shape, U8, CONFIG).addresses, index)
    size = {"res0_n": 2, "res0_c": 70, "res0_h": 1, "res0_w": 9, "opd0_h": 1, "opd0_w": 200, "opd1_w": 9, "opd1_c": 70}
    places = {"res0_addr": 2 * BANK, "opd0_addr": 0, "opd1_addr": BANK, "opd2_addr": 77, "opd2_const": 1}
    places["opd3_const"] = 1  # there may be exceptions
    head = {"cmd_short": 1, "cmd_id": 1, "tsk_typ": 6, "tsk_eu_typ": 13, "opd0_str": shared_table}
    elaborate(queues([], [new_command(TIU, 0, "SG", True, {**head, **size, **places})]), CONFIG).run(device)
    values = device.read(Tensor.local(0, 2 * BANK, index.shape, U8, CONFIG).addresses, U8.storage)
    channel = np.arange(70)[None, :, None, None]
    expected = np.where(index < 200, table[0, channel, 0, np.minimum(index, 199)], 77)
    np.testing.assert_array_equal(values, expected)


def with_fields(command: EncodedCommand, **fields: int) -> EncodedCommand:
    return replace(command, fields={**command.fields, **fields})


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (with_fields(add(1, 0, 0, 0, 0), tsk_eu_typ=24), "function 24 of the format AR is not modelled"),
        (with_fields(add(1, 0, 0, 0, 0), res0_prec=7), "the code 7 in a precision field is reserved"),
        (with_fields(add(1, 0, 0, 0, 0), res0_str=5), "res0_str is 5"),
        (with_fields(add(1, 0, 0, 0, 0), res0_h=0), "every size must be"),
        (with_fields(add(1, 0, 2, 0, 0)), "multiple of 4"),
        (with_fields(copy(1, 0, DDR_BASE, LOCAL_BASE), localmem_mask_l32=1), "masks lanes"),
        (with_fields(copy(1, 0, DDR_BASE, LOCAL_BASE), decompress_enable=1), "decompresses"),
        (with_fields(copy(1, 0, DDR_BASE, LOCAL_BASE), cmd_special_function=5), "function 5 of the format DMA_tensor"),
        (new_command(DMA, 0, "DMA_nonzero", False, {"cmd_type": 5, "cmd_id": 1}), "masks lanes"),
        (
            new_command(TIU, 0, "AR", False, {"tsk_typ": 3, "cmd_id": 1}),
            "long commands of the format AR are not modelled",
        ),
    ],
)
def test_what_is_not_modelled_is_said(command: EncodedCommand, message: str) -> None:
    dma, tiu = ([command], []) if command.engine == DMA else ([], [command])
    with pytest.raises(ProgramError, match=message):
        elaborate(queues(dma, tiu), CONFIG)


def test_memory_that_does_not_exist_is_refused() -> None:
    device, _ = memories()
    outside = queues([copy(1, 0, DDR_BASE + 3 * BYTES, LOCAL_BASE)], [])
    with pytest.raises(MachineError, match="no memory holds 0x100003000"):
        elaborate(outside, CONFIG, device.regions)
    with pytest.raises(MachineError, match="no memory holds"):
        elaborate(outside, CONFIG).run(device)
