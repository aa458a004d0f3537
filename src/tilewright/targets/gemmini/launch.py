"""A launch on its machine: the DRAM placement of its tensors, its values, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from math import prod

from tilewright.graph.ops import Add
from tilewright.program.launch_image import Contents, Dram, DramSegment, LaunchImage
from tilewright.program.placement import Placement
from tilewright.sim.figures import Figures
from tilewright.sim.findings import Finding
from tilewright.sim.passes import LaunchResult, RunOptions
from tilewright.targets.gemmini.compiler.convolutions import Frame
from tilewright.targets.gemmini.compiler.layers import MOST_FRAME
from tilewright.targets.gemmini.config import UNITS, Config
from tilewright.targets.gemmini.events import events
from tilewright.targets.gemmini.isa.fields import NBYTES, commands
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.launched import OnImage, Stored


class GemminiLaunch(OnImage[Config]):
    """One launch of Gemmini. See tilewright/targets/launched.py for the methods."""

    @cached_property
    def image(self) -> LaunchImage:
        return LaunchImage.of(self.launch, NBYTES)

    @cached_property
    def passes(self) -> Passes:
        return Passes(commands(self.image.insns), self.config)

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        if not self.sites:
            return ()
        last = self.sites[-1]
        size = {segment.name: segment.size for segment in self.image.segments}
        inputs = [segment for segment in self.image.segments if segment.kind == "input"]
        # The compiler stores int8 codes or int32 sums.
        sums = size["y"] != last.output.size
        place = Placement.of(last.output.shape, "<i4" if sums else "int8")
        result = Stored("y", last.output, place, last.node.name, sums)
        return *(self._input(index, segment) for index, segment in enumerate(inputs)), result

    def _input(self, index: int, segment: DramSegment) -> Stored:
        """Return an input of the first node. Raises ProgramError for an impossible border."""
        site = self.sites[0]
        place = Placement.of(site.input(index).shape)
        if "frame" in self.launch.meta:
            contents = Contents(self.launch)
            top, bottom, left, right = frame = contents.value(Frame, "frame")
            if min(frame) < 0 or max(frame) > MOST_FRAME:
                contents.refuse(f"has a border of {frame} around its input; 0..{MOST_FRAME} on each side is supported")
            place = place.pad((0, 0), (top, bottom), (left, right), (0, 0), value=site.input(0).zero_point)
        if isinstance(site.node.op, Add):  # the machine reads whole blocks
            place = place.reshape(prod(place.slots)).pad((0, max(segment.size - place.nbytes, 0)))
        return Stored(segment.name, site.input(index), place)

    def execute(self, dram: Dram, samples: int, options: RunOptions) -> None:
        self.passes.refuse(options)
        self.passes.values(dram, samples)

    def report(self, options: RunOptions) -> LaunchResult:
        passes = self.passes
        findings = self.passes.refuse(options)
        trace = passes.trace if options.timing is not None else None
        counted = partial(events, passes, trace)
        if trace is None:
            return LaunchResult({}, findings, figures=(Figures(executed_macs=passes.macs),), events=counted)
        figures = trace.figures(UNITS[1], passes.macs, passes.bound)
        return LaunchResult({}, findings, trace, (figures,), passes.bound, counted)

    def findings(self) -> tuple[Finding, ...]:
        return self.passes.every

    def lines(self) -> Sequence[str]:
        passes = self.passes
        plan = [self.launch.meta["plan"]] if "plan" in self.launch.meta else []
        count = f"{len(passes.cmds)} commands, {len(passes.prims)} primitive commands"
        return [*plan, f"{count}, {passes.times.cycles} cycles (timing model {self.timing})"]
