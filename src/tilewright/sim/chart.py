"""A chart of a launch: boxes in rows over time. A chart shows a part that only one machine has, such as banks or pages.

The target makes the chart (`Trace.draw`); the page of a run draws it without knowing the machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array

#: How a box is filled: with its colour, with a lighter colour, or with lines. ALARM is the colour of errors.
SOLID, LIGHT, HATCHED, ALARM = STYLES = ("solid", "light", "hatched", "alarm")
#: Rows of `Chart.boxes`.
ROW, KIND, NUMBER, START, END, STEP = range(6)


class Row(NamedTuple):
    """A row of a chart. The height of a box is proportional to its number, and `most` is the number for a full row.

    If `most` is 0, all boxes have the same height.
    """

    name: str
    most: int = 0


class Kind(NamedTuple):
    """A kind of boxes: its text, in which "#" stands for the number of a box, and its look.

    `colour` is the name of a unit or cause, whose colour the boxes have. Boxes lie between `top` and `bottom`, in
    percent of the row's height.
    """

    text: str
    colour: str
    style: str = SOLID
    top: int = 0
    bottom: int = 100


class Chart(NamedTuple):
    """The boxes of a chart, int64 [6, k]: row, kind, number, start and end in cycles, and the step that causes the box.

    Boxes are in order of their start. In a row, boxes with the same top and bottom do not overlap.
    """

    title: str
    rows: tuple[Row, ...]
    kinds: tuple[Kind, ...]
    boxes: Array


#: The chart of a launch on a machine without charts.
NO_CHART = Chart("", (), (), np.zeros((6, 0), np.int64))
