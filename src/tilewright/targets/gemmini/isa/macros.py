"""The macros of gemmini.h (ucb-bar/gemmini-rocc-tests at 180c468): each macro appends commands to a program.

The parameters have the order and meaning of gemmini.h. DRAM addresses are integers. The functions `spad` and `acc`
return local addresses, and GARBAGE_ADDR stands for an absent operand.
"""

from __future__ import annotations

from functools import partialmethod

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, one_of
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import fields
from tilewright.targets.gemmini.isa.work import ACC, ACCUMULATE, FULL

GARBAGE_ADDR = 0xFFFF_FFFF
OUTPUT_STATIONARY = 0
WEIGHT_STATIONARY = 1
NO_ACTIVATION, RELU, LAYERNORM, IGELU, SOFTMAX = range(5)
MVIN_SCALE_IDENTITY = ACC_SCALE_IDENTITY = 1.0

#: Parameters of gemmini_loop_conv_ws whose fields have other names: {parameter: field}.
_CONV = {
    **{"stride": "conv_stride", "wrot180": "rotate", "dw": "depthwise", "max_pixels_per_row": "max_pixels"},
    **{"trans_output_1203": "out_1203", "trans_weight_1203": "weight_1203", "trans_weight_0132": "weight_0132"},
    **{"trans_input_3120": "input_3120", "a_spad_id": "a_spad", "b_spad_id": "b_spad"},
}
_CONV_COMMANDS = *(f"loop_conv_ws_{number}" for number in range(1, 7)), "loop_conv_ws"


def spad(row: int) -> int:
    return row


def acc(row: int, accumulate: bool = False, full: bool = False) -> int:
    """Return the local address of an accumulator row.

    With `accumulate`, a write adds its data to the row. With `full`, a store moves int32 numbers.
    """
    return 1 << ACC | accumulate << ACCUMULATE | full << FULL | row


def _bits(scale: float) -> int:
    return int(np.array(scale, np.float32).view(np.uint32))


