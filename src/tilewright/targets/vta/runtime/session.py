"""The runtime API, to record and run instructions; see docs/vta.md, Runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntFlag

from tilewright.array import Array
from tilewright.errors import InputError, ProgramError, one_of
from tilewright.program import stages
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.targets.base import LaunchResult
from tilewright.targets.vta import TARGET
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa import text
from tilewright.targets.vta.isa.fields import Memory, Opcode, Uops
from tilewright.targets.vta.isa.instructions import NO_PADS, InstructionBuffer
from tilewright.targets.vta.isa.stream import encode_uops
from tilewright.targets.vta.runtime import memory as device
from tilewright.targets.vta.runtime.commands import Commands, Transfer
from tilewright.targets.vta.runtime.memory import Buffer, DeviceMemory
from tilewright.targets.vta.runtime.uop_kernels import UopKernel, UopRecorder
from tilewright.targets.vta.timing import first


class Debug(IntFlag):
    """Upstream's debug flags (VTASetDebugMode). The flags that skip barriers are left out."""

    DUMP_INSN = 2
    DUMP_UOP = 4
    FORCE_SERIAL = 32


NO_DEBUG = Debug(0)


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of Runtime.synchronize; `cycles` is 0 if nothing was recorded. `serial_cycles`: see Figures."""

    cycles: int
    serial_cycles: int | None
    macs: int
    findings: tuple[Finding, ...]
    trace: Trace | None

    @classmethod
    def of(cls, result: LaunchResult) -> RunResult:
        total = result.total
        return cls(total.cycles, total.serial_cycles, total.executed_macs, result.findings, result.trace)


def run_options(config: Config, timing: str | None, check: bool) -> RunOptions:
    """Return the options of a run; `timing` None: the machine's first. Raises InputError for an unknown model."""
    names = [model.name for model in TARGET.timing_models]
    if timing is not None and timing not in names:
        raise InputError("timing", f"there is no timing model {timing!r}", one_of(timing, names))
    return RunOptions(timing=timing or first(config), check=check)


