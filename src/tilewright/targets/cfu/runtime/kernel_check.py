"""Check the user's kernels while a launch runs: results, stores outside of the output, and endless loops.

The firmware stores the number of a layer to the device REGION before the layer, and 0 after it. At each of these
markers, `LayerWatch` is called. It copies RAM before a layer, and compares the copy with RAM after the layer.

The input of the reference is the actual input of the layer, which the user's kernels have computed. So a wrong kernel
does not cause findings in later layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError, ProgramError
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.program.program import Launch
from tilewright.sim.findings import Finding
from tilewright.targets.cfu.compiler.layout import activation_bytes, macs
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.timing.state import Cpu

from . import core, elf


def program_of(name: str, image: FirmwareImage) -> elf.Executable:
    """Return the program to load into the machine: code, data and model, with symbols for profiles."""
    code = image.words.astype("<u4").tobytes()
    parts = ((RAM_BASE, code), (RAM_BASE + len(code), image.data.tobytes()), (image.model, image.blob.tobytes()))
    segments = tuple(elf.Segment(address, raw, len(raw)) for address, raw in parts if raw)
    functions = {symbol.name: elf.Symbol(symbol.address, symbol.nbytes) for symbol in image.symbols}
    return elf.Executable(
        name, image.entry, segments, (range(RAM_BASE, RAM_BASE + len(code)),), functions, functions, b""
    )


def source_of(launch: Launch, image: FirmwareImage) -> elf.Source:
    file = launch.arrays.get("elf", np.zeros(0, np.uint8)).tobytes()
    return elf.Source(replace(program_of(launch.name, image), file=file))


#: The instruction limit of a kernel is AT_LEAST plus PER_ELEMENT for each element of its work. A kernel over this limit
#: is assumed to be in an endless loop. The portable kernels execute about 25 instructions per element.
PER_ELEMENT = 1000
AT_LEAST = 10_000_000
WRONG = "wrong_layer"
OUTSIDE = "outside_write"


class LayerWatch:
    """Records the output codes of each operator in one run, and the bytes that it changes outside of its output."""

    def __init__(self, image: FirmwareImage) -> None:
        self.image = image
        self.outputs: dict[int, Array] = {}  # int8 [n], by the operator's index
        self.changed: dict[int, tuple[int, int]] = {}  # first address and number of bytes, by the operator's index
        self._index = -1
        self._before = np.zeros(0, np.uint8)

    def __call__(self, region: int, ram: Array) -> int:
        """Handle the marker `region`: the current operator has ended, and operator `region` - 1 begins (0: none).

        Return the instruction limit of the operator (0: no limit). `ram` is uint8.
        """
        memory = ram[: self.image.end - RAM_BASE]
        if self._index >= 0:
            self._leave(self._index, memory)
        self._index = region - 1 if 1 <= region <= len(self.image.records) else -1
        if self._index < 0:
            return 0
        self._before = memory.copy()
        record = self.image.records[self._index]
        # Pools and depthwise layers have few or no multiply-accumulates, so count the elements of their windows.
        window = record["kernel_h"] * record["kernel_w"]
        output = activation_bytes(record)["output"]
        elements = max(macs(record), output * window) + sum(activation_bytes(record).values())
        return AT_LEAST + PER_ELEMENT * elements

    def _leave(self, index: int, memory: Array) -> None:
        image = self.image
        record = self.image.records[index]
        first = image.arena - RAM_BASE + record["output"]
        end = first + activation_bytes(record)["output"]
        self.outputs[index] = memory[first:end].view(np.int8).copy()
        differs = memory != self._before
        # The kernel may change the variables of the program, and its output.
        differs[4 * len(image.words) : image.model - RAM_BASE] = False
        differs[first:end] = False
        if differs.any():
            self.changed[index] = RAM_BASE + int(differs.argmax()), int(differs.sum())


class KernelCheck:
    """The check of a launch with the user's kernels, over all samples."""

    def __init__(self, launch: Launch, image: FirmwareImage) -> None:
        self.launch = launch
        self.image = image
        self.watches: list[LayerWatch] = []
        self.source = source_of(launch, image)

    def watch(self) -> LayerWatch:
        self.watches.append(LayerWatch(self.image))
        return self.watches[-1]

    def refuse(self, run: core.Run) -> None:
        """Check the last run. Raises MachineError if a kernel trapped or did not end, or if a layer was not marked."""
        watch = self.watches[-1]
        trap = run.trap
        index = int(run.machine.cpu[Cpu.REGION]) - 1
        if trap is not None and 0 <= index < len(self.launch.nodes):
            where = f"layer '{self.launch.nodes[index]}'"
            place = self.source.where(trap.pc)
            if trap.kind.startswith("limit"):
                executed = trap.kind.removeprefix("limit of ")
                reason = f"its kernel {self.image.kernels[index]} does not end: after {executed} it is at {place}"
                raise MachineError(where, reason, self._before(watch) or "look at the conditions of its loops")
            at = f", address {trap.value:#x}" if "access" in trap.kind or "misaligned" in trap.kind else ""
            reason = f"its kernel {self.image.kernels[index]} is stopped by: {trap.kind} at {place}{at}"
            raise MachineError(where, reason, self._before(watch))
        missing = [name for at, name in enumerate(self.launch.nodes) if at not in watch.outputs]
        if trap is None and run.exit_code == 0 and missing:
            reason = "is not marked by the firmware: it must store the layer's index + 1 to CFU_REGION, and 0 after it"
            raise MachineError(f"layer '{missing[0]}'", reason, "use lib/main.c of a new project")

    def _before(self, watch: LayerWatch) -> str:
        """Return the text of the first store outside of a tensor, as the probable cause of a trap; or ""."""
        return next((f"first see {finding.message}" for finding in self._outside(watch)), "")

    def findings(self, graph: Graph, rounding: str, values: Mapping[str, Array]) -> Iterator[Finding]:
        """Yield the findings of all samples, layer by layer. `values` are the inputs of the launch, (S, *shape).

        Raises ProgramError if the record of a layer does not match the graph.
        """
        tensors = {name: array.reshape(len(array), *graph.tensors[name].shape) for name, array in values.items()}
        # The loop over samples is backwards, so that the finding of the first sample replaces all other findings.
        outside = {finding.steps: finding for watch in reversed(self.watches) for finding in self._outside(watch)}
        for index, name in enumerate(self.launch.nodes):
            node = graph.node(name)
            expected = reference.run_node(graph, name, tensors, rounding)
            output = node.outputs[0]
            parts = [watch.outputs[index] for watch in self.watches]
            if parts[0].size != graph.tensors[output].size:
                reason = f"stores {parts[0].size} bytes for '{output}', which has {graph.tensors[output].size}"
                raise ProgramError(f"launch '{self.launch.name}'", reason, "compile it again")
            codes = tensors[output] = np.stack(parts).reshape(len(parts), *graph.tensors[output].shape)
            if (finding := outside.get((index,))) is not None:
                yield finding
            wrong = np.argwhere(codes != expected[output])
            if len(wrong):
                yield self._wrong(index, wrong, codes, expected[output])

    def _wrong(self, index: int, wrong: Array, codes: Array, expected: Array) -> Finding:
        sample, *place = wrong[0].tolist()
        count = int((wrong[:, 0] == sample).sum())
        within = f" of sample {sample}" if len(codes) > 1 else ""
        message = (
            f"layer '{self.launch.nodes[index]}': its kernel {self.image.kernels[index]} computes {count:,} of "
            f"{codes[0].size:,} elements{within} wrong; the first is {place}: {codes[tuple(wrong[0])]} instead of "
            f"{expected[tuple(wrong[0])]}"
        )
        return Finding(WRONG, message, (index,))

    def _outside(self, watch: LayerWatch) -> Iterator[Finding]:
        for index, (address, count) in watch.changed.items():
            message = (
                f"layer '{self.launch.nodes[index]}': its kernel {self.image.kernels[index]} changes {count:,} bytes "
                f"outside of its output, the first {self._named(index, address)}"
            )
            yield Finding(OUTSIDE, message, (index,), "RAM", address, address + 1)

    def _named(self, index: int, address: int) -> str:
        """Return the text for an address outside of an operator's output, such as "12 bytes after its end"."""
        image = self.image
        if address < image.model:
            return f"in the code, at {self.source.where(address)}"
        if address < image.arena:
            return f"in the model's constants, at {address:#x}"
        record = image.records[index]
        size = activation_bytes(record)["output"]
        distance = address - image.arena - record["output"]
        near = f"{distance - size:,} bytes after its end" if distance >= size else f"{-distance:,} bytes before it"
        for field in ("input", "input2"):
            inner = address - image.arena - record[field]
            if 0 <= inner < activation_bytes(record).get(field, 0):
                return f"{near}, byte {inner:,} of its {field}"
        return near