class Commands:
    """The commands of a program. Each macro appends one or more commands."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._rows: list[tuple[int, int, int]] = []
        self._parts: list[Array] = []

    @property
    def array(self) -> Array:
        """The commands so far, uint64 [n, 3]: funct, rs1, rs2."""
        return np.concatenate([*self._parts, np.array(self._rows, np.uint64).reshape(-1, 3)])

    def add(self, mnemonic: str, **values: int) -> None:
        """Append a command by its mnemonic and fields. Raises ProgramError if a value does not fit its field."""
        self._rows.append(fields.encode(mnemonic, **{name: int(value) for name, value in values.items()}))

    def extend(self, commands: Array) -> None:
        self._parts += [self.array[sum(map(len, self._parts)) :], commands]
        self._rows = []

    def gemmini_config_ex(self, dataflow: int, sys_act: int, sys_shift: int) -> None:
        self.gemmini_extended_config_ex(dataflow, sys_act, sys_shift, 1, False, False)

    def gemmini_extended_config_ex(
        self, dataflow: int, sys_act: int, sys_shift: int, a_stride: int, a_transpose: bool, b_transpose: bool
    ) -> None:
        sizes = sys_shift, ACC_SCALE_IDENTITY, 1, a_stride
        self.gemmini_extended3_config_ex(dataflow, sys_act, *sizes, a_transpose, b_transpose, False)

    gemmini_extended2_config_ex = gemmini_extended_config_ex

    def gemmini_extended3_config_ex(
        self,
        dataflow: int,
        sys_act: int,
        sys_shift: int,
        sys_acc_scale: float,
        c_stride: int,
        a_stride: int,
        a_transpose: bool,
        b_transpose: bool,
        set_only_strides: bool,
    ) -> None:
        flags = {"transpose_a": a_transpose, "transpose_b": b_transpose, "only_strides": set_only_strides}
        strides = {"a_stride": a_stride, "c_stride": c_stride, "shift": sys_shift, "scale": _bits(sys_acc_scale)}
        self.add("config_ex", dataflow=dataflow, activation=sys_act, **strides, **flags)

    def gemmini_config_ld(self, stride: int) -> None:
        self.gemmini_extended_config_ld(stride, MVIN_SCALE_IDENTITY)

    def gemmini_extended_config_ld(self, stride: int, scale: float) -> None:
        self.gemmini_extended2_config_ld(stride, scale, False)

    def gemmini_extended2_config_ld(self, stride: int, scale: float, shrunk: bool) -> None:
        self.gemmini_extended3_config_ld(stride, scale, shrunk, 0)

    def gemmini_extended3_config_ld(self, stride: int, scale: float, shrunk: bool, state: int) -> None:
        self.gemmini_extended4_config_ld(stride, scale, shrunk, self.config.dim, state)

    def gemmini_extended4_config_ld(self, stride: int, scale: float, shrunk: bool, block: int, state: int) -> None:
        self.gemmini_extended5_config_ld(stride, scale, shrunk, block, 1, state)

    def gemmini_extended5_config_ld(
        self, stride: int, scale: float, shrunk: bool, block_mvin_stride: int, pixel_repeats: int, state: int
    ) -> None:
        sizes = {"block_stride": block_mvin_stride, "pixels": pixel_repeats, "scale": _bits(scale)}
        self.add("config_ld", state=state, stride=stride, shrunk=shrunk, **sizes)

    def gemmini_config_st(self, stride: int) -> None:
        self.gemmini_extended_config_st(stride, NO_ACTIVATION, ACC_SCALE_IDENTITY)

    def gemmini_extended_config_st(self, stride: int, acc_act: int, acc_scale: float) -> None:
        self.gemmini_extended2_config_st(stride, acc_act, acc_scale, *(0,) * 9)

    def gemmini_extended2_config_st(
        self,
        stride: int,
        acc_act: int,
        acc_scale: float,
        pool_stride: int,
        pool_size: int,
        pool_out_dim: int,
        *image: int,
    ) -> None:
        """Configure stores. `image` is porows, pocols, orows, ocols, upad, lpad."""
        names = ("porows", "pocols", "orows", "ocols", "upad", "lpad")
        pool = {"pool_stride": pool_stride, "pool_size": pool_size, "out_dim": pool_out_dim}
        pool |= dict(zip(names, image, strict=True))
        self.add("config_st", stride=stride, activation=acc_act, scale=_bits(acc_scale), **pool)

    def gemmini_config_norm(
        self, q_const: int, q_const_type: int, set_stats_id_only: int, act_msb: int, stat_id: int, qb: int, qc: int
    ) -> None:
        flags = {"inverse": q_const_type, "only_stat": set_stats_id_only, "high": act_msb}
        self.add("config_norm", qln2=q_const, stat=stat_id, qb=qb, qc=qc, **flags)

    def gemmini_mvin(self, dram_addr: int, spad_addr: int) -> None:
        self.gemmini_extended_mvin(dram_addr, spad_addr, self.config.dim, self.config.dim)

    def gemmini_block_mvin(self, dram_addr: int, spad_addr: int, blocks: int) -> None:
        self.gemmini_extended_mvin(dram_addr, spad_addr, blocks * self.config.dim, self.config.dim)

    def _move(self, mnemonic: str, dram_addr: int, spad_addr: int, cols: int, rows: int) -> None:
        self.add(mnemonic, dram=dram_addr, local=spad_addr, cols=cols, rows=rows)

    gemmini_extended_mvin = partialmethod(_move, "mvin")
    gemmini_extended_mvin2 = partialmethod(_move, "mvin2")
    gemmini_extended_mvin3 = partialmethod(_move, "mvin3")
    gemmini_extended_mvout = partialmethod(_move, "mvout")

    def gemmini_mvout(self, dram_addr: int, spad_addr: int) -> None:
        self.gemmini_extended_mvout(dram_addr, spad_addr, self.config.dim, self.config.dim)

    def gemmini_preload(self, bd: int, c: int) -> None:
        self.gemmini_extended_preload(bd, c, *(self.config.dim,) * 4)

    def gemmini_preload_zeros(self, c: int) -> None:
        self.gemmini_preload(GARBAGE_ADDR, c)

    def gemmini_extended_preload(self, bd: int, c: int, bd_cols: int, bd_rows: int, c_cols: int, c_rows: int) -> None:
        self.add("preload", bd=bd, c=c, bd_cols=bd_cols, bd_rows=bd_rows, c_cols=c_cols, c_rows=c_rows)

    def gemmini_compute_preloaded(self, a: int, bd: int) -> None:
        self.gemmini_extended_compute_preloaded(a, bd, *(self.config.dim,) * 4)

    def gemmini_compute_accumulated(self, a: int, bd: int) -> None:
        self.gemmini_extended_compute_accumulated(a, bd, *(self.config.dim,) * 4)

    def _compute(self, mnemonic: str, a: int, bd: int, a_cols: int, a_rows: int, bd_cols: int, bd_rows: int) -> None:
        self.add(mnemonic, a=a, bd=bd, a_cols=a_cols, a_rows=a_rows, bd_cols=bd_cols, bd_rows=bd_rows)

    gemmini_extended_compute_preloaded = partialmethod(_compute, "compute_preloaded")
    gemmini_extended_compute_accumulated = partialmethod(_compute, "compute_accumulated")

    def gemmini_flush(self, skip: int = 0) -> None:
        self.add("flush", skip=skip)

    def gemmini_fence(self) -> None:
        """Wait until the machine is idle, as the CPU's instruction `fence` does."""
        self.add("fence")

    def gemmini_loop_ws(
        self,
        i: int,
        j: int,
        k: int,
        pad_i: int,
        pad_j: int,
        pad_k: int,
        a: int,
        b: int,
        d: int,
        c: int,
        a_stride: int,
        b_stride: int,
        d_stride: int,
        c_stride: int,
        a_transpose: bool,
        b_transpose: bool,
        full_c: bool,
        low_d: bool,
        ex_accumulate: bool,
        act: int,
        a_spad_id: int,
        b_spad_id: int,
        is_resadd: bool,
    ) -> None:
        """Multiply tiles. Sizes count blocks, strides count elements, and address 0 marks an absent matrix."""
        self.add("loop_ws_bounds", i=i, j=j, k=k, pad_i=pad_i, pad_j=pad_j, pad_k=pad_k)
        self.add("loop_ws_ab", a=a, b=b)
        self.add("loop_ws_dc", d=d, c=c)
        self.add("loop_ws_ab_strides", a_stride=a_stride, b_stride=b_stride)
        self.add("loop_ws_dc_strides", d_stride=d_stride, c_stride=c_stride)
        flags = {"ex_accumulate": ex_accumulate, "full_c": full_c, "low_d": low_d, "resadd": is_resadd}
        operands = {"transpose_a": a_transpose, "transpose_b": b_transpose, "a_spad": a_spad_id, "b_spad": b_spad_id}
        self.add("loop_ws", activation=act, **flags, **operands)

    def gemmini_loop_conv_ws(self, **parameters: int) -> None:
        """Convolve a tile. Parameters have the names of gemmini.h. Raises InputError for unknown names."""
        values = {_CONV.get(name, name): value for name, value in parameters.items()}
        commands = [(name, fields.FORMATS[fields.CODES[name]]) for name in _CONV_COMMANDS]
        names = {place.name for _, form in commands for place in form.places}
        for name in values.keys() - names:
            raise InputError("gemmini_loop_conv_ws", f"has no parameter '{name}'", one_of(name, sorted(names)))
        for name, form in commands:
            mine = [place.name for place in form.places]
            self.add(name, **{field: values[field] for field in mine if field in values})
