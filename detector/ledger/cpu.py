"""The ledger of a trace without a device: what the CPU computes, and what it does instead."""

from __future__ import annotations

import numpy as np

from detector.intervals import Intervals
from detector.ledger.causes import CODE
from detector.ledger.host import Host
from detector.ledger.pieces import Pieces, merged, of_rows, of_spans
from detector.signals import Signals


def pieces(s: Signals, start: int, end: int) -> Pieces:
    """All of [start, end): loader, ops that compute, collectives, then the main thread's rest.

    An instant belongs to the main thread's op where it computes, else to another thread's.
    """
    a, trace, whole = s.activity, s.trace, Intervals.span(start, end)
    loader = of_rows(trace, a.loader_rows, CODE["loader"]).within(whole)
    taken = a.loader
    parts = [loader]
    rows = a.compute_rows
    main = trace.track[rows] == s.main_thread
    for chosen in (rows[main], rows[~main]):
        part = _innermost(s, of_rows(trace, chosen, CODE["cpu-compute"])).within(whole)
        parts.append(part.minus(taken))
        taken = taken | a.spans(chosen)
    comm = of_rows(trace, a.comm_rows, CODE["communication"]).within(whole)
    parts.append(comm.minus(taken))
    left = whole - (taken | a.comm)
    parts.append(Host(s).pieces(left.start, left.end, np.full(len(left), -1, np.int64)))
    return merged(parts)


def _innermost(s: Signals, computing: Pieces) -> Pieces:
    """The same time by the op that is innermost on its thread."""
    parts = []
    tracks = s.trace.track[computing.row]
    for track in np.unique(tracks).tolist():
        mine = computing.where(tracks == track)
        line = s.timeline(int(track))
        lo, hi, of, segment = line.during(mine.start, mine.end)
        row = np.where(line.row[segment] >= 0, line.row[segment], mine.row[of])
        parts.append(Pieces(lo, hi, row, mine.cause[of]))
    return merged(parts) if parts else of_spans(Intervals.span(0, 0), 0)
