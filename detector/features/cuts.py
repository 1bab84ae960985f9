"""Windows, and every measure of a named set in all of them at once.

Each set keeps its sorted starts and ends and the prefix sums over them, so that a measure in n
windows costs a few binary searches and no loop over events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from detector.analysis import Analysis
from detector.features import savings, sets
from detector.features.measure import Need, Values
from detector.intervals import Intervals
from detector.memo import memoized
from detector.trace import Cat, Int64


class Track:
    """One set of rows, ready to be counted: sorted starts and ends with their prefix sums."""

    def __init__(self, sheet: Sheet, rows: Int64) -> None:
        trace = sheet.activity.trace
        self.rows = rows
        self.start = trace.start[rows]
        self.end = trace.end[rows]
        self._activity = sheet.activity  # not the sheet, which has this: no circles

    @cached_property
    def _sums(self) -> tuple[Int64, Int64, Int64]:
        end = np.sort(self.end, kind="stable")
        return end, _prefix_int(self.start), _prefix_int(end)

    def spent_before(self, t: Int64) -> Int64:
        """Time of all events before each t. Overflow of the products cancels in the difference."""
        end, starts, ends = self._sums
        begun = np.searchsorted(self.start, t, side="left")
        done = np.searchsorted(end, t, side="left")
        return (t * begun - starts[begun]) - (t * done - ends[done])

    @memoized
    def _prefix(self, weight: str) -> Values:
        name = weight.removesuffix("^2")
        values = sets.WEIGHTS[name](self._activity, self.rows)
        values = values if name == weight else values**2
        return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])

    def weight_before(self, weight: str, index: Int64) -> Values:
        """The weight of the first ``index`` events."""
        return self._prefix(weight)[index]


class Sheet:
    """A trace's named sets, each computed once on first use."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis, self.activity = analysis, analysis.activity

    @memoized
    def track(self, name: str) -> Track:
        """A set of rows."""
        return Track(self, sets.rows(self.activity, name))

    @memoized
    def intervals(self, name: str) -> Intervals:
        """A set of time."""
        if name in sets.ROWS:  # its rows may be at hand
            return self.activity.spans(self.track(name).rows)
        family, _, kind = name.partition(":")
        if family in savings.INTERVALS:
            return savings.INTERVALS[family](self.analysis, kind)
        return sets.intervals(self.activity, name)

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
            "host": lambda: bool(np.isin(trace.cat, (Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER)).any()),
            "stacks": lambda: trace.has_stacks,
            "shapes": lambda: trace.has_shapes,
        }
        return known[need]()


def _prefix_int(values: Int64) -> Int64:
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total


class Cuts:
    """Windows [start, end), ns, over one sheet. Measures are float64[len(self)]."""

    def __init__(self, sheet: Sheet, start: Int64, end: Int64) -> None:
        self.sheet = sheet
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def length(self) -> Values:
        """ns."""
        return (self.end - self.start).astype(np.float64)

    @memoized
    def covered(self, of: str) -> Values:
        """Covered time of an interval set, ns."""
        return self.sheet.intervals(of).covered(self.start, self.end).astype(np.float64)

    @memoized
    def spent(self, of: str) -> Values:
        """Time of all events of a set, ns."""
        track = self.sheet.track(of)
        inside = track.spent_before(self.end) - track.spent_before(self.start)
        return inside.astype(np.float64)

    @memoized
    def _index(self, of: str) -> tuple[Int64, Int64]:
        start = self.sheet.track(of).start
        return np.searchsorted(start, self.start), np.searchsorted(start, self.end)

    @memoized
    def count(self, of: str) -> Values:
        """Events of a set that start in the window."""
        first, last = self._index(of)
        return (last - first).astype(np.float64)

    def total(self, of: str, weight: str) -> Values:
        """A weight, summed over the events of a set that start in the window."""
        track, (first, last) = self.sheet.track(of), self._index(of)
        return track.weight_before(weight, last) - track.weight_before(weight, first)

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
