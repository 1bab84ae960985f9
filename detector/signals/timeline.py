"""What a thread does at each time: its innermost open event, from edge to edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.kineto.nesting import innermost
from detector.trace import HOST_CATS, Int32, Int64, Trace

FOREVER: Final = 2**62  # ns; no time of a trace lies beyond


@dataclass(frozen=True, eq=False)
class Timeline:
    """Segment ``i`` is [edge[i], edge[i + 1]); ``row[i]`` is its innermost event, -1 for none.

    The first edge is ``-FOREVER``, the last ``FOREVER``: every time lies in one segment.
    """

    edge: Int64
    row: Int32

    def during(self, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64, Int64]:
        """What lies in these ascending, disjoint, non-empty intervals.

        Returns for each piece its start, its end, the interval and the segment it belongs to.
        """
        first = np.searchsorted(self.edge, start, side="right") - 1
        last = np.searchsorted(self.edge, end, side="left")
        count = last - first
        behind = np.cumsum(count)  # the last piece of each interval
        of = np.repeat(np.arange(len(start)), count)
        segment = np.repeat(last - behind, count)
        segment += np.arange(len(of))
        lo, hi = self.edge[segment], self.edge[1:][segment]
        lo[behind - count] = np.maximum(lo[behind - count], start)
        hi[behind - 1] = np.minimum(hi[behind - 1], end)
        return lo, hi, of, segment


def timeline(trace: Trace, track: int) -> Timeline:
    """The timeline of one host thread."""
    rows = np.flatnonzero((trace.track == track) & trace.is_of(HOST_CATS) & (trace.dur > 0))
    time, inside = innermost(trace.start, trace.end, trace.parent, rows)
    edge = np.concatenate([[-FOREVER], time, [FOREVER]])
    return Timeline(edge, np.append(np.int32(-1), inside))
