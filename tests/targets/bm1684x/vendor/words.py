"""The words that the vendor's library writes to its command queues for a call of the device API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tests.targets.bm1684x.vendor.library import Library

GROUPS = 4096


class Vector(ctypes.Structure):
    """A std::vector: where its elements begin and end, and where its memory ends."""

    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("limit", ctypes.c_void_p))

    def bytes(self) -> bytes:
        return ctypes.string_at(self.begin, self.end - self.begin) if self.begin else b""


class Words(Library):
    """The library of the vendor's compiler, which keeps the words of commands. Use it in a process of its own."""

    def __init__(self) -> None:
        super().__init__("libbackend_1684x.so")
        self.lib.create_cmd_id_node.restype = ctypes.c_void_p
        node = ctypes.c_void_p(self.lib.create_cmd_id_node())
        self.dma, self.tiu, self.lengths = Vector(), Vector(), (Vector(), Vector())
        self.groups = (Vector(), Vector())
        self.numbers = tuple((ctypes.c_uint32 * GROUPS)() for _ in self.groups)
        self.totals, self.count = (ctypes.c_uint32(), ctypes.c_uint32()), ctypes.c_int(1)
        self._reset()
        self.lib.load_lookup_tables()
        at = ctypes.byref
        self.lib.set_total_id_ptr(
            at(self.totals[0]), at(self.totals[1]), node, at(self.groups[0]), at(self.groups[1]), at(self.count)
        )
        self.lib.set_cmd_len_ptr(at(self.lengths[0]), at(self.lengths[1]))
        self.lib.set_cmd_buffer_ptr(at(self.dma), at(self.tiu))
        self.lib.forbid_atomic_cmodel()
        self.lib.allow_store_cmd()

    def _reset(self) -> None:
        for group, numbers in zip(self.groups, self.numbers, strict=True):
            numbers[0] = 0
            group.begin = ctypes.addressof(numbers)
            group.end, group.limit = group.begin + 4, group.begin + 4 * GROUPS
        self.count.value = 1
        for vector in (self.dma, self.tiu, *self.lengths):
            vector.end = vector.begin

    def words(self, name: str, *arguments: Any) -> tuple[bytes, bytes]:
        """Return the bytes that a call adds to the queues of the compute engine and of DMA."""
        ctypes.memset(self.node, 0, len(self.node))
        self.lib.tpu_set_id_node(self.node)
        self._reset()
        self.call(name, *arguments)
        return self.tiu.bytes(), self.dma.bytes()


def words() -> Callable[[tuple[Any, ...]], tuple[bytes, bytes]]:
    """Return a function from a call (its name, its arguments) to its words, for `served`."""
    recorder = Words()
    return lambda call: recorder.words(call[0], *call[1])
