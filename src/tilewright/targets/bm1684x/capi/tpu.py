"""All functions of the device API. Arguments have the order of the C prototypes.

    @function(Param)
    def add_one(tpu, param):
        c = DeviceApi(tpu)
        c.tpu_initialize()
        shape = dim4(1, 64, 20, 20)
        c.tpu_gdma_cpy_S2L(0, param.x, shape, None, None, DT_FP32)
        c.tpu_bdc_fp_add_C(0x4000, 0, 1.0, shape, None, None, DT_FP32)
        c.tpu_gdma_cpy_L2S(param.y, 0x4000, shape, None, None, DT_FP32)
        c.tpu_poll()

Pass None for NULL, the object itself for a pointer, and a number (or a Constant, to give a bit pattern) for a scalar_t.
A local address is a byte offset in local memory. An unknown function raises an AttributeError that lists all functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from operator import attrgetter
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.computed import COMPUTED
from tilewright.targets.bm1684x.capi.convolutions import CONVOLUTIONS, PRODUCTS
from tilewright.targets.bm1684x.capi.elementwise import ELEMENTWISE, VECTORS
from tilewright.targets.bm1684x.capi.forms import DeviceFunction, Issuer
from tilewright.targets.bm1684x.capi.gathers import GATHERS, LOADS, REFUSED, SORTING
from tilewright.targets.bm1684x.capi.moves import MOVES
from tilewright.targets.bm1684x.capi.names import dim4, range_t
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.config import L2_BASE, LOCAL_BASE
from tilewright.targets.bm1684x.isa.rules import WIDEST_STEP
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.values.dtypes import F32, DType

TABLES = (
    (
        "tpu_bdc_",
        {**ELEMENTWISE, **CONVOLUTIONS, **GATHERS, **LOADS, **PRODUCTS, **SEQUENCED, **COMPUTED, **VECTORS},
    ),
    ("tpu_gdma_", MOVES),
    ("tpu_hau_", SORTING),
)
FUNCTIONS: Mapping[str, DeviceFunction] = {
    prefix + name: DeviceFunction(prefix + name, run) for prefix, table in TABLES for name, run in table.items()
}


def _of_config(size: str) -> Callable[[DeviceApi], int]:
    return lambda api: getattr(api.config, size)


class DeviceApi(Issuer):
    """The device API in one launch of a kernel: a method for each C function."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = FUNCTIONS.get(name)
        if name in REFUSED:
            raise MachineError(name, "the BM1684X does not have this function", "use another one")
        if function is None:
            raise AttributeError(f"there is no function {name}; choose one of {', '.join(dir(self))}")
        return lambda *arguments: function.call(self, arguments)

    def __dir__(self) -> list[str]:
        methods = [name for name in dir(type(self)) if name.startswith("tpu_")]
        return sorted({*methods, *FUNCTIONS})

    def tpu_initialize(self) -> None:
        """Allow the kernel to issue commands. A kernel must call this function before its first command."""
        self.initialised = True

    def tpu_poll(self) -> None:
        self.tpu.poll()

    tpu_hau_poll = tpu_poll

    def tpu_parallel_start(self) -> None:
        self.tpu.parallel_start()

    def tpu_parallel_end(self) -> None:
        self.tpu.parallel_end()

    def tpu_is_parallel_state(self) -> bool:
        return self.tpu.in_region

    def tpu_gdma_get_filter_num(self) -> int:
        """Return how many elements the last selection kept. A kernel must call tpu_poll first."""
        return self.tpu.selected

    def tpu_bdc_busy(self) -> int:
        """Return 0: a kernel never sees a pending command."""
        return 0

    tpu_gdma_busy = tpu_hau_sort_busy = tpu_bdc_busy

    def tpu_gdma_cmd_overflow(self) -> int:
        """Return 0, because the simulator's queues have no limit."""
        return 0

    tpu_hau_sort_cmd_overflow = tpu_gdma_cmd_overflow

    def tpu_gdma_shape_limit(self, axis: int) -> int:
        return 65535

    def tpu_gdma_move_max_wstride_byte_len(self) -> int:
        return WIDEST_STEP

    def tpu_gdma_mask_select_S2S_with_ret(self, *arguments: Any) -> int:
        """Return the number of elements that a selection from DDR has kept."""
        self.tpu_gdma_mask_select_S2S(*arguments)
        return self.tpu.selected

    tpu_npu_num = _of_config("lanes")
    tpu_bank_num = _of_config("banks")
    tpu_local_mem_size_per_npu = _of_config("lane_bytes")
    tpu_l2_sram_size = _of_config("l2_bytes")

    def tpu_l2_sram_get_start_addr(self) -> int:
        return L2_BASE

    def tpu_local_mem_get_start_addr(self) -> int:
        return LOCAL_BASE

    def tpu_npu_index(self, address: int) -> int:
        return address // self.config.lane_bytes

    def tpu_bank_index(self, address: int) -> int:
        return address % self.config.lane_bytes // self.config.bank_bytes

    def tpu_bank_range(self, address: int, size: int) -> range_t:
        return range_t(self.tpu_bank_index(address), self.tpu_bank_index(address + max(size, 1) - 1))

    def tpu_range_overlapped(self, first: range_t, second: range_t) -> bool:
        return first.start <= second.end and second.start <= first.end

    def tpu_any_range_overlapped(self, ranges: Sequence[range_t], count: int) -> bool:
        pairs = combinations(ranges[:count], 2)
        return any(self.tpu_range_overlapped(first, second) for first, second in pairs)

    def tpu_channle_num_per_npu(self, start: int, channels: int) -> int:  # the vendor's spelling
        return layout.slots(start, channels, self.config)

    def tpu_aligned_feature_size(self, h: int, w: int, dtype: DType) -> int:
        """Return the number of bytes that a channel of h rows and w columns takes in the aligned layout."""
        return layout.aligned(Shape(1, 1, h, w), dtype, 0, self.config).c * dtype.bytes

    def tpu_eu_num(self, dtype: DType) -> int:
        return self.config.eu_bytes // dtype.bytes

    tpu_data_type_size = staticmethod(attrgetter("bytes"))
    tpu_is_data_type_fp = staticmethod(attrgetter("is_float"))
    tpu_is_data_type_signed = staticmethod(attrgetter("signed"))

    def tpu_is_data_type_int(self, dtype: DType) -> bool:
        return not dtype.is_float

    def tpu_is_data_type_signed_int(self, dtype: DType) -> bool:
        return dtype.signed and not dtype.is_float

    def tpu_is_data_type_unsigned_int(self, dtype: DType) -> bool:
        return not dtype.signed and not dtype.is_float

    def tpu_aligned_stride(self, stride: dim4, start: int, shape: dim4, dtype: DType) -> None:
        stride.set(layout.aligned(shape.shape, dtype, start, self.config))

    def tpu_line_aligned_stride(self, stride: dim4, start: int, shape: dim4, dtype: DType) -> None:
        stride.set(layout.line(shape.shape, dtype, start, self.config))

    def tpu_compact_stride(self, stride: dim4, start: int, shape: dim4) -> None:
        stride.set(layout.compact(shape.shape, F32, start, self.config))

    def tpu_continuous_stride(self, stride: dim4, shape: dim4) -> None:
        stride.set(layout.continuous(shape.shape))
