"""Disjoint pieces of time, each with the row that it is charged to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detector.intervals import EMPTY, Intervals
from detector.trace import Bool, Int8, Int32, Int64, Trace


@dataclass(frozen=True, eq=False)
class Pieces:
    """Ascending, disjoint, non-empty pieces [start, end), ns, each with a row of the trace or -1.

    ``cause``: code of ``causes.CAUSES``.
    """

    start: Int64
    end: Int64
    row: Int32
    cause: Int8

    def __len__(self) -> int:
        return len(self.start)

    @property
    def spans(self) -> Intervals:
        """The same time as a set; adjacent pieces stay apart."""
        return Intervals(self.start, self.end)

    def where(self, chosen: Bool) -> Pieces:
        """The chosen pieces."""
        return Pieces(self.start[chosen], self.end[chosen], self.row[chosen], self.cause[chosen])

    def minus(self, taken: Intervals) -> Pieces:
        """What of these pieces is not taken."""
        return self._part(self.spans - taken)

    def within(self, spans: Intervals) -> Pieces:
        """What of these pieces lies in ``spans``."""
        return self._part(self.spans & spans)

    def _part(self, left: Intervals) -> Pieces:
        of = np.searchsorted(self.start, left.start, side="right") - 1
        return Pieces(left.start, left.end, self.row[of], self.cause[of])

    def with_cause(self, code: int) -> Pieces:
        """The same pieces under one cause."""
        return Pieces(self.start, self.end, self.row, np.full(len(self), code, np.int8))


def of_rows(trace: Trace, rows: Int64, code: int) -> Pieces:
    """The union of these events' times; each instant goes to the event that was first there."""
    start, end = trace.start[rows], trace.end[rows]
    if len(rows):
        covered = np.maximum.accumulate(end)
        start = np.maximum(start, np.append(start[0], covered[:-1]))
    keep = end > start
    cause = np.full(int(keep.sum()), code, np.int8)
    return Pieces(start[keep], end[keep], rows[keep].astype(np.int32), cause)


def of_spans(spans: Intervals, code: int, row: Int32 | None = None) -> Pieces:
    """Pieces of a set of time, charged to no event unless ``row`` says so."""
    none = np.full(len(spans), -1, np.int32)
    return Pieces(
        spans.start, spans.end, none if row is None else row, np.full(len(spans), code, np.int8)
    )


def merged(parts: Sequence[Pieces]) -> Pieces:
    """Disjoint pieces of several kinds, in time order."""
    start = np.concatenate([part.start for part in parts])
    order = np.argsort(start, kind="stable")
    return Pieces(
        start[order],
        np.concatenate([part.end for part in parts])[order],
        np.concatenate([part.row for part in parts])[order],
        np.concatenate([part.cause for part in parts])[order],
    )


NONE = of_spans(EMPTY, 0)
