"""A chart of a launch: boxes in rows over its time. It shows a part of one machine only, such as banks or pages.

The target makes the chart (`Trace.draw`); the page of a run draws it without knowing the machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array

#: How a box is filled: with its colour, with a light form of it, with lines; ALARM is the colour of errors.
SOLID, LIGHT, HATCHED, ALARM = STYLES = ("solid", "light", "hatched", "alarm")
#: Rows of `Chart.boxes`.
ROW, KIND, NUMBER, START, END, STEP = range(6)


class Row(NamedTuple):
    """A row of a chart. A box is as high as its number is large, and `most` fills the row (0: all boxes are equal)."""

    name: str
    most: int = 0


class Kind(NamedTuple):
    """A kind of boxes: its text, with "#" in the place of the box's number, and how the boxes look.

    `colour` is the name of a unit or cause, whose colour the boxes have. They lie between `top` and `bottom` of their
    row, in percent of its height.
    """

    text: str
    colour: str
    style: str = SOLID
    top: int = 0
    bottom: int = 100


class Chart(NamedTuple):
    """Boxes, int64 [6, k]: row, kind, number, start and end in cycles of the launch, and the step that causes the box.

    Boxes are in order of their start. In a row, boxes with the same top and bottom do not overlap.
    """

    title: str
    rows: tuple[Row, ...]
    kinds: tuple[Kind, ...]
    boxes: Array


#: The chart of a launch whose machine draws none.
NO_CHART = Chart("", (), (), np.zeros((6, 0), np.int64))
