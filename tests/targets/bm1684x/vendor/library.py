"""Call the vendor's libraries through ctypes: the functional model, and the cycle estimator of its compiler."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.targets.bm1684x.vendor.prototypes import UNLISTED
from tilewright.array import Array
from tilewright.targets.bm1684x.capi import dim2, dim4, padding_t
from tilewright.targets.bm1684x.capi.names import variable_t
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import DType

HEADER = Path("ppl/runtime/bm1684x/TPU1686/kernel/include/tpu_kernel.h")
LOCAL, STATIC, L2, DDR = 1 << 24, 1 << 14, 0x1FB000, 1 << 22
#: C types by the way they are passed. All others are 32-bit integers.
WIDE = ("system_addr_t", "global_addr_t", "addr_t", "l2_sram_addr_t", "u64")


def folder() -> Path | None:
    """Return the folder tpu_mlir/ of the unpacked wheel, or None if it is not here."""
    package = Path(os.environ.get("TILEWRIGHT_TPU_MLIR", "")) / "tpu_mlir"
    return package if "TILEWRIGHT_TPU_MLIR" in os.environ and (package / "lib").is_dir() else None


@cache
def prototypes() -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the parameters of each function of the vendor's header: pairs of C type and name."""
    where = folder()
    assert where
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", (where / HEADER).read_text(), flags=re.DOTALL)
    declared = dict(re.findall(r"\b(tpu_\w+)\s*\(([^;{}]*?)\)\s*;", text, flags=re.DOTALL)) | UNLISTED
    return {
        name: tuple(_parameter(parameter) for parameter in said.split(",") if parameter.strip())
        for name, said in declared.items()
    }


def _parameter(text: str) -> tuple[str, str]:
    kind, _, name = text.replace("*", " * ").strip().rpartition(" ")
    return " ".join(kind.replace("const ", "").split()), name


def _ints(*values: int) -> Any:
    return ctypes.byref((ctypes.c_int * len(values))(*values))


def passed(kind: str, value: Any) -> Any:
    """Return a C argument of the C type `kind` for an argument of the device API in Python."""
    if value is None:
        return None
    if isinstance(value, dim4):
        return _ints(value.n, value.c, value.h, value.w)
    if isinstance(value, dim2):
        return _ints(value.h, value.w)
    if isinstance(value, padding_t):
        return _ints(value.top, value.bottom, value.left, value.right)
    if isinstance(value, variable_t):
        context = value.context
        return _ints(value.type, _signed(context.bits if isinstance(context, Constant) else context))
    if isinstance(value, DType):
        return ctypes.c_uint32(value.code)
    if isinstance(value, Constant):
        return ctypes.c_uint32(value.bits)
    if kind == "float":
        return ctypes.c_float(value)
    return ctypes.c_uint64(value) if kind in WIDE else ctypes.c_int32(_signed(int(value)))


def _signed(bits: int) -> int:
    return (bits & 0xFFFF_FFFF) - (1 << 32 if bits & 0x8000_0000 else 0)


class Library:
    """One of the two libraries, with its memories zeroed and its engines started."""

    def __init__(self, name: str, ddr: int = DDR) -> None:
        where = folder()
        assert where
        self.lib = ctypes.CDLL(str(where / "lib" / name))
        self.lib.cmodel_init.argtypes = [ctypes.c_int, ctypes.c_int64]
        self.lib.cmodel_init(0, ddr)
        self.node = (ctypes.c_char * 256)()
        self.lib.tpu_set_id_node(self.node)
        self.lib.tpu_initialize()

    def call(self, name: str, *arguments: Any) -> Any:
        kinds = prototypes()[name]
        assert len(kinds) == len(arguments), f"{name} takes {kinds}"
        given = [passed(kind, value) for (kind, _), value in zip(kinds, arguments, strict=True)]
        return getattr(self.lib, name)(*given)


class Model(Library):
    """The functional model: `call` a function of the device API, `poll`, then read its memories (uint8)."""

    def __init__(self) -> None:
        super().__init__("libcmodel_1684x.so")
        lib = self.lib
        lib.get_local_mem.restype = ctypes.POINTER(ctypes.c_void_p)
        lib.get_static_memaddr_by_node.restype = lib.get_global_memaddr.restype = ctypes.c_void_p
        self.local = _bytes(lib.get_local_mem(0)[0], LOCAL)
        self.ddr = _bytes(lib.get_global_memaddr(0), DDR)
        lib.load_lookup_tables()
        self.static = _bytes(lib.get_static_memaddr_by_node(0), STATIC)

    def poll(self) -> None:
        self.lib.tpu_poll()
        self.lib.tpu_hau_poll()


def _bytes(address: int | None, size: int) -> Array:
    assert address
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Estimator(Library):
    """The cycle estimator of the vendor's compiler. It computes no values. Use it in another process (served.py)."""

    def __init__(self) -> None:
        super().__init__("libbackend_1684x.so")
        self.lib.forbid_atomic_cmodel()
        self.lib.forbid_store_cmd()

    def cycles(self, name: str, *arguments: Any) -> int:
        """Return the cycles that the commands of a call take, added up."""
        ctypes.memset(self.node, 0, len(self.node))
        self.lib.tpu_set_id_node(self.node)
        self.call(name, *arguments)
        self.lib.tpu_get_id_node(self.node)
        return int.from_bytes(self.node.raw[16:24], "little")


def estimator() -> Callable[[tuple[Any, ...]], int]:
    """Return a function from a call (its name, its arguments, anything else) to its cycles, for `served`."""
    built = Estimator()
    return lambda call: built.cycles(call[0], *call[1])
