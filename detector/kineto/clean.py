"""Impossible times are dropped or clipped, and counted; then the rows are ordered."""

from __future__ import annotations

from collections import Counter

import numpy as np

from detector.kineto.categories import table
from detector.kineto.columns import Columns
from detector.trace import DEVICE_WORK, Bool, Cat, Int8, Int64

_WEEK = 7 * 86_400 * 10**9  # durations of centuries occur (Holistic Trace Analysis PR 325)
# Of two events over the same time, which one contains the other: outer categories first.
_NESTING = (Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION, Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER)
_OUTER_FIRST = np.array(
    [_NESTING.index(c) if c in _NESTING else int(c) + len(_NESTING) for c in Cat], np.int8
)
_IS_WORK = table(*DEVICE_WORK)
_ENOUGH_ROWS = 8
_OVERLONG = 3  # times the span in which events begin
_OVERLONG_NS = 1_000_000
# Kernels of one stream overlap by up to 4 us (programmatic dependent launch), a graph's by more.
_OVERLAP_NS = 10_000_000
_OVERLAP_ROWS = 16


def time_order(c: Columns, repaired: Counter[str], dropped: Counter[str]) -> Int64:
    """The plausible rows: by start; the longer first; outer categories first.

    Of ``c`` (start, dur, cat) it corrects ``dur`` in place. Ties keep the order of the file.
    """
    keep = np.flatnonzero(_plausible(c, repaired, dropped))
    dur = c["dur"][keep]
    _clip_overlong(c["start"][keep], dur, _IS_WORK[c["cat"][keep]], repaired)
    c["dur"][keep] = dur
    return keep[_by_start(c["start"][keep], dur, c["cat"][keep])]


def _by_start(start: Int64, dur: Int64, cat: Int8) -> Int64:
    # Sorting by start alone is fast, as the file is nearly in order; few rows start together.
    order = np.argsort(start, kind="stable")
    same = np.diff(start[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((_OUTER_FIRST[cat[rows]], -dur[rows], start[rows]))]
    return order


def _plausible(c: Columns, repaired: Counter[str], dropped: Counter[str]) -> Bool:
    start, dur = c["start"], c["dur"]
    negative = dur < 0
    if negative.any():
        repaired["negative duration"] += int(negative.sum())
        dur[negative] = 0
    century = dur > _WEEK
    if century.any():
        dropped["duration over 7 days"] += int(century.sum())
    # A device event without a time (kineto issue 109) sits at 0, years before the others.
    lost = start == 0
    if lost.any():
        lost &= np.median(start) > _WEEK
        dropped["no time stamp"] += int(lost.sum())
    keep: Bool = ~(century | lost)
    return keep


def _clip_overlong(start: Int64, dur: Int64, device: Bool, repaired: Counter[str]) -> None:
    """End the events that outlast the whole trace where everything else ends.

    Suspect are those longer than three times the span in which events begin. They are believed
    where another confirms the end: a host event for a device event, any other for a host event.
    """
    if len(start) < _ENOUGH_ROWS:
        return
    span = int(start.max()) - int(start.min())
    suspect = dur > max(_OVERLONG * span, _OVERLONG_NS)
    if not suspect.any() or suspect.all():
        return
    end = start + dur
    horizon = max(int(end[~suspect].max()), int(start.max()))
    latest = {side: np.sort(end[device == side])[-2:].tolist() for side in (False, True)}
    for side, witnesses in ((True, latest[False]), (False, latest[True] + latest[False][:-1])):
        mine = np.flatnonzero(suspect & (device == side))
        confirmed = max(witnesses, default=horizon) - horizon
        mine = mine[0.9 * (end[mine] - horizon) > confirmed]
        dur[mine] = np.maximum(horizon - start[mine], 0)
        repaired["overlong duration"] += len(mine)


def clip_overlaps(c: Columns, repaired: Counter[str]) -> bool:
    """End device events that cover many later ones of their stream where the next begins.

    A stream works in order. Events of one launch (a graph) may overlap. ``c`` is in time order;
    ``dur`` is corrected in place. Returns whether anything was.
    """
    work = np.flatnonzero(_IS_WORK[c["cat"]])
    work = work[np.argsort(c["track"][work], kind="stable")]
    if len(work) <= _OVERLAP_ROWS:
        return False
    start, track, call = c["start"][work], c["track"][work], c["correlation"][work]
    end = start + c["dur"][work]
    far = np.zeros(len(work), np.bool_)
    far[:-_OVERLAP_ROWS] = (
        (track[_OVERLAP_ROWS:] == track[:-_OVERLAP_ROWS])
        & (start[_OVERLAP_ROWS:] < end[:-_OVERLAP_ROWS])
        & (call[_OVERLAP_ROWS:] != call[:-_OVERLAP_ROWS])
    )
    far[:-1] &= end[:-1] - start[1:] > _OVERLAP_NS
    rows = np.flatnonzero(far)
    for i in rows.tolist():
        later = np.flatnonzero(call[i + 1 : i + 1 + _OVERLAP_ROWS] != call[i])[0] + i + 1
        c["dur"][work[i]] = max(0, int(start[later] - start[i]))
    repaired["overlapping duration"] += len(rows)
    return bool(len(rows))
