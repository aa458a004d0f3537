"""Local memory as a kernel hands it out: by bank, each operand behind those already there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tilewright.errors import InputError, MachineError
from tilewright.targets.bm1684x.config import Config


class InLanes(Protocol):
    """Anything that takes up bytes of lanes."""

    @property
    def lane_end(self) -> int: ...


T = TypeVar("T", bound=InLanes)
#: Operands begin at multiples of so many bytes.
ALIGNMENT = 64


class Scratch:
    """Which bytes of each bank are in use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._used = [0] * config.banks

    def take(self, bank: int, make: Callable[[int], T]) -> T:
        """What `make` makes at a byte offset of lanes, in a bank; one too large for it goes on in the next banks.

        Raises MachineError where a bank that it needs is not free.
        """
        if not isinstance(bank, int) or not 0 <= bank < self.config.banks:
            raise MachineError("local memory", f"there is no bank {bank!r}", f"give 0..{self.config.banks - 1}")
        size = self.config.bank_bytes
        begin = bank * size + self._used[bank]
        try:
            made = make(begin)
            end = made.lane_end
        except InputError as error:
            raise MachineError("local memory", f"from bank {bank} on: {error.reason}", error.remedy) from None
        last = (end - 1) // size
        if taken := [other for other in range(bank + 1, last + 1) if self._used[other]]:
            reason = f"{end - begin} bytes from bank {bank} on reach bank {taken[0]}, which is in use"
            raise MachineError("local memory", reason, "begin in another bank, or make it smaller")
        for other in range(bank, last + 1):
            self._used[other] = -(-(min(end, (other + 1) * size) - other * size) // ALIGNMENT) * ALIGNMENT
        return made