class Runtime:
    """The device memory and command queue of one VTA. Runtimes share nothing; all errors are TilewrightErrors.

    `config` is a Config or a preset's name. With `check`, `synchronize` looks for hazards. `dump` is called with the
    text that `debug` requests. A `with` block closes the runtime at the end of the block.
    """

    def __init__(
        self,
        config: Config | str | None = None,
        *,
        debug: Debug = NO_DEBUG,
        timing: str | None = None,
        check: bool = True,
        dump: Callable[[str], object] = sys.stdout.write,
    ) -> None:
        self.config = config if isinstance(config, Config) else TARGET.config(config, {})
        self.debug = debug
        self.dump = dump
        self._options = run_options(self.config, timing, check)
        self._memory = DeviceMemory()
        self._kernels: dict[tuple[Hashable, ...], UopKernel] = {}
        self._launches: list[Launch] = []
        self._commands = Commands(self.config)
        self._closed = False

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free every buffer and drop all instructions recorded since the last `synchronize`."""
        for buffer in list(self._memory.buffers):
            self._memory.free(buffer)
        self._commands = Commands(self.config)
        self._closed = True

    # Buffers

    def alloc(self, size: int, name: str | None = None) -> Buffer:
        """Allocate `size` bytes of device memory. Raises ProgramError if there is no room or `name` is taken."""
        self._refuse_closed("alloc")
        return self._memory.alloc(size, name)

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. Raises ProgramError if recorded instructions still use the buffer."""
        if buffer in self._commands.used:
            raise ProgramError("free", f"recorded instructions use buffer '{buffer.name}'", "call synchronize() first")
        self._memory.free(buffer)

    def copy(
        self, source: Buffer | Array, source_offset: int, target: Buffer | Array, target_offset: int, size: int
    ) -> None:
        """Copy `size` bytes between buffers and arrays, as memory.copy does; offsets are in bytes."""
        for side in (source, target):
            if isinstance(side, Buffer):
                self._memory.check_owner("copy", side)
        device.copy(source, source_offset, target, target_offset, size)

    def to_device(self, matrix: Array, memory: Memory, name: str | None = None) -> Buffer:
        """Return a new buffer with a matrix (M, N), laid out as tiles of `memory`; weights are (outputs, inputs)."""
        packed = device.pack(matrix, memory, self.config)
        buffer = self.alloc(packed.size, name)
        buffer.write(packed)
        return buffer

    def empty(self, shape: tuple[int, int], memory: Memory, name: str | None = None) -> Buffer:
        """Return a new, uninitialised buffer for a matrix of `shape` (M, N), laid out as tiles of `memory`."""
        rows, columns = device.grid(memory, shape, self.config)
        return self.alloc(rows * columns * self.config.sram(memory).tile_bytes, name)

    def from_device(self, buffer: Buffer, memory: Memory, shape: tuple[int, int]) -> Array:
        """Return the matrix of `shape` (M, N) from a buffer with tiles of `memory`."""
        self._memory.check_owner("from_device", buffer)
        return device.unpack(buffer.data, memory, shape, self.config)

    # Recording

    def load_buffer_2d(
        self,
        source: Buffer,
        offset: int,
        x_size: int,
        y_size: int,
        x_stride: int,
        sram_index: int,
        memory: Memory,
        *,
        x_pad: tuple[int, int] = (0, 0),
        y_pad: tuple[int, int] = (0, 0),
    ) -> None:
        """Record a LOAD of `y_size` rows of `x_size` tiles from tile `offset` of a buffer, rows `x_stride` tiles apart.

        On chip, the tiles are consecutive, from `sram_index` on. `x_pad` (left, right) and `y_pad` (above, below) add
        zero tiles and rows. Raises ProgramError if an argument does not fit.
        """
        pads = (y_pad[0], y_pad[1], x_pad[0], x_pad[1])
        self._transfer(Transfer(Opcode.LOAD, memory, sram_index, source, offset, (y_size, x_size), x_stride, pads))

    def store_buffer_2d(
        self, sram_index: int, memory: Memory, target: Buffer, offset: int, x_size: int, y_size: int, x_stride: int
    ) -> None:
        """Record a STORE of out tiles, from `sram_index` on, to rows of a buffer as in `load_buffer_2d`."""
        self._transfer(Transfer(Opcode.STORE, memory, sram_index, target, offset, (y_size, x_size), x_stride, NO_PADS))

    def push_gemm(self, record: Callable[..., object], *signature: Hashable) -> None:
        """Record an instruction that runs a kernel of GEMM micro-ops.

        `record(recorder, *signature)` records the kernel with a UopRecorder. This call happens once for each pair of
        `record` and `signature`; later calls of the method reuse the kernel.
        """
        self._push("gemm", record, signature)

    def push_alu(self, record: Callable[..., object], *signature: Hashable) -> None:
        """Record an instruction that runs a kernel of ALU micro-ops, defined as in `push_gemm`."""
        self._push("alu", record, signature)

    def dep_push(self, source: str, target: str) -> None:
        """Let unit `source` push a token to unit `target` after all instructions of `source` recorded so far.

        Units are "load", "compute", "store", or with four stages "load", "gemm", "activate", "store". Only neighbours
        have queues.
        """
        self._recording("dep_push").dep_push(self._unit("dep_push", source), self._unit("dep_push", target))

    def dep_pop(self, source: str, target: str) -> None:
        """Let the next instruction of unit `target` wait for a token from `source`."""
        self._recording("dep_pop").dep_pop(self._unit("dep_pop", source), self._unit("dep_pop", target))

    # Running

    def synchronize(self) -> RunResult:
        """Run the recorded instructions, copy the stored bytes to their buffers, and empty the micro-op cache.

        A FINISH is added at the end. It waits for tokens of all other units, and runs on `compute` (four stages:
        `activate`). Debug.FORCE_SERIAL replaces all tokens, so that only one instruction runs at a time. Raises
        HazardError, with findings, for a deadlock.
        """
        self._refuse_closed("synchronize")
        if not self._commands:
            return RunResult(0, 0, 0, (), None)
        launch = self._launch()
        stored = self._commands.stored
        if self.debug & Debug.DUMP_INSN:
            self.dump(f"# {launch.name}\n{self.instructions()}")
        # Drop the commands before the run, so that no command is left after an error.
        self._launches.append(launch)
        self._commands = Commands(self.config)
        result = TARGET.launch(self._program((launch,)), launch, {}, self._options)
        for buffer in stored:
            buffer.write(result.values[buffer.name][0])
        return RunResult.of(result)

    def program(self) -> Program:
        """Return all launches as a program to save, check, list or run.

        The last launch has the instructions not yet run.

        Each launch includes the data of its buffers before the run. Raises ProgramError if nothing is recorded.
        """
        launches = (*self._launches, *((self._launch(),) if self._commands else ()))
        if not launches:
            raise ProgramError("program", "nothing is recorded", "record an instruction first")
        return self._program(launches)

    def instructions(self) -> str:
        """Return the text of the instructions that `synchronize` would run, with the final tokens and FINISH."""
        code = self._commands.finished(bool(self.debug & Debug.FORCE_SERIAL)).encode()
        return numbered(".insn", text.instructions(code, self.config))

    def explain(self) -> str:
        """Return the block walk (docs/vta-programs.md) of recorded instructions (or of the last launch) as text.

        The walk includes the memory map. The text is empty if nothing is multiplied.
        """
        from tilewright.targets.vta.compiler import explain_walk

        inner_outer, rows = (walk := explain_walk.walk(self.program().launches[-1], self.config))[:2], walk[2:]
        return stages.text([*inner_outer, explain_walk.memory_map(self.config), *rows]) if walk else ""

    def _launch(self) -> Launch:
        return self._commands.launch(f"launch{len(self._launches)}", bool(self.debug & Debug.FORCE_SERIAL))

    def _program(self, launches: tuple[Launch, ...]) -> Program:
        return Program.bare(TARGET.name, self.config, launches)

    def _transfer(self, item: Transfer) -> None:
        self._recording(item.call)
        self._memory.check_owner(item.call, item.buffer)
        self._commands.transfer(item)

    def _push(self, mode: str, record: Callable[..., object], signature: tuple[Hashable, ...]) -> None:
        call = f"push_{mode}"
        self._recording(call)
        kernel = self._kernels.get((mode, record, *signature))
        if kernel is None:
            recorder = UopRecorder(self.config)
            record(recorder, *signature)
            kernel = self._kernels[mode, record, *signature] = recorder.kernel(call, mode)
            if self.debug & Debug.DUMP_UOP:
                code = encode_uops(Uops(*kernel.uops), self.config)
                self.dump(numbered(".uop", text.micro_ops(code, self.config)))
        self._commands.run(call, kernel)

    def _unit(self, call: str, name: str) -> int:
        units = self._commands.insns.pipeline.units
        if name not in units:
            raise ProgramError(call, f"there is no unit {name!r}", one_of(name, units))
        return units.index(name)

    def _refuse_closed(self, call: str) -> None:
        if self._closed:
            raise ProgramError(call, "the runtime is closed", "create another Runtime")

    def _recording(self, call: str) -> InstructionBuffer:
        """Return the instruction buffer. Raises ProgramError if the runtime is closed or the buffer is full."""
        self._refuse_closed(call)
        self._commands.room(call)
        return self._commands.insns


def numbered(title: str, lines: list[str]) -> str:
    """Join `title` and the lines of code to one text, with line numbers."""
    return "".join(f"{line}\n" for line in (title, *(f"{line}  # {index}" for index, line in enumerate(lines))))
