"""Device work and idle time by what the host did, as the patterns' claims need it."""

from __future__ import annotations

import numpy as np

from detector.activity import Activity
from detector.intervals import EMPTY, Intervals
from detector.trace import Bool, Int64


def issued_within(a: Activity, spans: Intervals, rows: Int64) -> Int64:
    """Those device ``rows`` whose launch lies in ``spans``; on a CPU run, ops that start there."""
    trace = a.trace
    launch = trace.launch[rows]
    if not a.has_device:
        return rows[_inside(spans, trace.start[rows])]
    return rows[(launch >= 0) & _inside(spans, trace.start[launch])]


def _inside(spans: Intervals, at: Int64) -> Bool:
    """Which of these instants lie in ``spans``."""
    inside: Bool = spans.covered(at, at + 1) > 0
    return inside


def work_of(a: Activity, ops: Int64, kernels: Int64 | None = None) -> Intervals:
    """Device time (CPU run: op time) of the work that these ops issued."""
    if not a.has_device:
        return a.spans(ops) - a.loader
    rows = a.compute_rows if kernels is None else kernels
    return a.spans(issued_within(a, a.spans(ops), rows))


def started_within(a: Activity, around: Int64, rows: Int64) -> Int64:
    """Those host ``rows`` that start inside one of the ``around`` events."""
    return rows[_inside(a.spans(around), a.trace.start[rows])]


def silent(a: Activity, ops: Int64) -> Int64:
    """Those ops in whose time nothing is launched."""
    trace, launched = a.trace, a.trace.start[a.launches]
    inside = np.searchsorted(launched, trace.end[ops]) - np.searchsorted(launched, trace.start[ops])
    alone: Int64 = ops[inside == 0]
    return alone


def all_idle(a: Activity) -> Intervals:
    if not len(a.trace):
        return EMPTY
    return a.idle(int(a.trace.start[0]), int(a.trace.end.max()))


def after_sync(a: Activity, cause: str) -> Intervals:
    """Idle that a wait causes: inside it, and after it until the device has work again.

    The host lost at most the length of its wait, so the time after is bounded by it.
    """
    rows = a.syncs_of(cause)
    if not len(rows):
        return EMPTY
    start, end = a.trace.start[rows], a.trace.end[rows]
    begins = a.busy.start
    i = np.searchsorted(begins, end)
    after = np.where(i < len(begins), begins[np.minimum(i, len(begins) - 1)], end)
    return Intervals.union(start, np.minimum(after, end + (end - start))) & all_idle(a)


def host_idle(a: Activity) -> Intervals:
    """Idle while the host launches, dispatches ops or interprets Python."""
    return a.idle_while("launch") | a.idle_while("op") | a.idle_while("python")
