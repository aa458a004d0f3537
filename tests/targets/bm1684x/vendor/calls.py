"""Our side of a comparison: calls of the device API that run at once, without a launch, or are only noted."""

from __future__ import annotations

from typing import Any

from tilewright.errors import MachineError
from tilewright.sim.findings import Finding
from tilewright.targets.bm1684x.capi import DeviceApi
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.values.memory import Memories

CONFIG = Config()


class Noting:
    """Stands for a Tpu: it checks commands and keeps them, without running them."""

    in_region = False
    selected = 0

    def __init__(self) -> None:
        self.config = CONFIG
        self.findings: list[Finding] = []
        self.commands: list[Command] = []

    def issue(self, command: Command) -> None:
        if reason := command.refusal():
            raise MachineError(command.operation.name, reason)
        self.commands.append(command)

    def poll(self) -> None:
        """Commands are not queued."""


class Running(Noting):
    """Stands for a Tpu: it runs each command when it is issued."""

    def __init__(self, ddr: int) -> None:
        super().__init__()
        self.memories = Memories(CONFIG)
        self.ddr = self.memories.new_ddr(DDR_BASE, ddr).data
        self.local, self.static = (region.data for region in self.memories.regions[:2])

    def issue(self, command: Command) -> None:
        super().issue(command)
        results = command.run(self.memories)
        if "count" in results:
            self.selected = int(results["count"][0])


def api(tpu: Any) -> DeviceApi:
    """Return the device API on `tpu`, ready for calls."""
    device_api = DeviceApi(tpu)
    device_api.tpu_initialize()
    return device_api
