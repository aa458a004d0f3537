"""A small streaming network, as a .tflite file with a resource variable."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.model.tflite_writer import Quantised, Subgraph, Writer
from tilewright.array import Array

#: The quantisation of its frames.
CODES = Quantised(0.05, -3)


class Stream(Writer):
    """A streaming convolution: two frames are kept in a variable, joined with a new one, and the oldest is dropped."""

    def __init__(self, seed: int = 2) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.graphs.append(Subgraph())

    def handle(self, graph: int, name: str = "frames") -> int:
        made = self.tensor((1,), "resource", graph=graph)
        self.op("VAR_HANDLE", [], [made], "VarHandleOptions", graph, container="", sharedName=name)
        return made

    def written_to(self, path: Path, start: Array | None = None) -> Path:
        """Write the network. `start` are the first values of the variable."""
        values = self.rng.integers(-90, 90, (1, 2, 4)).astype(np.int8) if start is None else start
        self.op("ASSIGN_VARIABLE", [self.handle(1), self.constant(values, CODES, 1)], [], graph=1)
        x = self.tensor((1, 1, 4), "int8", CODES)
        self.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
        variable = self.handle(0)
        held, joined = self.tensor((1, 2, 4), "int8", CODES), self.tensor((1, 3, 4), "int8", CODES)
        self.op("READ_VARIABLE", [variable], [held])
        self.op("CONCATENATION", [held, x], [joined], "ConcatenationOptions", axis=1)
        kept = self.tensor((1, 2, 4), "int8", CODES)
        ends = [self.constant(np.array(values, np.int32)) for values in ((0, 1, 0), (1, 3, 4), (1, 1, 1))]
        self.op("STRIDED_SLICE", [joined, *ends], [kept], "StridedSliceOptions", beginMask=5, endMask=7)
        self.op("ASSIGN_VARIABLE", [variable, kept], [])
        flat = self.tensor((1, 12), "int8", CODES)
        self.op("RESHAPE", [joined], [flat], "ReshapeOptions", newShape=[1, 12])
        w = self.constant(self.rng.integers(-127, 128, (3, 12)).astype(np.int8), Quantised(0.01))
        y = self.tensor((1, 3), "int8", Quantised(0.2, 5))
        self.op("FULLY_CONNECTED", [flat, w, -1], [y], "FullyConnectedOptions")
        return self.written(path, [x], [y])
