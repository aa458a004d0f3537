"""A launch on its machine: one layer, its results, and its report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tilewright.array import Array
from tilewright.program.placement import Placement
from tilewright.program.program import Launch, Program
from tilewright.sim.figures import Figures
from tilewright.sim.findings import RACE, Finding
from tilewright.sim.passes import LaunchResult, RunOptions
from tilewright.targets.launched import Launched, Stored
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.events import events
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing import service


class ZynqLaunch(Launched[Config]):
    """One launch of the engine. See tilewright/targets/launched.py for the methods."""

    def __init__(self, program: Program, launch: Launch, config: Config, timing: str) -> None:
        super().__init__(program, launch, config, timing)
        self.image = LayerImage.of(launch, config)
        self.layer = self.image.layer

    @property
    def stored(self) -> tuple[Stored, ...]:
        if not self.sites:
            return ()
        x = self.sites[0].input(0)
        y = self.sites[0].output
        node = self.sites[0].node.name
        result = Stored("result", y, Placement.of(y.shape, y.dtype), node)
        return Stored("data", x, Placement.of(x.shape, x.dtype)), result

    def pack(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the input codes. A launch without a network has its own input, or zeros."""
        if self.sites:
            return super().pack(values)
        data = np.zeros(self.layer.inputs, np.uint8) if self.image.data is None else self.image.data
        return {"data": data[None]}

    def codes(self, inputs: Mapping[str, Array]) -> Array:
        dtype = np.int8 if self.layer["x_signed"] else np.uint8
        return inputs["data"].view(dtype).reshape(-1, *self.layer.input_shape)

    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        from tilewright.targets.zynq.values import machine

        image = self.image
        return {"result": machine.run(self.layer, self.codes(inputs), image.weight, image.bias, image.factor)}

    def report(self, options: RunOptions) -> LaunchResult:
        findings = self.findings() if options.check else ()
        trace = None
        figures = Figures(executed_macs=self.layer.macs)
        if options.timing is not None:
            trace, figures = service.timed(self.layer, options.timing)
        return LaunchResult({}, findings, trace, (figures,), figures.bound, partial(events, self.layer, trace))

    def findings(self) -> tuple[Finding, ...]:
        """Return a race if the engine reads incomplete sums (lat_use=0), else nothing."""
        if self.layer.config.lat_use or self.layer.kind == Kind.POOL:
            return ()
        message = (
            f"the accumulator reads each sum one cycle too early, so {self.layer.outputs} results contain wrong "
            "products; set lat_use=1"
        )
        return (Finding(RACE, message),)
