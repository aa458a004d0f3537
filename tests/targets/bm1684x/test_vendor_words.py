"""Commands with the fields that the vendor's library and compiler write mean what the functional model computes."""

from __future__ import annotations

import pytest

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.stream import new_command
from tilewright.targets.bm1684x.values.dtypes import I32, Rounding

CONFIG = Config()
RESULT = {"res0_n": 1, "res0_c": 7, "res0_h": 1, "res0_w": 7, "res0_addr": 4224}
SCATTER = {"res0_prec": 1, "opd0_h": 1, "opd0_w": 1, "opd1_c": 7, "opd1_w": 1, "opd0_prec": 1}


def read(engine: str, name: str, short: bool, **fields: int) -> Command:
    return command_of(new_command(engine, 0, name, short, {"cmd_short": int(short), **fields}), CONFIG)


@pytest.mark.parametrize("function", [6, 14])
def test_a_compiled_convolution_spreads_its_kernel_by_a_scatter(function: int) -> None:
    fields = {**RESULT, **SCATTER, "tsk_eu_typ": function, "opd0_addr": 4160, "opd1_addr": 4096}
    command = read("tiu", "SG", True, tsk_typ=6, **fields)
    assert command.operation.name == "pe_scatter"
    assert [tuple(command[name].shape) for name in ("y", "x", "index")] == [(1, 7, 1, 7), (1, 7, 1, 1), (1, 7, 1, 1)]


def test_a_requantisation_has_the_roundings_of_its_product_and_of_its_source() -> None:
    fields = {
        "res0_prec": 3,
        "opd0_prec": 4,
        "opd2_n_str": 26,
        "opd0_sign": 1,
        "opd0_addr": 0x4000,
        "opd1_addr": 0x8000,
    }
    command = read("tiu", "RQ&DQ", True, tsk_typ=4, **RESULT, **fields)
    assert command.attributes == {"mode": Rounding(3), "source_mode": Rounding(2)}


def test_an_8_bit_depthwise_convolution_has_its_shift_in_the_second_byte() -> None:
    sizes = {"res0_n": 2, "res0_c": 1, "res0_h": 10, "res0_w": 7, "opd0_h": 9, "opd0_w": 11, "opd1_h": 2, "opd1_w": 1}
    window = {
        "opd0_up_pad": 2,
        "opd0_lf_pad": 2,
        "res_op_x_str": 2,
        "res_op_y_str": 1,
        "opd3_const": 1,
        "opd3_addr": 47,
    }
    places = {"opd0_addr": 16384, "opd1_addr": 32768, "opd2_addr": 49152, "res1_addr": 5120}
    command = read("tiu", "PorD", True, tsk_typ=1, res0_prec=4, opd2_n_str=3, **sizes, **window, **places)
    assert (command.operation.name, command.attributes["right"], command.attributes["pad"]) == (
        "int8_depthwise2d",
        20,
        47,
    )


def test_a_product_of_two_transposed_matrices_is_right_times_left() -> None:
    sizes = {"res0_c": 51, "res0_w": 64, "opd1_c": 51, "opd1_w": 100}
    places = {"opd0_addr": 16384, "opd1_addr": 32768, "opd2_addr": 114, "opd2_const": 1}
    command = read("tiu", "MM2", True, tsk_typ=2, tsk_eu_typ=6, res0_prec=4, **sizes, **places)
    assert [command[name].shape for name in ("y", "L", "R")] == [(51, 64), (100, 64), (51, 100)]
    assert command.attributes["both_transposed"]


def test_an_8_bit_multiply_add_has_two_shifts_in_one_constant() -> None:
    fields = {"tsk_eu_typ": 18, "tsk_opd_num": 3, "opd1_const": 1, "opd2_const": 1, "res0_prec": 3, "opd1_sign": 1}
    command = read("tiu", "AR", True, tsk_typ=3, **RESULT, **fields, opd0_addr=16384, opd1_addr=215, opd2_addr=1806)
    assert command.operation.name == "int8_mac"
    assert (command.attributes["left"], command.attributes["right"]) == (14, 7)


def test_all_pairs_of_two_vectors() -> None:
    sizes = {"res0_c": 48, "res0_w": 1, "opd0_c": 5, "opd0_w": 9, "opd1_w": 7}
    precisions = {"res0_prec": 4, "opd0_prec": 4, "opd1_prec": 4, "opd0_sign": 1, "opd1_sign": 1, "opd2_n_str": 2}
    command = read(
        "tiu", "VC", True, tsk_typ=14, tsk_eu_typ=5, res0_addr=131072, opd1_addr=16384, **sizes, **precisions
    )
    assert command.operation.name == "vc_min"
    assert [command[name].shape for name in ("y", "a", "b")] == [(43, 48), (1, 43), (1, 48)]
    assert command.types["y"] is I32


def test_a_gather_without_strides_has_the_channels_and_rows_of_its_source() -> None:
    sizes = {"src_csize": 100, "src_hsize": 10, "src_wsize": 1, "dst_hsize": 8, "index_csize": 100, "index_hsize": 8}
    places = {"src_start_addr_l32": 134234112, "dst_start_addr_h8": 1, "index_start_addr_l32": 1 << 20}
    masks = {"localmem_mask_l32": 0xFFFFFFFF, "localmem_mask_h32": 0xFFFFFFFF, "index_start_addr_h8": 1}
    fields = {**sizes, **places, **masks, "src_data_format": 3, "constant_value": 48322}
    command = read("dma", "DMA_gather", False, cmd_type=7, **fields)
    assert (tuple(command["y"].shape), tuple(command["x"].shape)) == ((1, 100, 8, 1), (1, 100, 10, 1))
    fill = command["fill"]
    assert isinstance(fill, Constant) and fill.bits == 48322
