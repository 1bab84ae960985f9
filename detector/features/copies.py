"""Copies: which way, how large, from what memory, beside what; and the waits they cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import SYNC_CAUSES, Activity
from detector.features.measure import (
    Count,
    Feature,
    Log1p,
    Ratio,
    Values,
    count_share,
    mean,
    time_share,
)
from detector.features.sequence import shifted
from detector.index_sets import groups
from detector.intervals import Intervals
from detector.trace import Int64

SMALL_BYTES: Final = 64 * 1024
TINY_BYTES: Final = 64
DIRECTIONS: Final = {"h2d": "host to device", "d2h": "device to host", "d2d": "device to device"}


def small_h2d(activity: Activity) -> Int64:
    """Host-to-device copies under 64 KB."""
    rows = activity.copies_of("h2d")
    size = activity.trace.bytes[rows]
    return rows[(size >= 0) & (size < SMALL_BYTES)]


def tiny_d2h(activity: Activity) -> Int64:
    """Device-to-host copies of at most 64 bytes: a scalar."""
    rows = activity.copies_of("d2h")
    size = activity.trace.bytes[rows]
    return rows[(size >= 0) & (size <= TINY_BYTES)]


def inline_h2d(activity: Activity) -> Int64:
    """Host-to-device copies on the stream that computes most."""
    trace, compute = activity.trace, activity.compute_rows
    rows = activity.copies_of("h2d")
    if not len(compute):
        return rows[:0]
    (streams,), which = groups(trace.stream[compute])
    busiest = streams[np.argmax(np.bincount(which, trace.dur[compute]))]
    found: Int64 = rows[trace.stream[rows] == busiest]
    return found


def bounced(activity: Activity) -> Int64:
    """Host-to-device copies right after one to the host: data that went there and back."""
    back = activity.copies_of("d2h")
    both = np.union1d(back, activity.copies_of("h2d"))
    to_host = np.isin(both, back, assume_unique=True)
    return both[~to_host & shifted(to_host, 1)]


def sized(direction: str) -> Callable[[Activity], Int64]:
    """Copies of a direction whose size is known."""

    def rows(activity: Activity) -> Int64:
        found = activity.copies_of(direction)
        return found[activity.trace.bytes[found] >= 0]

    return rows


def log2_bytes(activity: Activity, rows: Int64) -> Values:
    """log2 of the size, at least one byte."""
    return np.asarray(np.log2(np.maximum(activity.trace.bytes[rows], 1)), np.float64)


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "sync": lambda activity: activity.sync_rows,
    "pageable h2d": lambda activity: activity.pageable_h2d,
    "small h2d": small_h2d,
    "tiny d2h": tiny_d2h,
    "inline h2d": inline_h2d,
    "bounced": bounced,
    **{f"sized {way}": sized(way) for way in DIRECTIONS},
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "exposed copy": lambda activity: activity.exposed_copy,
}
WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {"log2(bytes)": log2_bytes}

FEATURES: Final = (
    Feature(
        "copy_exposed",
        "share",
        "copies that no kernel hides",
        time_share("exposed copy"),
        "device",
    ),
    *(
        Feature(f"{way}_time", "share", f"copies {words}", time_share(f"copy:{way}"), "device")
        for way, words in DIRECTIONS.items()
    ),
    *(
        Feature(
            f"{way}_rate",
            "log2",
            f"copies {words} for each piece of device work",
            Log1p(Ratio(Count(f"copy:{way}"), Count("device work"))),
            "device",
        )
        for way, words in DIRECTIONS.items()
    ),
    *(
        Feature(
            f"{way}_bytes",
            "log2 bytes",
            f"mean log size of copies {words}",
            mean(f"sized {way}", "log2(bytes)"),
            "device",
        )
        for way, words in DIRECTIONS.items()
    ),
    Feature(
        "h2d_small",
        "share",
        "host-to-device copies under 64 KB",
        count_share("small h2d", "copy:h2d"),
        "device",
    ),
    Feature(
        "h2d_small_rate",
        "log2",
        "host-to-device copies under 64 KB for each piece of device work",
        Log1p(Ratio(Count("small h2d"), Count("device work"))),
        "device",
    ),
    Feature(
        "h2d_pageable",
        "share",
        "host-to-device copies from pageable memory",
        count_share("pageable h2d", "copy:h2d"),
        "device",
    ),
    Feature(
        "h2d_pageable_time",
        "share",
        "time in host-to-device copies from pageable memory",
        time_share("pageable h2d"),
        "device",
    ),
    Feature(
        "h2d_inline",
        "share",
        "host-to-device copies on the compute stream",
        count_share("inline h2d", "copy:h2d"),
        "device",
    ),
    Feature(
        "d2h_tiny_rate",
        "log2",
        "read-backs of at most 64 bytes for each piece of device work",
        Log1p(Ratio(Count("tiny d2h"), Count("device work"))),
        "device",
    ),
    Feature(
        "bounced_rate",
        "log2",
        "copies to the device right after one to the host, for each piece of device work",
        Log1p(Ratio(Count("bounced"), Count("device work"))),
        "device",
    ),
    Feature("sync_share", "share", "the host is in synchronizing calls", time_share("sync")),
    *(
        Feature(
            f"sync_{cause}",
            "share",
            f"the host is in synchronizing calls of cause {cause}",
            time_share(f"sync:{cause}"),
        )
        for cause in SYNC_CAUSES
    ),
    Feature(
        "sync_rate",
        "log2",
        "synchronizing calls for each launch",
        Log1p(Ratio(Count("sync"), Count("launch"))),
        "device",
    ),
)
