"""Run random calls on our side."""

from __future__ import annotations

from tests.targets.bm1684x.random_calls.digest import Changes, Ground
from tests.targets.bm1684x.random_calls.draw import DDR, Call
from tests.targets.bm1684x.vendor.calls import CONFIG, Noting, Running, api
from tilewright.errors import TilewrightError
from tilewright.targets.bm1684x.timing.estimate import cycles


class Ours:
    """The machine as we model it."""

    def __init__(self) -> None:
        self.tpu = Running(DDR)
        self.ground = Ground(self.tpu.local, self.tpu.ddr)
        self.reason = ""

    def changes(self, call: Call) -> Changes:
        """Return what a call changes. `reason` says why it is refused."""

        def act() -> bool:
            self.reason = ""
            try:
                getattr(api(self.tpu), call.name)(*call.arguments)
            except TilewrightError as error:
                self.reason = str(error)
            return not self.reason

        return self.ground.run(call, act)


def cycles_of(call: Call) -> int | None:
    """Return the cycles of a call, or None if it is refused."""
    noting = Noting()
    try:
        getattr(api(noting), call.name)(*call.arguments)
    except TilewrightError:
        return None
    return sum(cycles(command, CONFIG) for command in noting.commands)
