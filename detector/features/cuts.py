"""Windows, and every measure of a named set in all of them at once.

A measure of a window is the difference of two running totals, at its end and at its start: in n
windows it costs a few binary searches and no loop over events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from detector.analysis import Analysis
from detector.features import savings, sets
from detector.features.measure import Need, Values
from detector.index_sets import distinct
from detector.intervals import Intervals
from detector.memoize import memoized
from detector.trace import Cat, Int64


class Sheet:
    """A trace's named sets, each computed on first use, and how much of each lies before every edge
    of a window. Intermediate arrays, which are as large as the trace, are not kept."""

    def __init__(self, analysis: Analysis, edges: Int64) -> None:
        """``edges``: where windows start and end, ns, in any order."""
        self.analysis, self.activity = analysis, analysis.activity
        self.edges = distinct(edges)

    @memoized
    def rows(self, name: str) -> Int64:
        """A set of rows."""
        return sets.rows(self.activity, name)

    def intervals(self, name: str) -> Intervals:
        """A set of time."""
        if name in sets.ROWS:  # its rows may be known already
            return self.activity.spans(self.rows(name))
        family, _, kind = name.partition(":")
        if family in savings.INTERVALS:
            return savings.INTERVALS[family](self.analysis, kind)
        return sets.intervals(self.activity, name)

    # -- before each edge ----------------------------------------------------------------------

    @memoized
    def covered(self, name: str) -> Int64:
        """Time of a set of time."""
        return self.intervals(name).before(self.edges)

    @memoized
    def count(self, name: str) -> Int64:
        """Events of a set of rows that start."""
        start = self.activity.trace.start[self.rows(name)]
        return np.asarray(np.searchsorted(start, self.edges), np.int64)

    @memoized
    def spent(self, name: str) -> Int64:
        """Time of all events of a set. Even where products overflow, the difference is exact."""
        trace, rows, t = self.activity.trace, self.rows(name), self.edges
        end = np.sort(trace.end[rows], kind="stable")
        begun, done = self.count(name), np.searchsorted(end, t)
        starts, ends = _prefix_int(trace.start[rows]), _prefix_int(end)
        return np.asarray((t * begun - starts[begun]) - (t * done - ends[done]), np.int64)

    @memoized
    def weight(self, name: str, weight: str) -> Values:
        """The weight of the events of a set that start."""
        values = sets.WEIGHTS[weight](self.activity, self.rows(name))
        total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        return np.asarray(total[self.count(name)], np.float64)

    # -- of the whole trace --------------------------------------------------------------------

    @memoized
    def scale(self, name: str) -> float:
        """A figure of the whole trace."""
        family, _, kind = name.partition(":")
        if family in savings.SCALES:
            return savings.SCALES[family](self.analysis, kind)
        return sets.SCALES[name](self.activity)

    @memoized
    def has(self, need: Need) -> bool:
        """Whether the trace holds this."""
        trace = self.activity.trace
        known: dict[Need, Callable[[], bool]] = {
            "device": lambda: self.activity.has_device,
            "host": lambda: bool(trace.is_of((Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER)).any()),
            "stacks": lambda: trace.has_stacks,
            "shapes": lambda: trace.has_shapes,
        }
        return known[need]()


def _prefix_int(values: Int64) -> Int64:
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total


class Cuts:
    """Windows [start, end), ns, whose edges the sheet has. Measures are float64[len(self)]."""

    def __init__(self, sheet: Sheet, start: Int64, end: Int64) -> None:
        self.sheet = sheet
        self.start, self._first = start, np.searchsorted(sheet.edges, start)
        self.end, self._last = end, np.searchsorted(sheet.edges, end)

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def length(self) -> Values:
        """ns."""
        return (self.end - self.start).astype(np.float64)

    def covered(self, of: str) -> Values:
        """Covered time of an interval set, ns."""
        return self._inside(self.sheet.covered(of))

    def spent(self, of: str) -> Values:
        """Time of all events of a set, ns."""
        return self._inside(self.sheet.spent(of))

    def count(self, of: str) -> Values:
        """Events of a set that start in the window."""
        return self._inside(self.sheet.count(of))

    def total(self, of: str, weight: str) -> Values:
        """A weight, summed over the events of a set that start in the window."""
        return self._inside(self.sheet.weight(of, weight))

    def _inside(self, before: Int64 | Values) -> Values:
        """How much of an amount lies in each window; ``before``: how much lies before each edge."""
        return np.asarray(before[self._last] - before[self._first], np.float64)

    def longest(self, of: str) -> Values:
        """The longest piece of an interval set inside the window, ns."""
        pieces = self.sheet.intervals(of)
        if not len(pieces):
            return np.zeros(len(self))
        first = np.searchsorted(pieces.end, self.start, side="right")
        last = np.searchsorted(pieces.start, self.end, side="left")  # first..last-1 overlap
        inner = _range_max(pieces.end - pieces.start, first + 1, last - 1)
        for edge in (first, last - 1):
            at = np.clip(edge, 0, len(pieces) - 1)
            clipped = np.minimum(pieces.end[at], self.end) - np.maximum(
                pieces.start[at], self.start
            )
            inner = np.maximum(inner, np.where(last > first, clipped, 0))
        return inner.astype(np.float64)


def _range_max(values: Int64, first: Int64, last: Int64) -> Int64:
    """The largest of values[first:last] for each pair, 0 where that is empty."""
    full = last > first
    result = np.zeros(len(first), np.int64)
    if full.any():
        pairs = np.stack([first[full], last[full]], axis=1).ravel()
        padded = np.append(values, 0)  # reduceat takes no index past the end
        result[full] = np.maximum.reduceat(padded, pairs)[::2]
    return result
