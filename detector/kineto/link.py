"""Who issued what: device event -> launch, host event -> parent, both -> cpu_op."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from detector.kineto import nesting, scanner
from detector.kineto.categories import table
from detector.kineto.columns import Columns
from detector.trace import DEVICE_WORK, HOST_CATS, Bool, Cat, Int32, Int64

# Kineto rounds starts and ends on their own; a child may outlive its parent by this much, ns.
TOLERANCE = 1_000
_IS_CALL = table(Cat.RUNTIME, Cat.DRIVER)
_IS_LINKED = table(*DEVICE_WORK, Cat.CUDA_SYNC, Cat.MTIA)
_IS_HOST = table(*HOST_CATS)
_MAX_ROUNDS = 64


def launches(c: Columns) -> Int32:
    """Row of the runtime or driver call with the same correlation; -1 where there is none.

    With CUDA and HIP graphs many kernels have one call. Where several calls share a correlation, it
    is the last that began before the device event, else the first. Some ROCm files have no
    correlations: there call and device event have the same ``External id``.
    """
    launch = np.full(len(c["start"]), -1, np.int32)
    correlated = c["correlation"] > 0
    _join(c, launch, c["correlation"], correlated)
    _join(c, launch, c["external_id"], ~correlated & (c["external_id"] > 0))
    return launch


def _join(c: Columns, launch: Int32, key: Int64, has: Bool) -> None:
    """Fill in the calls of device events with the same key, among the rows that ``has`` names."""
    calls = np.flatnonzero(_IS_CALL[c["cat"]] & has)
    rows = np.flatnonzero(_IS_LINKED[c["cat"]] & has)
    if not len(calls) or not len(rows):
        return
    ids = key[calls]
    order = np.argsort(ids, kind="stable")  # within an id by start, as the rows are
    ids, calls = ids[order], calls[order]
    wanted = key[rows]
    first = np.searchsorted(ids, wanted, side="left")
    last = np.searchsorted(ids, wanted, side="right") - 1
    found = last >= first
    rows, first, last = rows[found], first[found], last[found]
    pick = _latest_before(c["start"][calls], c["start"][rows], first, last)
    launch[rows] = calls[pick]


def _latest_before(starts: Int64, when: Int64, first: Int64, last: Int64) -> Int64:
    """The last index in [first, last] whose start is <= when, else first; by bisection."""
    low, high = first.copy(), last.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        early = starts[middle] <= when
        low = np.where(early, middle, low)
        high = np.where(early, high, middle - 1)
        high = np.maximum(high, low)
    return low


def parents(c: Columns, tracks: int) -> Int32:
    """Row of the innermost event around each host event on its thread; -1 at the top.

    An event around another begins before it (or with it, and is longer) and ends no more than
    TOLERANCE before its end.
    """
    on_host = _IS_HOST[c["cat"]]
    parent = np.full(len(on_host), -1, np.int32)
    if scanner.COMPILED:
        scanner.parents(c["start"], c["dur"], c["track"], on_host, parent, tracks, TOLERANCE)
    else:
        _jump(c, np.flatnonzero(on_host).astype(np.int32), parent)
    return parent


def _jump(c: Columns, rows: Int32, parent: Int32) -> None:
    """Found by jumping: a rejected parent is replaced by its own parent."""
    if not len(rows):
        return
    track = c["track"][rows]
    order = np.argsort(_narrow(track), kind="stable")
    rows, track = rows[order], track[order]
    del order
    start, end = c["start"][rows], c["dur"][rows]
    end += start
    candidate = np.arange(-1, len(rows) - 1, dtype=np.int32)
    first = np.append(True, track[1:] != track[:-1])
    candidate[first] = -1
    active = np.flatnonzero(~first).astype(np.int32)
    for _ in range(_MAX_ROUNDS):
        above = candidate[active]
        stop = end[above]
        wrong = (stop < end[active] - TOLERANCE) | (stop <= start[active])
        active = active[wrong]
        if not len(active):
            break
        candidate[active] = candidate[above[wrong]]
        active = active[candidate[active] >= 0]
    else:
        _climb(candidate, start, end, first)
    parent[rows] = np.where(candidate >= 0, rows[candidate], -1)


def _narrow(track: Int32) -> npt.NDArray[Any]:
    """numpy sorts 16-bit integers by radix, in linear time."""
    return track.astype(np.int16) if track.max() < 1 << 15 else track


def _climb(candidate: Int32, start: Int64, end: Int64, first: Bool) -> None:
    """The same by a stack, row after row: for stacks so deep that jumping takes too many rounds."""
    stack: list[int] = []
    starts, ends, begins = start.tolist(), end.tolist(), first.tolist()
    found = [-1] * len(starts)
    for i, stop in enumerate(ends):
        if begins[i]:
            stack.clear()
        while stack and (ends[stack[-1]] < stop - TOLERANCE or ends[stack[-1]] <= starts[i]):
            stack.pop()
        found[i] = stack[-1] if stack else -1
        stack.append(i)
    candidate[:] = found


def ops(c: Columns, launch: Int32, parent: Int32) -> Int32:
    """The cpu_op that issued each device event and runtime call; -1 where there is none.

    By ``External id`` where it names a cpu_op. Up to 2023 it repeated the correlation and named
    nothing: then the innermost cpu_op around the call on its thread.
    """
    cat = c["cat"]
    op = np.full(len(cat), -1, np.int32)
    calls = np.flatnonzero(_IS_CALL[cat])
    op[calls] = _named(c, calls)
    missing = calls[op[calls] < 0]
    cpu_ops = np.append(np.flatnonzero(cat == Cat.CPU_OP), -1)  # the last place takes "none"
    op[missing] = cpu_ops[nesting.nearest(parent, cpu_ops[:-1])[missing]]
    rows = np.flatnonzero(_IS_LINKED[cat])
    op[rows] = _named(c, rows)
    through = rows[(op[rows] < 0) & (launch[rows] >= 0)]
    op[through] = op[launch[through]]
    return op


def _named(c: Columns, rows: Int64) -> Int32:
    """The cpu_op whose External id a row carries."""
    found = np.full(len(rows), -1, np.int32)
    ids = c["external_id"]
    cpu_ops = np.flatnonzero((c["cat"] == Cat.CPU_OP) & (ids > 0))
    if not len(cpu_ops):
        return found
    order = np.argsort(ids[cpu_ops], kind="stable")
    sorted_ids = ids[cpu_ops][order]
    wanted = ids[rows]
    at = np.minimum(np.searchsorted(sorted_ids, wanted), len(order) - 1)
    good = (sorted_ids[at] == wanted) & (wanted != c["correlation"][rows])
    found[good] = cpu_ops[order[at[good]]]
    return found
