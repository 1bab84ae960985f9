"""The time of an occurrence: its own, or that of the op that it is a part of."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from detector.signals import Signals
from detector.trace import Int64

Place = Callable[[Signals, Int64], tuple[Int64, Int64]]  # rows -> starts and ends, ns


def own_time(s: Signals, rows: Int64) -> tuple[Int64, Int64]:
    """The events themselves."""
    return s.trace.start[rows], s.trace.end[rows]


def op_around(ops: re.Pattern[str]) -> Place:
    """The outermost op of this name that the event runs in, or that issued it; else itself."""

    def place(s: Signals, rows: Int64) -> tuple[Int64, Int64]:
        trace = s.trace
        issuer = np.where(trace.is_device_work[rows], trace.op[rows], rows)
        around = s.enclosing(issuer, ops)
        at = np.where(around >= 0, around, rows)
        return trace.start[at], trace.end[at]

    return place
