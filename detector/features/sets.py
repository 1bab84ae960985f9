"""The named sets, weights and scales that formulas speak of.

"op:cat", "kernel:gemm", "copy:h2d", "call:alloc", "host:gc", "sync:scalar", "idle:loader" are the
kinds of ``vocabulary`` and ``activity``; "from:SET" and "during:SET" the device work that a set
issued; "ledger:CAUSE" the time of a cause; "saved:PATTERN" the time of a candidate's occurrences
and, as a scale, what it saves for each ns of it; every other name is a function of a theme module,
whose docstring says what is in the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from detector.activity import IDLE_CAUSES, Activity
from detector.features import device, host, ops, origin, transfers
from detector.features.measure import Values
from detector.intervals import Intervals
from detector.trace import Int64

FAMILIES: Final[dict[str, Callable[[Activity, str], Int64]]] = {
    "op": Activity.ops,
    "host": Activity.host,
    "call": Activity.calls,
    "kernel": Activity.kernels_of,
    "copy": Activity.copies_of,
    "sync": Activity.syncs_of,
}
ORIGINS: Final[dict[str, Callable[[Activity, Int64], Int64]]] = {
    "from": origin.issued_under,
    "during": origin.launched_during,
}
THEMES: Final = (device, transfers, host, ops, origin)

ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    name: rows for theme in THEMES for name, rows in theme.ROWS.items()
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    name: spans for theme in (device, transfers, host) for name, spans in theme.INTERVALS.items()
}
WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {
    name: weight for theme in (device, transfers) for name, weight in theme.WEIGHTS.items()
}
SCALES: Final[dict[str, Callable[[Activity], float]]] = device.SCALES


def rows(activity: Activity, name: str) -> Int64:
    """Rows of a named set, in time order. Raises KeyError for an unknown name."""
    if name in ROWS:
        return ROWS[name](activity)
    family, _, kind = name.partition(":")
    if family in ORIGINS:
        return ORIGINS[family](activity, rows(activity, kind))
    return FAMILIES[family](activity, kind)


def intervals(activity: Activity, name: str) -> Intervals:
    """A named interval set: one of its own, an idle cause, or the union of a set of rows."""
    if name in INTERVALS:
        return INTERVALS[name](activity)
    family, _, kind = name.partition(":")
    if family == "idle" and kind in IDLE_CAUSES:
        return activity.idle_while(kind)
    return activity.spans(rows(activity, name))
