"""Collectives: how many, how large, and how much of them nothing hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.features.measure import (
    Feature,
    Values,
    count_share,
    mean,
    rate,
    time_share,
)
from detector.features.sequence import combined, distance
from detector.intervals import Intervals
from detector.trace import Int64

SMALL_BYTES: Final = 1 << 20
ELEMENT_BYTES: Final = 4  # fp32, where the trace gives elements alone


def message_bytes(activity: Activity, rows: Int64) -> Values:
    """Size of each collective's message; -1 where the trace does not say."""
    trace = activity.trace
    elements = trace.msg_elems[rows]
    size = np.where(elements >= 0, elements * ELEMENT_BYTES, trace.bytes[rows])
    return size.astype(np.float64)


def sized(activity: Activity) -> Int64:
    """Collectives whose size is known."""
    rows = activity.comm_rows
    return rows[message_bytes(activity, rows) >= 0]


def small(activity: Activity) -> Int64:
    """Collectives under 1 MB."""
    rows = sized(activity)
    return rows[message_bytes(activity, rows) < SMALL_BYTES]


def repeated(activity: Activity) -> Int64:
    """Collectives like one since the last optimizer step: the same name, group and size."""
    trace, rows = activity.trace, sized(activity)
    steps = np.sort(trace.start[activity.host("optimizer_step")])
    if not len(steps) or not len(rows):
        return rows[:0]
    since = np.searchsorted(steps, trace.start[rows], side="right")
    _, size = np.unique(message_bytes(activity, rows), return_inverse=True)
    keys = combined(since, trace.name[rows], trace.group[rows], size)
    return rows[distance(keys) > 0]


def log2_message(activity: Activity, rows: Int64) -> Values:
    """log2 of the message's bytes, at least one."""
    return np.asarray(np.log2(np.maximum(message_bytes(activity, rows), 1.0)), np.float64)


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "collective": lambda activity: activity.comm_rows,
    "sized collective": sized,
    "small collective": small,
    "repeated collective": repeated,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "exposed comm": lambda activity: activity.exposed_comm,
}
WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {
    "log2(message bytes)": log2_message
}

FEATURES: Final = (
    Feature("comm", "share", "a collective runs", time_share("collective")),
    Feature(
        "comm_exposed", "share", "collectives that no compute hides", time_share("exposed comm")
    ),
    Feature("comm_rate", "log2 1/ms", "collectives for each ms", rate("collective")),
    Feature(
        "comm_bytes",
        "log2 bytes",
        "mean log size of collectives",
        mean("sized collective", "log2(message bytes)"),
    ),
    Feature(
        "comm_small",
        "share",
        "collectives under 1 MB",
        count_share("small collective", "sized collective"),
    ),
    Feature(
        "comm_repeated",
        "share",
        "collectives like one since the last optimizer step",
        count_share("repeated collective", "sized collective"),
    ),
    Feature(
        "unused_parameters",
        "share",
        "the reducer searches for unused parameters",
        time_share("host:unused_parameters"),
    ),
)
