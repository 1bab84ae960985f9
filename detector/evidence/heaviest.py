"""The kernels and ops that most of the analyzed time goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.evidence import words
from detector.evidence.listing import Floats, around, each_once
from detector.evidence.rates import Rate, Rates
from detector.index_sets import among, distinct, groups
from detector.report.events import TopEvent
from detector.trace import NS_PER_US, Bool, Cat, Int64
from detector.window import AnalyzedTime

MOST: Final = 12
_LONGEST_SHAPES: Final = 90
_UNKNOWN: Final = Rate(0.0, 0.0)


def kernels(activity: Activity, analyzed: AnalyzedTime) -> tuple[TopEvent, ...]:
    """The kernels of the main device with the most time, and the shapes of the ops behind them."""
    trace, rows = activity.trace, activity.kernels
    rows = rows[_inside(trace.start[rows], analyzed)]
    ids = distinct(trace.name[rows])
    labels, same = each_once([words.kernel(trace.names[i]) for i in ids.tolist()])
    of_name = np.zeros(len(trace.names), np.int64)
    of_name[ids] = same
    issuer = trace.op[rows]
    dims = np.where(issuer >= 0, trace.dims[issuer], -1).astype(np.int64)
    time = trace.dur[rows].astype(np.float64)
    key, none = of_name[trace.name[rows]], np.zeros(len(rows))
    return _ranked(activity, labels, key, dims, time, none, Rates(activity).of_kernels, rows)


def ops(activity: Activity, analyzed: AnalyzedTime) -> tuple[TopEvent, ...]:
    """The ops with the most time, on the host and of what they issued to the device."""
    trace, rows = activity.trace, activity.of(Cat.CPU_OP)
    dur = trace.dur[rows].astype(np.float64)
    owner = around(trace, rows)
    inner = owner >= 0
    own = np.maximum(dur - np.bincount(owner[inner], dur[inner], len(rows)), 0)
    device = _issued(activity, rows)
    here = _inside(trace.start[rows], analyzed)
    key, dims = trace.name[rows][here].astype(np.int64), trace.dims[rows][here].astype(np.int64)
    (ids,), which = groups(key)
    labels = [words.plain(trace.names[i]) for i in ids.tolist()]
    rates = Rates(activity).of_ops
    return _ranked(activity, labels, which, dims, own[here], device[here], rates, rows[here])


def _inside(start: Int64, analyzed: AnalyzedTime) -> Bool:
    return np.asarray((start >= analyzed.start) & (start < analyzed.end), np.bool_)


def _issued(activity: Activity, rows: Int64) -> Floats:
    """For each op the time of the device work that it issued itself."""
    trace, work = activity.trace, activity.device_work
    issuer = trace.op[work].astype(np.int64)
    known = among(issuer, rows)
    at = np.searchsorted(rows, issuer[known])
    return np.asarray(np.bincount(at, trace.dur[work][known], len(rows)), np.float64)


def _ranked(
    activity: Activity,
    labels: Sequence[str],
    key: Int64,
    dims: Int64,
    own: Floats,
    device: Floats,
    rate: Callable[[Int64, Floats], Rate | None],
    rows: Int64,
) -> tuple[TopEvent, ...]:
    """The names with the most time of both kinds; ``key``, ``dims`` and ``rows`` of each event."""
    own_of = np.bincount(key, own, len(labels))
    device_of = np.bincount(key, device, len(labels))
    count = np.bincount(key, minlength=len(labels))
    order = np.argsort(-(own_of + device_of), kind="stable")[:MOST]
    found = []
    for k in order.tolist():
        mine = key == k
        if own_of[k] + device_of[k] > 0:
            shapes = _shapes(activity, dims[mine], (own + device)[mine])
            reached = rate(rows[mine], own[mine]) or _UNKNOWN
            us, gpu_us = int(own_of[k]) / NS_PER_US, int(device_of[k]) / NS_PER_US
            found.append(TopEvent(labels[k], int(count[k]), us, gpu_us, shapes, *astuple(reached)))
    return tuple(found)


def _shapes(activity: Activity, dims: Int64, time: Floats) -> str:
    """The inputs with the most time among these events, where shapes were recorded."""
    known = dims >= 0
    if not known.any():
        return ""
    (ids,), which = groups(dims[known])
    most = int(ids[np.argmax(np.bincount(which, time[known]))])
    return words.bounded(activity.trace.names[most], _LONGEST_SHAPES)
