"""The constants of the cycle estimate (estimate.py), and the timing model with these constants."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets import given
from tilewright.targets.base import TimingModel


class Timing(NamedTuple):
    """The constants of the cycle estimate, most of them fitted to the vendor compiler's timelines."""

    #: Tensor transfers in bytes per cycle: into local memory, out of it, and from DDR to DDR.
    read_rate: float = 54.01671
    write_rate: float = 40.978195
    copy_rate: float = 26.077032
    #: Matrix transfers and broadcasts in bytes per cycle, and the factor by which a transposition of the matrix changes
    #: the rates.
    matrix_read_rate: float = 58.0
    matrix_write_rate: float = 44.0
    matrix_turn: float = 0.75
    #: Transposes of c and w, linear copies and moves by index, in bytes per cycle. The rate in local memory is half.
    turn_rate: float = 64.0
    #: Minimum size of a run of adjacent elements, in bytes: a shorter run takes as long.
    shortest_run: int = 256
    #: DDR has `full` channels; consecutive pages of `unit` bytes lie in consecutive channels. A tensor transfer that
    #: uses fewer channels is slower in proportion.
    unit: int = 4096
    full: int = 4
    #: In an exchange of n and c without strides, the size of a plane is rounded up to a multiple of this number of
    #: bytes.
    plane: int = 16
    #: The cycles of pooling with a horizontal stride above 1, relative to a stride of 1.
    strided_pool: int = 3
    #: The number of passes of a division over its operands per Newton step; the division has one additional pass.
    division_step: int = 10
    #: The cycles per 64 bytes of a gather or scatter of rows, and the elements per cycle of a gather from four copies.
    moved_row: int = 2
    copies: int = 4
    #: The number of passes of operations that are sequences of commands (`runtime/functions.py`), as in compiled
    #: programs.
    exponential: int = 22
    sigmoid: int = 56
    #: Elements per cycle in each of the ceil(log2 n) passes of a sort, and in the single pass of an NMS. A guess: no
    #: timeline has these operations.
    sort_rate: int = 1


ESTIMATE = Timing()


SOURCE = TimingModel(
    "estimate",
    "the vendor's compiler's estimate: equal to its timelines of 64 networks; no bank conflicts, no silicon measured",
)
MODELS = given.Models.of_numbers(given.Numbers(ESTIMATE, SOURCE), least=lambda _: 1)
DEFAULT = SOURCE.name
