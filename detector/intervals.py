"""Sets of half-open time intervals [start, end), int64 ns, as two sorted arrays.

An ``Intervals`` is disjoint and ascending by construction, so measure, intersection and the
covered part of any window come from binary search and prefix sums: no loop over events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Disjoint, sorted intervals. Build with ``union``; the constructor trusts its caller."""

    start: Int64
    end: Int64

    @staticmethod
    def union(start: Int64, end: Int64) -> Intervals:
        """The union of any intervals; empty and inverted ones vanish."""
        keep = end > start
        if not keep.all():
            start, end = start[keep], end[keep]
        if not len(start):
            return EMPTY
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        end = np.maximum.accumulate(end)
        first = np.empty(len(start), np.bool_)
        first[0] = True
        np.greater(start[1:], end[:-1], out=first[1:])
        last = np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)
        return Intervals(start[first], end[last])

    @staticmethod
    def span(start: int, end: int) -> Intervals:
        """One interval."""
        return Intervals.union(np.array([start], np.int64), np.array([end], np.int64))

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _total(self) -> Int64:
        return np.concatenate([[0], np.cumsum(self.end - self.start)]).astype(np.int64)

    @property
    def measure(self) -> int:
        """Total length, ns."""
        return int(self._total[-1])

    def before(self, t: Int64) -> Int64:
        """Covered time before each ``t``, ns."""
        if not len(self.start):
            return np.zeros(len(t), np.int64)
        i = np.searchsorted(self.start, t, side="right")
        j = np.maximum(i - 1, 0)
        inside = np.minimum(t, self.end[j]) - self.start[j]
        return np.where(i > 0, self._total[j] + inside, 0)

    def covered(self, start: Int64, end: Int64) -> Int64:
        """Covered time inside each window [start, end), ns."""
        return self.before(end) - self.before(start)

    def contain(self, times: Int64) -> Bool:
        """Which of these times lie inside."""
        if not len(self.start):
            return np.zeros(len(times), np.bool_)
        last = np.searchsorted(self.start, times, side="right") - 1
        return np.asarray((last >= 0) & (times < self.end[last]))

    def invert(self, start: int, end: int) -> Intervals:
        """The part of [start, end) that is not covered."""
        clipped = self.clip(start, end)
        return Intervals.union(
            np.concatenate([[start], clipped.end]).astype(np.int64),
            np.concatenate([clipped.start, [end]]).astype(np.int64),
        )

    def clip(self, start: int, end: int) -> Intervals:
        """The part inside [start, end)."""
        return Intervals.union(np.maximum(self.start, start), np.minimum(self.end, end))

    def lasting(self, least: int) -> Intervals:
        """The intervals of at least this length, ns."""
        long = self.end - self.start >= least
        return Intervals(self.start[long], self.end[long])

    def bridged(self, gap: float, borders: Int64) -> Intervals:
        """Intervals at most ``gap`` ns apart joined, but not across a border (ascending times)."""
        if not len(self):
            return self
        part = np.searchsorted(borders, self.start, side="right")
        apart = (self.start[1:] - self.end[:-1] > gap) | (part[1:] != part[:-1])
        first = np.flatnonzero(np.append(True, apart))
        last = np.append(first[1:] - 1, len(self) - 1)
        return Intervals(self.start[first], self.end[last])

    def __and__(self, other: Intervals) -> Intervals:
        """Intersection."""
        if not len(self) or not len(other):
            return EMPTY
        # Every overlap begins where one of the two begins; pair each of ours with theirs in reach.
        first = np.searchsorted(other.end, self.start, side="right")
        last = np.searchsorted(other.start, self.end, side="left")
        count = np.maximum(last - first, 0)
        ours = np.repeat(np.arange(len(self)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        theirs = first[ours] + offset
        return Intervals(
            np.maximum(self.start[ours], other.start[theirs]),
            np.minimum(self.end[ours], other.end[theirs]),
        )

    def __or__(self, other: Intervals) -> Intervals:
        """Union."""
        return Intervals.union(
            np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end])
        )

    def __sub__(self, other: Intervals) -> Intervals:
        """The part that the other does not cover."""
        if not len(self) or not len(other):
            return self
        return self & other.invert(int(self.start[0]), int(self.end[-1]))


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def count_within(times: Int64, start: Int64, end: Int64) -> Int64:
    """How many of these times, in any order, lie in each [start, end)."""
    times = np.sort(times)
    return np.asarray(np.searchsorted(times, end) - np.searchsorted(times, start))
