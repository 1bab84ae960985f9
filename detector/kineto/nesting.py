"""Events inside events: the nearest one around another, and the innermost open at each time.

In C where that was built and in numpy elsewhere, with the same answers. ``parent``: of every row of
a trace the row around it, which stands before it, or -1.
"""

from __future__ import annotations

import numpy as np

from detector.trace import Bool, Int32, Int64

try:
    from detector.kineto._scan import climb as _climb
    from detector.kineto._scan import innermost as _innermost
    from detector.kineto._scan import nearest as _nearest
except ImportError:
    COMPILED = False
else:
    COMPILED = True

_DEEPEST = 1_000  # levels that are climbed; events that end at once, or before their child


def climb(parent: Int32, rows: Int64 | Int32, key: Int32, wanted: Bool) -> Int64:
    """The innermost at or around each of ``rows`` whose ``key`` is ``wanted``; -1 for none.

    ``key``: of every row, an index into ``wanted``. Rows of -1 stay -1.
    """
    found = np.array(rows, np.int64)
    if COMPILED:
        _climb(parent, key, wanted, found, _DEEPEST)
        return found
    active = np.flatnonzero(found >= 0)
    for _ in range(_DEEPEST):
        active = active[~wanted[key[found[active]]]]
        if not len(active):
            break
        found[active] = parent[found[active]]
        active = active[found[active] >= 0]
    found[active] = -1
    return found


def nearest(parent: Int32, rows: Int64) -> Int32:
    """For every row: the position in ``rows`` of itself or of the nearest around it that is one of
    them; -1 where there is none. ``rows`` ascend."""
    position = np.full(len(parent), -1, np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    if COMPILED:
        _nearest(parent, position)
        return position
    jump = np.append(np.where(position >= 0, np.arange(len(parent)), parent), -1)
    while True:  # pointer doubling: as many rounds as the depth of the nesting has bits
        further = jump[jump]  # the last place takes -1
        if np.array_equal(further, jump):
            break
        jump = further
    return np.asarray(np.append(position, np.int32(-1))[jump[:-1]])


def innermost(start: Int64, end: Int64, parent: Int32, rows: Int64) -> tuple[Int64, Int32]:
    """The times at which ``rows`` of one thread begin or end, ascending, each once; and which of
    them is the innermost one open from there on, -1 for none. None of ``rows`` is of no length.

    Where one ends that need not be its parent, nor around it: an annotation that a context manager
    opens lies across the frames of ``__enter__`` and ``__exit__``. Kineto rounds, so a child may
    end after its parent, too.
    """
    # Of one time: ends first, inner before outer, then begins, outer before inner.
    ended = rows[::-1][np.argsort(end[rows[::-1]], kind="stable")]
    if COMPILED:
        time, inside = np.empty(2 * len(rows), np.int64), np.empty(2 * len(rows), np.int32)
        count = _innermost(start, end, parent, rows, ended, time, inside, _DEEPEST)
        return time[:count].copy(), inside[:count].copy()
    time = np.concatenate([end[ended], start[rows]])
    inside = np.concatenate([_around(start, end, parent, rows, ended), rows])
    order = np.argsort(time, kind="stable")
    time, inside = time[order], inside[order].astype(np.int32)
    last = np.append(time[1:] != time[:-1], True)[: len(time)]
    return time[last], inside[last]


def _around(start: Int64, end: Int64, parent: Int32, rows: Int64, ended: Int64) -> Int64:
    """For each event that ends the innermost one of ``rows`` that is still open; -1 for none."""
    until = end[ended]
    latest = rows[np.searchsorted(start[rows], until) - 1]
    above = np.where(latest == ended, parent[ended], latest).astype(np.int64)
    for _ in range(_DEEPEST):
        closed = np.flatnonzero((above >= 0) & (end[above] <= until))
        if not len(closed):
            break
        above[closed] = parent[above[closed]]
    return above
