"""What a launch checks, and which of the behaviours that the machine leaves open it shows."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import ConfigError

#: The choices of each knob that has some.
CHOICES = {
    "out_of_bounds": ("raise", "ignore"),
    "uninitialised": ("kept", "nan"),
    "dma_execution": ("eager", "deferred"),
}


@dataclass(frozen=True)
class Knobs:
    """A program without defects gives the same values under all of them. Raises ConfigError for another choice.

    `detect_races`: look for commands of a region that share bytes.
    `detect_uninitialised`: look for reads of memory that neither the host nor a command has written.
    `out_of_bounds`: an access outside of all memories raises; or it reads what `uninitialised` says, writes nothing,
    and is a finding.
    `uninitialised`: memories keep what was in them; or all bits of local memory, L2 and new DDR are 1 (NaN in every
    float type, -1 in integers), before each launch, and what earlier launches left in local memory or L2 counts as
    never written.
    `dma_execution`: commands run when they are called; or transfers run as late as they may.
    `seed`: the commands of a region run in a random order that the machine may choose too; None: as called.
    `bank_conflicts`: times are with a model of bank conflicts (`timing/conflicts.py`), which nobody measured.
    """

    detect_races: bool = True
    detect_uninitialised: bool = True
    out_of_bounds: str = "raise"
    uninitialised: str = "kept"
    dma_execution: str = "eager"
    seed: int | None = None
    bank_conflicts: bool = False

    def __post_init__(self) -> None:
        for key, choices in CHOICES.items():
            if (value := getattr(self, key)) not in choices:
                raise ConfigError("knobs", f"{key} is {value!r}", f"choose one of {', '.join(choices)}")

    @property
    def ignores_bounds(self) -> bool:
        return self.out_of_bounds == "ignore"

    @property
    def forgets(self) -> bool:
        """Whether memories hold nothing defined when a launch begins."""
        return self.uninitialised == "nan"

    @property
    def defers(self) -> bool:
        return self.dma_execution == "deferred"

    @property
    def fill(self) -> int:
        """Each byte of memory that nobody wrote."""
        return 0xFF if self.forgets else 0
