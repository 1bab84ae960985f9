"""All analyzed time by exclusive cause, exact to the ns.

On a trace with a device the time is the main device's: what it computes, what it moves that nothing
hides, and, while it idles, what the host did instead of calling for the next work, or why work
that had been called for did not begin. On a CPU run it is the main thread's. What no record
explains is a cause of its own and never part of another.

    ledger = build(signals_of(trace), start, end)
    ledger.total()                       # cause -> ns; adds up to end - start
    ledger.places("python")              # the lines, or events, where that time goes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.activity import LONGEST_NAME
from detector.index_sets import groups
from detector.intervals import Intervals
from detector.ledger import cpu, device
from detector.ledger.causes import BY_ID, CAUSES, CODE, Cause
from detector.ledger.host import Host
from detector.ledger.pieces import Pieces, merged, of_spans
from detector.signals import Signals
from detector.signals.frames import OWN, Place, climb, place
from detector.trace import Cat, Int64

__all__ = ["BY_ID", "CAUSES", "CODE", "Cause", "Ledger", "build"]

_DEVICE: Final = (Cat.KERNEL, Cat.GPU_MEMCPY, Cat.GPU_MEMSET)


@dataclass(frozen=True, eq=False)
class Ledger:
    """Pieces that tile [start, end) without a gap or an overlap."""

    signals: Signals
    start: int
    end: int
    pieces: Pieces

    def total(self, start: int | None = None, end: int | None = None) -> dict[str, int]:
        """ns by cause within [start, end), the whole by default; largest first, none of zero."""
        lo = self.start if start is None else max(start, self.start)
        hi = self.end if end is None else min(end, self.end)
        sums = self._sums(np.array([lo], np.int64), np.array([max(hi, lo)], np.int64))[0]
        order = np.argsort(-sums, kind="stable")
        return {CAUSES[i].id: int(sums[i]) for i in order if sums[i]}

    def by_span(self, start: Int64, end: Int64) -> list[dict[str, int]]:
        """``total`` of each of these ascending, disjoint, non-empty spans, such as steps."""
        rows = self._sums(np.maximum(start, self.start), np.minimum(end, self.end))
        return [{CAUSES[i].id: int(row[i]) for i in np.flatnonzero(row)} for row in rows]

    def _sums(self, start: Int64, end: Int64) -> Int64:
        p, count = self.pieces, len(CAUSES)
        sums = np.zeros((len(start), count), np.int64)
        first = np.searchsorted(p.end, start, side="right")
        last = np.searchsorted(p.start, end, side="left")
        for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            if b > a:
                ns = np.minimum(p.end[a:b], end[i]) - np.maximum(p.start[a:b], start[i])
                np.add.at(sums[i], p.cause[a:b], ns)
        return sums

    def spans(self, *causes: str) -> Intervals:
        """The time of these causes."""
        p = self.pieces
        chosen = np.isin(p.cause, [CODE[cause] for cause in causes])
        return Intervals.union(p.start[chosen], p.end[chosen])

    @property
    def unexplained(self) -> int:
        """Time that no record explains, ns."""
        return sum(ns for cause, ns in self.total().items() if BY_ID[cause].group == "unexplained")

    def places(self, cause: str, most: int = 3) -> tuple[Place, ...]:
        """Where a cause's time goes, most first: own source lines where stacks were recorded,
        else the innermost events; kernels by kind."""
        p = self.pieces
        chosen = (p.cause == CODE[cause]) & (p.row >= 0)
        if not chosen.any():
            return ()
        (rows,), which = groups(p.row[chosen])
        spent = np.bincount(which, p.end[chosen] - p.start[chosen])
        label = self._labels(rows)
        time = np.bincount(label, spent).astype(np.int64)
        first = np.full(len(time), len(rows))
        first[label[::-1]] = np.arange(len(rows))[::-1]
        heaviest = np.lexsort((first, -time))[:most]
        names = self.signals.trace.names
        return tuple(
            place(names[i][:LONGEST_NAME], int(time[i])) for i in heaviest.tolist() if time[i]
        )

    def _labels(self, rows: Int64) -> Int64:
        """For each row the index of the name that stands for it."""
        s, trace = self.signals, self.signals.trace
        on_device = np.isin(trace.cat[rows], _DEVICE)
        hosts = np.where(on_device, trace.launch[rows], rows)
        frame = climb(trace, hosts, s.readable_frame, OWN)
        return trace.name[np.where(frame >= 0, frame, rows)].astype(np.int64)


def build(signals: Signals, start: int, end: int) -> Ledger:
    """The ledger of [start, end), ns of the trace's axis. An empty span gives an empty ledger."""
    if not len(signals.trace):
        pieces = of_spans(Intervals.span(start, end), CODE["nothing"])
    elif signals.activity.has_device:
        pieces = _with_device(signals, start, end)
    else:
        pieces = cpu.pieces(signals, start, end)
    return Ledger(signals, start, end, pieces)


def _with_device(s: Signals, start: int, end: int) -> Pieces:
    gaps = device.gaps(s, start, end)
    late = (gaps.linked == 1) & (gaps.call > gaps.start)
    host = Host(s).pieces(gaps.start[late], gaps.call[late], gaps.thread[late])
    busy = device.busy(s).within(Intervals.span(start, end))
    return merged([busy, host, device.launched(s, gaps), device.unlinked(gaps)])
