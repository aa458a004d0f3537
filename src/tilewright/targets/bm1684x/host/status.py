"""The vendor's status codes, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum

from tilewright.errors import MachineError


class Status(IntEnum):
    """What a call of the host library returns; the vendor's header."""

    SUCCESS = 0
    DEVNOTREADY = 1
    FAILURE = 2
    TIMEOUT = 3
    PARAM = 4
    NOMEM = 5
    DATA = 6
    BUSY = 7
    NOFEATURE = 8
    NOT_SUPPORTED = 9


class HostError(MachineError):
    """A call that failed, with the status that the vendor's library gives for it."""

    def __init__(self, status: Status, where: str, reason: str, remedy: str = "") -> None:
        super().__init__(where, reason, remedy)
        self.status = status
