"""Machines of other sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.targets.vta.config import PRESETS, Config


def config(**overrides: Any) -> Config:
    return replace(PRESETS["pynq"], **overrides)


def buffers(uop: int, inp: int, wgt: int, acc: int, **overrides: Any) -> Config:
    sizes = {"LOG_UOP_BUFF_SIZE": uop, "LOG_INP_BUFF_SIZE": inp, "LOG_WGT_BUFF_SIZE": wgt, "LOG_ACC_BUFF_SIZE": acc}
    return config(**sizes, **overrides)
