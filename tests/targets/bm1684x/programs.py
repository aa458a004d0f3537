"""Small queues, written field by field."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import DDR_BASE, LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import EncodedCommand, encode, new_command
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.memory import Memories

CONFIG = Config()
SHAPE = (1, 64, 1, 16)
#: Bytes of a tensor of SHAPE in DDR, and of the bank that each of three tensors has in local memory.
BYTES, BANK = 64 * 16 * 4, CONFIG.bank_bytes


def copy(number: int, needs: int, source: int, destination: int) -> EncodedCommand:
    """A float32 tensor of SHAPE between DDR and local memory."""
    fields = {"stride_enable": 1, "nchw_copy": 1, "cmd_id_en": 1, "cmd_id": number, "cmd_id_dep": needs}
    fields |= {"src_data_format": F32.precision, "localmem_mask_l32": 2**32 - 1, "localmem_mask_h32": 2**32 - 1}
    for end, address in (("src", source), ("dst", destination)):
        fields |= {f"{end}_start_addr_l32": address & (2**32 - 1), f"{end}_start_addr_h8": address >> 32}
        strides = (16, 16, 16, 1) if address < DDR_BASE else (1024, 16, 16, 1)
        fields |= {f"{end}_{axis}stride": stride for axis, stride in zip("nchw", strides, strict=True)}
    fields |= {f"src_{axis}size": size for axis, size in zip("nchw", SHAPE, strict=True)}
    return new_command(DMA, number - 1, "DMA_tensor", False, fields)


def add(number: int, needs: int, result: int, left: int, right: int) -> EncodedCommand:
    """A float32 sum in local memory."""
    fields = {"cmd_short": 1, "cmd_id": number, "cmd_id_dep": needs, "tsk_typ": 3, "tsk_eu_typ": 2, "tsk_opd_num": 2}
    fields |= {f"{name}_prec": F32.precision for name in ("res0", "opd0", "opd1")}
    fields |= {f"res0_{axis}": size for axis, size in zip("nchw", SHAPE, strict=True)}
    fields |= {"res0_addr": result, "opd0_addr": left, "opd1_addr": right}
    return new_command(TIU, number - 1, "AR", True, fields)


def queues(dma: list[EncodedCommand], tiu: list[EncodedCommand]) -> dict[str, Array]:
    """The bytes of two queues, closed."""
    dma_end = new_command(DMA, len(dma), "DMA_sys", True, {"cmd_short": 1, "cmd_type": 6, "cmd_id": len(dma) + 1})
    tiu_end = new_command(TIU, len(tiu), "SYSID", True, {"tsk_typ": 15, "tsk_eu_typ": 31, "cmd_id": len(tiu) + 1})
    return {DMA: encode([*dma, dma_end]), TIU: encode([*tiu, tiu_end])}


def sum_of_two(needs: int = 2) -> dict[str, Array]:
    """Load two tensors, add them, store the sum. `needs`: how many loads the addition waits for."""
    loads = [copy(1, 0, DDR_BASE, LOCAL_BASE), copy(2, 0, DDR_BASE + BYTES, LOCAL_BASE + BANK)]
    store = copy(3, 1, LOCAL_BASE + 2 * BANK, DDR_BASE + 2 * BYTES)
    return queues([*loads, store], [add(1, needs, 2 * BANK, 0, BANK)])


def memories(seed: int = 0) -> tuple[Memories, Array]:
    """A device whose DDR holds two tensors and room for a third; the DDR as float32 (3, 64, 16)."""
    with_ddr = Memories(CONFIG)
    values = np.random.default_rng(seed).normal(size=(3, 64, 16)).astype(np.float32)
    data = with_ddr.new_ddr(DDR_BASE, values.nbytes).data
    with_ddr.fill(DDR_BASE + np.arange(values.nbytes), values.view(np.uint8).reshape(-1))
    return with_ddr, data.view(np.float32).reshape(values.shape)
