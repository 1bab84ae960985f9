"""What a thread does at each time: its innermost open event, from edge to edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.trace import HOST_CATS, Int64, Trace

FOREVER: Final = 2**62  # ns; no time of a trace lies beyond
_DEEPEST: Final = 1_000  # events that end at once, or before their child


@dataclass(frozen=True, eq=False)
class Timeline:
    """Segment ``i`` is [edge[i], edge[i + 1]); ``row[i]`` is its innermost event, -1 for none.

    The first edge is ``-FOREVER``, the last ``FOREVER``: every time lies in one segment.
    """

    edge: Int64
    row: Int64

    def during(self, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64, Int64]:
        """What lies in these ascending, disjoint, non-empty intervals.

        Returns for each piece its start, its end, the interval and the segment it belongs to.
        """
        first = np.searchsorted(self.edge, start, side="right") - 1
        last = np.searchsorted(self.edge, end, side="left")
        count = last - first
        of = np.repeat(np.arange(len(start)), count)
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        segment = first[of] + offset
        lo = np.maximum(start[of], self.edge[segment])
        hi = np.minimum(end[of], self.edge[segment + 1])
        return lo, hi, of, segment


def timeline(trace: Trace, track: int) -> Timeline:
    """The timeline of one host thread."""
    rows = np.flatnonzero((trace.track == track) & trace.is_of(HOST_CATS) & (trace.dur > 0))
    start, end = trace.start[rows], trace.end[rows]
    # Of one time: ends first, inner before outer, then begins, outer before inner.
    inner_first = rows[::-1][np.argsort(end[::-1], kind="stable")]
    time = np.concatenate([trace.end[inner_first], start])
    inside = np.concatenate([_around(trace, rows, inner_first), rows])
    order = np.argsort(time, kind="stable")
    time, inside = time[order], inside[order]
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, np.bool_)
    edge = np.concatenate([[-FOREVER], time[last], [FOREVER]]).astype(np.int64)
    return Timeline(edge, np.concatenate([[-1], inside[last]]).astype(np.int64))


def _around(trace: Trace, rows: Int64, ended: Int64) -> Int64:
    """For each event that ends the innermost one of ``rows`` that is still open; -1 for none.

    That need not be its parent, nor around it: an annotation that a context manager opens lies
    across the frames of ``__enter__`` and ``__exit__``. Kineto rounds, so a child may end after its
    parent, too.
    """
    end = trace.end[ended]
    latest = rows[np.searchsorted(trace.start[rows], end) - 1]
    above = np.where(latest == ended, trace.parent[ended], latest).astype(np.int64)
    for _ in range(_DEEPEST):
        closed = np.flatnonzero((above >= 0) & (trace.end[above] <= end))
        if not len(closed):
            break
        above[closed] = trace.parent[above[closed]]
    return above
