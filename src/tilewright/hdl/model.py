"""Run a compiled component: its ports are arrays, and a loop in C advances its clock."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import getfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError, MachineError, one_of
from tilewright.hdl.build import FAST, Wire, cached_library, library, verilog_library

#: Stands for an unlimited number of events.
EVER = (1 << 64) - 1
STOPPED = 2  # a result of the C function tw_run


class RtlHangs(MachineError):
    """A port that should become 1 is still 0 after the largest number of cycles."""


class RtlStopped(MachineError):
    """An assertion of the design failed, or the design ended the simulation by $finish or $stop."""


class Written(NamedTuple):
    """Written beats: cycle and address, int64 [n]; data, uint8 [n, bytes]; enabled bytes, bool [n, bytes]."""

    cycle: Array
    address: Array
    data: Array
    strobes: Array


class Wave(NamedTuple):
    """A waveform file, and the first and last cycle to record, counted from the start of the launch."""

    path: Path
    first: int
    last: int


class Compiled:
    """A component that is compiled to a shared library. The library is cached on disk.

    `engine` is verilator (fast) or cxxrtl (an independent implementation of the same RTL). `build.library` describes
    `source` and `extra`. Raises ConfigError if the engine is unknown, or if a tool is missing or fails.
    """

    def __init__(self, component: Any, engine: str = "verilator", source: str = "", extra: str = "") -> None:
        self._library = _load(library(component, engine, source, extra))

    @classmethod
    @lru_cache
    def of_machine(cls, component: Callable[[Any], Any], config: Any, engine: str) -> Compiled:
        """Return the compiled gateware `component(config)`. `component` is a function in the folder of a target.

        If the library is in the cache (build.cached_library), `component` is not called, so Amaranth is not imported.
        """
        package = Path(getfile(component)).parents[1]
        return cls.of_library(cached_library(json.dumps(config.to_dict()), package, engine, lambda: component(config)))

    @classmethod
    def of_verilog(
        cls, files: Mapping[str, str], top: str, ports: Sequence[Wire], extra: str = "", options: str = FAST
    ) -> Compiled:
        """Return a compiled Verilog module. See `build.verilog_library` for the arguments and errors."""
        return cls.of_library(verilog_library(files, top, ports, extra, options))

    @classmethod
    def of_library(cls, path: Path) -> Compiled:
        """Return the component in a shared library that build.py compiled."""
        compiled = cls.__new__(cls)
        compiled._library = _load(path)
        return compiled

    def model(self, seed: int = 0) -> Model:
        """Return an instance. With a `seed`, registers and memories without an initial value get random values.

        A seed needs Verilog that was compiled with build.UNDEFINED.
        """
        if not seed:
            return Model(self._library)
        self._library.tw_seed(ctypes.c_uint64(seed))
        try:
            return Model(self._library)
        finally:
            self._library.tw_seed(ctypes.c_uint64(0))


class Model:
    """An instance of a compiled component, at cycle 0. `ports` maps port names to uint8 views, little-endian.

    `library` has the functions of driver.h and of the `extra` C++ text. Their first argument is `handle`.
    """

    def __init__(self, compiled: ctypes.CDLL) -> None:
        self.library = compiled
        self.handle = ctypes.c_void_p(self.library.tw_open())
        self._attached: list[Array] = []  # keeps the arrays alive, because the library uses their memory
        self.ports = dict[str, Array]()
        data = ctypes.c_void_p()
        bits = ctypes.c_uint32()
        size = ctypes.c_uint32()
        places = [ctypes.byref(item) for item in (data, bits, size)]
        while name := self.library.tw_port(self.handle, len(self.ports), *places):
            buffer = (ctypes.c_uint8 * size.value).from_address(data.value or 0)
            self.ports[name.decode()] = np.frombuffer(memoryview(buffer), np.uint8)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.library.tw_close(self.handle)

    def __getitem__(self, port: str) -> int:
        return int.from_bytes(self._port(port).tobytes(), "little")

    def __setitem__(self, port: str, value: int) -> None:
        view = self._port(port)
        view[:] = np.frombuffer(value.to_bytes(len(view), "little"), np.uint8)

    def _port(self, name: str) -> Array:
        if name not in self.ports:
            raise ConfigError("RTL model", f"there is no port {name}", one_of(name, self.ports))
        return self.ports[name]

    @property
    def cycle(self) -> int:
        """The number of clock cycles since the instance was made."""
        return int(self.library.tw_cycle(self.handle))

    def attach(self, prefix: str, memory: Array, latency: int, stalls: int = 0) -> int:
        """Connect `memory` (uint8 [n], used in place) to the AXI4 ports PREFIX__ar .. PREFIX__b.

        Return the number of the memory, which is an argument of `faults` and `written`. `latency` is in cycles, at
        least 1. `stalls` is a seed for random delays of commands, beats and responses (0: no delays). Raises
        ConfigError if the component has no such ports.
        """
        place = memory.ctypes.data_as(ctypes.c_void_p)
        number = self.library.tw_memory(self.handle, prefix.encode(), place, memory.size, latency)
        if not number:
            raise ConfigError("RTL model", f"the component has no AXI4 ports named {prefix}")
        if stalls:
            self.library.tw_stall(ctypes.c_void_p(number), stalls)
        self._attached.append(memory)
        return int(number)

    def faults(self, memory: int) -> int:
        """Return the number of beats that are outside of a memory (see `attach`), or do not match their command."""
        return int(self.library.tw_faults(ctypes.c_void_p(memory)))

    def written(self, memory: int) -> Written:
        """Return the beats that were written to a memory (see `attach`), in order of time."""
        places = ctypes.c_void_p()
        beats = ctypes.c_void_p()
        size = ctypes.c_uint64()
        addresses = (ctypes.byref(item) for item in (places, beats, size))
        count = self.library.tw_written(ctypes.c_void_p(memory), *addresses)
        width = size.value
        at = _copied(places, 16 * count).view(np.int64).reshape(count, 2)
        both = width + -(-width // 8)
        content = _copied(beats, both * count).reshape(count, both)
        strobes = np.unpackbits(content[:, width:], axis=1, count=width, bitorder="little").view(np.bool_)
        return Written(at[:, 0], at[:, 1], content[:, :width], strobes)

    def reads(self, memory: int) -> Array:
        """Return the read bursts from a memory (see `attach`), int64 [n, 3]: cycle, address, and number of beats."""
        places = ctypes.c_void_p()
        count = self.library.tw_read(ctypes.c_void_p(memory), ctypes.byref(places))
        return _copied(places, 24 * count).view(np.int64).reshape(count, 3)

    def wave(self, path: Path, first: int, last: int) -> None:
        """Record a waveform (VCD, two time steps per cycle) while the cycles `first` to `last` run.

        Both are counted from the present cycle. Raises ConfigError if the file cannot be written, or if the model has
        no waveforms, because verilator compiled the model without build.WAVES.
        """
        now = self.cycle
        if not self.library.tw_wave(self.handle, str(path).encode(), now + first, now + last, now):
            raise ConfigError("waveform", f"cannot write {path}", "choose a writable file and the engine cxxrtl")

    def watch(self, port: str, number: int) -> None:
        """From now on, log each cycle in which a port is not 0 as an event with this number (see `events`)."""
        self._port(port)
        self.library.tw_watch(self.handle, port.encode(), number)

    @property
    def events(self) -> Array:
        """The number and cycle of each logged event (see `watch`), int64 [n, 2], in order of time."""
        data = ctypes.c_void_p()
        count = self.library.tw_events(self.handle, ctypes.byref(data))
        return _copied(data, 16 * count).view(np.int64).reshape(-1, 2)

    def step(self, cycles: int = 1) -> None:
        """Run `cycles` cycles. With 0, only update the outputs. Raises RtlStopped if an assertion fails."""
        self._run(cycles, None, EVER)

    def run_until(self, port: str, limit: int) -> None:
        """Run until a port is not 0.

        Raises RtlHangs, a MachineError, if the port is still 0 after `limit` cycles. Raises RtlStopped if an assertion
        fails.
        """
        self._port(port)
        if not self._run(limit, port.encode(), EVER):
            raise RtlHangs("RTL model", f"{port} is still 0 after {limit} cycles")

    def _run(self, cycles: int, until: bytes | None, events: int) -> bool:
        done = self.library.tw_run(self.handle, cycles, until, events)
        if done == STOPPED:
            lines = self.library.tw_printed().decode(errors="replace").split("\n")
            told = next((line for line in lines if "%Error" in line), lines[0])
            raise RtlStopped("RTL model", f"stopped in cycle {self.cycle}: {told}")
        return bool(done)

    def play(self, inputs: Mapping[str, Array], record: str | None = None) -> Array:
        """Run n cycles. `inputs` maps input ports to n values, one for each cycle.

        Values are unsigned integers [n], or little-endian uint8 [n, bytes] for any width. Return the values of the port
        `record` after each cycle, uint8 [n, bytes].
        """
        rows = {name: self._rows(name, values) for name, values in inputs.items()}
        count = len(next(iter(rows.values())))
        recorded = np.zeros((count, len(self._port(record)) if record else 0), np.uint8)
        names = (ctypes.c_char_p * len(rows))(*(name.encode() for name in rows))
        places = (ctypes.c_void_p * len(rows))(*(values.ctypes.data for values in rows.values()))
        shown = record.encode() if record else None
        self.library.tw_play(self.handle, len(rows), names, places, count, shown, recorded.ctypes.data)
        return recorded

    def _rows(self, port: str, values: Array) -> Array:
        """Convert n values of a port to the format of its memory, uint8 [n, bytes of the port]."""
        size = len(self._port(port))
        data = values if values.ndim == 2 else values.astype("<u8").view(np.uint8).reshape(-1, 8)
        rows = np.zeros((len(values), size), np.uint8)
        rows[:, : data.shape[1]] = data[:, :size]
        return rows

    def run_until_logged(self, events: int, limit: int) -> bool:
        """Run until `watch` has logged `events` events. Return whether `limit` cycles were enough."""
        return self._run(limit, None, events)


def _copied(data: ctypes.c_void_p, size: int) -> Array:
    return np.frombuffer(ctypes.string_at(data, size) if size else b"", np.uint8)


@lru_cache
def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    word = ctypes.c_uint32
    long = ctypes.c_uint64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "tw_open": (pointer, []),
        "tw_close": (None, [pointer]),
        "tw_cycle": (long, [pointer]),
        "tw_stall": (None, [pointer, long]),
        "tw_port": (ctypes.c_char_p, [pointer, word, *[pointer] * 3]),
        "tw_watch": (None, [pointer, ctypes.c_char_p, long]),
        "tw_events": (long, [pointer, pointer]),
        "tw_memory": (pointer, [pointer, ctypes.c_char_p, pointer, long, long]),
        "tw_faults": (long, [pointer]),
        "tw_read": (long, [pointer] * 2),
        "tw_printed": (ctypes.c_char_p, []),
        "tw_written": (long, [pointer] * 4),
        "tw_wave": (ctypes.c_int, [pointer, ctypes.c_char_p, *[long] * 3]),
        "tw_play": (None, [pointer, word, pointer, pointer, long, ctypes.c_char_p, pointer]),
        "tw_run": (ctypes.c_int, [pointer, long, ctypes.c_char_p, long]),
    }
    # Without these declarations, ctypes would cut pointers to 32 bits.
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded
