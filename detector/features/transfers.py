"""Copies, the waits that they cause, and collectives: how large, and how much nothing hides."""

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
    needing,
    per,
    time_share,
)
from detector.features.sequence import distance, shifted
from detector.index_sets import groups
from detector.intervals import Intervals
from detector.trace import Int64

SMALL_COPY: Final = 64 * 1024  # bytes
TINY_COPY: Final = 64
SMALL_MESSAGE: Final = 1 << 20
ELEMENT_BYTES: Final = 4  # fp32, where the trace gives elements alone

# -- copies ----------------------------------------------------------------------------------------


def small_h2d(activity: Activity) -> Int64:
    """Host-to-device copies under 64 KB."""
    rows = activity.copies_of("h2d")
    size = activity.trace.bytes[rows]
    return rows[(size >= 0) & (size < SMALL_COPY)]


def tiny_d2h(activity: Activity) -> Int64:
    """Device-to-host copies of at most 64 bytes: a scalar."""
    rows = activity.copies_of("d2h")
    size = activity.trace.bytes[rows]
    return rows[(size >= 0) & (size <= TINY_COPY)]


def bounced(activity: Activity) -> Int64:
    """Host-to-device copies right after one to the host: data that went there and back."""
    back = activity.copies_of("d2h")
    both = np.union1d(back, activity.copies_of("h2d"))
    to_host = np.isin(both, back, assume_unique=True)
    return both[~to_host & shifted(to_host, 1)]


def sized_d2d(activity: Activity) -> Int64:
    """Copies on the device whose size is known."""
    rows = activity.copies_of("d2d")
    return rows[activity.trace.bytes[rows] >= 0]


def log2_bytes(activity: Activity, rows: Int64) -> Values:
    """log2 of the size, at least one byte."""
    return np.asarray(np.log2(np.maximum(activity.trace.bytes[rows], 1)), np.float64)


# -- collectives -----------------------------------------------------------------------------------


def message_bytes(activity: Activity, rows: Int64) -> Int64:
    """Size of each collective's message; -1 where the trace does not say."""
    trace = activity.trace
    elements = trace.msg_elems[rows]
    return np.where(elements >= 0, elements * ELEMENT_BYTES, trace.bytes[rows])


def sized_collectives(activity: Activity) -> Int64:
    """Collectives whose size is known."""
    rows = activity.comm_rows
    return rows[message_bytes(activity, rows) >= 0]


def small_collectives(activity: Activity) -> Int64:
    """Collectives under 1 MB."""
    rows = sized_collectives(activity)
    return rows[message_bytes(activity, rows) < SMALL_MESSAGE]


def repeated_collectives(activity: Activity) -> Int64:
    """Collectives like one since the last optimizer step: the same name, group and size."""
    trace, rows = activity.trace, sized_collectives(activity)
    steps = np.sort(trace.start[activity.host("optimizer_step")])
    if not len(steps) or not len(rows):
        return rows[:0]
    since = np.searchsorted(steps, trace.start[rows], side="right")
    alike = groups(since, trace.name[rows], trace.group[rows], message_bytes(activity, rows))[1]
    return rows[distance(alike) > 0]


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "sync": lambda activity: activity.sync_rows,
    "small h2d": small_h2d,
    "tiny d2h": tiny_d2h,
    "bounced": bounced,
    "sized d2d": sized_d2d,
    "collective": lambda activity: activity.comm_rows,
    "sized collective": sized_collectives,
    "small collective": small_collectives,
    "repeated collective": repeated_collectives,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "exposed copy": lambda activity: activity.exposed_copy,
    "exposed comm": lambda activity: activity.exposed_comm,
}
WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {"log2(bytes)": log2_bytes}

# -- features --------------------------------------------------------------------------------------

FEATURES: Final = (
    *needing(
        "device",
        Feature("copy_exposed", "copies that no kernel hides", time_share("exposed copy")),
        Feature("d2h_time", "copies device to host", time_share("copy:d2h")),
        Feature(
            "d2d_bytes",
            "mean log size of copies device to device",
            mean("sized d2d", "log2(bytes)"),
            "log2 bytes",
        ),
        Feature(
            "h2d_small", "host-to-device copies under 64 KB", count_share("small h2d", "copy:h2d")
        ),
        Feature(
            "d2h_tiny_rate",
            "read-backs of at most 64 bytes for each piece of device work",
            per("tiny d2h", "device work"),
            "log2",
        ),
        Feature("sync_rate", "synchronizing calls for each launch", per("sync", "launch"), "log2"),
    ),
    Feature("sync_share", "the host is in synchronizing calls", time_share("sync")),
    *(
        Feature(
            f"sync_{cause}",
            f"the host is in synchronizing calls of cause {cause}",
            time_share(f"sync:{cause}"),
        )
        for cause in ("scalar", "h2d")
    ),
    Feature("comm", "a collective runs", time_share("collective")),
    Feature("comm_exposed", "collectives that no compute hides", time_share("exposed comm")),
    Feature(
        "comm_repeated",
        "collectives like one since the last optimizer step",
        count_share("repeated collective", "sized collective"),
    ),
)
